#!/usr/bin/env python3
"""Measure who tells a good output from a bad one: the machine-checkable part, a model as the judge, and both together.

    measure_judge.py CASES.jsonl [--model openai:MODEL@BASE_URL|PROFILE]

The answers go to CASES.MODEL.jsonl in the current folder, and a run that was ended goes on there. Without --model only
the machine-checkable part is measured. The judge sees goals without their expectation. "Both" passes what both pass.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ratchet.errors import RatchetError
from ratchet.policies.budget import Meter
from ratchet.policies.chat import ChatModel
from ratchet.policies.model.judge import ModelJudge
from ratchet.policies.profiles import parse_model
from ratchet.protocols import Judge
from ratchet.records import CommandResult, Expectation, Goal, GoalKind, content_id, from_json
from ratchet.verdicts import decide

OUTCOMES = ("true pass", "false pass", "true reject", "false reject", "cannot tell (is true)", "cannot tell (is false)")


def machine_says(case: dict[str, Any]) -> bool:
    """What the machine-checkable part makes of a case, without a report."""
    return decide(*goal_and_result(case)).passed


def goal_and_result(case: dict[str, Any]) -> tuple[Goal, CommandResult]:
    expectation = replace(from_json(case["expectation"], Expectation), report=None)
    goal = Goal(case["command"], case["description"], GoalKind(case["kind"]), expectation)
    output = case["output"]
    return goal, CommandResult(goal.command, case["exit_status"], output, len(output.encode(errors="replace")), 0.0)


def ask(judge: Judge, case: dict[str, Any]) -> dict[str, Any]:
    goal, result = goal_and_result(case)
    opinion = judge.compare(replace(goal, expectation=Expectation(exit_status=None)), result)
    return {"case": content_id(case), "holds": opinion.holds, "why": opinion.why, "quote": opinion.quote}


def outcome(truth: bool, says: bool | None) -> str:
    if says is None:
        return f"cannot tell (is {str(truth).lower()})"
    return ("true " if says is truth else "false ") + ("pass" if says else "reject")


def figures(title: str, answers: Iterable[tuple[bool, bool | None]]) -> str:
    counts = Counter(outcome(truth, says) for truth, says in answers)
    return f"{title:8} " + ", ".join(f"{name}: {counts[name]}" for name in OUTCOMES)


def judged(cases: list[dict[str, Any]], place: Path, judge: Judge) -> list[bool | None]:
    """The judge's answers, those at `place` included; new ones are written there at once."""
    rows = [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []
    known = {row["case"]: row for row in rows}
    with place.open("a") as file:
        for number, case in enumerate(cases, 1):
            if content_id(case) in known:
                continue
            row = ask(judge, case)
            known[row["case"]] = row
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(f"{number}/{len(cases)} is {case['truth']}: {row['holds']} {row['why']}", file=sys.stderr)
    return [known[content_id(case)]["holds"] for case in cases]


def main(place: Path, model_name: str | None) -> None:
    cases = [json.loads(line) for line in place.read_text().splitlines()]
    truths = [case["truth"] for case in cases]
    machine = [machine_says(case) for case in cases]
    print(f"{len(cases)} cases, {sum(truths)} of them true")
    print(figures("machine", zip(truths, machine, strict=True)))
    if model_name is None:
        return
    meter = Meter()
    model = ChatModel(parse_model(model_name), meter)
    results = Path(f"{place.stem}.{re.sub(r'[^A-Za-z0-9.-]+', '-', model.name)}.jsonl")
    answers = judged(cases, results, ModelJudge(model))
    both = [says and answer for says, answer in zip(machine, answers, strict=True)]
    print(figures("judge", zip(truths, answers, strict=True)))
    print(figures("both", zip(truths, both, strict=True)))
    for stage, usage in meter.usage.items():
        print(f"{stage}: {usage.calls} calls, {usage.tokens} tokens, {usage.seconds:.0f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--model")
    arguments = parser.parse_args()
    try:
        main(arguments.cases, arguments.model)
    except RatchetError as error:
        sys.exit(str(error))
