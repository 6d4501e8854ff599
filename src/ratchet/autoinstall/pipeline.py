"""Autoinstall: from a source to a verified environment, in two stages, proof and audit.

1. goals         ten goals, checked in the pristine sandbox; three targets
2. construction  up to five attempts, each from the initial state, each knowing why the last one failed
   replay        the recipe alone, in a new sandbox: only this counts as success
   audit         the held-out goals, sabotage, three offline runs of the suite
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from ratchet.autoinstall.attempts import Proven, try_to_build, without_cases
from ratchet.autoinstall.audit import (
    audit_tests,
    damages,
    resolved_packages,
    sabotage,
    weak_targets,
)
from ratchet.autoinstall.goal_setting import set_goals_of
from ratchet.autoinstall.goals import GoalSet
from ratchet.autoinstall.job import Clock, Job
from ratchet.autoinstall.journal import Journal, open_journal
from ratchet.autoinstall.judging import keep_judging, with_judge
from ratchet.autoinstall.memory import lessons_of, remember
from ratchet.autoinstall.options import Options, Roles
from ratchet.autoinstall.verify import judge, judge_in, start
from ratchet.autoinstall.workshop import Workshop
from ratchet.errors import BudgetSpentError, SandboxError
from ratchet.policies.rules.goals import propose_goals
from ratchet.policies.rules.planning import rank_pythons
from ratchet.protocols import Sandbox
from ratchet.records import (
    Attempt,
    Audit,
    Checkout,
    Environment,
    GoalKind,
    Install,
    Reason,
    Recipe,
    Survey,
    TestRun,
    Trajectory,
    Verdict,
    content_id,
)
from ratchet.sources import fetch
from ratchet.survey import survey as make_survey

# Targets that hold whatever is broken, in so many ways, hold for another reason than that the project works.
_ENOUGH_DAMAGE = 2


def autoinstall(source: str, workshop: Workshop, options: Options | None = None) -> Install:
    """Turn `source` into a verified environment, or discard it with a reason. Both are values, and both are stored.

    Where a model takes part and an earlier run was ended from outside, it goes on after the last step that was done.
    """
    options = options or Options()
    workshop.events.emit("install.start", source=source)
    clock = Clock(workshop)
    with clock.stage("fetch"):
        checkout = fetch(source, workshop.store)
    known = workshop.store.latest("install", checkout.id, Install)
    if not options.fresh and known is not None and _can_be_used(known, workshop, options):
        install = replace(known, source=source, reused=True)
    else:
        install = _install(source, checkout, workshop, options, clock, known)
    workshop.events.emit("install.end", environment=install.environment, reason=install.reason, detail=install.detail)
    return install


def _can_be_used(known: Install, workshop: Workshop, options: Options) -> bool:
    """Whether an earlier install gave an environment that is still there, on the base that is asked for."""
    if known.environment not in workshop.store.ids("environment"):
        return False
    environment = workshop.store.get("environment", known.environment or "", Environment)
    asked_for = options.roles == Roles() or environment.generation == options.roles.generation
    return options.base in (None, environment.base.name) and asked_for and workshop.layers.exists(environment.layer)


def _install(
    source: str, checkout: Checkout, workshop: Workshop, options: Options, clock: Clock, known: Install | None
) -> Install:
    """Do an install and store what came of it: as the checkout's latest, unless it failed and `known` did not."""
    with ExitStack() as held:
        cache = held.enter_context(workshop.store.cache(checkout.id))
        journal = Journal(None, workshop.store)
        if options.roles.models:
            journal = held.enter_context(open_journal(workshop.store, options.key(checkout.id), fresh=options.fresh))
        with clock.stage("survey"):
            survey = make_survey(checkout) if checkout.files else Survey(checkout.id)
        job = Job(checkout, survey, options, workshop, clock, cache, journal)
        job = held.enter_context(with_judge(job))
        install = _Autoinstall(source, job).run()
        record = workshop.store.put("install", install)
        if install.environment or known is None or not known.environment:
            workshop.store.link("install", checkout.id, record)
        if install.reason is not Reason.BUDGET_SPENT:
            journal.remove()
        return install


