"""Stage 1: ten goals, checked in the pristine sandbox, and three of them as targets."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ratchet.records import Goal, GoalKind, Verdict

GOALS = 10
TARGETS = 3

# What the third target may be: kinds whose description follows from the manifests. That a program knows `--help` is a
# guess, good enough for a held-out goal.
_THIRD = (GoalKind.SETUP, GoalKind.BUILD)


@dataclass(frozen=True)
class GoalSet:
    """The goals of one checkout. `pristine` has each goal's verdict in the pristine sandbox, in the same order."""

    goals: tuple[Goal, ...]
    pristine: tuple[Verdict, ...]
    targets: tuple[Goal, ...]

    @property
    def held_out(self) -> tuple[Goal, ...]:
        return tuple(goal for goal in self.goals if goal not in self.targets)


def set_goals(candidates: Sequence[Goal], judge_pristine: Callable[[Goal], Verdict], seed: str) -> GoalSet:
    """Keep the first ten candidates that discriminate, filled up with others where there are fewer.

    A goal that passes in the pristine sandbox proves nothing and is never a target. The targets are the suite (the
    first goal that runs tests), an import, and one more about setup or build, chosen by `seed`.
    """
    judged = [(goal, judge_pristine(goal)) for goal in candidates]
    telling = [pair for pair in judged if not pair[1].passed]
    silent = [pair for pair in judged if pair[1].passed]
    kept = (telling + silent)[:GOALS]
    goals = tuple(goal for goal, _ in kept)
    pristine = tuple(verdict for _, verdict in kept)
    discriminating = tuple(goal for goal, verdict in kept if not verdict.passed)
    return GoalSet(goals, pristine, _choose_targets(discriminating, seed))


def _choose_targets(goals: Sequence[Goal], seed: str) -> tuple[Goal, ...]:
    suite = next((goal for goal in goals if goal.kind is GoalKind.TESTS), None)
    if suite is None:
        return ()
    chosen = [suite]
    imports = next((goal for goal in goals if goal.kind is GoalKind.IMPORT), None)
    if imports is not None:
        chosen.append(imports)
    others = [goal for goal in goals if goal not in chosen and goal.kind in _THIRD]
    others = others or [goal for goal in goals if goal not in chosen]
    random.Random(seed).shuffle(others)  # noqa: S311 - a reproducible choice, no secret
    return tuple(chosen + others[: TARGETS - len(chosen)])
