"""Judging one goal: from what its command did to a verdict. Pure: no sandbox is touched here.

An exit status alone is never a pass where tests are meant: they are read one by one from the report.
"""

from __future__ import annotations

import re

from ratchet.junit import ReportError, needs_network, parse
from ratchet.records import CommandResult, Expectation, Goal, Outcome, TestCase, TestRun, Verdict

EVIDENCE_CHARACTERS = 3000

# Tests that fail for want of a network are set aside, but only up to this share: a suite that mostly needs one
# proves nothing offline.
MOST_NEED_NETWORK = 0.2

# Regular expressions of a goal see this much of the output, line by line, and of each line its beginning: what a
# search takes may grow with the square of what it sees, and the output is the repository's to choose.
_SEARCHED_CHARACTERS = 1 << 20
_SEARCHED_OF_LINE = 1000


def decide(goal: Goal, result: CommandResult, report: bytes | None = None) -> Verdict:
    """The verdict on `goal`, whose command gave `result` and left `report` (None: it left none)."""
    expectation = goal.expectation
    tests: TestRun | None = None
    why = ""
    if result.limit is not None:
        why = f"the {result.limit} limit ended it after {result.seconds:.0f} s"
    if expectation.report is not None and report is not None:
        try:
            tests = parse(report)
        except ReportError as error:
            why = why or f"its test report cannot be read: {error}"
    why = why or _unmet(expectation, result, tests)
    return Verdict(
        goal=goal.id,
        passed=not why,
        why=why or _met(expectation, tests),
        evidence=_evidence(result, tests, failed=bool(why)),
        exit_status=result.exit_status,
        seconds=result.seconds,
        limit=result.limit,
        tests=tests,
    )


def failures(tests: TestRun) -> tuple[TestCase, ...]:
    return tuple(case for case in tests.cases if case.outcome in (Outcome.FAILED, Outcome.ERROR))


def need_network(tests: TestRun) -> tuple[TestCase, ...]:
    """The failures whose own message says that they wanted a network."""
    return tuple(case for case in failures(tests) if needs_network(case.message))


def _unmet(expectation: Expectation, result: CommandResult, tests: TestRun | None) -> str:
    """What of the expectation does not hold; empty when all does."""
    if expectation.report is not None:
        if tests is None:
            return f"it left no test report (exit status {result.exit_status})"
        if problem := _tests_unmet(expectation, tests):
            return problem
    if expectation.exit_status is not None and result.exit_status != expectation.exit_status:
        return f"exit status {result.exit_status}, not {expectation.exit_status}"
    lines = {_searched(line): None for line in result.output[-_SEARCHED_CHARACTERS:].split("\n")}
    for pattern in expectation.matches:
        if not any(re.search(pattern, line) for line in lines):
            return f"nothing in the output matches {pattern!r}"
    for pattern in expectation.excludes:
        if found := next(filter(None, (re.search(pattern, line) for line in lines)), None):
            return f"the output holds {found.group()[:120]!r}"
    return ""


def _searched(line: str) -> str:
    """The mark where a line is cut keeps `$` from matching there."""
    return line if len(line) <= _SEARCHED_OF_LINE else f"{line[:_SEARCHED_OF_LINE]}…"


def _tests_unmet(expectation: Expectation, tests: TestRun) -> str:
    if not tests.cases:
        return "no tests ran: the report is empty"
    skipped = tests.count(Outcome.SKIPPED)
    if tests.ran < expectation.min_tests:
        return f"{tests.ran} tests ran and {skipped} were skipped, where at least {expectation.min_tests} should run"
    passed = tests.count(Outcome.PASSED)
    offline = len(need_network(tests))
    if offline > MOST_NEED_NETWORK * tests.ran:
        return f"{offline} of {tests.ran} tests want a network, which they do not get"
    judged = tests.ran - offline
    if not judged or passed / judged < expectation.min_pass_rate:
        return f"{passed} of {judged} tests passed, which is less than {expectation.min_pass_rate:.0%}"
    return ""


def _met(expectation: Expectation, tests: TestRun | None) -> str:
    if tests is not None:
        offline = len(need_network(tests))
        network = f", {offline} want a network" if offline else ""
        return f"{tests.count(Outcome.PASSED)} of {tests.ran} tests passed{network}"
    if expectation.matches:
        return "the output is as described"
    return f"exit status {expectation.exit_status}"


def _evidence(result: CommandResult, tests: TestRun | None, *, failed: bool) -> str:
    if failed and tests is not None and (broken := failures(tests)):
        shown = "\n".join(f"{case.id}: {case.message.strip()[-400:]}" for case in broken[:5])
        return shown[:EVIDENCE_CHARACTERS]
    return result.output[-EVIDENCE_CHARACTERS:]
