"""The tests of a task as parts of a reward."""

from __future__ import annotations

from collections.abc import Collection

from ratchet.records import Outcome, TestRun
from ratchet.task_records import Grade, Rollout, Task


def solved(grade: Grade, task: Task) -> bool:
    """Whether every test of the task was run and passed, and nothing decisive speaks against the rollout. A test that
    was skipped or is missing failed; a task without a test that has to be mended proves nothing."""
    if any(flag.decisive for flag in grade.flags) or not task.fail_to_pass:
        return False
    wanted = {*task.fail_to_pass, *task.pass_to_pass}
    return passed(grade.tests, wanted) == wanted


def unit_tests(rollout: Rollout, task: Task) -> float:
    """From 0 to 1: the share of the tests to mend that pass now, times the share of those to keep that still do. So
    doing nothing is 0, and mending half by breaking half is a quarter."""
    if rollout.grade is None or not task.fail_to_pass:
        return 0.0
    return _share(rollout.grade.tests, task.fail_to_pass) * _share(rollout.grade.tests, task.pass_to_pass)


def passed(tests: TestRun, wanted: Collection[str]) -> set[str]:
    """Those of the `wanted` tests that passed. One that is reported twice passed only if it did so each time."""
    good = {case.id for case in tests.cases if case.outcome is Outcome.PASSED}
    bad = {case.id for case in tests.cases if case.outcome is not Outcome.PASSED}
    return (good - bad).intersection(wanted)


def _share(tests: TestRun, wanted: Collection[str]) -> float:
    """1 of none."""
    distinct = set(wanted)
    return len(passed(tests, distinct)) / len(distinct) if distinct else 1.0