@dataclass
class _Autoinstall:
    source: str
    job: Job
    attempts: tuple[Attempt, ...] = ()
    memories_offered: tuple[str, ...] = ()
    looked: str = ""

    def run(self) -> Install:
        job = self.job
        unusable = _unusable(job.checkout, job.survey)
        if unusable is not None:
            return self._discard(*unusable)
        pythons = job.pythons()
        ranked = rank_pythons(job.survey, job.checkout, pythons)
        if not ranked:
            wanted = job.survey.first("requires-python")
            return self._discard(
                Reason.PYTHON_UNAVAILABLE, f"it requires Python {wanted}; there are bases for {', '.join(pythons)}"
            )
        try:
            with job.clock.stage("goals"):
                goals, looked = set_goals_of(job, job.base(ranked[0]))
        except BudgetSpentError as error:
            return self._discard(Reason.BUDGET_SPENT, error.what)
        self.looked = looked
        if not goals.targets:
            return self._discard(
                Reason.NO_DISCRIMINATING_GOALS, "every goal that runs tests passes before anything is installed", goals
            )
        tried = try_to_build(job, goals, pythons)
        self.attempts, self.memories_offered = tried.attempts, tried.memories
        if tried.proven is None:
            last = tried.attempts[-1]
            return self._discard(last.reason or Reason.TARGETS_FAILED, last.detail, goals, last.verdicts)
        return self._verified(goals, tried.proven)

    def _verified(self, goals: GoalSet, proven: Proven) -> Install:
        job, recipe = self.job, proven.recipe
        layers = (*job.workshop.pristine_layers(proven.base, job.checkout), proven.layer)

        def open_fork() -> Sandbox:
            sandbox = job.workshop.offline(layers, job.options.limits)
            started = start(sandbox, recipe)
            if started is not None and not started.ok:
                sandbox.close()
                raise SandboxError(f"the start script worked on replay and fails now: {started.output[-300:]}")
            return sandbox

        audit = self._audit(goals, proven, layers, open_fork)
        if audit is None:
            job.workshop.layers.remove(proven.layer)
            detail = "it was broken on purpose in several ways, or could not even be, and no target noticed any"
            return self._discard(Reason.NOTHING_NOTICED, detail, goals, proven.verdicts)
        with open_fork() as sandbox:
            python, debian = resolved_packages(sandbox, recipe.env)
        environment = Environment(
            id=content_id([proven.base.id, job.checkout.id, recipe, goals.goals])[:32],
            name=job.project,
            base=proven.base,
            checkout=job.checkout,
            recipe=recipe,
            layer=proven.layer,
            goals=goals.goals,
            targets=tuple(goal.id for goal in goals.targets),
            verdicts=without_cases(proven.verdicts),
            audit=audit,
            python_packages=python,
            debian_packages=debian,
            generation=job.options.roles.generation,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=dict(job.clock.seconds),
            limits=job.options.limits,
            allowed_hosts=job.workshop.allowed_hosts,
        )
        job.workshop.store.put("environment", environment)
        if re.fullmatch(r"[A-Za-z0-9][\w.-]{0,99}", environment.name, re.ASCII):
            job.workshop.store.link("environment", environment.name, environment.id)
        self._remember(recipe)
        return self._ended(goals, proven.verdicts, None, "", environment.id, audit)

    def _audit(
        self, goals: GoalSet, proven: Proven, layers: tuple[str, ...], open_fork: Callable[[], Sandbox]
    ) -> Audit | None:
        """None where the targets hold whatever is broken."""
        job, recipe, limits = self.job, proven.recipe, self.job.options.limits
        seconds = {verdict.goal: verdict.seconds for verdict in proven.verdicts}
        with job.clock.stage("held-out"):
            held_out = tuple(judge(job.workshop, layers, goal, recipe, limits) for goal in goals.held_out)
        planned = damages(job.survey, recipe)
        with job.clock.stage("sabotage"):
            sabotages = sabotage(
                open_fork,
                lambda sandbox, goal: judge_in(job.workshop, sandbox, goal, recipe.env),
                planned,
                goals.targets,
                seconds,
            )
        # A model may have made an environment in which nothing can be broken; the rules do not.
        damaged = len(planned if job.options.roles.models else sabotages)
        if damaged >= _ENOUGH_DAMAGE and not any(damage.noticed_by for damage in sabotages):
            return None
        suite = next(goal for goal in goals.targets if goal.kind is GoalKind.TESTS)
        first = next(verdict for verdict in proven.verdicts if verdict.goal == suite.id).tests or TestRun()
        with job.clock.stage("flaky"):
            together = seconds[suite.id] < suite.timeout_s / 4
            run, flaky, need_network = audit_tests(
                first, lambda: judge(job.workshop, layers, suite, recipe, limits), together=together
            )
        weak = weak_targets(goals.targets, sabotages, goals.pristine)
        return Audit(without_cases(held_out), sabotages, run, flaky, need_network, weak)

    def _remember(self, recipe: Recipe) -> None:
        """Keep what helped in the attempt that succeeded, for later installs."""
        job = self.job
        if job.options.memory:
            trajectory = job.workshop.store.get("trajectory", self.attempts[-1].trajectory, Trajectory)
            names = job.survey.values("import-name")
            remember(job.workshop.store, lessons_of(trajectory, recipe, project=job.project, names=names))

    def _discard(
        self, reason: Reason, detail: str, goals: GoalSet | None = None, verdicts: tuple[Verdict, ...] = ()
    ) -> Install:
        return self._ended(goals, verdicts, reason, detail, None, None)

    def _ended(
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
            checkout=self.job.checkout.id,
            environment=environment,
            reason=reason,
            detail=detail,
            attempts=self.attempts,
            goals=goals.goals if goals else (),
            pristine=goals.pristine if goals else (),
            targets=tuple(goal.id for goal in goals.targets) if goals else (),
            verdicts=without_cases(verdicts),
            audit=audit,
            replayed=environment is not None,
            seconds=dict(self.job.clock.seconds),
            usage=self.job.options.meter.usage,
            goal_origins=goals.origins if goals else {},
            memories_offered=self.memories_offered,
            trajectories=tuple(filter(None, [self.looked, keep_judging(self.job)])),
        )


def _unusable(checkout: Checkout, survey: Survey) -> tuple[Reason, str] | None:
    """Why nothing can come of a checkout, where the survey alone shows it."""
    if not checkout.files:
        return Reason.EMPTY_CHECKOUT, "the checkout holds no files"
    python = any(survey.of(kind) for kind in ("project-name", "build-backend", "import-name", "module", "requirement"))
    if not python and not survey.of("test-count"):
        return Reason.UNSUPPORTED, "it holds no Python project: no manifest, no package, no tests"
    if not propose_goals(survey, Checkout("", "", "", "")):
        return Reason.NO_TESTS, "it holds no tests, so nothing could tell whether an environment works"
    return None
