"""What can be chosen of training. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from ratchet.errors import UsageError

Config = TypeVar("Config")

Tell = Callable[[Mapping[str, Any]], None]
"""Is told of each update: its step, how many there will be, and its numbers."""

FOR_GPU = ("", "colocate", "server")


@dataclass(frozen=True)
class WarmStart:
    """Supervised fine-tuning. `epochs` 0: none. `batch` sequences make one update, one at a time where memory is short
    (`at_once`). `lora_rank` 0 trains all weights; else LoRA adapters, merged at the end. A checkpoint is saved after
    every `save_every` updates. Traces of more than `most_tokens` are left out, and counted."""

    epochs: int = 3
    learning_rate: float = 5e-5
    batch: int = 8
    at_once: int = 4
    most_tokens: int = 2048
    lora_rank: int = 0
    save_every: int = 1
    reporter: str = "none"


@dataclass(frozen=True)
class Reinforce:
    """Reinforcement learning as in Dr. GRPO (Liu et al. 2025, arXiv:2503.20783): rewards less the mean of their group,
    no division by their deviation, and token losses summed and divided by a constant, `most_tokens`.

    `steps` updates, 0: none; each is made from `samples` tries at each of `problems` problems. `at_once` sequences go
    through the model together. `beta` weighs the divergence from the start. `vllm` is for machines with GPUs:
    "colocate" or "server", as TRL names them; empty: the model samples by itself. `kl` is whether the divergence from
    the start is measured, which takes a forward pass more.
    """

    steps: int = 20
    problems: int = 4
    samples: int = 8
    learning_rate: float = 5e-6
    temperature: float = 1.0
    beta: float = 0.0
    most_tokens: int = 1024
    at_once: int = 1
    max_grad_norm: float = 1.0
    lora_rank: int = 0
    save_every: int = 1
    kl: bool = True
    gradient_checkpointing: bool = False
    vllm: str = ""
    reporter: str = "none"


def check(config: WarmStart | Reinforce, where: str) -> None:
    """Raises UsageError for what no training can be made of."""
    least: dict[str, float] = {"learning_rate": 1e-12, "most_tokens": 8, "at_once": 1, "save_every": 1}
    if isinstance(config, Reinforce):
        least |= {"problems": 1, "samples": 2, "temperature": 0.01, "max_grad_norm": 1e-6}
        if config.vllm not in FOR_GPU:
            raise UsageError(f"{where}: vllm knows no {config.vllm}", remedy='use "", "colocate" or "server"')
        if config.problems * config.samples % config.at_once:
            raise UsageError(
                f"{where}: at_once = {config.at_once} does not divide the {config.problems * config.samples} tries of"
                " a step",
                remedy="choose a divisor of problems times samples",
            )
    else:
        least |= {"batch": 1}
    for name, bound in least.items():
        if (value := getattr(config, name)) < bound:
            raise UsageError(f"{where}: {name} is {value}", remedy=f"use {bound:g} or more")


# --------------------------------------------------------------------------- from TOML


def from_table(kind: type[Config], table: Mapping[str, Any], where: str) -> Config:
    """A dataclass from a TOML table: each value has the type of the field's default. Raises UsageError, which says what
    is wrong in `where`."""
    defaults = {each.name: each.default for each in fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name not in defaults:
            raise UsageError(f"{where}: there is no {name}", remedy="use " + ", ".join(defaults))
        default = defaults[name]
        if isinstance(default, tuple):
            if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
                raise UsageError(f"{where}: {name} has to be a list of texts", remedy="correct it")
            values[name] = tuple(value)
        elif isinstance(default, float) and isinstance(value, int | float) and not isinstance(value, bool):
            if not 0 <= value < float("inf"):
                raise UsageError(f"{where}: {name} has to be 0 or more", remedy="correct it")
            values[name] = float(value)
        else:
            values[name] = typed(value, type(default), f"{where}: {name}")
    return kind(**values)


def typed(value: Any, kind: type, where: str) -> Any:
    """`value`, if it is of that kind; whole numbers are 0 or more."""
    fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if not fits or (kind is int and value < 0):
        raise UsageError(f"{where} has to be {_WORDS[kind]}", remedy="correct it")
    return value


_WORDS = {str: "a text", int: "a whole number, 0 or more", bool: "true or false", float: "a number, 0 or more"}
