"""Stage 1: ten goals, checked in the pristine sandbox, and three of them as targets."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ratchet.autoinstall.objections import objection
from ratchet.policies.model.judge import needs_judge
from ratchet.records import Goal, GoalKind, Verdict

GOALS = 10
TARGETS = 3
FLOOR = "rules"
"""Whose goals are the floor."""

# So many goals of one kind may a proposer have: ten ways to import a package prove little more than one.
_MOST_OF_A_KIND = 4

# What the third target may be: kinds whose description follows from the manifests. That a program knows `--help` is a
# guess, good enough for a held-out goal.
_THIRD = (GoalKind.SETUP, GoalKind.BUILD)


@dataclass(frozen=True)
class GoalSet:
    """The goals of one checkout. `pristine` has each goal's verdict in the pristine sandbox, in the same order;
    `origins` by goal id who proposed it; `rejected` the commands of proposals that were not taken, and why."""

    goals: tuple[Goal, ...]
    pristine: tuple[Verdict, ...]
    targets: tuple[Goal, ...]
    origins: Mapping[str, str] = field(default_factory=dict)
    rejected: tuple[tuple[str, str], ...] = ()

    @property
    def held_out(self) -> tuple[Goal, ...]:
        return tuple(goal for goal in self.goals if goal not in self.targets)


def choose_goals(
    proposed: Sequence[Goal],
    floor: Sequence[Goal],
    judge_pristine: Callable[[Goal], Verdict],
    seed: str,
    *,
    proposer: str = "",
    prose_allowed: bool = False,
) -> GoalSet:
    """Ten goals: the floor's targets, what `proposer` proposed, and the rest from the floor, in its order.

    A goal that passes in the pristine sandbox proves nothing: it is no proposal that is taken, of the floor it only
    fills up, and it is never a target. A proposal with the command of one of the floor's goals is that goal. Those
    that only prose describes are taken where `prose_allowed`: where there is a judge.

    The targets are the suite (the floor's first goal that runs tests), an import, and one more about setup or build,
    chosen by `seed`. They are the floor's wherever it has such goals: a proposal that can never hold would discard a
    good repository, and one that always holds would prove nothing. What was proposed is held out, and scored.
    """
    chosen = _Choice(judge_pristine, prose_allowed)
    by_command = {goal.command: goal for goal in floor}
    suite = next((goal for goal in floor if goal.kind is GoalKind.TESTS and not chosen.passes(goal)), None)
    anchors: tuple[Goal, ...] = ()
    if proposed:
        anchors = _choose_targets([goal for goal in floor if not chosen.passes(goal)], suite, seed)
        for goal in anchors:
            chosen.take(goal, FLOOR)
    for goal in proposed:
        if goal.command in by_command:
            chosen.propose(by_command[goal.command], f"{proposer} and {FLOOR}")
        else:
            chosen.propose(goal, proposer, objection(goal))
    for goal in floor:
        if chosen.full:
            break  # no more are judged than are needed
        if not chosen.passes(goal):
            chosen.take(goal, FLOOR)
    for goal in floor:
        chosen.take(goal, FLOOR)
    return chosen.goal_set(suite, seed, anchors)


class _Choice:
    """The goals that were taken so far."""

    def __init__(self, judge_pristine: Callable[[Goal], Verdict], prose_allowed: bool) -> None:
        self._judge_pristine = judge_pristine
        self._prose_allowed = prose_allowed
        self._verdicts: dict[Goal, Verdict] = {}
        self._origins: dict[Goal, str] = {}
        self._rejected: list[tuple[str, str]] = []

    @property
    def full(self) -> bool:
        return len(self._origins) >= GOALS

    def passes(self, goal: Goal) -> bool:
        """Whether a goal passes before anything is installed. Where all that a machine can check holds, it does,
        whatever a judge thinks of the prose."""
        if goal not in self._verdicts:
            self._verdicts[goal] = self._judge_pristine(goal)
        verdict = self._verdicts[goal]
        held = verdict.limit is None and verdict.exit_status == goal.expectation.exit_status
        return verdict.passed or (needs_judge(goal) and held)

    def take(self, goal: Goal, origin: str) -> None:
        if not self.full:
            self._origins.setdefault(goal, origin)

    def propose(self, goal: Goal, origin: str, why: str = "") -> None:
        """Take a goal unless there is something against it: `why`, or what shows here."""
        if self._origins.get(goal) != FLOOR:
            why = why or self._objection(goal)
        if why:
            self._rejected.append((goal.command, why))
        else:
            self._origins[goal] = origin

    def goal_set(self, suite: Goal | None, seed: str, anchors: tuple[Goal, ...]) -> GoalSet:
        goals = tuple(self._origins)
        telling = [goal for goal in goals if not self.passes(goal)]
        return GoalSet(
            goals=goals,
            pristine=tuple(self._verdicts[goal] for goal in goals),
            targets=anchors if len(anchors) == TARGETS else _choose_targets(telling, suite, seed),
            origins={goal.id: origin for goal, origin in self._origins.items()},
            rejected=tuple(self._rejected),
        )

    def _objection(self, goal: Goal) -> str:
        """What shows against a proposal; what costs nothing is asked first."""
        if self.full:
            return f"there are {GOALS} goals already"
        if goal.command in {known.command for known in self._origins}:
            return "its command is that of another goal"
        kinds = Counter(known.kind for known, origin in self._origins.items() if origin != FLOOR)
        if kinds[goal.kind] >= _MOST_OF_A_KIND:
            return f"{_MOST_OF_A_KIND} goals of the kind {goal.kind} were proposed already"
        if needs_judge(goal) and not self._prose_allowed:
            return "only prose describes its output, and there is no judge"
        return "it passes before anything is installed" if self.passes(goal) else ""


def _choose_targets(goals: Sequence[Goal], suite: Goal | None, seed: str) -> tuple[Goal, ...]:
    if suite is None or suite not in goals:
        return ()
    chosen = [suite]
    imports = next((goal for goal in goals if goal.kind is GoalKind.IMPORT), None)
    if imports is not None:
        chosen.append(imports)
    others = [goal for goal in goals if goal not in chosen and goal.kind in _THIRD]
    others = others or [goal for goal in goals if goal not in chosen]
    random.Random(seed).shuffle(others)  # noqa: S311 - a reproducible choice, no secret
    return tuple(chosen + others[: TARGETS - len(chosen)])
