#!/usr/bin/env python3
"""Record what commands print in verified environments, whole and broken on purpose: cases that a judge is measured on.

    collect_judge_cases.py ENVIRONMENT... CASES.jsonl      # names or ids, as `ratchet env list` shows them

Of each environment the goals that its survey gives are run offline, and some whose exit status says nothing, as people
write them; then again in forks in which one thing was damaged. A case from a whole environment is true where the
machine-checkable part holds, one from a damaged fork is false where it does not: `how` says what was damaged and what
did not hold, for a reader to check. Half of the 40 that are kept are false, spread over kinds and projects.
"""

from __future__ import annotations

import json
import random
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ratchet.autoinstall.audit import Damage, damages
from ratchet.autoinstall.verify import environment_layers
from ratchet.autoinstall.workshop import BASE_USER, WORKSPACE, Workshop
from ratchet.policies.model.prompts import cut_middle
from ratchet.policies.rules.goals import propose_goals
from ratchet.policies.rules.python_tests import REPORT, Suite, find_suite, largest_files
from ratchet.protocols import Sandbox
from ratchet.records import Checkout, CommandResult, Environment, Expectation, Goal, GoalKind, Survey, to_json
from ratchet.store import Store, default_home
from ratchet.survey import survey as make_survey
from ratchet.verdicts import decide

OF_EACH_TRUTH = 20
MOST_DAMAGES = 5
MOST_CHARACTERS = 10_000
COMMAND_S = 60.0
QUICK_S = 6.0  # what took longer is not run again in damaged forks

# No test needs what builds wheels, so an audit does not try this.
NO_BACKEND = Damage(
    "uninstall what builds wheels",
    "uv pip uninstall -q --python /opt/venv setuptools flit-core hatchling poetry-core meson-python maturin",
)
PASSED = Expectation(0, matches=(r"\b\d+ passed\b",), excludes=(r"\b\d+ (failed|errors?)\b",))


@dataclass(frozen=True)
class Case:
    project: str
    goal: Goal
    exit_status: int | None
    output: str
    truth: bool
    how: str

    def row(self) -> dict[str, Any]:
        goal = self.goal
        return {
            "project": self.project,
            "kind": goal.kind,
            "command": goal.command,
            "description": goal.description,
            "expectation": to_json(goal.expectation),
            "exit_status": self.exit_status,
            "output": self.output,
            "truth": self.truth,
            "how": self.how,
        }


def goals_of(survey: Survey, checkout: Checkout) -> list[Goal]:
    """Goals that take no whole suite and leave no report, so that a case is its output alone."""
    suite = find_suite(survey)
    if suite is None:
        return []
    goals = [*propose_goals(survey, checkout)[1:], *_as_people_write(survey, suite)]
    return [_by_output(goal) for goal in goals]


def _by_output(goal: Goal) -> Goal:
    if goal.expectation.report is None:
        return goal
    command = goal.command.replace(f" --junitxml={REPORT}", "")
    return replace(goal, command=command, expectation=PASSED)


def _as_people_write(survey: Survey, suite: Suite) -> Iterator[Goal]:
    """The exit status is lost in a pipe: only what is printed tells."""
    name, module = survey.first("project-name") or "", survey.first("import-name") or ""
    for fact in largest_files(suite, 5)[3:]:
        yield Goal(
            f"python -m pytest -q {shlex.quote(fact.file)} 2>&1 | tail -n 15",
            f"Runs the tests in {fact.file}, and all of them pass.",
            GoalKind.TESTS,
            PASSED,
        )
    yield Goal(
        f"cd / && python -c 'import {module}; print({module}.__file__)' 2>&1 | tail -n 5",
        f"Imports {module} and prints the path of its file.",
        GoalKind.IMPORT,
        Expectation(0, matches=(r"^/.*\.(py|so)$",)),
    )
    yield Goal(
        f"python -m pip show {shlex.quote(name)} 2>&1 | head -n 4",
        f"Shows the name, the version and a summary of the installed {name}.",
        GoalKind.SETUP,
        Expectation(0, matches=(r"^Version: \d",)),
    )
    yield Goal(
        "python -m pip check; true",
        "Says that no requirement of the installed packages is broken.",
        GoalKind.SETUP,
        Expectation(0, matches=(r"^No broken requirements found",)),
    )
    yield Goal(
        "python -m pip wheel --no-deps --no-build-isolation --wheel-dir /tmp/w . 2>&1 | tail -n 6",
        f"Builds a wheel of {name}.",
        GoalKind.BUILD,
        Expectation(0, matches=(r"^Successfully built",)),
    )
    yield Goal(
        "python -m pytest --version 2>&1 | tail -n 3",
        "Starts pytest, which prints its version.",
        GoalKind.LAUNCH,
        Expectation(0, matches=(r"^pytest \d+\.",)),
    )
    yield Goal(
        f"python -m pydoc {module} 2>&1 | head -n 12",
        f"Starts pydoc, which prints the documentation of the package {module}.",
        GoalKind.LAUNCH,
        Expectation(0, matches=(rf"^Help on (package|module) {re.escape(module)}\b",)),
    )
    yield Goal(
        f"cd / && python -c 'import compileall, {module}; print(compileall.compile_file({module}.__file__))' 2>&1",
        f"Compiles the main file of {module} without an error and prints True.",
        GoalKind.LINT,
        Expectation(0, matches=(r"^(True|1)$",)),
    )


