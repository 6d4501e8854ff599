"""Frozen uppers of sandboxes, shared by their forks, and gone with the last sandbox that stands on them."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

from ratchet.sandbox import claims
from ratchet.sandbox.claims import Claim
from ratchet.sandbox.trash import Trash


class Snapshots:
    """The snapshots of this process, in a directory of its own; those of dead processes are swept."""

    def __init__(self, directory: Path, trash: Trash) -> None:
        self._directory = directory
        self._trash = trash
        self._claims: dict[str, Claim] = {}
        self._holders: Counter[str] = Counter()
        self._lock = threading.Lock()

    def freeze(self, upper: Path) -> str:
        """Make a snapshot of a directory by renaming it. The caller holds it."""
        claimed = claims.claim(self._directory)
        upper.rename(claimed.path / "tree")
        with self._lock:
            self._claims[claimed.id] = claimed
            self._holders[claimed.id] = 1
        return claimed.id

    def path(self, snapshot: str) -> Path | None:
        """None where the id is no snapshot (then it is a layer)."""
        with self._lock:
            claimed = self._claims.get(snapshot)
        return claimed.path / "tree" if claimed else None

    def hold(self, snapshot: str) -> None:
        """One more sandbox stands on it. Ids of layers are ignored."""
        with self._lock:
            if snapshot in self._claims:
                self._holders[snapshot] += 1

    def release(self, snapshot: str) -> None:
        with self._lock:
            if snapshot not in self._claims:
                return
            self._holders[snapshot] -= 1
            if self._holders[snapshot]:
                return
            claimed = self._claims.pop(snapshot)
        self._trash.discard(claimed.path)
        claimed.close()

    def sweep(self) -> tuple[str, ...]:
        swept = []
        for dead in claims.claim_dead(self._directory):
            self._trash.discard(dead.path)
            dead.close()
            swept.append(f"snapshot {dead.id}")
        return tuple(swept)
