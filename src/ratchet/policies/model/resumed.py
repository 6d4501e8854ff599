"""A model whose earlier replies are played again: how a run that was killed goes on without asking twice."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence

from ratchet.policies.budget import Meter
from ratchet.protocols import Model
from ratchet.records import Exchange, Message, Reply


class ResumedModel:
    """A `protocols.Model`. A prompt that is one of `recorded` is answered from there, whenever it comes up, with each
    answer once; with any other, `model` is asked.

    `recorded` are all calls of earlier runs, in the order in which they were made; `on_exchange`, which puts a new one
    behind them, is told of it before anything is done with the reply. `meter` counts those from the record for `stage`,
    whether they are of use or not, so that a budget holds over all runs together.
    """

    def __init__(
        self,
        model: Model,
        recorded: Sequence[Exchange],
        on_exchange: Callable[[Exchange], None],
        meter: Meter,
        stage: str,
    ) -> None:
        self._model = model
        self._on_exchange = on_exchange
        self._latest: tuple[Message, ...] = ()  # the prompt of the last call in the record
        self._answers: defaultdict[tuple[Message, ...], deque[Reply]] = defaultdict(deque)
        for call in recorded:
            self._latest = self._latest[: call.kept] + call.messages
            self._answers[self._latest].append(call.reply)
            meter.add(stage, call.reply)

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def context_tokens(self) -> int:
        return self._model.context_tokens

    @property
    def uses_tools(self) -> bool:
        return self._model.uses_tools

    def reply(
        self,
        messages: Sequence[Message],
        *,
        stage: str,
        tools: Sequence[Mapping[str, object]] = (),
        max_tokens: int = 1024,
    ) -> Reply:
        prompt = tuple(messages)
        if answers := self._answers.get(prompt):
            return answers.popleft()
        reply = self._model.reply(messages, stage=stage, tools=tools, max_tokens=max_tokens)
        kept = _shared(self._latest, prompt)
        self._on_exchange(Exchange(self.name, kept, prompt[kept:], reply))
        self._latest = prompt
        return reply


def _shared(before: Sequence[Message], now: Sequence[Message]) -> int:
    """How many leading messages are the same."""
    count = 0
    for old, new in zip(before, now, strict=False):
        if old != new:
            break
        count += 1
    return count