def run(sandbox: Sandbox, goal: Goal, environment: Environment) -> CommandResult:
    return sandbox.run(
        goal.command, user=BASE_USER, cwd=WORKSPACE, env=environment.recipe.env, timeout_s=COMMAND_S, proxied=False
    )


def cases_of(environment: Environment, workshop: Workshop) -> Iterator[Case]:
    survey = make_survey(environment.checkout)
    layers = environment_layers(workshop, environment)
    quick: list[Goal] = []
    with workshop.offline(layers, environment.limits) as sandbox:
        for goal in goals_of(survey, environment.checkout):
            result = run(sandbox, goal, environment)
            verdict = decide(goal, result)
            if verdict.passed:
                quick += [goal] if result.seconds < QUICK_S else []
                yield _case(environment, goal, result, True, f"whole environment; {verdict.why}")
    for damage in (*damages(survey, environment.recipe)[:MOST_DAMAGES], NO_BACKEND):
        with workshop.offline(layers, environment.limits) as sandbox:
            if not sandbox.run(damage.command, user="root", cwd="/", timeout_s=120).ok:
                continue
            for goal in quick:
                result = run(sandbox, goal, environment)
                verdict = decide(goal, result)
                if not verdict.passed and result.limit is None:
                    yield _case(environment, goal, result, False, f"{damage.name}; {verdict.why}")


def _case(environment: Environment, goal: Goal, result: CommandResult, truth: bool, how: str) -> Case:
    output = cut_middle(result.output, MOST_CHARACTERS)
    return Case(environment.name, goal, result.exit_status, output, truth, how)


def chosen(cases: list[Case]) -> list[Case]:
    """As many true as false ones; of each, kinds and projects in turn, and no output twice."""
    kept: list[Case] = []
    for truth in (True, False):
        waiting = [case for case in cases if case.truth is truth and case.output.strip()]
        random.Random(0).shuffle(waiting)
        taken: Counter[str] = Counter()
        for _ in range(OF_EACH_TRUTH):
            outputs = {case.output for case in kept}
            waiting = [case for case in waiting if case.output not in outputs]
            if not waiting:
                break
            # Of the kind, and then the project, that has the fewest so far.
            best = min(waiting, key=lambda case: (taken[case.goal.kind], taken[f"in {case.project}"]))
            taken.update((best.goal.kind, f"in {best.project}"))
            kept.append(best)
    return kept


def main(names: list[str], place: Path) -> None:
    store = Store(default_home())
    cases: list[Case] = []
    with Workshop.open(default_home()) as workshop:
        for name in names:
            known = any(record.startswith(name) for record in store.ids("environment"))
            record = name if known else store.linked("environment", name) or name
            environment = store.get("environment", record, Environment)
            for case in cases_of(environment, workshop):
                cases.append(case)
                print(case.project, case.goal.kind, case.truth, case.how[:100], file=sys.stderr)
    kept = chosen(cases)
    place.write_text("".join(json.dumps(case.row(), ensure_ascii=True) + "\n" for case in kept))
    print(f"{len(kept)} cases of {len(cases)}, {sum(case.truth for case in kept)} of them true", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1:-1], Path(sys.argv[-1]))
