"""What counts as a success: a fresh replay of the recipe alone that changes no tests, and in which all targets hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ratchet.autoinstall.changed_tests import changed_tests
from ratchet.autoinstall.verify import judge, replay
from ratchet.autoinstall.workshop import Workshop
from ratchet.records import Base, Checkout, Goal, Limits, Reason, Recipe, Survey, Verdict


@dataclass(frozen=True)
class Replayed:
    """What a fresh replay proved. `layer` is what the recipe left, which the caller removes in the end; None where
    nothing was proved: then `reason` and `detail` say why."""

    layer: str | None
    verdicts: tuple[Verdict, ...] = ()
    reason: Reason | None = None
    detail: str = ""


def prove(
    workshop: Workshop,
    base: Base,
    checkout: Checkout,
    survey: Survey,
    recipe: Recipe,
    targets: Sequence[Goal],
    limits: Limits,
    cache: Path,
) -> Replayed:
    """Replay `recipe` from base and checkout, and judge `targets` there, each offline in a fork of its own."""
    replayed = replay(workshop, base, checkout, recipe, limits, cache)
    if replayed.network_failed:  # the world's fault or ours, and not the recipe's
        replayed = replay(workshop, base, checkout, recipe, limits, cache)
    if replayed.layer is None:
        return Replayed(None, (), Reason.REPLAY_DIFFERS, replayed.detail)
    found: list[str] = []

    def changed(layer: Path) -> list[str]:
        found.extend(changed_tests(layer, checkout, survey))
        return found

    if changed(workshop.layers.path(replayed.layer)):
        workshop.layers.remove(replayed.layer)
        return Replayed(None, (), Reason.TESTS_CHANGED, f"the recipe changes tests: {', '.join(found[:5])}")
    layers = (*workshop.pristine_layers(base, checkout), replayed.layer)
    verdicts = tuple(judge(workshop, layers, goal, recipe, limits, changed) for goal in targets)
    failed = next((verdict for verdict in verdicts if not verdict.passed), None)
    if failed is None:
        return Replayed(replayed.layer, verdicts)
    workshop.layers.remove(replayed.layer)
    reason = Reason.TESTS_CHANGED if found else Reason.REPLAY_DIFFERS
    return Replayed(None, verdicts, reason, f"on fresh replay {failed.why}")
