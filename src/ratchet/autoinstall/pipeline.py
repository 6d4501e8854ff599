"""Autoinstall: from a source to a verified environment, in two stages, proof and audit.

1. goals         ten goals, checked in the pristine sandbox; three targets
2. construction  up to five attempts, each from the initial state, each knowing why the last one failed
   replay        the recipe alone, in a new sandbox: only this counts as success
   audit         the held-out goals, sabotage, three offline runs of the suite
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from ratchet.agent import failed_once, without_model
from ratchet.autoinstall.audit import (
    audit_tests,
    damages,
    resolved_packages,
    sabotage,
    weak_targets,
)
from ratchet.autoinstall.builders import Builders, needs_model, repairs_of
from ratchet.autoinstall.construct import construct
from ratchet.autoinstall.goal_setting import set_goals_of
from ratchet.autoinstall.goals import GoalSet
from ratchet.autoinstall.journal import Journal, open_journal
from ratchet.autoinstall.memory import lessons_of, remember
from ratchet.autoinstall.minimise import minimise
from ratchet.autoinstall.options import Options, Roles
from ratchet.autoinstall.verify import judge, judge_in, replay, start
from ratchet.autoinstall.workshop import Workshop
from ratchet.errors import SandboxError
from ratchet.policies.model.judge import ModelJudge
from ratchet.policies.rules.goals import propose_goals
from ratchet.policies.rules.planning import Lesson, rank_pythons
from ratchet.protocols import Policy, Sandbox
from ratchet.records import (
    Attempt,
    Audit,
    Base,
    Checkout,
    Environment,
    Goal,
    GoalKind,
    Install,
    Opinion,
    Reason,
    Recipe,
    RecipeStep,
    Survey,
    TestRun,
    Verdict,
    content_id,
)
from ratchet.sources import fetch
from ratchet.survey import survey as make_survey
from ratchet.trajectories import Header, TrajectoryLog

# What shortening a model's recipe may take: each try is a whole replay.
_MOST_TRIES = 8
_MINIMISE_S = 1800.0


def autoinstall(source: str, workshop: Workshop, options: Options | None = None) -> Install:
    """Turn `source` into a verified environment, or discard it with a reason. Both are values, and both are stored."""
    options = options or Options()
    workshop.events.emit("install.start", source=source)
    clock = Clock(workshop)
    with clock.stage("fetch"):
        checkout = fetch(source, workshop.store)
    known = workshop.store.latest("install", checkout.id, Install)
    if not options.fresh and known is not None and _can_be_used(known, workshop, options):
        install = replace(known, source=source, reused=True)
    else:
        with ExitStack() as held:
            cache = held.enter_context(workshop.store.cache(checkout.id))
            journal = Journal(None, workshop.store)
            if options.roles.models:
                key = options.key(checkout.id)
                journal = held.enter_context(open_journal(workshop.store, key, fresh=options.fresh))
            workshop = _with_judge(workshop, options)
            install = _Autoinstall(source, checkout, workshop, options, clock, cache, journal).run()
            record = workshop.store.put("install", install)
            if install.reason is not Reason.BUDGET_SPENT:
                journal.remove()
        if install.environment or known is None or not known.environment:
            workshop.store.link("install", checkout.id, record)
    workshop.events.emit("install.end", environment=install.environment, reason=install.reason, detail=install.detail)
    return install


def _can_be_used(known: Install, workshop: Workshop, options: Options) -> bool:
    """Whether an earlier install gave an environment that is still there, on the base that is asked for."""
    if known.environment not in workshop.store.ids("environment"):
        return False
    environment = workshop.store.get("environment", known.environment or "", Environment)
    asked_for = options.roles == Roles() or environment.generation == options.roles.generation
    return options.base in (None, environment.base.name) and asked_for and workshop.layers.exists(environment.layer)


def _with_judge(workshop: Workshop, options: Options) -> Workshop:
    if options.roles.judge is None:
        return workshop

    def on_opinion(goal: Goal, opinion: Opinion) -> None:
        workshop.events.emit("opinion", goal=goal.command, holds=opinion.holds, why=opinion.why, quote=opinion.quote)

    return replace(workshop, judge=ModelJudge(options.roles.judge), on_opinion=on_opinion)


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
class Proven:
    """What a replay proved: the recipe, the layer that it left, and the targets' verdicts there."""

    base: Base
    recipe: Recipe
    layer: str
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True)
class _Ended:
    """An attempt that is over, as the journal keeps it."""

    attempt: Attempt
    lesson: Lesson


