"""A model as the policy that solves a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from ratchet.errors import ContextOverflowError
from ratchet.policies.model.prompts import SOLVER_ACTIONS, SOLVER_THEN, solver_system, solver_task
from ratchet.policies.model.turns import ModelPolicy
from ratchet.policies.targets import USER
from ratchet.protocols import Model
from ratchet.records import Action, ActionKind, Observation, Reason
from ratchet.task_records import Task

STAGE = "solver"

_COMMAND_TIMEOUT_S = 300.0
_REPLY_TOKENS = 1200


def solver(
    model: Model,
    task: Task,
    *,
    user: str = USER,
    env: Mapping[str, str] = MappingProxyType({}),
    command: str = "",
    timeout_s: float = _COMMAND_TIMEOUT_S,
    reply_tokens: int = _REPLY_TOKENS,
) -> Solver:
    """The policy. It acts as `user` whatever the model asks for, and its commands get `env` (the recipe's). `command`
    runs tests, for statements that do not say how. See `ModelPolicy` for how it ends and what it raises."""
    turns = ModelPolicy(
        model,
        system=solver_system(tools=model.uses_tools),
        task=solver_task(task.statement, command),
        stage=STAGE,
        allowed=SOLVER_ACTIONS,
        user=user,
        env=env,
        timeout_s=timeout_s,
        reply_tokens=reply_tokens,
        then=SOLVER_THEN,
    )
    return Solver(turns, user)


class Solver:
    """A `Policy`: `turns`, held to one user. A task that does not fit into the model's context is given up."""

    def __init__(self, turns: ModelPolicy, user: str) -> None:
        self._turns = turns
        self._user = user

    def act(self, observation: Observation) -> Action:
        try:
            action = self._turns.act(observation)
        except ContextOverflowError as error:
            return Action(ActionKind.SUBMIT, ok=False, reason=Reason.POLICY_GAVE_UP, detail=error.what)
        return replace(action, user=self._user)
