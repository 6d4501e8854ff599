"""Loading a checkpoint with transformers, and on what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def load(checkpoint: Path, dtype: str = "") -> Any:
    """A causal language model on the GPU where there is one. `dtype` as torch names it; empty: bfloat16 on a GPU, and
    float32 on a CPU."""
    chosen = getattr(torch, dtype or ("bfloat16" if device() == "cuda" else "float32"))
    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=chosen, local_files_only=True)
    return model.to(device())
