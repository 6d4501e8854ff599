"""Sampling from a causal language model in this process: whoever asks at the same time is answered as one batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from ratchet.errors import ModelServerError
from ratchet.policies.local.templates import Tokens
from ratchet.records import Sampled

_GATHER_S = 0.02  # how long the first of a batch waits for others


@dataclass
class _Request:
    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float
    stop: tuple[str, ...]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: str = ""
    error: Exception | None = None
    done: threading.Event = field(default_factory=threading.Event)


class Engine:
    """A `protocols.Sampler`.

    There is no thread of its own: the first of those that wait works on the whole batch, at most `most_batch` sequences
    and `most_tokens` of padded prompts. `model` may be one that a trainer changes meanwhile, as long as it does not do
    so while somebody samples: it is put into evaluation mode for that, and back.
    """

    def __init__(self, model: Any, tokens: Tokens, *, most_batch: int = 32, most_tokens: int = 65_536) -> None:
        self.model = model
        self.tokens = tokens
        self._most_batch = most_batch
        self._most_tokens = most_tokens
        self._waiting: list[_Request] = []
        self._list = threading.Lock()
        self._turn = threading.Lock()

    def sample(
        self, prompt_ids: Sequence[int], *, max_tokens: int, temperature: float = 1.0, stop: Sequence[str] = ()
    ) -> Sampled:
        """See `protocols.Sampler`. Raises ModelServerError where the model fails."""
        if not prompt_ids or max_tokens < 1:
            raise ValueError("a prompt of one token and room for one more are the least")
        request = _Request(tuple(prompt_ids), max_tokens, temperature, tuple(stop))
        with self._list:
            self._waiting.append(request)
        while not request.done.is_set():
            if self._turn.acquire(timeout=0.02):
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

    def _batch(self, first: _Request) -> list[_Request]:
        """`first`, and those that fit beside it, the longest-waiting first."""
        with self._list:
            others = [each for each in self._waiting if each is not first]
            batch, width = [first], len(first.prompt)
            for each in others:
                wider = max(width, len(each.prompt))
                if len(batch) < self._most_batch and wider * (len(batch) + 1) <= self._most_tokens:
                    batch.append(each)
                    width = wider
            self._waiting = [each for each in others if each not in batch]
        return batch

    def _answer(self, batch: list[_Request]) -> None:
        try:
            with _evaluating(self.model), torch.no_grad():
                self._decode(batch)
        except (RuntimeError, ValueError, IndexError, MemoryError) as error:
            for request in batch:
                request.error = error
        finally:
            for request in batch:
                request.done.set()

    def _decode(self, batch: list[_Request]) -> None:
        """Sample all of `batch`. Rows that have ended leave it."""
        device = next(self.model.parameters()).device
        ids, mask = _padded([request.prompt for request in batch], self.tokens.pad, device)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        cache = None
        alive = list(batch)
        while alive:
            out = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                cache=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache = out.cache
            chosen, logprobs = _draw(out.logits[:, -1].float(), [request.temperature for request in alive])
            for request, token, logprob in zip(alive, chosen.tolist(), logprobs.tolist(), strict=True):
                self._take(request, token, logprob)
            kept = [row for row, request in enumerate(alive) if not request.finish]
            if len(kept) < len(alive):
                for request in alive:
                    if request.finish:
                        request.done.set()
                alive = [alive[row] for row in kept]
                if not alive:
                    return
                rows = torch.tensor(kept, device=device)
                cache.batch_select_indices(rows)
                chosen, mask, positions = chosen[rows], mask[rows], positions[rows]
            ids = chosen[:, None]
            mask = torch.cat([mask, mask.new_ones(len(alive), 1)], dim=1)
            positions = positions[:, -1:] + 1

    def _take(self, request: _Request, token: int, logprob: float) -> None:
        request.ids.append(token)
        request.logprobs.append(logprob)
        if token in self.tokens.ends or self._stops(request):
            request.finish = "stop"
        elif len(request.ids) >= request.max_tokens:
            request.finish = "length"

    def _stops(self, request: _Request) -> bool:
        if not request.stop:
            return False
        longest = max(map(len, request.stop))
        tail = self.tokens.decode(request.ids[-longest - 8 :])  # a token is one character at least, mostly
        return any(stop in tail for stop in request.stop)


def _padded(prompts: Sequence[Sequence[int]], pad: int, device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and attention mask, padded on the left."""
    width = max(map(len, prompts))
    ids = [[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def _draw(logits: torch.Tensor, temperatures: Sequence[float]) -> tuple[torch.Tensor, torch.Tensor]:
    """One token of each row, and its log-probability in the distribution that it was drawn from."""
    scale = torch.tensor([each if each > 0 else 1.0 for each in temperatures], device=logits.device)
    logprobs = torch.log_softmax(logits / scale[:, None], dim=-1)
    drawn = torch.multinomial(logprobs.exp(), 1)[:, 0]
    greedy = torch.tensor([each <= 0 for each in temperatures], device=logits.device)
    chosen = torch.where(greedy, logits.argmax(-1), drawn)
    return chosen, logprobs.gather(1, chosen[:, None])[:, 0]


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
