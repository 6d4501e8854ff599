#!/usr/bin/env python3
"""Measure `ratchet task make`: how many candidates pass the gate, why the others do not, and how long a task takes.

    measure_tasks.py RESULTS.jsonl [--count N] [--seed S] [--jobs J] [--kind KIND]... ENV...

Goes on where an earlier run stopped, and prints the table of all rows at the end. Seconds per task are those of all
validations, of refused candidates too, through the tasks that passed; with several jobs they overlap.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from ratchet.autoinstall.workshop import Workshop
from ratchet.errors import RatchetError
from ratchet.records import Environment
from ratchet.store import Store, default_home
from ratchet.task_records import TaskKind, TaskYield
from ratchet.tasks.make import Wanted, make_tasks


def environment_of(store: Store, name: str) -> Environment:
    known = any(record.startswith(name) for record in store.ids("environment"))
    return store.get("environment", name if known else store.linked("environment", name) or name, Environment)


def describe(environment: Environment, wanted: Wanted, done: TaskYield, wall_s: float) -> dict[str, Any]:
    reasons = Counter(v.rejection.value for v in done.validations if v.rejection is not None)
    passed = sum(v.rejection is None for v in done.validations)
    steps: Counter[str] = Counter()
    for validation in done.validations:
        steps.update(validation.steps)
    return {
        "environment": environment.id,
        "project": environment.name,
        "kind": wanted.kind.value,
        "count": wanted.count,
        "seed": wanted.seed,
        "candidates": len(done.validations),
        "passed": passed,
        "reasons": dict(sorted(reasons.items())),
        "seconds": done.seconds,
        "wall_s": round(wall_s, 1),
        "steps": {name: round(seconds, 1) for name, seconds in sorted(steps.items())},
    }


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| project | kind | passed / candidates | seconds per task | kept out, by reason |",
        "| --- | --- | --- | --- | --- |",
        *map(_line, rows),
    ]
    totals = [_total(rows, kind.value) for kind in TaskKind if any(row["kind"] == kind.value for row in rows)]
    return "\n".join([*lines, *map(_line, totals), *([_line(_total(rows))] if len(totals) > 1 else [])])


def _line(row: dict[str, Any]) -> str:
    each = f"{row['seconds'] / row['passed']:.1f}" if row["passed"] else "-"
    reasons = ", ".join(f"{name} {number}" for name, number in sorted(row["reasons"].items())) or "-"
    cells = (row["project"], row["kind"], f"{row['passed']} / {row['candidates']}", each, reasons)
    return "| " + " | ".join(cells) + " |"


def _total(rows: list[dict[str, Any]], kind: str | None = None) -> dict[str, Any]:
    reasons: Counter[str] = Counter()
    total: dict[str, Any] = {"project": "**all**", "kind": kind or "all", "passed": 0, "candidates": 0, "seconds": 0.0}
    for row in rows:
        if kind in (None, row["kind"]):
            reasons.update(row["reasons"])
            for key in ("passed", "candidates", "seconds"):
                total[key] += row[key]
    return total | {"reasons": reasons}


def main(arguments: argparse.Namespace) -> None:
    rows = (
        [json.loads(line) for line in arguments.results.read_text().splitlines()] if arguments.results.exists() else []
    )
    done = {(row["environment"], row["kind"], row["count"], row["seed"]) for row in rows}
    kinds = [TaskKind(kind) for kind in arguments.kind or [kind.value for kind in TaskKind]]
    with Workshop.open(default_home()) as workshop, arguments.results.open("a") as file:
        for name in arguments.environments:
            environment = environment_of(workshop.store, name)
            for wanted in (Wanted(kind, arguments.count, arguments.seed) for kind in kinds):
                if (environment.id, wanted.kind, wanted.count, wanted.seed) in done:
                    continue
                began = time.monotonic()
                try:
                    _, made = make_tasks(workshop, environment, wanted, jobs=arguments.jobs)
                except RatchetError as error:
                    print(f"{environment.name} {wanted.kind.value}: {error}", file=sys.stderr)
                    continue
                rows.append(describe(environment, wanted, made, time.monotonic() - began))
                file.write(json.dumps(rows[-1]) + "\n")
                file.flush()
                print(json.dumps(rows[-1]), file=sys.stderr)
    print(table(rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("environments", nargs="+")
    parser.add_argument("--count", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kind", action="append")
    main(parser.parse_args())
