"""A model whose earlier replies are played again: how a run that was killed goes on without asking twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ratchet.policies.budget import Meter
from ratchet.protocols import Model
from ratchet.records import Exchange, Message, Reply


class ResumedModel:
    """A `protocols.Model`. While prompts are those of `recorded`, the replies come from there; from the first one that
    differs on, `model` is asked. `on_exchange` is told of every new reply before anything is done with it; `meter`
    counts those from the record, so that a budget holds over all runs together."""

    def __init__(
        self, model: Model, recorded: Sequence[Exchange], on_exchange: Callable[[Exchange], None], meter: Meter
    ) -> None:
        self._model = model
        self._recorded = list(recorded)
        self._on_exchange = on_exchange
        self._meter = meter
        self._prompt: tuple[Message, ...] = ()

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
        before, prompt = self._prompt, tuple(messages)
        known = self._recorded[0] if self._recorded else None
        if known is not None and before[: known.kept] + known.messages == prompt:
            del self._recorded[0]
            self._prompt = prompt
            self._meter.add(stage, known.reply)
            return known.reply
        # A prompt that is too long raises here, as it did in the first run: the record goes on with the shorter one.
        reply = self._model.reply(messages, stage=stage, tools=tools, max_tokens=max_tokens)
        while self._recorded:  # replies to another course of things: of no use any more, and paid for
            self._meter.add(stage, self._recorded.pop().reply)
        kept = _shared(before, prompt)
        self._on_exchange(Exchange(self.name, kept, prompt[kept:], reply))
        self._prompt = prompt
        return reply


def _shared(before: Sequence[Message], now: Sequence[Message]) -> int:
    """How many leading messages are the same."""
    count = 0
    for old, new in zip(before, now, strict=False):
        if old != new:
            break
        count += 1
    return count
