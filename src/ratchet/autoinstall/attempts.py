"""Stage 2: attempts until one is proven by a fresh replay. Each starts from the initial state, and knows why the ones
before it failed."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from ratchet.agent import AgentLimits, without_model
from ratchet.autoinstall.builders import STAGE, Builders, needs_model, repairs_of
from ratchet.autoinstall.construct import construct
from ratchet.autoinstall.goals import GoalSet
from ratchet.autoinstall.job import Job
from ratchet.autoinstall.minimise import minimise
from ratchet.autoinstall.proof import prove
from ratchet.policies.rules.planning import Lesson
from ratchet.protocols import Policy
from ratchet.records import Attempt, Base, Reason, Recipe, RecipeStep, Verdict
from ratchet.trajectories import TrajectoryLog

# What shortening a model's recipe may take: each try is a whole replay.
_MOST_TRIES = 8
_MINIMISE_S = 1800.0


@dataclass(frozen=True)
class Proven:
    """What a replay proved: the recipe, the layer that it left, and the targets' verdicts there."""

    base: Base
    recipe: Recipe
    layer: str
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True)
class Tried:
    """All attempts, and what the last one proved, if it did. `memories` are those that were offered."""

    attempts: tuple[Attempt, ...]
    proven: Proven | None
    memories: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Ended:
    """A failed attempt, as the journal keeps it."""

    attempt: Attempt
    lesson: Lesson


def try_to_build(job: Job, goals: GoalSet, pythons: tuple[str, ...]) -> Tried:
    """Attempts until one is proven, nothing more can be tried, or a budget is spent."""
    known = job.journal.load("tried", Tried)
    if known is not None and known.proven is not None and job.workshop.layers.exists(known.proven.layer):
        for attempt in known.attempts:
            job.count(f"builder-{attempt.number}", STAGE)
        return known
    builders = Builders(job, goals.targets, pythons)
    for number in range(1, job.options.max_attempts + 1):
        ended = job.journal.load(f"attempt-{number}", _Ended)
        if ended is not None:
            builders.learned(ended.attempt, ended.lesson)
            job.count(f"builder-{number}", STAGE)
            continue
        plan = builders.next_plan()
        if plan is None:
            break
        with ExitStack() as held:
            base = job.base(plan.python)
            # The rules decide anew as quickly as a record of them is read.
            path = job.journal.trajectory(f"builder-{number}") if job.options.roles.builder.model is not None else None
            header = job.header("builder", job.options.roles.builder.name, number)
            log = held.enter_context(TrajectoryLog(path, header)) if path is not None else None
            builder = builders.make(plan, base, log)
            attempt, proven = _Attempt(job, goals, base, builders.limits(), number).run(builder, log)
        if proven is not None:
            tried = Tried((*builders.attempts, attempt), proven, tuple(builders.memories_offered))
            job.journal.save("tried", tried)
            return tried
        builders.learn(builder, plan, attempt)
        if attempt.reason is Reason.BUDGET_SPENT:
            break
        job.journal.save(f"attempt-{number}", _Ended(attempt, builders.lessons[-1]))
    return Tried(tuple(builders.attempts), None, tuple(builders.memories_offered))


@dataclass
class _Attempt:
    job: Job
    goals: GoalSet
    base: Base
    agent: AgentLimits
    number: int
    reason: Reason | None = None
    detail: str = ""
    verdicts: tuple[Verdict, ...] = field(default_factory=tuple)

    def run(self, builder: Policy, log: TrajectoryLog | None) -> tuple[Attempt, Proven | None]:
        job, number, began = self.job, self.number, time.monotonic()
        options, workshop = job.options, job.workshop
        with job.clock.stage("construction", number):
            built = construct(workshop, builder, self.base, job.checkout, options.limits, self.agent, job.cache, log)
        for repair in repairs_of(builder):
            workshop.events.emit("repair", key=repair.key, note=repair.note)
        self.reason, self.detail = built.reason, built.detail
        proven: Proven | None = None
        if self.reason is None:
            with job.clock.stage("replay", number):
                proven = self._replay(built.recipe)
        if proven is not None and needs_model(builder):
            with job.clock.stage("minimise", number):
                proven = self._minimise(proven, fixed=without_model(built.trajectory))
        attempt = Attempt(
            number,
            self.base.name,
            self.reason,
            self.detail,
            proven.recipe if proven is not None else built.recipe,
            without_cases(self.verdicts),
            time.monotonic() - began,
            workshop.store.put("trajectory", built.trajectory),
        )
        workshop.events.emit("attempt", number=number, reason=self.reason, detail=self.detail)
        return attempt, proven

    def _replay(self, recipe: Recipe) -> Proven | None:
        """What a fresh replay proves; else `reason`, `detail` and `verdicts` say why nothing."""
        job = self.job
        limits, targets = job.options.limits, self.goals.targets
        replayed = prove(job.workshop, self.base, job.checkout, job.survey, recipe, targets, limits, job.cache)
        if replayed.layer is None:
            self.reason, self.detail = replayed.reason, replayed.detail
            self.verdicts = replayed.verdicts or self.verdicts
            return None
        self.verdicts = replayed.verdicts
        return Proven(self.base, recipe, replayed.layer, replayed.verdicts)

    def _minimise(self, proven: Proven, fixed: tuple[RecipeStep, ...]) -> Proven:
        """A recipe without those steps of a model that did not matter, those that failed first of all."""
        known = [proven]
        steps = list(enumerate(proven.recipe.steps))

        def holds(recipe: Recipe) -> Proven | None:
            return known.pop() if known else self._replay(recipe)

        smaller = minimise(
            proven.recipe,
            holds,
            release=lambda other: self.job.workshop.layers.remove(other.layer),
            idle=frozenset(number for number, step in steps if step.may_fail),
            fixed=frozenset(number for number, step in steps if step in fixed),
            most_tries=_MOST_TRIES,
            seconds=_MINIMISE_S,
        )
        proven = smaller[1] if smaller is not None else proven
        self.reason, self.detail, self.verdicts = None, "", proven.verdicts
        return proven


def without_cases(verdicts: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """Verdicts as they are kept: a suite has tens of thousands of cases, and the audit keeps them once."""
    return tuple(replace(verdict, tests=None) for verdict in verdicts)
