"""Repairs: reading a failing log and changing the plan.

`propose` reads one failure and says which changes of the plan could mend it. Every kind of repair is a module with a
table of rules; `ORDER` is their precedence, most specific first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ratchet.policies.rules.plan import Plan
from ratchet.policies.rules.repairs import (
    build_backend,
    debian_packages,
    drift,
    hanging_tests,
    project_layout,
    pytest_plugins,
    pytest_version,
    python_modules,
    python_version,
    resolver,
    system_state,
    version_metadata,
)
from ratchet.policies.rules.repairs.failure import Change, Context, Failure, Lookup, Repair
from ratchet.policies.rules.repairs.reading import read

__all__ = ["ORDER", "Change", "Context", "Failure", "Lookup", "Repair", "apply", "propose"]

ORDER = (
    resolver.RULES,
    version_metadata.RULES,
    project_layout.RULES,
    system_state.RULES,
    debian_packages.RULES,
    pytest_plugins.RULES,
    python_version.RULES,
    pytest_version.RULES,
    python_modules.RULES,
    build_backend.RULES,
    drift.RULES,
    build_backend.LAST_RULES,
    drift.LAST_RULES,
)
"""Which kind of repair is tried before which."""

# More at once than any real failure needs.
_MOST_REPAIRS = 60


def propose(failure: Failure, plan: Plan, context: Context, applied: Collection[str] = ()) -> list[Repair]:
    """Repairs of one failure that can be applied together, in this order; none where nothing helps.

    `applied` are the keys of repairs that this attempt has made already. A repair that would change nothing is left
    out. One that goes `alone` (another Python, another date) comes only where nothing more specific does.
    """
    if failure.limit is not None:
        return [r for r in hanging_tests.propose_for_limit(failure) if r.key not in applied and r.change(plan) != plan]
    reading = read(failure, plan, context)
    found: dict[str, Repair] = {}
    for rules in ORDER:
        for rule in rules:
            for repair in rule.apply(reading):
                if repair.key not in applied and repair.change(plan) != plan:
                    found.setdefault(repair.key, repair)
    together = [repair for repair in found.values() if not repair.alone]
    return (together or list(found.values())[:1])[:_MOST_REPAIRS]


def apply(plan: Plan, repairs: Iterable[Repair]) -> Plan:
    """The plan after all of these repairs."""
    for repair in repairs:
        plan = repair.change(plan)
    return plan
