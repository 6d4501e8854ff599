"""How hard tasks are for a policy, measured by sampling; which of them it can learn from; and harder ones, made by
combining."""

from __future__ import annotations

import difflib
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ratchet.errors import UsageError
from ratchet.patches import lines_of
from ratchet.records import content_id
from ratchet.rewards.tests import solved
from ratchet.task_records import FailureKind, FileChange, Rollout, Task, TaskKind
from ratchet.tasks.candidates import Candidate, Definition
from ratchet.tasks.languages import language_of
from ratchet.tasks.syntax import definition_nodes, parse_source

_Z_95 = 1.959963984540054


@dataclass(frozen=True)
class Difficulty:
    """A policy solved a task in `solved` of `samples` rollouts. `low` and `high` bound the true rate with 95 %
    confidence (E. B. Wilson, Probable inference, 1927)."""

    solved: int
    samples: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        """0 where nothing was sampled."""
        return self.solved / self.samples if self.samples else 0.0


class Unfit(StrEnum):
    """Why a task was not selected."""

    TOO_FEW_SAMPLES = "too-few-samples"
    TOO_HARD = "too-hard"
    TOO_EASY = "too-easy"


@dataclass(frozen=True)
class Selection:
    """The tasks that were selected, in the order given; why not the others; and what was measured, by task id."""

    tasks: tuple[Task, ...]
    unfit: Mapping[str, Unfit]
    measured: Mapping[str, Difficulty]

    @property
    def counts(self) -> Mapping[str, int]:
        """How many tasks were left out, by reason."""
        return Counter(reason.value for reason in self.unfit.values())


def difficulty(task: Task, rollouts: Iterable[Rollout]) -> dict[str, Difficulty]:
    """By policy, of those that tried the task. Rollouts that failed by our infrastructure, or by the task itself, say
    nothing of a policy and are not counted; all other failures count as not solved."""
    tried: Counter[str] = Counter()
    did: Counter[str] = Counter()
    for rollout in rollouts:
        if rollout.task != task.id or rollout.failure in (FailureKind.INFRASTRUCTURE, FailureKind.TASK):
            continue
        tried[rollout.policy] += 1
        did[rollout.policy] += rollout.grade is not None and solved(rollout.grade, task)
    return {policy: measured(did[policy], tried[policy]) for policy in sorted(tried)}


def measured(hits: int, samples: int) -> Difficulty:
    """With Wilson's score interval; from 0 to 1 where nothing was sampled."""
    if not samples:
        return Difficulty(0, 0, 0.0, 1.0)
    rate, square = hits / samples, _Z_95**2
    scale = 1 + square / samples
    centre = (rate + square / (2 * samples)) / scale
    half = _Z_95 * math.sqrt(rate * (1 - rate) / samples + square / (4 * samples**2)) / scale
    low, high = centre - half, centre + half
    return Difficulty(hits, samples, max(0.0, low) if hits else 0.0, min(1.0, high) if hits < samples else 1.0)


def select(
    tasks: Sequence[Task],
    rollouts: Iterable[Rollout],
    policy: str,
    *,
    min_rate: float = 0.0,
    max_rate: float = 1.0,
    min_samples: int = 4,
) -> Selection:
    """The tasks that `policy` solves sometimes: in more than none and fewer than all of at least `min_samples`
    rollouts, and at a rate from `min_rate` to `max_rate`. Only from those a policy learns by comparing its own
    rollouts."""
    if not 0 <= min_rate <= max_rate <= 1:
        raise UsageError(f"no rate lies from {min_rate} to {max_rate}", remedy="give shares from 0 to 1, in order")
    if min_samples < 1:
        raise UsageError(f"{min_samples} samples measure nothing", remedy="give at least 1")
    by_task: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        if rollout.policy == policy:
            by_task.setdefault(rollout.task, []).append(rollout)
    found = {task.id: difficulty(task, by_task.get(task.id, ())).get(policy, measured(0, 0)) for task in tasks}
    reasons = {name: _unfit(what, min_rate, max_rate, min_samples) for name, what in found.items()}
    unfit = {name: reason for name, reason in reasons.items() if reason is not None}
    return Selection(tuple(task for task in tasks if task.id not in unfit), unfit, found)


def _unfit(what: Difficulty, min_rate: float, max_rate: float, min_samples: int) -> Unfit | None:
    if what.samples < min_samples:
        return Unfit.TOO_FEW_SAMPLES
    if not what.solved or what.rate < min_rate:
        return Unfit.TOO_HARD
    if what.solved == what.samples or what.rate > max_rate:
        return Unfit.TOO_EASY
    return None


# --------------------------------------------------------------------------- combining


def combine(tasks: Sequence[Task]) -> Candidate | None:
    """A harder bug: the faults of several bug tasks of one environment at once, for the gate to look at. None where
    they change the same or adjacent lines, so that they cannot be told apart.

    Raises UsageError where the tasks are no two different bugs of one environment and language.
    """
    _refuse_unlike(tasks)
    merged: dict[str, FileChange] = {}
    for task in tasks:
        for change in task.changes:
            known = merged.get(change.path)
            both = change if known is None else _merged(known, change)
            if both is None:
                return None
            merged[change.path] = both
    changes = tuple(merged[path] for path in sorted(merged))
    language = tasks[0].language
    about = tuple(d for change in changes for d in _definitions(change))
    covering = frozenset(test for task in tasks for test in task.fail_to_pass)
    origin = {"combined": " ".join(sorted(task.id for task in tasks))}
    return Candidate(TaskKind.BUG, language, changes, about, covering, origin)


def _refuse_unlike(tasks: Sequence[Task]) -> None:
    alike = len({(task.environment, task.language) for task in tasks}) == 1
    bugs = all(task.kind is TaskKind.BUG and not task.hidden for task in tasks)
    if len({content_id(task.changes) for task in tasks}) < max(2, len(tasks)) or not alike or not bugs:
        raise UsageError(
            "these tasks cannot be combined", remedy="name two or more different bug tasks of one environment"
        )


def _merged(one: FileChange, other: FileChange) -> FileChange | None:
    """Both changes of a file; None where they touch."""
    if one.before is None or other.before is None or one.after is None or other.after is None:
        return None
    if one.before != other.before or one.mode != other.mode:
        return None
    lines = lines_of(one.before)
    changes = sorted([*_line_changes(lines, one.after), *_line_changes(lines, other.after)], key=lambda c: c[:2])
    if any(end >= start for (_, end, _), (start, _, _) in itertools.pairwise(changes)):
        return None
    for start, end, new in reversed(changes):
        lines[start:end] = new
    return FileChange(one.path, one.before, "".join(lines), one.mode)


def _line_changes(lines: Sequence[str], after: str) -> list[tuple[int, int, list[str]]]:
    """From where to where (counted from 0, the end not included) what takes the place of the lines."""
    new = lines_of(after)
    matcher = difflib.SequenceMatcher(None, lines, new, autojunk=False)
    return [(i1, i2, new[j1:j2]) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal"]


def _definitions(change: FileChange) -> list[Definition]:
    """The innermost functions and classes of a file in which lines change."""
    before, language = change.before or "", language_of(change.path)
    source = parse_source(change.path, before, language) if language is not None else None
    if source is None:
        return []
    every = [definition for _, definition in definition_nodes(source)]
    found: dict[Definition, None] = {}
    for start, end, _ in _line_changes(lines_of(before), change.after or ""):
        around = [each for each in every if each.first_line <= start + 1 and end <= each.last_line]
        if around:
            found[max(around, key=lambda each: each.first_line)] = None
    return list(found)
