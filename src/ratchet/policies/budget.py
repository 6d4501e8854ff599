"""What calls of models may take, and what they have taken, by stage."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from ratchet.errors import BudgetSpentError, UsageError
from ratchet.policies.profiles import Profile
from ratchet.records import Reply, Usage


@dataclass(frozen=True)
class Budget:
    """Tokens (of prompts and replies together), and cost in the currency of the profiles' prices. None: no limit."""

    tokens: int | None = None
    cost: float | None = None


class Meter:
    """Counts what is spent of `budget`. Several models, in several threads, may share one.

    `spent` is what an earlier process took already. The call that goes beyond the budget is the last one: it is
    counted when its reply is there, so what is spent may exceed the budget by one call of each thread.
    """

    def __init__(self, budget: Budget = Budget(), spent: Mapping[str, Usage] | None = None) -> None:
        self.budget = budget
        self._usage = dict(spent or {})
        self._lock = threading.Lock()

    @property
    def usage(self) -> dict[str, Usage]:
        """What was taken, by stage."""
        with self._lock:
            return dict(self._usage)

    @property
    def left_tokens(self) -> int | None:
        """How many tokens are left, 0 at least; None without a limit."""
        if self.budget.tokens is None:
            return None
        return max(0, self.budget.tokens - sum(usage.tokens for usage in self.usage.values()))

    def check(self) -> None:
        """Raises `BudgetSpentError` when nothing is left for another call."""
        usage = self.usage.values()
        tokens, cost = sum(u.tokens for u in usage), sum(u.cost for u in usage)
        if self.budget.tokens is not None and tokens >= self.budget.tokens:
            raise BudgetSpentError(
                f"The budget of {self.budget.tokens:,} tokens is spent: {tokens:,} were used",
                remedy="allow more with --max-tokens; the same command then goes on where it stopped",
            )
        if self.budget.cost is not None and cost >= self.budget.cost:
            raise BudgetSpentError(
                f"The budget of {self.budget.cost:.2f} is spent: calls of models cost {cost:.2f}",
                remedy="allow more with --max-cost; the same command then goes on where it stopped",
            )

    def add(self, stage: str, reply: Reply) -> None:
        with self._lock:
            self._usage[stage] = self._usage.get(stage, Usage()).plus(reply)


def require_prices(budget: Budget, *profiles: Profile) -> None:
    """Raises `UsageError` when the cost is limited and a profile does not say what its tokens cost."""
    for profile in profiles:
        if budget.cost is not None and not profile.has_prices:
            raise UsageError(
                f"--max-cost cannot be kept: the model {profile.name} has no prices",
                remedy="set price_per_million_prompt and price_per_million_completion in its profile (0 for a model "
                "of your own), or limit the tokens with --max-tokens",
            )
