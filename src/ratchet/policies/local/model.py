"""A local checkpoint as a `protocols.Model`: conversations become exact tokens, and what was sampled stays so."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ratchet.errors import ContextOverflowError
from ratchet.policies.budget import Meter
from ratchet.policies.local.templates import Conversations, Tokens
from ratchet.protocols import Sampler
from ratchet.records import Message, Reply


@dataclass
class LocalModel:
    """Any `sampler` with the tokenizer of its model. Several threads and conversations may use it.

    `max_reply_tokens`, where set, bounds what a policy asks for. A reply ends after the first of `stop`. `name` is what
    records call it.
    """

    sampler: Sampler
    tokens: Tokens
    name: str
    context_tokens: int = 2048
    temperature: float = 0.0
    max_reply_tokens: int | None = None
    stop: tuple[str, ...] = ("\n```\n",)
    meter: Meter = field(default_factory=Meter)

    def __post_init__(self) -> None:
        self._conversations = Conversations(self.tokens)

    @property
    def uses_tools(self) -> bool:
        return False

    def reply(
        self,
        messages: Sequence[Message],
        *,
        stage: str,
        tools: Sequence[Mapping[str, object]] = (),  # noqa: ARG002  it has none
        max_tokens: int = 1024,
    ) -> Reply:
        """See `protocols.Model`."""
        self.meter.check()
        began = time.monotonic()
        prompt = self._conversations.prompt(messages)
        asked = min(max_tokens, self.max_reply_tokens or max_tokens)
        if (room := self.context_tokens - len(prompt)) < 1:
            raise ContextOverflowError(
                f"the prompt has {len(prompt)} tokens, and {self.name} has a context of {self.context_tokens}",
                remedy="allow a longer context, or use a model with one",
            )
        sampled = self.sampler.sample(prompt, max_tokens=min(asked, room), temperature=self.temperature, stop=self.stop)
        self._conversations.remember(messages, prompt, sampled.token_ids)
        reply = Reply(
            self.tokens.decode(sampled.token_ids),
            finish=sampled.finish,
            prompt_tokens=len(prompt),
            completion_tokens=len(sampled.token_ids),
            seconds=time.monotonic() - began,
            prompt_token_ids=prompt,
            token_ids=sampled.token_ids,
            logprobs=sampled.logprobs,
        )
        self.meter.add(stage, reply)
        return reply
