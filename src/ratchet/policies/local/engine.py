"""Sampling from a causal language model in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ratchet.policies.local.batches import BatchSampler, Request
from ratchet.policies.local.templates import Tokens


class Engine(BatchSampler):
    """Samples with `model`, which a trainer may change meanwhile, as long as it does not do so while somebody samples:
    it is put into evaluation mode for that, and back."""

    def __init__(self, model: Any, tokens: Tokens) -> None:
        super().__init__()
        self.model = model
        self.tokens = tokens

    def answer(self, batch: list[Request]) -> None:
        with _evaluating(self.model), torch.no_grad():
            self._decode(batch)

    def _decode(self, batch: list[Request]) -> None:
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

    def _take(self, request: Request, token: int, logprob: float) -> None:
        request.ids.append(token)
        request.logprobs.append(logprob)
        if token in self.tokens.ends or self._stops(request):
            request.finish = "stop"
        elif len(request.ids) >= request.max_tokens:
            request.finish = "length"

    def _stops(self, request: Request) -> bool:
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
