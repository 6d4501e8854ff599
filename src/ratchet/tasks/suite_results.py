"""Reading what a supervised run left (see `resources/supervisor.py`): results per test, and signs of tampering."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ratchet.records import Outcome, TestCase, TestRun
from ratchet.tasks.canaries import Canaries

_SEVERITY = (Outcome.PASSED, Outcome.SKIPPED, Outcome.FAILED, Outcome.ERROR)  # the worst last
_PHASES = {"setup", "call", "teardown"}
_MOST_SIGNS = 20
_FINISHED = (0, 1, 5)  # pytest's: all passed, some failed, none ran


@dataclass
class _Test:
    """What came of one test so far. It has finished once its teardown was reported, or something that is no phase."""

    outcome: Outcome = Outcome.PASSED
    message: str = ""
    seconds: float = 0.0
    finished: int = 0

    def add(self, outcome: Outcome, message: str, seconds: float) -> None:
        self.seconds += seconds
        if _SEVERITY.index(outcome) > _SEVERITY.index(self.outcome):
            self.outcome, self.message = outcome, message


@dataclass
class Results:
    """Filled by `read_results`."""

    canaries: Canaries | None
    started: bool = False
    session: bool = False
    status: int | None = None
    reported: int = 0
    claimed: int | None = None
    refused: int = 0
    full: bool = False
    unreadable: int = 0
    hooks: tuple[str, ...] = ()
    added_hooks: tuple[str, ...] = ()
    replaced: list[str] = field(default_factory=list)
    collected: list[str] = field(default_factory=list)
    lines: dict[str, dict[int, str]] = field(default_factory=dict)
    _tests: dict[str, _Test] = field(default_factory=dict)
    _again: Counter[str] = field(default_factory=Counter)

    @property
    def tests(self) -> TestRun:
        """The tests that finished, in the order in which they ran; canaries are none."""
        return TestRun(
            tuple(
                TestCase(name, test.outcome, test.message, test.seconds)
                for name, test in self._tests.items()
                if test.finished and not self._is_canary(name)
            )
        )

    def tampered(self, *, crashed: bool) -> tuple[str, ...]:
        """Signs of tampering. `crashed`: the run was ended by a limit or a signal, so that its end may be missing."""
        return tuple(dict.fromkeys(self._signs(crashed=crashed)))[:_MOST_SIGNS]

    def _signs(self, *, crashed: bool) -> Iterator[str]:
        if self.session and self.status is None and not crashed:
            yield "the run ended without saying so: the process was left from within"
        yield from self._canary_signs()
        for name in self.replaced:
            yield f"{name} was replaced during the run"
        for name in self.added_hooks:
            yield f"a plugin was added after the tests were collected: {name}"
        if self.refused:
            yield f"another process tried to report results ({self.refused} messages)"
        if self.full:
            yield "there were more results than a suite can have"
        if self.unreadable:
            yield f"{self.unreadable} results cannot be read"
        if self.claimed is not None and self.claimed != self.reported:
            yield f"{self.claimed} results were reported and {self.reported} came"
        wanted = Counter(self.collected)
        for name, test in self._tests.items():
            if name.endswith("::collection"):
                continue
            if name not in wanted:
                yield f"there are results of {name}, which was not collected"
            elif test.finished > wanted[name] + self._again[name]:
                yield f"results of {name} came {test.finished} times"

    def _canary_signs(self) -> Iterator[str]:
        expected: Mapping[str, Outcome] = self.canaries.expected if self.canaries is not None else {}
        for name, outcome in expected.items():
            test = self._tests.get(f"{self.canaries.path}::{name}" if self.canaries else name)
            if test is not None and test.finished and test.outcome is not outcome:
                yield f"a canary that has to be {outcome} was {test.outcome}"
            elif self.status in _FINISHED and (test is None or not test.finished):
                yield f"a canary that has to be {outcome} did not run"

    def _is_canary(self, name: str) -> bool:
        return self.canaries is not None and name.partition("::")[0] == self.canaries.path

    # ------------------------------------------------------------------ messages

    def take_own(self, message: Mapping[str, Any]) -> None:
        self.started = self.started or bool(message.get("started"))
        self.refused = int(message.get("refused", self.refused))
        self.full = bool(message.get("full", self.full))

    def take(self, message: Mapping[str, Any]) -> None:
        """One message of the plugin. Raises ValueError, TypeError or KeyError where it is not of the form."""
        kind = message["t"]
        if kind == "session":
            self.session = True
        elif kind == "collected":
            self.collected += _strings(message["ids"])
        elif kind == "collection":
            failed = Outcome.ERROR if message["outcome"] == "failed" else Outcome.SKIPPED
            self._add(f"{message['path']}::collection", failed, str(message["message"]), 0.0, finishes=True)
        elif kind == "result":
            self._take_result(message)
        elif kind == "replaced":
            self.replaced += _strings(message["names"])
        elif kind == "hooks":
            self.hooks, self.added_hooks = tuple(_strings(message["now"])), tuple(_strings(message["added"]))
        elif kind == "lines":
            lines = self.lines.setdefault(str(message["path"]), {})
            lines.update((int(line), str(tests)) for line, tests in message["lines"])
        elif kind == "end":
            self.status, self.claimed = int(message["status"]), int(message["results"])

    def _take_result(self, message: Mapping[str, Any]) -> None:
        name, when, outcome = str(message["id"]), message["when"], message["outcome"]
        self.reported += 1
        if outcome == "rerun":  # by a plugin that tries again what failed: what counts is to come
            self._tests.pop(name, None)
            self._again[name] += 1  # its teardown may still be reported
            return
        if outcome == "failed":
            found = Outcome.FAILED if when not in _PHASES or when == "call" else Outcome.ERROR
        else:
            found = Outcome(outcome)
        if message["part"]:  # of a test with subtests: its own result comes as well
            if found is Outcome.FAILED:
                self._add(name, found, str(message["message"]), 0.0, finishes=False)
            return
        finishes = when == "teardown" or when not in _PHASES
        self._add(name, found, str(message["message"]), float(message["seconds"]), finishes=finishes)

    def _add(self, name: str, outcome: Outcome, message: str, seconds: float, *, finishes: bool) -> None:
        test = self._tests.setdefault(name, _Test())
        test.add(outcome, message, seconds)
        test.finished += finishes


def read_results(recorded: bytes, canaries: Canaries | None) -> Results:
    """Lines that are no message are counted; the last one may have been cut off."""
    results = Results(canaries)
    *lines, _ = recorded.split(b"\n")
    for line in lines:
        try:
            message = json.loads(line[2:])
            if line.startswith(b"S "):
                results.take_own(message)
            else:
                results.take(message)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            results.unreadable += 1
    return results


def _strings(values: Sequence[object]) -> list[str]:
    return [str(value) for value in values]
