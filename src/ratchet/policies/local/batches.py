"""Whoever asks for a sample at the same time is answered as one batch."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from ratchet.errors import ModelServerError
from ratchet.records import Sampled

_GATHER_S = 0.02  # how long the first of a batch waits for others


@dataclass
class Request:
    """What is asked for, and (from `ids` on) what came of it. It is answered once `done` is set."""

    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float
    stop: tuple[str, ...]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: str = ""
    error: Exception | None = None
    done: threading.Event = field(default_factory=threading.Event)


class BatchSampler(ABC):
    """A `protocols.Sampler` without a thread of its own: the first of those that wait works on the whole batch, at most
    `most_batch` sequences and `most_tokens` of padded prompts."""

    def __init__(self, *, most_batch: int = 32, most_tokens: int = 65_536) -> None:
        self._most_batch = most_batch
        self._most_tokens = most_tokens
        self._waiting: list[Request] = []
        self._list = threading.Lock()
        self._turn = threading.Lock()

    @abstractmethod
    def answer(self, batch: list[Request]) -> None:
        """Fill in `ids`, `logprobs` and `finish` of each. Those that are ready early may be marked as done."""

    def sample(
        self, prompt_ids: Sequence[int], *, max_tokens: int, temperature: float = 1.0, stop: Sequence[str] = ()
    ) -> Sampled:
        """See `protocols.Sampler`. Raises ModelServerError where the model fails."""
        if not prompt_ids or max_tokens < 1:
            raise ValueError("a prompt of one token and room for one more are the least")
        request = Request(tuple(prompt_ids), max_tokens, temperature, tuple(stop))
        with self._list:
            self._waiting.append(request)
        while not request.done.is_set():
            if self._turn.acquire(timeout=_GATHER_S):
                try:
                    if not request.done.is_set():
                        time.sleep(_GATHER_S)
                        self._answer(self._batch(request))
                finally:
                    self._turn.release()
        if request.error is not None:
            raise ModelServerError(
                f"the local model could not sample: {request.error}", remedy="try a smaller batch or context"
            ) from request.error
        return Sampled(tuple(request.ids), tuple(request.logprobs), request.finish)

    def _batch(self, first: Request) -> list[Request]:
        """`first`, and those that fit beside it, the longest-waiting first."""
        with self._list:
            others = [each for each in self._waiting if each is not first]
            batch, width = [first], len(first.prompt)
            for each in others:
                wider = max(width, len(each.prompt))
                if len(batch) < self._most_batch and wider * (len(batch) + 1) <= self._most_tokens:
                    batch.append(each)
                    width = wider
            self._waiting = [each for each in others if not any(each is one for one in batch)]
        return batch

    def _answer(self, batch: list[Request]) -> None:
        try:
            self.answer(batch)
        except Exception as error:  # noqa: BLE001  each of those who asked raises it
            for request in batch:
                if not request.finish:
                    request.error = error
        finally:
            for request in batch:
                request.done.set()
