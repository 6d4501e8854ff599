"""Rollouts as text and as rows of tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ratchet.cli.screen import duration, one_line, plural, say, say_table

if TYPE_CHECKING:
    from ratchet.cli.replay import View
    from ratchet.task_records import Rollout, Task


def row_of(rollout: Rollout, task: Task | None, projects: dict[str, str]) -> dict[str, Any]:
    from ratchet.rewards import solved

    grade, reward = rollout.grade, rollout.reward
    return {
        "rollout": rollout.id,
        "task": rollout.task,
        "project": projects.get(rollout.environment, ""),
        "policy": rollout.policy,
        "sample": rollout.sample,
        "end": rollout.end,
        "failure": rollout.failure.value if rollout.failure else None,
        "detail": rollout.detail,
        "solved": solved(grade, task) if grade is not None and task is not None else False,
        "reward": reward.total if reward else None,
        "parts": dict(reward.parts) if reward else {},
        "by": reward.by if reward else None,
        "flags": [flag.kind for flag in grade.flags] if grade else [],
        "steps": rollout.steps,
        "tokens": rollout.usage.tokens,
        "cost": rollout.usage.cost,
        "seconds": round(sum(rollout.seconds.values()), 1),
        "created": rollout.created,
    }


def told(row: dict[str, Any]) -> str:
    ended = "solved" if row["solved"] else f"failed by {row['failure']}" if row["failure"] else "not solved"
    detail = f": {one_line(row['detail'], 100)}" if row["detail"] and not row["solved"] else ""
    steps = f"{plural(row['steps'], 'step')}, {duration(row['seconds'])}"
    return f"{row['rollout'][:12]}  task {row['task'][:12]}  {ended}{detail}  ({steps})"


def say_rows(rows: Sequence[dict[str, Any]]) -> None:
    costs, results = ("STEPS", "TOKENS"), ("REWARD", "SOLVED", "FAILURE", "FLAGS")
    cells = [
        (
            row["rollout"][:12],
            row["task"][:12],
            row["project"],
            one_line(row["policy"], 40),
            str(row["sample"]),
            str(row["steps"]),
            str(row["tokens"] or "-"),
            _number(row["reward"]) + (f" (was {_number(row['before'])})" if "before" in row else ""),
            "yes" if row["solved"] else "no",
            row["failure"] or "-",
            ", ".join(row["flags"]) or "-",
        )
        for row in rows
    ]
    say_table(("ROLLOUT", "TASK", "PROJECT", "POLICY", "SAMPLE", *costs, *results), cells)


def say_summary(rows: Sequence[dict[str, Any]]) -> None:
    failures = Counter(row["failure"] for row in rows if row["failure"])
    parts = [f"{sum(row['solved'] for row in rows)} of {len(rows)} solved"]
    parts += [f"{number} failed by {kind}" for kind, number in sorted(failures.items())]
    if tokens := sum(row["tokens"] for row in rows):
        parts.append(f"{tokens:,} tokens")
    say(", ".join(parts))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def head_lines(rollout: Rollout, task: Task | None, row: dict[str, Any], view: View) -> Iterator[str]:
    yield f"rollout {rollout.id[:12]}: sample {rollout.sample} of {rollout.policy}, {row['project'] or 'no project'}"
    yield told(row)
    yield f"end: {rollout.end}"
    if rollout.failure is not None:
        yield f"failed by: {rollout.failure.value}"
        yield from view.block(rollout.detail, "", 6)
    if rollout.reward is not None:
        yield f"reward: {rollout.reward.total:.3f} ({rollout.reward.by})"
        yield from (f"  {name:<12} {value:8.3f}" for name, value in rollout.reward.parts.items())
    elif rollout.failure is not None:
        yield "reward: not scored"
    if rollout.tokens:
        sampled = sum(sum(trace.mask) for trace in rollout.tokens)
        yield f"tokens: {plural(len(rollout.tokens), 'sequence')}, {sampled} sampled"
    if rollout.seconds:
        yield "seconds: " + ", ".join(f"{name} {value:.2f}" for name, value in rollout.seconds.items())
    yield "\nThe task"
    if task is None:
        yield f"  {rollout.task[:12]} is not in the store any more"
    else:
        yield f"  {task.id[:12]}, {task.kind.value}, {task.language}"
        yield from view.block(task.statement, "| ", 40)


def result_lines(rollout: Rollout, task: Task | None, view: View) -> Iterator[str]:
    from ratchet.patches import unified

    yield "\nIts patch"
    yield from view.block(unified(rollout.patch) or "[nothing was changed]", "", 120)
    grade = rollout.grade
    if grade is None:
        return
    if grade.dropped:
        yield f"  {plural(len(grade.dropped), 'path')} did not leave the sandbox:"
        yield from view.block("\n".join(grade.dropped), "  ", 10)
    for flag in grade.flags:
        yield f"  flag {flag.kind}{' (decisive)' if flag.decisive else ''}: {one_line(flag.detail, 200)}"
    yield "\nThe tests"
    yield from view.block(grade.detail, "", 6)
    if task is not None:
        yield from _tests(rollout, task, view)
    looked_at = {"compiles": grade.compiles, "imports": grade.imports, "type checks": grade.type_checks}
    said = [f"{name} {'yes' if value else 'no'}" for name, value in looked_at.items() if value is not None]
    if grade.probes:
        said.append(f"{sum(grade.probes)} of {plural(len(grade.probes), 'held-out call')} as the reference")
    yield f"  {', '.join(said) or 'nothing else was looked at'}"


def _tests(rollout: Rollout, task: Task, view: View) -> Iterator[str]:
    """Those that did not pass; with `full` all of them."""
    cases = {case.id: case for case in rollout.grade.tests.cases} if rollout.grade else {}
    for title, tests in (("to mend", task.fail_to_pass), ("to keep", task.pass_to_pass)):
        outcomes = {test: cases[test].outcome.value if test in cases else "did not run" for test in tests}
        passed = sum(outcome == "passed" for outcome in outcomes.values())
        yield f"  {title}: {passed} of {len(tests)} passed"
        for test, outcome in outcomes.items():
            if view.full or outcome != "passed":
                yield f"    {outcome:<12} {one_line(test, 150)}"
                message = cases[test].message if test in cases and outcome != "passed" else ""
                last = next((line for line in reversed(message.splitlines()) if line.strip()), "")
                if last:
                    yield f"                 {one_line(last, 150)}"
