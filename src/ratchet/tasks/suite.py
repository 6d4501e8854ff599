"""An environment's own test suite, run so that each test's result is out of reach of the code that is tested."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ratchet.errors import UnsupportedSuiteError
from ratchet.protocols import Sandbox
from ratchet.records import CommandResult, Environment, Goal, GoalKind, TestRun

_PYTEST = re.compile(
    r"(?:(?:exec|env|xvfb-run)\s+(?:-\S+\s+)*)*(?:[A-Za-z_]\w*=\S*\s+)*(?:\S*/)?"
    r"(?:python[\d.]*(?:\s+-[A-Za-z]\S*)*?\s+-m\s*pytest|pytest|py\.test)(?=\s|$)"
)
_COLLECTS_ONLY = re.compile(r"(?:^|\s)--co(?:llect-?only)?(?=\s|$)")


@dataclass(frozen=True)
class Suite:
    """How the tests of an environment are run: a command that starts pytest once, as the ordinary user in the
    workspace, and the variables that it gets."""

    command: str
    env: Mapping[str, str]
    timeout_s: float


@dataclass(frozen=True)
class SuiteRun:
    """What one run of a suite gave. A test that was asked for and has no case in `tests` did not finish, which is a
    failure. `result` is the command's; its exit status means nothing. `tampered` says in words what an honest run does
    not do; empty where nothing of the kind was seen."""

    tests: TestRun
    result: CommandResult
    tampered: tuple[str, ...]


def suite_of(environment: Environment) -> Suite:
    """The suite that the goals of an environment run: of those that start pytest, a target first, and then the one
    that expects the most tests. Raises UnsupportedSuiteError where there is none."""
    goals = [goal for goal in environment.goals if goal.kind is GoalKind.TESTS and _runs_pytest(goal.command)]
    if not goals:
        commands = [goal.command for goal in environment.goals if goal.kind is GoalKind.TESTS]
        tried = f"its tests are run by `{commands[0][:160]}`" if commands else "it has no goal that runs tests"
        raise UnsupportedSuiteError(
            f"the tests of {environment.name} are not run by one plain call of pytest: {tried}",
            remedy="choose an environment with a pytest suite: only there results can be had test by test",
        )

    def rank(goal: Goal) -> tuple[bool, int]:
        return goal.id in environment.targets, goal.expectation.min_tests

    goal = max(goals, key=rank)
    return Suite(goal.command, dict(environment.recipe.env), goal.timeout_s)


def _runs_pytest(command: str) -> bool:
    """Whether a command starts pytest exactly once, and not only to list the tests."""
    parts = [part.strip() for part in re.split(r"&&|;|\n", command)]
    runs = [part for part in parts if _PYTEST.match(part)]
    return len(runs) == 1 and not _COLLECTS_ONLY.search(runs[0])


def run_suite(
    sandbox: Sandbox,
    suite: Suite,
    tests: Collection[str] | None = None,
    *,
    canaries: bool = False,
    timeout_s: float | None = None,
) -> SuiteRun:
    """Run the suite in an offline sandbox: all of it, or the `tests` with these ids."""
    raise NotImplementedError
