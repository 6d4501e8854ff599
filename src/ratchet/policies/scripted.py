"""A policy that plays a fixed list of actions: for tests, and for replaying what somebody else decided."""

from __future__ import annotations

from collections.abc import Iterable

from ratchet.records import Action, ActionKind, Observation, Reason


class ScriptedPolicy:
    """Plays `actions` in order; when they have run out it submits as having given up."""

    def __init__(self, actions: Iterable[Action]) -> None:
        self._actions = iter(actions)
        self.observations: list[Observation] = []

    def act(self, observation: Observation) -> Action:
        self.observations.append(observation)
        return next(
            self._actions,
            Action(ActionKind.SUBMIT, ok=False, reason=Reason.POLICY_GAVE_UP, detail="the script has no more actions"),
        )
