"""Who builds in which attempt, and what each is told of the attempts before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ratchet.agent import AgentLimits
from ratchet.autoinstall.construct import resume
from ratchet.autoinstall.documents import setup_notes
from ratchet.autoinstall.job import Job
from ratchet.autoinstall.memory import as_text, recall
from ratchet.policies.model.builder import OWN_STEPS, VARIABLES, ModelBuilder, Takeover, opening
from ratchet.policies.model.goal_setter import checkout_digest
from ratchet.policies.model.prompts import BUILDER_ACTIONS, BUILDER_THEN, builder_system, builder_task
from ratchet.policies.model.turns import ModelPolicy
from ratchet.policies.rules.builder import RulesBuilder
from ratchet.policies.rules.plan import Plan
from ratchet.policies.rules.planning import Lesson, first_plan, next_plan
from ratchet.policies.rules.project import needed_distributions
from ratchet.policies.rules.repairs import Context, Repair
from ratchet.protocols import Model, Policy
from ratchet.records import Action, Attempt, Base, Goal, Reason
from ratchet.trajectories import TrajectoryLog

STAGE = "construction"
_DIGEST_CHARACTERS = 2500
_NOTES_CHARACTERS = 1500


@dataclass(frozen=True)
class _Offered:
    """The memories that the model of an attempt was offered, as the journal keeps them."""

    texts: tuple[str, ...]


@dataclass
class Builders:
    """The builders of one checkout's attempts. `attempts` and `lessons` grow with each that failed."""

    job: Job
    targets: Sequence[Goal]
    pythons: tuple[str, ...]
    attempts: list[Attempt] = field(default_factory=list)
    lessons: list[Lesson] = field(default_factory=list)
    memories_offered: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.now = self.job.journal.began  # plans depend on the date

    def next_plan(self) -> Plan | None:
        """What the next attempt starts from; None when there is nothing more to try. A model may try again what the
        rules have done with."""
        choice = self.job.options.roles.builder
        if not choice.rules:
            return first_plan(self.job.survey, self.job.checkout, self.pythons, self.now)
        plan = self._next_plan_of_rules(self.lessons)
        if plan is None and choice.model is not None and self.lessons:
            return self.lessons[-1].plan
        return plan

    def make(self, plan: Plan, base: Base, log: TrajectoryLog | None) -> Policy:
        """The builder of the next attempt. A model's needs the `log` that its replies go to."""
        choice = self.job.options.roles.builder
        if choice.model is None or log is None:
            return self._rules(plan, base)
        model = resume(self.job.workshop, choice.model, log, self.job.options.meter, STAGE)
        if not choice.rules:
            turns = self._turns(model, dict(VARIABLES), "", [])
            return self._model_builder(turns, dict(VARIABLES), opening(plan.python))
        rules = self._rules(plan, base)

        def take_over(situation: str, outputs: Sequence[str]) -> ModelBuilder:
            env = rules.variables()
            self.job.workshop.events.emit("takeover", policy=model.name)
            return self._model_builder(self._turns(model, env, situation, outputs), env)

        return Takeover(rules, self._is_last, take_over, most_steps=self.job.options.agent.steps)

    def limits(self) -> AgentLimits:
        """Those of an attempt: its rules and its model have steps of their own."""
        options = self.job.options
        if options.roles.builder.model is None:
            return options.agent
        rules = options.agent.steps if options.roles.builder.rules else 0
        return replace(options.agent, steps=rules + options.model_steps + OWN_STEPS)

    def learn(self, builder: Policy, plan: Plan, attempt: Attempt) -> None:
        """Keep what a failed attempt teaches the next."""
        self.attempts.append(attempt)
        rules = rules_of(builder)
        lesson = rules.lesson if rules is not None else None
        reason = attempt.reason or Reason.REPLAY_DIFFERS
        self.lessons.append(lesson or Lesson(rules.plan if rules else plan, reason, attempt.detail))

    def learned(self, attempt: Attempt, lesson: Lesson) -> None:
        """Take what an earlier run learned from an attempt that had failed."""
        offered = self._offered()
        self.memories_offered += offered.texts if offered is not None else ()
        self.attempts.append(attempt)
        self.lessons.append(lesson)

    # ------------------------------------------------------------------ inside

    def _next_plan_of_rules(self, lessons: Sequence[Lesson]) -> Plan | None:
        return next_plan(self.job.survey, self.job.checkout, self.pythons, self.now, lessons)

    def _is_last(self, lesson: Lesson) -> bool:
        last = len(self.attempts) + 1 >= self.job.options.max_attempts
        return last or self._next_plan_of_rules([*self.lessons, lesson]) is None

    def _rules(self, plan: Plan, base: Base) -> RulesBuilder:
        context = Context(self.job.survey, self.job.checkout, self.pythons, self.job.workshop.contents(base))
        return RulesBuilder(plan, self.targets, context, self.now)

    def _model_builder(self, turns: ModelPolicy, env: dict[str, str], first: Sequence[Action] = ()) -> ModelBuilder:
        return ModelBuilder(turns, self.targets, env, first, most_steps=self.job.options.model_steps)

    def _turns(self, model: Model, env: dict[str, str], situation: str, outputs: Sequence[str]) -> ModelPolicy:
        memories = self._memories(outputs)
        lessons = [f"attempt {a.number}: {a.reason}: {a.detail[:500]}" for a in self.attempts]
        digest = checkout_digest(self.job.survey, self.job.checkout, _DIGEST_CHARACTERS)
        notes = setup_notes(self.job.checkout, _NOTES_CHARACTERS)
        return ModelPolicy(
            model,
            system=builder_system(takes_over=bool(situation), tools=model.uses_tools),
            task=builder_task(digest, self.targets, lessons, memories, situation, notes),
            stage=STAGE,
            allowed=BUILDER_ACTIONS,
            env=env,
            then=BUILDER_THEN,
        )

    def _memories(self, outputs: Sequence[str]) -> tuple[str, ...]:
        """What is offered to the model of the next attempt: what was offered before the run was ended from outside, as
        other installs may have taught more since, and a prompt that differs would be asked again."""
        if not self.job.options.memory:
            return ()
        offered = self._offered()
        if offered is None:
            packages = needed_distributions(self.job.survey)
            found = recall(self.job.workshop.store, ecosystem="python", outputs=outputs, packages=packages)
            offered = _Offered(tuple(as_text(memory) for memory in found))
            self.job.journal.save(f"memories-{len(self.attempts) + 1}", offered)
        self.memories_offered += offered.texts
        return offered.texts

    def _offered(self) -> _Offered | None:
        """What the model of the next attempt was offered in an earlier run."""
        return self.job.journal.load(f"memories-{len(self.attempts) + 1}", _Offered)


def rules_of(builder: Policy) -> RulesBuilder | None:
    """The rules in a builder, if they have a part in it."""
    if isinstance(builder, Takeover):
        return builder.rules
    return builder if isinstance(builder, RulesBuilder) else None


def repairs_of(builder: Policy) -> Sequence[Repair]:
    rules = rules_of(builder)
    return rules.repairs if rules is not None else ()


def needs_model(builder: Policy) -> bool:
    """Whether a model had a part in what a builder did."""
    return builder.took_over if isinstance(builder, Takeover) else isinstance(builder, ModelBuilder)
