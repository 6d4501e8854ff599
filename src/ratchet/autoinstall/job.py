"""One install under way: what all of its stages work with."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ratchet.autoinstall.journal import Journal
from ratchet.autoinstall.options import Options
from ratchet.autoinstall.workshop import Workshop
from ratchet.records import Base, Checkout, Survey
from ratchet.trajectories import Header, read


@dataclass
class Clock:
    """Seconds by stage, and the event that a stage begins."""

    workshop: Workshop
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str, attempt: int | None = None) -> Iterator[None]:
        self.workshop.events.emit("stage", name=name, attempt=attempt)
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.monotonic() - began, 2)


@dataclass(frozen=True)
class Job:
    """A checkout with its survey, how it is to be installed, and where. `cache` is its private download cache."""

    checkout: Checkout
    survey: Survey
    options: Options
    workshop: Workshop
    clock: Clock
    cache: Path
    journal: Journal

    @property
    def project(self) -> str:
        """Its name, for people."""
        return self.survey.first("project-name") or self.checkout.name

    def pythons(self) -> tuple[str, ...]:
        """The Python versions that it can have."""
        return self.base("").pythons if self.options.base else self.workshop.pythons()

    def base(self, python: str) -> Base:
        return self.workshop.base_for(python, self.options.base)

    def header(self, role: str, policy: str, attempt: int = 0) -> Header:
        """That of a trajectory that begins now."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return Header(role, policy, self.checkout.id, self.project, attempt, now)

    def count(self, name: str, stage: str) -> None:
        """Count what models took for a trajectory of an earlier run that is not played again."""
        path = self.journal.trajectory(name)
        if path is not None and path.exists():
            for exchange in read(path).calls:
                self.options.meter.add(stage, exchange.reply)
