"""What a repair is made from and what it is: a failure, a context, a change to the plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ratchet.policies.rules.plan import Plan
from ratchet.records import Checkout, LimitHit, Survey

Change = Callable[[Plan], Plan]


@dataclass(frozen=True)
class Failure:
    """A command of the builder that failed.

    `stage` is "apt", "environment", "resolve", "install", "build", "collect" or "test". `output` is what the command
    printed, perhaps cut in the middle; for the test stages it begins with the messages of the failing tests.
    """

    stage: str
    command: str
    output: str
    exit_status: int | None = 1
    limit: LimitHit | None = None


@dataclass(frozen=True)
class Repair:
    """A change to the plan, and why.

    `key` names the repair: one attempt applies it once. `alone` marks a change under everything else (another Python,
    another date): it is not applied together with others, for they may be needless after it.
    """

    key: str
    note: str
    change: Change
    alone: bool = False


class Lookup(Protocol):
    """Debian packages that hold something, best first. Names come from failing logs: anything may be asked."""

    def header(self, name: str) -> tuple[str, ...]:
        """For `#include <name>`."""
        ...

    def library(self, name: str) -> tuple[str, ...]:
        """For a library: the name after `-l` or a file name such as `libfoo.so.1`."""
        ...

    def pkg_config(self, name: str) -> tuple[str, ...]: ...

    def program(self, name: str) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Context:
    """What is known beside the failure. `pythons` are the versions that a base can be had for, such as "3.11"."""

    survey: Survey
    checkout: Checkout
    pythons: tuple[str, ...]
    lookup: Lookup
