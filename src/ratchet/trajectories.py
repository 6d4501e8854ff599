"""Trajectories as they happen: a file of JSON lines for each, from which a killed run goes on.

    {"header": {…}}                     who acts, on what, since when
    {"exchange": {…}}                   a model's answer, written as soon as it is there: it is never asked for twice
    {"step": {…}, "exchanges": 1}       a step that is done; the lines of exchange just above it are its own
    {"again": {…}}                      an exchange of the next step, whose answer stands above already
    {"back": 3}                         only the first three steps hold: the run took another course
    {"end": "submitted"}                why there are no more

Nothing is taken back from a file, so what models were paid for stays in it, whatever came of it.

Each line goes to the disk before the run goes on, so whatever ends the process loses at most the action it was doing.
The files lie in `runs/RUN/NAME.jsonl` below the store's home while an install is under way; afterwards the trajectory
is a record of the store. Lines are ASCII: outputs and file names may hold lone surrogates.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cattrs.errors import BaseValidationError, StructureHandlerNotFoundError

from ratchet.errors import StoreError, UsageError
from ratchet.records import Exchange, Step, Trajectory, from_json, to_json

_FORMAT = 1
_NO_RECORD = (BaseValidationError, StructureHandlerNotFoundError, ValueError, TypeError, KeyError, RecursionError)

# How long a writer waits for somebody who only looks whether the file is in use.
_LOCK_TRIES, _LOCK_PAUSE_S = 20, 0.05


@dataclass(frozen=True)
class Header:
    """Whose trajectory it is. `checkout` is an id, `project` a name for people; `attempt` counts from 1 where there are
    several; `started` is ISO 8601 in UTC."""

    role: str
    policy: str
    checkout: str = ""
    project: str = ""
    attempt: int = 0
    started: str = ""
    format: int = _FORMAT

    def same_work(self, other: Header) -> bool:
        """Whether both are the same work, begun at different times."""
        return replace(self, started="", project="") == replace(other, started="", project="")


@dataclass(frozen=True)
class Recorded:
    """What a file holds. `end` None: the run is under way, or was killed.

    `unfinished` are the answers that came after the last step, whose action may have been begun. `calls` are all calls
    of models in the order in which they were made, those too that belong to no step which holds; each begins with what
    it `kept` of the one before it. `problem` says what was left out at the end of a damaged file, and is empty
    otherwise. `good_bytes` is how far the file can be read.
    """

    header: Header
    steps: tuple[Step, ...] = ()
    end: str | None = None
    unfinished: tuple[Exchange, ...] = ()
    calls: tuple[Exchange, ...] = ()
    problem: str = ""
    good_bytes: int = 0

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The calls of models that led to the steps, in their order, those of the unfinished step too."""
        return (*(exchange for step in self.steps for exchange in step.action.exchanges), *self.unfinished)

    @property
    def trajectory(self) -> Trajectory:
        return Trajectory(self.steps, self.end or "interrupted", self.header.role, self.header.policy)


