"""The tokens of calls of a model: how many, and as the model saw and sampled them. Nothing is ever tokenised again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ratchet.records import Exchange, Reply, Usage
from ratchet.task_records import TokenTrace


def token_traces(exchanges: Iterable[Exchange]) -> tuple[TokenTrace, ...]:
    """The sequences of tokens in the calls of one model, in their order.

    An exchange goes on with the sequence before it where its prompt begins with exactly that sequence; else (the
    conversation was cut, or the server's template writes what was said before in another way) it starts a new one.
    Exchanges for which the server gave no ids of prompt and reply are left out. The log-probabilities of a sequence
    are empty where one of its replies has none.
    """
    done: list[_Trace] = []
    for exchange in exchanges:
        reply = exchange.reply
        if not reply.prompt_token_ids or not reply.token_ids:
            continue
        if not done or not done[-1].begins(reply.prompt_token_ids):
            done.append(_Trace())
        done[-1].add(reply)
    return tuple(trace.whole() for trace in done)


def usage_of(exchanges: Iterable[Exchange]) -> Usage:
    """What the calls took in all."""
    usage = Usage()
    for exchange in exchanges:
        usage = usage.plus(exchange.reply)
    return usage


@dataclass
class _Trace:
    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    has_logprobs: bool = True

    def begins(self, prompt: tuple[int, ...]) -> bool:
        """Whether `prompt` begins with all of this."""
        return prompt[: len(self.ids)] == tuple(self.ids)

    def add(self, reply: Reply) -> None:
        given = reply.prompt_token_ids[len(self.ids) :]
        self.has_logprobs = self.has_logprobs and len(reply.logprobs) == len(reply.token_ids)
        self.ids += [*given, *reply.token_ids]
        self.mask += [0] * len(given) + [1] * len(reply.token_ids)
        if self.has_logprobs:
            self.logprobs += [0.0] * len(given) + list(reply.logprobs)

    def whole(self) -> TokenTrace:
        return TokenTrace(tuple(self.ids), tuple(self.mask), tuple(self.logprobs) if self.has_logprobs else ())
