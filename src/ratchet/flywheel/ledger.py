"""What of a turn is done: each stage's result is one record, written once the stage is over.

A stage that was interrupted is done again. What it had done already is found where it is kept anyway: environments,
tasks, lessons and tries in the store, checkpoints of training in the turn's folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ratchet.records import from_json, to_json
from ratchet.store import Store

KIND = "turn-stage"

Result = TypeVar("Result")


@dataclass(frozen=True)
class Entry:
    """One stage that is done. `result` is its record as JSON data."""

    turn: str
    stage: str
    seconds: float
    result: Any


class Ledger:
    """The stages of one turn."""

    def __init__(self, store: Store, turn: str) -> None:
        self._store = store
        self._turn = turn
        self.folder: Path = store.home / "runs" / "turns" / turn
        """For what is no record: checkpoints under way, and their metrics."""
        self.seconds: dict[str, float] = {}

    def stage(self, name: str, kind: type[Result], do: Callable[[], Result]) -> Result:
        """What `do` gives; or gave, where this stage is done."""
        record = f"{self._turn}.{name}"
        if self.is_done(name):
            entry = self._store.get(KIND, record, Entry)
            self.seconds[name] = entry.seconds
            return from_json(entry.result, kind)
        began = time.monotonic()
        result = do()
        self.seconds[name] = round(time.monotonic() - began, 2)
        self._store.put(KIND, Entry(self._turn, name, self.seconds[name], to_json(result)), id=record)
        return result

    def is_done(self, name: str) -> bool:
        return self._store.record_file(KIND, f"{self._turn}.{name}").is_file()
