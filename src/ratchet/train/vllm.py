"""Sampling with vLLM on a machine with GPUs, from the weights that TRL keeps in step with the trainer's.

Not exercised where there is no GPU: `tests/test_train_gpu.py` does, and is skipped without one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ratchet.policies.local.templates import Tokens
from ratchet.records import Sampled

_GATHER_S = 0.02


@dataclass
class _Request:
    prompt: list[int]
    done: threading.Event = field(default_factory=threading.Event)
    result: tuple[list[int], list[float]] | None = None
    error: Exception | None = None


class VllmSampler:
    """A `protocols.Sampler`: whoever asks at the same time is answered as one batch. The temperature and the longest
    reply are the trainer's; a reply is cut after the first of `stop` here."""

    def __init__(self, trainer: Any, tokens: Tokens) -> None:
        self._generation = trainer.vllm_generation
        self._tokens = tokens
        self._waiting: list[_Request] = []
        self._list = threading.Lock()
        self._turn = threading.Lock()

    def sample(
        self,
        prompt_ids: Sequence[int],
        *,
        max_tokens: int,
        temperature: float = 1.0,  # noqa: ARG002  the trainer's
        stop: Sequence[str] = (),
    ) -> Sampled:
        """See `protocols.Sampler`."""
        request = _Request(list(prompt_ids))
        with self._list:
            self._waiting.append(request)
        while not request.done.is_set():
            with self._turn:
                if not request.done.is_set():
                    time.sleep(_GATHER_S)
                    self._answer()
        if request.error is not None:
            raise request.error
        assert request.result is not None
        return self._cut(*request.result, max_tokens, stop)

    def _answer(self) -> None:
        with self._list:
            batch, self._waiting = self._waiting, []
        try:
            _, ids, logprobs, _ = self._generation.generate(
                prompts=[request.prompt for request in batch], images=None, num_generations=1
            )
            for request, tokens, numbers in zip(batch, ids, logprobs, strict=True):
                request.result = (list(tokens), [float(each[0] or 0.0) for each in numbers])
        except Exception as error:  # noqa: BLE001  whoever asked has to hear of it
            for request in batch:
                request.error = error
        finally:
            for request in batch:
                request.done.set()

    def _cut(self, ids: list[int], logprobs: list[float], max_tokens: int, stop: Sequence[str]) -> Sampled:
        for end in range(1, min(len(ids), max_tokens) + 1):
            text = self._tokens.decode(ids[:end])
            if ids[end - 1] in self._tokens.ends or any(each in text for each in stop):
                return Sampled(tuple(ids[:end]), tuple(logprobs[:end]), "stop")
        return Sampled(tuple(ids[:max_tokens]), tuple(logprobs[:max_tokens]), "length")
