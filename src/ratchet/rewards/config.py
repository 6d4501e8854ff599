"""How the parts of a reward are combined: a small TOML file.

name = "careful"          # stored with every reward
gate = "solved"           # nothing is gained unless all tests pass; or "none"

[weights]                 # of the parts that are gained, relative to each other
solved = 3
behaviour = 1
steps = 0.01              # of the costs: per unit of the penalty
tokens = 0.001

[cost]
k = 0.1                   # see `cost.penalty`
q = 0.5
most = 0.5                # costs take at most this share of what was gained
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.errors import UsageError

GAINS = ("solved", "unit_tests", "compiles", "imports", "type_checks", "behaviour", "judge", "preference")
COSTS = ("steps", "tokens")
GATES = ("solved", "none")

_LARGEST = 1e6
_LARGEST_FILE_BYTES = 1 << 16


@dataclass(frozen=True)
class RewardConfig:
    """`weights` are not negative, and one of a gain is positive. Raises UsageError where something does not fit."""

    name: str = "default"
    weights: Mapping[str, float] = field(default_factory=lambda: {"solved": 1.0, "behaviour": 1.0})
    gate: str = "solved"
    k: float = 0.1
    q: float = 0.5
    most: float = 0.5

    def __post_init__(self) -> None:
        _refuse_unknown("weight", self.weights, (*GAINS, *COSTS))
        if not self.name:
            raise UsageError("a reward needs a name", remedy='write name = "…" at the top of its file')
        if self.gate not in GATES:
            raise UsageError(f"there is no gate {self.gate!r}", remedy=f"the gates are {', '.join(GATES)}")
        for name, value in (*self.weights.items(), ("k", self.k), ("q", self.q)):
            if not 0 <= value <= _LARGEST:
                raise UsageError(f"{name} is {value}", remedy=f"give a number from 0 to {_LARGEST:.0f}")
        if 0 < self.k < 1 / _LARGEST:
            raise UsageError(f"k is {self.k}, which is too small to compute with", remedy="0 means no bend at all")
        if not 0 <= self.most <= 1:
            raise UsageError(f"most is {self.most}", remedy="give a share from 0 to 1")
        if not math.fsum(self.weights.get(name, 0.0) for name in GAINS) > 0:
            raise UsageError("nothing can be gained", remedy=f"give a weight to one of {', '.join(GAINS)}")

    def weight(self, part: str) -> float:
        return self.weights.get(part, 0.0)


def load_config(path: Path) -> RewardConfig:
    """The configuration in a TOML file; the defaults for what it leaves out, save that `weights`, where it has them,
    are all there are. Raises UsageError."""
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_FILE_BYTES + 1)
        if len(text) > _LARGEST_FILE_BYTES:
            raise UsageError(f"{path} is larger than {_LARGEST_FILE_BYTES} bytes", remedy="is it a reward's TOML file?")
        data = tomllib.loads(text.decode())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", remedy="check the path") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no TOML: {error}", remedy="see `rewards/config.py` for an example") from error
    return parse_config(data)


def parse_config(data: Mapping[str, Any]) -> RewardConfig:
    """The configuration in the data of a TOML file. Raises UsageError."""
    _refuse_unknown("key", data, ("name", "gate", "weights", "cost"))
    options: dict[str, Any] = {key: _text(key, data[key]) for key in ("name", "gate") if key in data}
    if "weights" in data:
        weights = _table("weights", data)
        options["weights"] = {name: _number(name, value) for name, value in weights.items()}
    cost = _table("cost", data)
    _refuse_unknown("key of [cost]", cost, ("k", "q", "most"))
    options |= {name: _number(name, value) for name, value in cost.items()}
    return RewardConfig(**options)


def _refuse_unknown(what: str, given: Iterable[str], known: tuple[str, ...]) -> None:
    if unknown := sorted(set(given) - set(known)):
        raise UsageError(f"a reward has no {what} {', '.join(map(repr, unknown))}", remedy=f"known: {', '.join(known)}")


def _table(name: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
    table = data.get(name, {})
    if not isinstance(table, Mapping):
        raise UsageError(f"{name} is no table", remedy=f"write [{name}] on a line of its own")
    return table


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} is no text", remedy=f'write {name} = "…"')
    return value


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{name} is no number", remedy=f"write {name} = 1.0, for example")
    # A whole number of TOML may be larger than any float.
    return float(min(value, 10**300)) if isinstance(value, int) else value


DEFAULT = RewardConfig()
