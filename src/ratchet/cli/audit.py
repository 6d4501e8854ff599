"""`ratchet audit`: the rollouts that did something an honest solution does not do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ratchet.cli.options import AsJson
from ratchet.cli.screen import say, say_json, say_table

if TYPE_CHECKING:
    from ratchet.task_records import Flag, Rollout


def audit(as_json: AsJson = False) -> None:
    """List suspicious rollouts: those that score 0 for it first, and how often each kind was seen.

    A flag is what the monitor or the grading saw; a decisive one makes the reward 0, the others are for the reader.
    """
    from ratchet.store import Store, default_home
    from ratchet.task_records import Rollout

    store = Store(default_home())
    rollouts = [store.get("rollout", name, Rollout) for name in sorted(store.ids("rollout"))]
    flagged = [(rollout, flag) for rollout in rollouts if rollout.grade for flag in rollout.grade.flags]
    flagged.sort(key=lambda entry: (not entry[1].decisive, entry[1].kind, entry[0].id, entry[1].detail))
    summary = _summary(flagged)
    if as_json:
        say_json({"rollouts": len(rollouts), "flags": [_row(*entry) for entry in flagged], "kinds": summary})
        return
    suspicious = len({rollout.id for rollout, _ in flagged})
    say(f"{suspicious} of {len(rollouts)} rollouts are suspicious")
    if not flagged:
        return
    say()
    say_table(
        ("ROLLOUT", "TASK", "POLICY", "SCORES 0", "KIND", "DETAIL"),
        [
            (
                rollout.id[:12],
                rollout.task[:12],
                rollout.policy,
                "yes" if flag.decisive else "-",
                flag.kind,
                flag.detail,
            )
            for rollout, flag in flagged
        ],
    )
    say()
    counts = [(kind, *(str(count) for count in counted.values())) for kind, counted in summary.items()]
    say_table(("KIND", "ROLLOUTS", "FLAGS", "DECISIVE"), counts)


def _row(rollout: Rollout, flag: Flag) -> dict[str, Any]:
    return {
        "rollout": rollout.id,
        "task": rollout.task,
        "policy": rollout.policy,
        "kind": flag.kind,
        "decisive": flag.decisive,
        "detail": flag.detail,
    }


def _summary(flagged: list[tuple[Rollout, Flag]]) -> dict[str, dict[str, int]]:
    """By kind, in alphabetical order."""
    found = {}
    for kind in sorted({flag.kind for _, flag in flagged}):
        of_kind = [(rollout.id, flag.decisive) for rollout, flag in flagged if flag.kind == kind]
        found[kind] = {
            "rollouts": len({name for name, _ in of_kind}),
            "flags": len(of_kind),
            "decisive": sum(decisive for _, decisive in of_kind),
        }
    return found
