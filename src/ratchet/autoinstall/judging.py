"""The judge of an install: a model that is asked where only prose describes what a goal should print."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from ratchet.autoinstall.construct import resume
from ratchet.autoinstall.job import Job
from ratchet.policies.model.judge import STAGE, ModelJudge
from ratchet.records import Action, ActionKind, Goal, Opinion, Step, Trajectory
from ratchet.trajectories import TrajectoryLog, read


@contextmanager
def with_judge(job: Job) -> Iterator[Job]:
    """The job with its judge in the workshop, if it has one. What was asked and answered is kept in the journal."""
    model, path = job.options.roles.judge, job.journal.trajectory("judge")
    if model is None or path is None:
        yield job
        return
    events = job.workshop.events

    def on_opinion(goal: Goal, opinion: Opinion) -> None:
        events.emit("opinion", goal=goal.command, holds=opinion.holds, why=opinion.why, quote=opinion.quote)

    with TrajectoryLog(path, job.header("judge", model.name)) as log:
        judge = ModelJudge(resume(job.workshop, model, log, job.options.meter, STAGE))
        yield replace(job, workshop=replace(job.workshop, judge=judge, on_opinion=on_opinion))


def keep_judging(job: Job) -> str:
    """The id of the trajectory of all that the judge was asked and answered; empty where it was asked nothing."""
    model, path = job.options.roles.judge, job.journal.trajectory("judge")
    exchanges = read(path).exchanges if model is not None and path is not None else ()
    if model is None or not exchanges:
        return ""
    steps = tuple(Step(Action(ActionKind.NONE, exchanges=(exchange,)), None) for exchange in exchanges)
    return job.workshop.store.put("trajectory", Trajectory(steps, "submitted", "judge", model.name))
