"""Sampling with vLLM on a machine with GPUs, from the weights that TRL keeps in step with the trainer's.

vLLM itself was never run with this: there was no GPU. The tests put another generator in its place.
"""

from __future__ import annotations

from typing import Any

from ratchet.policies.local.batches import BatchSampler, Request
from ratchet.policies.local.templates import Tokens


class VllmSampler(BatchSampler):
    """The temperature and the longest reply are those of `trainer`; a reply is cut after the first of `stop` here."""

    def __init__(self, trainer: Any, tokens: Tokens) -> None:
        super().__init__()
        self._generation = trainer.vllm_generation
        self._tokens = tokens

    def answer(self, batch: list[Request]) -> None:
        prompts = [list(request.prompt) for request in batch]
        _, ids, logprobs, _ = self._generation.generate(prompts=prompts, images=None, num_generations=1)
        for request, tokens, numbers in zip(batch, ids, logprobs, strict=True):
            end, request.finish = self._end(list(tokens), request)
            request.ids = list(tokens[:end])
            if all(each[0] is not None for each in numbers[:end]):  # vLLM has none where it computed a NaN
                request.logprobs = [float(each[0]) for each in numbers[:end]]

    def _end(self, ids: list[int], request: Request) -> tuple[int, str]:
        """How many tokens count, and why no more."""
        most = min(len(ids), request.max_tokens)
        for end in range(1, most + 1):
            text = self._tokens.decode(ids[:end])
            if ids[end - 1] in self._tokens.ends or any(each in text for each in request.stop):
                return end, "stop"
        return most, "length"
