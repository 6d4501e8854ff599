"""How an install is done, and by whom."""

from __future__ import annotations

from dataclasses import dataclass, field

from ratchet.agent import AgentLimits
from ratchet.policies.budget import Budget, Meter
from ratchet.protocols import Model
from ratchet.records import Limits, content_id


@dataclass(frozen=True)
class PolicyChoice:
    """The rules, a model, or both: then the rules come first, and the model does what they could not."""

    rules: bool = True
    model: Model | None = None

    @property
    def name(self) -> str:
        names = (["rules"] if self.rules else []) + ([self.model.name] if self.model is not None else [])
        return "+".join(names)


@dataclass(frozen=True)
class Roles:
    """Who sets goals, who builds, and who judges what only prose describes (None: nobody, and that never passes)."""

    goals: PolicyChoice = PolicyChoice()
    builder: PolicyChoice = PolicyChoice()
    judge: Model | None = None

    @property
    def models(self) -> tuple[Model, ...]:
        return tuple(m for m in (self.goals.model, self.builder.model, self.judge) if m is not None)

    @property
    def generation(self) -> str:
        """What an environment says of who made it; "0" are the rules alone."""
        if not self.models:
            return "0"
        judge = f", judge {self.judge.name}" if self.judge is not None else ""
        return f"goals {self.goals.name}, builder {self.builder.name}{judge}"


@dataclass(frozen=True)
class Options:
    """How an install is done. `base` names a base or a Debian suite (None: one that has the Python that the project
    wants); `agent` is what the rules may take in one attempt, `model_steps` how many actions a model may do in one;
    `fresh` builds again although a verified environment is there, and forgets what an interrupted run left.
    `meter` counts what the models of `roles` take; `memory` says whether what worked elsewhere is offered to them."""

    max_attempts: int = 5
    limits: Limits = Limits()
    agent: AgentLimits = AgentLimits()
    model_steps: int = 200
    base: str | None = None
    fresh: bool = False
    roles: Roles = Roles()
    meter: Meter = field(default_factory=lambda: Meter(Budget()))
    memory: bool = True

    def key(self, checkout: str) -> str:
        """What an interrupted install is found by: the same work, however long it may take this time."""
        who = [self.roles.goals.name, self.roles.builder.name, self.roles.judge.name if self.roles.judge else ""]
        return content_id([checkout, who, self.base, self.memory])[:32]
