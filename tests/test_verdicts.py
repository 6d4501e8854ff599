"""Judging a goal: what counts as a pass, and all the ways in which a green exit status is none."""

from __future__ import annotations

import time

import pytest

from ratchet.records import CommandResult, Expectation, Goal, GoalKind, LimitHit
from ratchet.verdicts import decide

SUITE = Goal("pytest", "", GoalKind.TESTS, Expectation(exit_status=None, report="/r.xml", min_tests=4))


def result(exit_status: int | None = 0, output: str = "", limit: LimitHit | None = None) -> CommandResult:
    return CommandResult("command", exit_status, output, len(output), 1.0, limit)


def report(passed: int = 0, failed: int = 0, skipped: int = 0, message: str = "assert 1 == 2") -> bytes:
    rows = [f'<testcase classname="t" name="p{i}"/>' for i in range(passed)]
    rows += [f'<testcase classname="t" name="f{i}"><failure message="{message}"/></testcase>' for i in range(failed)]
    rows += [f'<testcase classname="t" name="s{i}"><skipped message="no"/></testcase>' for i in range(skipped)]
    return f"<testsuites><testsuite>{''.join(rows)}</testsuite></testsuites>".encode()


@pytest.mark.parametrize(
    ("run", "xml", "why"),
    [
        (result(0), None, "left no test report"),
        (result(0), b"<testsuites", "cannot be read"),
        (result(0), report(), "no tests ran"),
        (result(0), report(passed=3, skipped=40), "3 tests ran and 40 were skipped"),
        (result(0), report(passed=18, failed=2), "18 of 20 tests passed"),
        (result(None, limit=LimitHit.TIME), report(passed=20), "the time limit"),
        (result(0), report(passed=10, failed=10, message="Name or service not known"), "want a network"),
    ],
    ids=["no report", "cut report", "empty", "mostly skipped", "failures", "limit", "mostly network"],
)
def test_what_is_no_pass(run: CommandResult, xml: bytes | None, why: str) -> None:
    verdict = decide(SUITE, run, xml)
    assert not verdict.passed
    assert why in verdict.why


def test_a_runner_that_exits_with_1_although_all_tests_passed_is_a_pass() -> None:
    assert decide(SUITE, result(1), report(passed=20)).passed


def test_failures_for_want_of_a_network_are_set_aside_and_counted() -> None:
    verdict = decide(SUITE, result(1), report(passed=20, failed=2, message="[Errno -2] Name or service not known"))
    assert verdict.passed
    assert "2 want a network" in verdict.why


@pytest.mark.parametrize(
    ("expectation", "run", "passed"),
    [
        (Expectation(matches=("^ok$",)), result(0, "first\nok\nlast"), True),
        (Expectation(matches=("^ok$",)), result(0, "not ok"), False),
        (Expectation(excludes=("^ERROR",)), result(0, "fine\nERROR: no"), False),
        (Expectation(exit_status=0), result(3), False),
        (Expectation(exit_status=None), result(3), True),
    ],
)
def test_exit_status_and_output(expectation: Expectation, run: CommandResult, passed: bool) -> None:
    assert decide(Goal("c", "", GoalKind.BUILD, expectation), run).passed is passed


def test_the_evidence_of_failed_tests_names_them() -> None:
    assert "t::f0" in decide(SUITE, result(1, "long output"), report(passed=5, failed=5)).evidence


@pytest.mark.parametrize(
    "output",
    ["\n" * (1 << 20), "version " + "1" * (1 << 20) + "~", "compiled " + "name " * 200_000, "a\n" * 500_000],
    ids=["empty lines", "digits", "one word", "short lines"],
)
@pytest.mark.parametrize("pattern", [r"^\s*Stored in", r"^version \d+[\w.+!-]*$", r"^compiled .*\bname\b.*\.so$"])
def test_no_output_makes_a_search_take_long(pattern: str, output: str) -> None:
    goal = Goal("command", "", GoalKind.BUILD, Expectation(matches=(pattern,), excludes=(pattern,)))
    started = time.process_time()
    assert not decide(goal, result(0, output)).passed
    assert time.process_time() - started < 5
