"""The outcome of one install, as the JSON object of `install --json` and as the summary for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ratchet.records import Audit, Environment, Goal, Install, Outcome, Verdict, to_json

NOT_RUN = "not run"


def to_object(install: Install) -> dict[str, Any]:
    """The object that `ratchet install --json` prints; `docs/cli.md` lists its keys."""
    audit = install.audit or Audit()
    pristine = {verdict.goal: verdict for verdict in install.pristine}
    final = final_verdicts(install)
    goals = [_goal(goal, final.get(goal.id)) for goal in install.goals]
    for entry, goal in zip(goals, install.goals, strict=True):
        before = pristine.get(goal.id)
        entry["origin"] = install.goal_origins.get(goal.id, "rules")
        entry["pristine"] = {"passed": before.passed, "why": before.why} if before else None
    return {
        "status": "verified" if install.environment else "discarded",
        "environment": install.environment,
        "reason": install.reason.value if install.reason else None,
        "detail": install.detail,
        "attempts": len(install.attempts),
        "goals": goals,
        "targets": [_goal(goal, final.get(goal.id)) for goal in install.goals if goal.id in install.targets],
        "held_out": [_goal(goal, final.get(goal.id)) for goal in held_out(install)],
        "tests": {
            "passed": audit.tests.count(Outcome.PASSED),
            "failed": audit.tests.count(Outcome.FAILED),
            "errors": audit.tests.count(Outcome.ERROR),
            "skipped": audit.tests.count(Outcome.SKIPPED),
            "flaky": len(audit.flaky),
            "need_network": len(audit.need_network),
        },
        "replayed": install.replayed,
        "sabotage": _sabotage(audit),
        "seconds": {stage: round(seconds, 2) for stage, seconds in install.seconds.items()},
        "usage": {stage: to_json(used) for stage, used in install.usage.items()},
        "memories_offered": len(install.memories_offered),
    }


def final_verdicts(install: Install) -> dict[str, Verdict]:
    """The last verdict on each goal after construction: of the targets on replay, of the rest in the audit."""
    audited = install.audit.held_out if install.audit else ()
    return {verdict.goal: verdict for verdict in (*audited, *install.verdicts)}


def held_out(install: Install) -> list[Goal]:
    return [goal for goal in install.goals if goal.id not in install.targets] if install.targets else []


def _goal(goal: Goal, verdict: Verdict | None) -> dict[str, Any]:
    return {
        "command": goal.command,
        "description": goal.description,
        "passed": verdict.passed if verdict else False,
        "why": verdict.why if verdict else NOT_RUN,
    }


# --------------------------------------------------------------------------- environments


def environment_row(environment: Environment) -> dict[str, Any]:
    """One environment of `env list --json`."""
    audit, checkout = environment.audit, environment.checkout
    return {
        "environment": environment.id,
        "project": f"{environment.name} {checkout.version}" if checkout.version else environment.name,
        "source": checkout.source,
        "checkout": checkout.id,
        "base": environment.base.name,
        "tests": {"passed": audit.tests.count(Outcome.PASSED), "ran": audit.tests.ran},
        "held_out": {"passed": sum(verdict.passed for verdict in audit.held_out), "tried": len(audit.held_out)},
        "sabotage": _sabotage(audit),
        "generation": environment.generation,
        "created": environment.created,
    }


def verification_object(
    environment: Environment, replayed: bool, detail: str, verdicts: Sequence[Verdict]
) -> dict[str, Any]:
    """What `env verify --json` prints. Verified means: replayed, and every target passed."""
    by_goal = {verdict.goal: verdict for verdict in verdicts}
    targets = [goal for goal in environment.goals if goal.id in environment.targets]
    others = [goal for goal in environment.goals if goal.id not in environment.targets]
    holds = replayed and all(goal.id in by_goal and by_goal[goal.id].passed for goal in targets)
    return {
        "status": "verified" if holds else "failed",
        "environment": environment.id,
        "detail": detail,
        "replayed": replayed,
        "targets": [_goal(goal, by_goal.get(goal.id)) for goal in targets],
        "held_out": [_goal(goal, by_goal.get(goal.id)) for goal in others],
    }


def _sabotage(audit: Audit) -> dict[str, int]:
    return {
        "tried": len(audit.sabotages),
        "noticed": sum(sabotage.noticed_by is not None for sabotage in audit.sabotages),
    }
