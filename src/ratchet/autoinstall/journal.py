"""What an install under way has got to, so that it goes on there after a crash: `runs/ID/` in the store's home.

    began.json            when it began: plans depend on the date
    goals.json            stage 1, once it is done
    attempt-N.json        attempts that are over
    memories-N.json       what the model of an attempt was offered of what worked elsewhere
    goals.jsonl, builder-N.jsonl   trajectories, written as they happen

An install that ends, verified or discarded, leaves its records in the store and no journal; one that a spent budget
stopped leaves it. Only one process has a journal open at a time; a second install of the same kind gets one of its own.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from ratchet.records import from_json, to_json
from ratchet.scratch import TakenError, locked
from ratchet.store import Store

Record = TypeVar("Record")


@dataclass(frozen=True)
class Journal:
    """`directory` None keeps nothing: an install that no model takes part in starts over as quickly."""

    directory: Path | None
    store: Store

    @property
    def began(self) -> datetime:
        """When the install began first."""
        now = datetime.now(UTC)
        kept = self.load("began", str)
        if kept is None:
            self.save("began", now.isoformat())
            return now
        return datetime.fromisoformat(kept)

    def load(self, name: str, kind: type[Record]) -> Record | None:
        path = self._path(f"{name}.json")
        if path is None or not path.is_file():
            return None
        return from_json(json.loads(path.read_bytes()), kind)

    def save(self, name: str, record: object) -> None:
        path = self._path(f"{name}.json")
        if path is not None:
            self.store.scratch.write_file(path, json.dumps(to_json(record)).encode())

    def trajectory(self, name: str) -> Path | None:
        """Where a trajectory is written while it happens."""
        return self._path(f"{name}.jsonl")

    def remove(self) -> None:
        """The install has ended."""
        if self.directory is not None:
            shutil.rmtree(self.directory)
            self.directory.with_name(self.directory.name + ".lock").unlink()

    def _path(self, name: str) -> Path | None:
        return self.directory / name if self.directory is not None else None


@contextmanager
def open_journal(store: Store, key: str, *, fresh: bool = False) -> Iterator[Journal]:
    """The journal of an install, `key` being the hash of what it is. `fresh` forgets what an earlier run left."""
    for number in itertools.count():
        directory = store.home / "runs" / (f"{key}-{number}" if number else key)
        with ExitStack() as held:
            try:
                held.enter_context(locked(directory.with_name(directory.name + ".lock"), fcntl.LOCK_EX | fcntl.LOCK_NB))
            except TakenError:
                continue
            if fresh:
                shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True, exist_ok=True)
            yield Journal(directory, store)
            return
