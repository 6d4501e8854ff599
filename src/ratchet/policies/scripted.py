"""A policy and a model that play fixed lists: for tests, and for replaying what somebody else decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ratchet.errors import ModelServerError, RatchetError
from ratchet.policies.budget import Meter
from ratchet.records import Action, ActionKind, Message, Observation, Reason, Reply


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


class ScriptedModel:
    """Plays `replies` in order, whatever it is asked. A text becomes a reply that is counted at four characters a
    token; an error is raised in its turn. When they have run out, it raises `ModelServerError`.

    `prompts` are the conversations that it was given, `stages` what for.
    """

    def __init__(
        self,
        replies: Iterable[str | Reply | RatchetError],
        *,
        name: str = "scripted",
        context_tokens: int = 8192,
        uses_tools: bool = False,
        meter: Meter | None = None,
    ) -> None:
        self.name = name
        self.context_tokens = context_tokens
        self.uses_tools = uses_tools
        self.prompts: list[tuple[Message, ...]] = []
        self.stages: list[str] = []
        self._replies = iter(replies)
        self._meter = meter or Meter()

    def reply(
        self,
        messages: Sequence[Message],
        *,
        stage: str,
        tools: Sequence[Mapping[str, object]] = (),  # noqa: ARG002
        max_tokens: int = 1024,  # noqa: ARG002
    ) -> Reply:
        self._meter.check()
        self.prompts.append(tuple(messages))
        self.stages.append(stage)
        answer = next(self._replies, None)
        if answer is None:
            raise ModelServerError("the script has no more replies", remedy="write a longer script")
        if isinstance(answer, RatchetError):
            raise answer
        if isinstance(answer, str):
            asked = sum(len(message.content) for message in messages)
            answer = Reply(answer, prompt_tokens=asked // 4, completion_tokens=len(answer) // 4)
        self._meter.add(stage, answer)
        return answer
