"""Adapters in place of all weights (Hu et al. 2021, arXiv:2106.09685)."""

from __future__ import annotations

from peft import LoraConfig


def adapters(rank: int) -> LoraConfig | None:
    """None for rank 0: all weights are trained."""
    if not rank:
        return None
    return LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