@dataclass
class _Autoinstall:
    source: str
    checkout: Checkout
    workshop: Workshop
    options: Options
    clock: Clock
    cache: Path
    journal: Journal
    attempts: list[Attempt] = field(default_factory=list)
    memories_offered: list[str] = field(default_factory=list)
    trajectories: list[str] = field(default_factory=list)

    def run(self) -> Install:
        if not self.checkout.files:
            return self._discard(Reason.EMPTY_CHECKOUT, "the checkout holds no files")
        with self.clock.stage("survey"):
            self.survey = make_survey(self.checkout)
        unusable = _unusable(self.survey)
        if unusable is not None:
            return self._discard(*unusable)
        pythons = self._pythons()
        ranked = rank_pythons(self.survey, self.checkout, pythons)
        if not ranked:
            wanted = self.survey.first("requires-python")
            return self._discard(
                Reason.PYTHON_UNAVAILABLE, f"it requires Python {wanted}; there are bases for {', '.join(pythons)}"
            )
        with self.clock.stage("goals"):
            goals, looked = set_goals_of(
                self.workshop, self._base(ranked[0]), self.checkout, self.survey, self.options, self.journal
            )
        self.trajectories += filter(None, [looked])
        if not goals.targets:
            return self._discard(
                Reason.NO_DISCRIMINATING_GOALS, "every goal that runs tests passes before anything is installed", goals
            )
        proven = self.journal.load("proven", Proven) or self._construct_and_replay(goals, pythons)
        if proven is None:
            last = self.attempts[-1]
            return self._discard(last.reason or Reason.TARGETS_FAILED, last.detail, goals, last.verdicts)
        return self._verified(goals, proven)

    # ------------------------------------------------------------------ stage 2 and replay

    def _construct_and_replay(self, goals: GoalSet, pythons: tuple[str, ...]) -> Proven | None:
        began = self.journal.began
        builders = Builders(
            self.workshop, self.options, self.survey, self.checkout, goals.targets, pythons, began, self.attempts
        )
        self.memories_offered = builders.memories_offered
        for number in range(1, self.options.max_attempts + 1):
            ended = self.journal.load(f"attempt-{number}", _Ended)
            if ended is not None:
                builders.attempts.append(ended.attempt)
                builders.lessons.append(ended.lesson)
                continue
            plan = builders.next_plan()
            if plan is None:
                break
            with ExitStack() as held:
                base = self._base(plan.python)
                path = self.journal.trajectory(f"builder-{number}")
                log = held.enter_context(TrajectoryLog(path, self._header(number))) if path is not None else None
                builder = builders.make(plan, base, log)
                attempt, proven = self._attempt(number, goals, base, builder, log)
            if proven is not None:
                self.attempts.append(attempt)
                self.journal.save("proven", proven)
                return proven
            builders.learn(builder, plan, attempt)
            if attempt.reason is Reason.BUDGET_SPENT:
                break
            self.journal.save(f"attempt-{number}", _Ended(attempt, builders.lessons[-1]))
        return None

    def _attempt(
        self, number: int, goals: GoalSet, base: Base, builder: Policy, log: TrajectoryLog | None
    ) -> tuple[Attempt, Proven | None]:
        began = time.monotonic()
        limits = self.options.limits
        with self.clock.stage("construction", number):
            built = construct(self.workshop, builder, base, self.checkout, limits, self.options.agent, self.cache, log)
        for repair in repairs_of(builder):
            self.workshop.events.emit("repair", key=repair.key, note=repair.note)
        reason, detail = built.reason, built.detail
        verdicts: tuple[Verdict, ...] = ()
        proven: Proven | None = None
        if reason is None:
            with self.clock.stage("replay", number):
                reason, detail, verdicts, proven = self._replay(goals, base, built.recipe)
        if proven is not None and needs_model(builder):
            with self.clock.stage("minimise", number):
                proven = self._minimise(goals, proven, fixed=without_model(built.trajectory))
        if proven is not None and self.options.memory:
            names = self.survey.values("import-name")
            lessons = lessons_of(built.trajectory, proven.recipe, project=self._project, names=names)
            remember(self.workshop.store, lessons)
        trajectory = self.workshop.store.put("trajectory", built.trajectory)
        recipe = proven.recipe if proven is not None else built.recipe
        kept = _without_cases(verdicts)
        attempt = Attempt(number, base.name, reason, detail, recipe, kept, time.monotonic() - began, trajectory)
        self.workshop.events.emit("attempt", number=number, reason=reason, detail=detail)
        return attempt, proven

    def _replay(
        self, goals: GoalSet, base: Base, recipe: Recipe
    ) -> tuple[Reason | None, str, tuple[Verdict, ...], Proven | None]:
        replayed = replay(self.workshop, base, self.checkout, recipe, self.options.limits, self.cache)
        if replayed.network_failed:  # the world's fault or ours, and not the recipe's
            replayed = replay(self.workshop, base, self.checkout, recipe, self.options.limits, self.cache)
        if replayed.layer is None:
            return Reason.REPLAY_DIFFERS, replayed.detail, (), None
        layers = (*self.workshop.pristine_layers(base, self.checkout), replayed.layer)
        verdicts = tuple(judge(self.workshop, layers, goal, recipe, self.options.limits) for goal in goals.targets)
        failed = next((verdict for verdict in verdicts if not verdict.passed), None)
        if failed is None:
            return None, "", verdicts, Proven(base, recipe, replayed.layer, verdicts)
        self.workshop.layers.remove(replayed.layer)
        return Reason.REPLAY_DIFFERS, f"on fresh replay {failed.why}", verdicts, None

    def _minimise(self, goals: GoalSet, proven: Proven, fixed: tuple[RecipeStep, ...]) -> Proven:
        """A recipe without those steps of a model that did not matter, those that failed first of all."""
        known = [proven]
        steps = list(enumerate(proven.recipe.steps))

        def holds(recipe: Recipe) -> Proven | None:
            return known.pop() if known else self._replay(goals, proven.base, recipe)[3]

        smaller = minimise(
            proven.recipe,
            holds,
            release=lambda other: self.workshop.layers.remove(other.layer),
            idle=frozenset(number for number, step in steps if failed_once(step)),
            fixed=frozenset(number for number, step in steps if step in fixed),
            most_tries=_MOST_TRIES,
            seconds=_MINIMISE_S,
        )
        return smaller[1] if smaller is not None else proven

    def _header(self, number: int) -> Header:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return Header("builder", self.options.roles.builder.name, self.checkout.id, self._project, number, now)

    # ------------------------------------------------------------------ audit

    def _verified(self, goals: GoalSet, proven: Proven) -> Install:
        base, recipe, layer, verdicts = proven.base, proven.recipe, proven.layer, proven.verdicts
        layers = (*self.workshop.pristine_layers(base, self.checkout), layer)
        limits = self.options.limits

        def open_fork() -> Sandbox:
            sandbox = self.workshop.offline(layers, limits)
            started = start(sandbox, recipe)
            if started is not None and not started.ok:
                sandbox.close()
                raise SandboxError(f"the start script worked on replay and fails now: {started.output[-300:]}")
            return sandbox

        seconds = {verdict.goal: verdict.seconds for verdict in verdicts}
        with self.clock.stage("held-out"):
            held_out = tuple(judge(self.workshop, layers, goal, recipe, limits) for goal in goals.held_out)
        with self.clock.stage("sabotage"):
            sabotages = sabotage(
                open_fork,
                lambda sandbox, goal: judge_in(self.workshop, sandbox, goal, recipe.env),
                damages(self.survey, recipe),
                goals.targets,
                seconds,
            )
        suite = next(goal for goal in goals.targets if goal.kind is GoalKind.TESTS)
        first = next(verdict for verdict in verdicts if verdict.goal == suite.id).tests or TestRun()
        with self.clock.stage("flaky"):
            together = seconds[suite.id] < suite.timeout_s / 4
            run, flaky, need_network = audit_tests(
                first, lambda: judge(self.workshop, layers, suite, recipe, limits), together=together
            )
        weak = weak_targets(goals.targets, sabotages, goals.pristine)
        audit = Audit(_without_cases(held_out), sabotages, run, flaky, need_network, weak)
        with open_fork() as sandbox:
            python, debian = resolved_packages(sandbox, recipe.env)
        environment = Environment(
            id=content_id([base.id, self.checkout.id, recipe, goals.goals])[:32],
            name=self._project,
            base=base,
            checkout=self.checkout,
            recipe=recipe,
            layer=layer,
            goals=goals.goals,
            targets=tuple(goal.id for goal in goals.targets),
            verdicts=_without_cases(verdicts),
            audit=audit,
            python_packages=python,
            debian_packages=debian,
            generation=self.options.roles.generation,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=dict(self.clock.seconds),
            limits=limits,
            allowed_hosts=self.workshop.allowed_hosts,
        )
        self.workshop.store.put("environment", environment)
        if re.fullmatch(r"[A-Za-z0-9][\w.-]{0,99}", environment.name, re.ASCII):
            self.workshop.store.link("environment", environment.name, environment.id)
        return self._install(goals, verdicts, None, "", environment.id, audit)

    # ------------------------------------------------------------------ small things

    @property
    def _project(self) -> str:
        return self.survey.first("project-name") or self.checkout.name

    def _pythons(self) -> tuple[str, ...]:
        return self._base("").pythons if self.options.base else self.workshop.pythons()

    def _base(self, python: str) -> Base:
        return self.workshop.base_for(python, self.options.base)

    def _discard(
        self, reason: Reason, detail: str, goals: GoalSet | None = None, verdicts: tuple[Verdict, ...] = ()
    ) -> Install:
        return self._install(goals, verdicts, reason, detail, None, None)

    def _install(
        self,
        goals: GoalSet | None,
        verdicts: tuple[Verdict, ...],
        reason: Reason | None,
        detail: str,
        environment: str | None,
        audit: Audit | None,
    ) -> Install:
        return Install(
            source=self.source,
            checkout=self.checkout.id,
            environment=environment,
            reason=reason,
            detail=detail,
            attempts=tuple(self.attempts),
            goals=goals.goals if goals else (),
            pristine=goals.pristine if goals else (),
            targets=tuple(goal.id for goal in goals.targets) if goals else (),
            verdicts=_without_cases(verdicts),
            audit=audit,
            replayed=environment is not None,
            seconds=dict(self.clock.seconds),
            usage=self.options.meter.usage,
            goal_origins=goals.origins if goals else {},
            memories_offered=tuple(self.memories_offered),
            trajectories=tuple(self.trajectories),
        )


def _without_cases(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Verdicts as they are kept: a suite has tens of thousands of cases, and the audit keeps them once."""
    return tuple(replace(verdict, tests=None) for verdict in verdicts)


def _unusable(survey: Survey) -> tuple[Reason, str] | None:
    """Why nothing can come of a checkout, where the survey alone shows it."""
    python = any(survey.of(kind) for kind in ("project-name", "build-backend", "import-name", "module", "requirement"))
    if not python and not survey.of("test-count"):
        return Reason.UNSUPPORTED, "it holds no Python project: no manifest, no package, no tests"
    if not propose_goals(survey, Checkout("", "", "", "")):
        return Reason.NO_TESTS, "it holds no tests, so nothing could tell whether an environment works"
    return None
