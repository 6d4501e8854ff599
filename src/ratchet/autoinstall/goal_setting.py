"""Stage 1 for one checkout: the rules' goals, or a model's from a look at the pristine checkout, checked there."""

from __future__ import annotations

from dataclasses import replace

from ratchet.agent import AgentLimits
from ratchet.autoinstall.construct import act, resume
from ratchet.autoinstall.goals import GOALS, GoalSet, choose_goals
from ratchet.autoinstall.job import Job
from ratchet.autoinstall.verify import judge_pristine
from ratchet.errors import BudgetSpentError
from ratchet.policies.model.goal_setter import STAGE, GoalSetter
from ratchet.policies.rules.goals import propose_goals
from ratchet.protocols import Model
from ratchet.records import Base, Goal, GoalKind, Reason
from ratchet.trajectories import TrajectoryLog

# A look round takes no installs: it is short.
_MOST_STEPS = 12
_SECONDS = 1800.0


def set_goals_of(job: Job, base: Base) -> tuple[GoalSet, str]:
    """The goals of one checkout, each judged in the pristine sandbox of `base`, and the id of the trajectory of the
    model that proposed some. From the journal where it has them."""
    workshop, options, journal = job.workshop, job.options, job.journal
    known = journal.load("goals", GoalSet)
    if known is not None:
        job.count("goals", STAGE)
        return known, journal.load("looked", str) or ""
    layers = workshop.pristine_layers(base, job.checkout)
    time_s = options.limits.time_s
    floor = [
        replace(goal, timeout_s=max(goal.timeout_s, time_s)) if goal.kind is GoalKind.TESTS else goal
        for goal in propose_goals(job.survey, job.checkout)
    ]
    choice = options.roles.goals
    proposed: tuple[Goal, ...] = ()
    looked = ""
    if choice.model is not None and not (choice.rules and len(floor) >= GOALS):
        proposed, looked = _explore(job, layers, choice.model)
    goals = choose_goals(
        proposed,
        floor,
        lambda goal: judge_pristine(workshop, layers, goal, options.limits),
        seed=job.checkout.id,
        proposer=choice.model.name if choice.model is not None else "",
        prose_allowed=workshop.judge is not None,
    )
    for goal, why in goals.rejected:
        workshop.events.emit("goal.rejected", goal=goal, why=why)
    journal.save("looked", looked)
    journal.save("goals", goals)
    return goals, looked


def _explore(job: Job, layers: tuple[str, ...], model: Model) -> tuple[tuple[Goal, ...], str]:
    """What a model proposes after a look at the pristine checkout, in a sandbox without a network that is thrown away
    afterwards; and the id of its trajectory. Raises `BudgetSpentError`."""
    workshop, options = job.workshop, job.options
    path = job.journal.trajectory("goals")
    if path is None:
        raise ValueError("an install with a model has a journal")
    limits = AgentLimits(steps=min(_MOST_STEPS, options.model_steps), seconds=_SECONDS)
    with (
        TrajectoryLog(path, job.header("goals", model.name)) as log,
        workshop.offline(layers, options.limits) as sandbox,
    ):
        setter = GoalSetter(resume(workshop, model, log, options.meter, STAGE), job.survey, job.checkout)
        trajectory = act(workshop, setter, sandbox, limits, log)
    last = trajectory.steps[-1].action
    if last.reason is Reason.BUDGET_SPENT:
        raise BudgetSpentError(last.detail)
    return setter.goals, workshop.store.put("trajectory", trajectory)
