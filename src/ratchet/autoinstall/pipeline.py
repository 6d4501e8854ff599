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
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from ratchet.agent import AgentLimits
from ratchet.autoinstall.audit import (
    audit_tests,
    damages,
    resolved_packages,
    sabotage,
    weak_targets,
)
from ratchet.autoinstall.construct import construct
from ratchet.autoinstall.goals import GoalSet, set_goals
from ratchet.autoinstall.verify import judge, judge_in, judge_pristine, replay, start
from ratchet.autoinstall.workshop import Workshop
from ratchet.errors import SandboxError
from ratchet.policies.rules.builder import RulesBuilder
from ratchet.policies.rules.goals import propose_goals
from ratchet.policies.rules.planning import Lesson, next_plan, rank_pythons
from ratchet.policies.rules.repairs import Context
from ratchet.protocols import Sandbox
from ratchet.records import (
    Attempt,
    Audit,
    Base,
    Checkout,
    Environment,
    Goal,
    GoalKind,
    Install,
    Limits,
    Reason,
    Recipe,
    Survey,
    TestRun,
    Verdict,
    content_id,
)
from ratchet.sources import fetch
from ratchet.survey import survey as make_survey

GENERATION = "0"


@dataclass(frozen=True)
class Options:
    """How an install is done. `base` names a base or a Debian suite (None: one that has the Python that the project
    wants); `fresh` builds again although a verified environment is there."""

    max_attempts: int = 5
    limits: Limits = Limits()
    agent: AgentLimits = AgentLimits()
    base: str | None = None
    fresh: bool = False


def autoinstall(source: str, workshop: Workshop, options: Options = Options()) -> Install:
    """Turn `source` into a verified environment, or discard it with a reason. Both are values, and both are stored."""
    workshop.events.emit("install.start", source=source)
    clock = Clock(workshop)
    with clock.stage("fetch"):
        checkout = fetch(source, workshop.store)
    known = workshop.store.latest("install", checkout.id, Install)
    if not options.fresh and known is not None and _can_be_used(known, workshop, options):
        install = replace(known, source=source, reused=True)
    else:
        with workshop.store.cache(checkout.id) as cache:
            install = _Autoinstall(source, checkout, workshop, options, clock, cache).run()
        record = workshop.store.put("install", install)
        if install.environment or known is None or not known.environment:
            workshop.store.link("install", checkout.id, record)
    workshop.events.emit("install.end", environment=install.environment, reason=install.reason, detail=install.detail)
    return install


def _can_be_used(known: Install, workshop: Workshop, options: Options) -> bool:
    """Whether an earlier install gave an environment that is still there, on the base that is asked for."""
    if known.environment not in workshop.store.ids("environment"):
        return False
    environment = workshop.store.get("environment", known.environment or "", Environment)
    return options.base in (None, environment.base.name) and workshop.layers.exists(environment.layer)


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


