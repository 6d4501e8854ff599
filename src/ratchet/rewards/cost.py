"""What a rollout took, as a penalty that grows ever more slowly: the tenth step counts for more than the hundredth."""

from __future__ import annotations

import math

from ratchet.task_records import Rollout

TOKENS_PER_UNIT = 1000


def penalty(x: float, k: float, q: float) -> float:
    """`((1+kx)^(1-q) - 1) / (k(1-q))` for an amount `x` >= 0: 0 at 0, growing, concave where `q` > 0, never above `x`.

    `k` >= 0 is the scale on which it bends (k = 0: `x` itself), `q` >= 0 how strongly (q = 0: `x` itself, q = 1:
    `log(1+kx)/k`, above 1 it has a bound). Computed by logarithms, so that neither limit divides by nothing and large
    powers do not overflow.
    """
    if not x * k:
        return x
    log = math.log1p(k * x)
    exponent = (1 - q) * log
    return log / k * (math.expm1(exponent) / exponent if exponent else 1.0)


def cost(rollout: Rollout, k: float, q: float) -> dict[str, float]:
    """The penalties, as negative numbers, for the steps and for the tokens (in thousands, prompts included)."""
    amounts = {"steps": float(rollout.steps), "tokens": rollout.usage.tokens / TOKENS_PER_UNIT}
    return {name: -penalty(max(amount, 0.0), k, q) for name, amount in amounts.items()}
