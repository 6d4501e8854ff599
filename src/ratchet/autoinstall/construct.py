"""Stage 2: one attempt of a builder, from the initial state, with three targets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ratchet.agent import AgentLimits, distill, run_agent
from ratchet.autoinstall.workshop import Workshop
from ratchet.protocols import Policy
from ratchet.records import Action, ActionKind, Base, Checkout, Limits, Reason, Recipe, Step, Trajectory


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
) -> Built:
    """Let `builder` work in a sandbox of the install phase that starts from base and checkout."""
    events = workshop.events

    def on_action(action: Action) -> None:
        if action.kind is ActionKind.RUN:
            events.emit("command", sandbox=sandbox.name, command=action.command, note=action.note)

    def on_step(step: Step) -> None:
        if step.result is not None:
            events.emit(
                "command.end",
                command=step.action.command,
                exit_status=step.result.exit_status,
                limit=step.result.limit,
                seconds=round(step.result.seconds, 2),
            )

    with workshop.online(workshop.pristine_layers(base, checkout), limits, cache) as sandbox:
        trajectory = run_agent(
            builder,
            sandbox,
            agent_limits,
            on_step=on_step,
            on_action=on_action,
            on_output=workshop.show,
        )
    last = trajectory.steps[-1].action if trajectory.steps else None
    if trajectory.end != "submitted" or last is None:
        return Built(trajectory, Recipe(), Reason.POLICY_GAVE_UP, f"the builder was ended: {trajectory.end}")
    if not last.ok:
        return Built(trajectory, Recipe(), last.reason or Reason.POLICY_GAVE_UP, last.detail)
    return Built(trajectory, distill(trajectory), None, "")
