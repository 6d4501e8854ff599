"""One attempt of a model at a checkout whose environment is known: what training and evaluation ask of a builder.

The goals are those of the environment, so that every attempt at it is judged alike. Success is what it is everywhere:
a fresh replay of the recipe alone. Nothing of the attempt is kept but its trajectory.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ratchet.agent import AgentLimits
from ratchet.autoinstall.construct import construct
from ratchet.autoinstall.proof import prove
from ratchet.autoinstall.verify import judge
from ratchet.autoinstall.workshop import Workshop
from ratchet.policies.model.brief import brief_builder
from ratchet.policies.model.builder import OWN_STEPS, VARIABLES
from ratchet.protocols import Model
from ratchet.records import Environment, Reason, Survey, Trajectory, Verdict


@dataclass(frozen=True)
class PracticeLimits:
    """What one attempt may take: so many commands of the model, each so long, and the whole of the building."""

    steps: int = 5
    command_s: float = 300.0
    seconds: float = 1200.0
    memory_bytes: int = 4 << 30


@dataclass(frozen=True)
class Practised:
    """What came of it. `claimed` is whether the builder submitted a success, `verdicts` are those of the targets on
    fresh replay, `held_out` of the goals that it did not see, where the targets held. `reason` None: it is proved."""

    trajectory: Trajectory
    claimed: bool
    verdicts: tuple[Verdict, ...] = ()
    held_out: tuple[Verdict, ...] = ()
    reason: Reason | None = None
    detail: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)


def practise(
    workshop: Workshop,
    environment: Environment,
    survey: Survey,
    model: Model,
    limits: PracticeLimits,
    *,
    look_at_held_out: bool = True,
) -> Practised:
    """Let `model` build the environment's checkout from its base, and prove what it built. `survey` is the checkout's.

    May run many times at once. Raises SandboxError and ModelServerError where our machinery or the model's breaks, and
    BudgetSpentError.
    """
    targets = [goal for goal in environment.goals if goal.id in environment.targets]
    base, checkout = environment.base, environment.checkout
    allowed = replace(environment.limits, time_s=limits.command_s, memory_bytes=limits.memory_bytes)
    builder = brief_builder(model, survey, targets, VARIABLES, base.pythons[0], most_steps=limits.steps)
    seconds: dict[str, float] = {}
    began = time.monotonic()
    with workshop.store.cache(checkout.id) as cache:
        agent = AgentLimits(limits.steps + OWN_STEPS, limits.seconds)
        built = construct(workshop, builder, base, checkout, allowed, agent, cache)
        seconds["act"] = time.monotonic() - began
        if built.reason is not None:
            return Practised(built.trajectory, False, reason=built.reason, detail=built.detail, seconds=seconds)
        began = time.monotonic()
        proof = prove(workshop, base, checkout, survey, built.recipe, targets, environment.limits, cache)
    held_out: tuple[Verdict, ...] = ()
    if proof.layer is not None:
        layers = (*workshop.pristine_layers(base, checkout), proof.layer)
        others = [goal for goal in environment.goals if goal.id not in environment.targets and look_at_held_out]
        try:
            held_out = tuple(judge(workshop, layers, goal, built.recipe, environment.limits) for goal in others)
        finally:
            workshop.layers.remove(proof.layer)
    seconds["grade"] = time.monotonic() - began
    return Practised(built.trajectory, True, proof.verdicts, held_out, proof.reason, proof.detail, seconds)