class TrajectoryLog:
    """Writes a trajectory to `path` as it happens, and goes on with the one that is there.

    `recorded` is what was there when it was opened. Raises UsageError when the file belongs to other work (another
    role, policy, checkout or attempt) or another process writes it, StoreError when its beginning is damaged. What
    follows a damaged line can not be used, and is cut off. A context manager: leaving it closes the file.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self.recorded = self._open(header)
        except BaseException:
            os.close(self._descriptor)
            raise
        self._ended = self.recorded.end is not None
        self._steps = len(self.recorded.steps)
        self._written = list(self.recorded.unfinished)
        self._known = {call.reply for call in self.recorded.calls}

    def exchange(self, exchange: Exchange) -> None:
        """Keep a model's answer. Call it before anything is done about it. In a finished log it begins the step after
        the last one: where a run goes on that had ended."""
        self._ended = False
        self._append({"exchange": to_json(exchange)})
        self._written.append(exchange)
        self._known.add(exchange.reply)

    def step(self, step: Step) -> None:
        """Keep a step that is done, with its exchanges where they were not written, or otherwise."""
        exchanges = step.action.exchanges
        there = not exchanges or tuple(self._written[-len(exchanges) :]) == exchanges
        fresh = [] if there else [("again" if e.reply in self._known else "exchange", e) for e in exchanges]
        data = to_json(replace(step, action=replace(step.action, exchanges=())))
        self._append(*({key: to_json(e)} for key, e in fresh), {"step": data, "exchanges": len(exchanges)})
        self._known.update(e.reply for _, e in fresh)
        self._written.clear()
        self._steps += 1

    def back_to(self, steps: int) -> None:
        """Keep only the first so many steps: the run took another course than the one recorded. No more than there are,
        and nothing is changed where there are just as many. Answers since the last step are those of the next one."""
        if steps < self._steps:
            self._ended = False
            self._append({"back": steps})
            self._steps = steps

    def finish(self, end: str) -> None:
        """There will be no more steps. A finished log stays as it is."""
        if not self._ended:
            self._append({"end": end})
            self._ended = True

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> TrajectoryLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, header: Header) -> Recorded:
        self._lock()
        if not _whole_lines(self.path):  # new, or its writer was killed inside the first line
            os.ftruncate(self._descriptor, 0)
            self._write([{"header": to_json(header)}])
            _sync_folder(self.path.parent)
            return Recorded(header, good_bytes=os.fstat(self._descriptor).st_size)
        recorded = read(self.path)
        if not recorded.header.same_work(header):
            raise UsageError(
                f"{self.path} is the trajectory of {_named(recorded.header)}, and not of {_named(header)}",
                remedy="give the same policies as before, or remove that file to begin again",
            )
        os.ftruncate(self._descriptor, recorded.good_bytes)
        return recorded

    def _lock(self) -> None:
        for _ in range(_LOCK_TRIES):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_LOCK_PAUSE_S)
            else:
                return
        raise UsageError(
            f"another process is writing {self.path}", remedy="wait until that install has ended, and try again"
        )

    def _append(self, *lines: Any) -> None:
        if self._ended:
            raise UsageError(f"the trajectory {self.path} is finished, and takes no more steps")
        self._write(lines)

    def _write(self, lines: Any) -> None:
        data = b"".join(json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n" for line in lines)
        written = os.write(self._descriptor, data)
        if written != len(data):
            raise StoreError(
                f"only {written} of {len(data)} bytes of a step could be written to {self.path}",
                remedy="the disk is probably full: free some space, for example with `ratchet gc`",
            )
        os.fsync(self._descriptor)


def read(path: Path) -> Recorded:
    """What a file holds, as far as it can be read: up to the first damaged line, or one that was being written.

    Raises FileNotFoundError, and StoreError when not even its header can be read.
    """
    with path.open("rb") as file:
        first = file.readline()
        header = _header(path, first)
        steps: list[Step] = []
        waiting: list[Exchange] = []
        calls: list[Exchange] = []
        end, problem, good_bytes = None, "", len(first)
        for number, line in enumerate(file, 2):
            try:
                if not line.endswith(b"\n"):
                    raise ValueError("it is not whole")
                entry = json.loads(line)
                end = None
                if "exchange" in entry:
                    calls.append(from_json(entry["exchange"], Exchange))
                    waiting.append(calls[-1])
                elif "again" in entry:
                    waiting.append(from_json(entry["again"], Exchange))
                elif "step" in entry:
                    steps.append(_step(entry, waiting))
                    waiting.clear()
                elif "back" in entry:
                    del steps[_count(entry["back"], len(steps)) :]
                else:
                    end = str(entry["end"])
            except _NO_RECORD as error:
                left = os.fstat(file.fileno()).st_size - good_bytes
                problem = f"line {number} is damaged ({type(error).__name__}): the last {left} bytes are left out"
                break
            good_bytes += len(line)
    return Recorded(header, tuple(steps), end, tuple(waiting), tuple(calls), problem, good_bytes)


def under_way(path: Path) -> bool:
    """Whether a process is writing the file now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def runs(home: Path) -> Iterator[tuple[str, Path]]:
    """The files of installs that are under way or were interrupted, the oldest first, each with its name: RUN/NAME."""
    aged = []
    for path in (home / "runs").glob("*/*.jsonl"):
        try:
            aged.append((path.stat().st_mtime_ns, f"{path.parent.name}/{path.stem}", path))
        except FileNotFoundError:  # that install has just ended
            continue
    for _, name, path in sorted(aged):
        yield name, path


def _header(path: Path, line: bytes) -> Header:
    try:
        header = from_json(json.loads(line)["header"], Header)
        if header.format != _FORMAT:
            raise ValueError(f"format {header.format}")
    except _NO_RECORD as error:
        raise StoreError(
            f"{path} does not begin as a trajectory does ({type(error).__name__})",
            remedy="remove that file; the install that wrote it begins again",
        ) from error
    return header


def _step(entry: Any, waiting: list[Exchange]) -> Step:
    step, count = from_json(entry["step"], Step), _count(entry["exchanges"], len(waiting))
    return replace(step, action=replace(step.action, exchanges=tuple(waiting[len(waiting) - count :])))


def _count(value: Any, most: int) -> int:
    """A number of things that have to be there."""
    if not 0 <= (count := int(value)) <= most:
        raise ValueError("more than there are")
    return count


def _whole_lines(path: Path) -> bool:
    with path.open("rb") as file:
        return file.readline().endswith(b"\n")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _named(header: Header) -> str:
    attempt = f", attempt {header.attempt}" if header.attempt else ""
    return f"{header.role} by {header.policy}{attempt} on {header.checkout[:12] or 'nothing'}"
