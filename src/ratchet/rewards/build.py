"""What of a rollout's patch holds without any test: it compiles, it can be imported, its types check."""

from __future__ import annotations

from ratchet.task_records import Rollout

PARTS = ("compiles", "imports", "type_checks")


def build(rollout: Rollout) -> dict[str, float]:
    """1 or 0 for each of `PARTS` that was looked at; the others are left out."""
    if rollout.grade is None:
        return {}
    looks = {name: getattr(rollout.grade, name) for name in PARTS}
    return {name: float(holds) for name, holds in looks.items() if holds is not None}
