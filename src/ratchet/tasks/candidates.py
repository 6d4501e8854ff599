"""What a way of making tasks proposes, before the gate has looked at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ratchet.task_records import FileChange, TaskKind


class LineCoverage(Protocol):
    """What is known of the tests that ran each line of the project's sources (`tasks/coverage.py`)."""

    @property
    def paths(self) -> tuple[str, ...]: ...

    @property
    def passing(self) -> frozenset[str]: ...

    def tests_of(self, path: str, first_line: int, last_line: int) -> frozenset[str]: ...

    def covered_lines(self, path: str) -> frozenset[int]: ...


@dataclass(frozen=True)
class Definition:
    """A function, method, class, command-line option or module of the environment's sources.

    `name` is qualified ("Class.method"), `kind` one of these words, `signature` the text from `def` or `class` to the
    colon; lines count from 1, decorators included.
    """

    path: str
    name: str
    kind: str
    signature: str
    docstring: str
    first_line: int
    last_line: int


@dataclass(frozen=True)
class Candidate:
    """`changes` lead from the environment to where a policy would start, `about` are the definitions that they touch,
    `covering` the tests that ran the changed lines. `hidden` is as in `Task`."""

    kind: TaskKind
    language: str
    changes: tuple[FileChange, ...]
    about: tuple[Definition, ...] = ()
    covering: frozenset[str] = frozenset()
    origin: Mapping[str, str] = field(default_factory=dict)
    hidden: tuple[FileChange, ...] = ()
