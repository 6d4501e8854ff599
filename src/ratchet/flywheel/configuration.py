"""What a turn is made of: a TOML file.

name = "first"
base_model = "smollm2-135m-instruct"
[sources]
train = ["pypi:iniconfig"]
held_out = ["pypi:pluggy"]
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ratchet.errors import UsageError
from ratchet.problems import TryLimits
from ratchet.records import content_id
from ratchet.task_records import TaskKind
from ratchet.train.config import Reinforce, WarmStart, check, from_table, typed

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")


@dataclass(frozen=True)
class Tasks:
    """Which tasks are made: `each` of every kind, in every environment."""

    kinds: tuple[str, ...] = ("bug",)
    each: int = 2
    seed: int = 0


@dataclass(frozen=True)
class Lessons:
    """The warm start's data: in how many ways generation 0's solution of each problem is played."""

    each: int = 2


@dataclass(frozen=True)
class Trial:
    """The evaluation: `samples` tries at each held-out problem, at `temperature` (0: greedy). `also` names what else is
    evaluated beside the candidate and its parent: "base", "warm-start"."""

    samples: int = 1
    temperature: float = 0.0
    also: tuple[str, ...] = ("base", "warm-start")


@dataclass(frozen=True)
class TurnConfig:
    """`parent` names a generation; empty: the one that is promoted now. `jobs` problems are tried at once."""

    name: str
    base_model: str
    train: tuple[str, ...]
    held_out: tuple[str, ...]
    parent: str = ""
    seed: int = 0
    jobs: int = 2
    install: bool = True
    tasks: Tasks = Tasks()
    lessons: Lessons = Lessons()
    trying: TryLimits = TryLimits()
    trial: Trial = Trial()
    warm_start: WarmStart = field(default_factory=WarmStart)
    reinforce: Reinforce = field(default_factory=Reinforce)
    text: str = ""

    @property
    def id(self) -> str:
        """The same words make the same turn: it goes on where it was."""
        return content_id(self.text)[:32]


_TABLES = ("sources", "tasks", "lessons", "trying", "trial", "warm_start", "reinforce")
_PLAIN = {"name": str, "base_model": str, "parent": str, "seed": int, "jobs": int, "install": bool}


def parse(text: str, where: str) -> TurnConfig:
    """Raises UsageError, which says what is wrong in `where`."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where} is no TOML: {error}", remedy="correct that line") from None
    known = {*_PLAIN, *_TABLES}
    if unknown := sorted(table.keys() - known):
        raise UsageError(f"{where}: there is no {unknown[0]}", remedy="use " + ", ".join(sorted(known)))
    for name in _TABLES:
        if not isinstance(table.get(name, {}), dict):
            raise UsageError(f"{where}: {name} has to be a table", remedy=f"write [{name}]")
    plain = {name: typed(table[name], kind, f"{where}, {name}") for name, kind in _PLAIN.items() if name in table}
    for name in ("name", "base_model"):
        if not plain.get(name):
            raise UsageError(f"{where}: {name} is missing", remedy="a turn needs name, base_model and [sources]")
    if not _NAME.fullmatch(plain["name"]):
        raise UsageError(f"{where}: {plain['name']!r} is no name", remedy="use letters, digits, . _ -")
    sources = table.get("sources", {})
    config = TurnConfig(
        train=_sources(sources, "train", where),
        held_out=_sources(sources, "held_out", where),
        tasks=from_table(Tasks, table.get("tasks", {}), f"{where}, [tasks]"),
        lessons=from_table(Lessons, table.get("lessons", {}), f"{where}, [lessons]"),
        trying=from_table(TryLimits, table.get("trying", {}), f"{where}, [trying]"),
        trial=from_table(Trial, table.get("trial", {}), f"{where}, [trial]"),
        warm_start=from_table(WarmStart, table.get("warm_start", {}), f"{where}, [warm_start]"),
        reinforce=from_table(Reinforce, table.get("reinforce", {}), f"{where}, [reinforce]"),
        text=text,
        **plain,
    )
    _check(config, where)
    return config


def _check(config: TurnConfig, where: str) -> None:
    check(config.warm_start, f"{where}, [warm_start]")
    check(config.reinforce, f"{where}, [reinforce]")
    if both := sorted(set(config.train) & set(config.held_out)):
        raise UsageError(
            f"{where}: {both[0]} is in both train and held_out", remedy="a repository that is trained on proves nothing"
        )
    for kind in config.tasks.kinds:
        if kind not in list(TaskKind):
            raise UsageError(f"{where}: there is no kind of task {kind}", remedy="use " + ", ".join(TaskKind))
    if unknown := set(config.trial.also) - {"base", "warm-start"}:
        raise UsageError(f"{where}, [trial]: also knows no {min(unknown)}", remedy="use base, warm-start")
    if not (config.install or config.tasks.each):
        raise UsageError(
            f"{where}: there is nothing to learn", remedy="set install = true, or [tasks] each = 1 or more"
        )


def _sources(table: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    found = table.get(name)
    if not isinstance(found, list) or not found or not all(isinstance(each, str) and each for each in found):
        raise UsageError(
            f"{where}, [sources]: {name} has to be a list of sources", remedy=f'write {name} = ["pypi:attrs", "DIR"]'
        )
    return tuple(dict.fromkeys(found))
