"""Stage 2: one attempt of a builder, from the initial state, with three targets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ratchet.agent import AgentLimits, distill, run_agent
from ratchet.autoinstall.workshop import Workshop
from ratchet.policies.budget import Meter
from ratchet.policies.model.resumed import ResumedModel
from ratchet.protocols import Model, Policy, Sandbox
from ratchet.records import Action, ActionKind, Base, Checkout, Exchange, Limits, Reason, Recipe, Step, Trajectory
from ratchet.trajectories import TrajectoryLog


@dataclass(frozen=True)
class Built:
    """What a builder left: its trajectory, the recipe in it, and a reason where it did not submit a success."""

    trajectory: Trajectory
    recipe: Recipe
    reason: Reason | None
    detail: str


def construct(
    workshop: Workshop,
    builder: Policy,
    base: Base,
    checkout: Checkout,
    limits: Limits,
    agent_limits: AgentLimits,
    cache: Path,
    log: TrajectoryLog | None = None,
) -> Built:
    """Let `builder` work in a sandbox of the install phase that starts from base and checkout.

    With `log` it is a model's work: written there as it happens, taken up where the log ends, with checkpoints."""
    with workshop.online(workshop.pristine_layers(base, checkout), limits, cache) as sandbox:
        trajectory = act(workshop, builder, sandbox, agent_limits, log)
    last = trajectory.steps[-1].action if trajectory.steps else None
    if trajectory.end != "submitted" or last is None:
        return Built(trajectory, Recipe(), Reason.POLICY_GAVE_UP, f"the builder was ended: {trajectory.end}")
    if not last.ok:
        return Built(trajectory, Recipe(), last.reason or Reason.POLICY_GAVE_UP, last.detail)
    return Built(trajectory, distill(trajectory), None, "")


def act(
    workshop: Workshop, policy: Policy, sandbox: Sandbox, limits: AgentLimits, log: TrajectoryLog | None
) -> Trajectory:
    """Run a policy in a sandbox, with what it does in the log of events, and in its own log where there is one."""
    events = workshop.events

    def on_action(action: Action) -> None:
        if action.kind is ActionKind.RUN:
            events.emit("command", sandbox=sandbox.name, command=action.command, note=action.note)

    def on_step(number: int, step: Step) -> None:
        if log is not None and step.action.reason is not Reason.BUDGET_SPENT:
            log.back_to(number)
            log.step(step)
        if step.result is not None and step.action.kind is ActionKind.RUN:
            events.emit(
                "command.end",
                command=step.action.command,
                exit_status=step.result.exit_status,
                limit=step.result.limit,
                seconds=round(step.result.seconds, 2),
            )

    trajectory = run_agent(
        policy,
        sandbox,
        limits,
        checkpoints=log is not None,
        recorded=log.recorded.steps if log is not None else (),
        on_step=on_step,
        on_action=on_action,
        on_output=workshop.show,
    )
    if log is None:
        return trajectory
    if trajectory.steps[-1].action.reason is not Reason.BUDGET_SPENT:  # with a larger one it goes on
        log.finish(trajectory.end)
    header = log.recorded.header
    return replace(trajectory, role=header.role, policy=header.policy)


def resume(workshop: Workshop, model: Model, log: TrajectoryLog, meter: Meter, stage: str) -> ResumedModel:
    """`model`, for the work whose trajectory is `log`: what it answered there already is not asked again, and is
    counted for `stage`."""

    def on_exchange(exchange: Exchange) -> None:
        log.exchange(exchange)
        reply = exchange.reply
        workshop.events.emit(
            "model",
            role=log.recorded.header.role,
            model=exchange.model,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            seconds=round(reply.seconds, 2),
        )

    return ResumedModel(model, log.recorded.calls, on_exchange, meter, stage)