@dataclass
class _Autoinstall:
    source: str
    checkout: Checkout
    workshop: Workshop
    options: Options
    clock: Clock
    cache: Path
    attempts: list[Attempt] = field(default_factory=list)
    lessons: list[Lesson] = field(default_factory=list)

    def run(self) -> Install:
        self.now = datetime.now(UTC)
        if not self.checkout.files:
            return self._discard(Reason.EMPTY_CHECKOUT, "the checkout holds no files")
        with self.clock.stage("survey"):
            self.survey = make_survey(self.checkout)
        unusable = _unusable(self.survey)
        if unusable is not None:
            return self._discard(*unusable)
        pythons = self._pythons()
        if not rank_pythons(self.survey, self.checkout, pythons):
            wanted = self.survey.first("requires-python")
            return self._discard(
                Reason.PYTHON_UNAVAILABLE, f"it requires Python {wanted}; there are bases for {', '.join(pythons)}"
            )
        with self.clock.stage("goals"):
            goals = self._set_goals(pythons)
        if not goals.targets:
            return self._discard(
                Reason.NO_DISCRIMINATING_GOALS, "every goal that runs tests passes before anything is installed", goals
            )
        built = self._construct_and_replay(goals, pythons)
        if built is None:
            last = self.attempts[-1]
            return self._discard(last.reason or Reason.TARGETS_FAILED, last.detail, goals, last.verdicts)
        return self._verified(goals, *built)

    # ------------------------------------------------------------------ stage 1

    def _set_goals(self, pythons: tuple[str, ...]) -> GoalSet:
        first = rank_pythons(self.survey, self.checkout, pythons)[0]
        layers = self.workshop.pristine_layers(self._base(first), self.checkout)
        time_s = self.options.limits.time_s
        candidates = [
            replace(goal, timeout_s=max(goal.timeout_s, time_s)) if goal.kind is GoalKind.TESTS else goal
            for goal in propose_goals(self.survey, self.checkout)
        ]

        def pristine(goal: Goal) -> Verdict:
            return judge_pristine(self.workshop, layers, goal, self.options.limits)

        return set_goals(candidates, pristine, seed=self.checkout.id)

    # ------------------------------------------------------------------ stage 2 and replay

    def _construct_and_replay(
        self, goals: GoalSet, pythons: tuple[str, ...]
    ) -> tuple[Base, Recipe, str, tuple[Verdict, ...]] | None:
        for number in range(1, self.options.max_attempts + 1):
            plan = next_plan(self.survey, self.checkout, pythons, self.now, self.lessons)
            if plan is None:
                break
            began = time.monotonic()
            base = self._base(plan.python)
            context = Context(self.survey, self.checkout, pythons, self.workshop.contents(base))
            builder = RulesBuilder(plan, goals.targets, context, self.now)
            with self.clock.stage("construction", number):
                built = construct(
                    self.workshop, builder, base, self.checkout, self.options.limits, self.options.agent, self.cache
                )
            for repair in builder.repairs:
                self.workshop.events.emit("repair", key=repair.key, note=repair.note)
            reason, detail = built.reason, built.detail
            verdicts: tuple[Verdict, ...] = ()
            layer: str | None = None
            if reason is None:
                with self.clock.stage("replay", number):
                    reason, detail, verdicts, layer = self._replay(goals, base, built.recipe)
            trajectory = self.workshop.store.put("trajectory", built.trajectory)
            kept = _without_cases(verdicts)
            self.attempts.append(
                Attempt(number, base.name, reason, detail, built.recipe, kept, time.monotonic() - began, trajectory)
            )
            self.workshop.events.emit("attempt", number=number, reason=reason, detail=detail)
            if reason is None and layer is not None:
                return base, built.recipe, layer, verdicts
            self.lessons.append(builder.lesson or Lesson(builder.plan, reason or Reason.REPLAY_DIFFERS, detail))
        return None

    def _replay(
        self, goals: GoalSet, base: Base, recipe: Recipe
    ) -> tuple[Reason | None, str, tuple[Verdict, ...], str | None]:
        replayed = replay(self.workshop, base, self.checkout, recipe, self.options.limits, self.cache)
        if replayed.network_failed:  # the world's fault or ours, and not the recipe's
            replayed = replay(self.workshop, base, self.checkout, recipe, self.options.limits, self.cache)
        if replayed.layer is None:
            return Reason.REPLAY_DIFFERS, replayed.detail, (), None
        layers = (*self.workshop.pristine_layers(base, self.checkout), replayed.layer)
        verdicts = tuple(judge(self.workshop, layers, goal, recipe, self.options.limits) for goal in goals.targets)
        failed = next((verdict for verdict in verdicts if not verdict.passed), None)
        if failed is None:
            return None, "", verdicts, replayed.layer
        self.workshop.layers.remove(replayed.layer)
        return Reason.REPLAY_DIFFERS, f"on fresh replay {failed.why}", verdicts, None

    # ------------------------------------------------------------------ audit

    def _verified(
        self, goals: GoalSet, base: Base, recipe: Recipe, layer: str, verdicts: tuple[Verdict, ...]
    ) -> Install:
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
                lambda sandbox, goal: judge_in(sandbox, goal, recipe.env),
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
            name=self.survey.first("project-name") or self.checkout.name,
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
            generation=GENERATION,
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
