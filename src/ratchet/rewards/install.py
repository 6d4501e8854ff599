"""The reward of an install: the targets hold on fresh replay, less what it took."""

from __future__ import annotations

from ratchet.rewards.cost import TOKENS_PER_UNIT, penalty
from ratchet.task_records import Reward

_STEPS_WEIGHT = 0.05
_TOKENS_WEIGHT = 0.05
_MOST = 0.5
_K, _Q = 0.1, 0.5


def install_reward(*, targets: float, steps: int, tokens: int) -> Reward:
    """`targets` is the share of the targets that held on fresh replay, `steps` what the model did, `tokens` what its
    calls took, prompts included. Nothing is gained unless all targets hold; costs take at most half (see `cost`)."""
    solved = float(targets >= 1)
    costs = {"steps": -penalty(steps, _K, _Q), "tokens": -penalty(tokens / TOKENS_PER_UNIT, _K, _Q)}
    spent = min(-_STEPS_WEIGHT * costs["steps"] - _TOKENS_WEIGHT * costs["tokens"], _MOST * solved)
    return Reward(solved - spent, {"solved": solved, "targets": targets, **costs}, "install")
