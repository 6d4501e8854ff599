"""Removing directory trees without making the caller wait: renamed at once, deleted by `rm` in the background."""

from __future__ import annotations

import secrets
import subprocess
import threading
from pathlib import Path


class Trash:
    """Trees on their way out. They must lie on the file system of `directory`.

    `rm` and not `shutil.rmtree`: a hostile tree may be deeper than Python's stack and than a path may be long.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._removals: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    def discard(self, tree: Path) -> None:
        """Returns as soon as the tree is out of its place. A tree that is not there is no error."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        doomed = self._directory / secrets.token_hex(8)
        try:
            tree.rename(doomed)
        except FileNotFoundError:
            return
        self._remove([doomed])

    def empty(self) -> None:
        """Start to remove what an earlier process did not get to."""
        if self._directory.is_dir():
            self._remove(list(self._directory.iterdir()))

    def wait(self) -> None:
        """Until everything that this process discarded is gone."""
        with self._lock:
            removals, self._removals = self._removals, []
        for removal in removals:
            removal.wait()

    def _remove(self, doomed: list[Path]) -> None:
        if not doomed:
            return
        command = ["rm", "-rf", "--one-file-system", "--", *map(str, doomed)]
        removal = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not for it
        )
        with self._lock:
            self._removals = [other for other in self._removals if other.poll() is None]
            self._removals.append(removal)
