"""The gate that every task passes, of whatever kind: what fails it is kept out, with the reason.

The cheapest check that can refuse a candidate comes first, and each sandbox is a fresh one:

1. Nothing done, once: which of the selected tests fail (they have to be mended) and which pass (they have to stay so).
2. The statement and the files of the sandbox hold nothing of the solution.
3. A stub that returns nothing, and the inverse of the reference where it applies at all, score 0.
4. Nothing done, twice more, and the reference twice: tests whose result differs do not judge.
5. A skip of the tests does not leave the sandbox.
6. The reference through the real grading is the third run, and scores 1.

The tests that are run are a selection: those that ran the changed lines, and others of the same files and of the code
around, in a seeded choice up to `MOST_TESTS` and `MOST_SECONDS`. What a wrong solution does to tests outside it is not
seen. A wrong solution that runs forever is a failure after a while, as a missing result is one.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ratchet.autoinstall.verify import start
from ratchet.autoinstall.workshop import BASE_USER, WORKSPACE, Workshop
from ratchet.errors import SandboxError
from ratchet.patches import Patch, inverse
from ratchet.protocols import Sandbox
from ratchet.records import Environment, Outcome, TestCase, content_id
from ratchet.rewards.tests import passed
from ratchet.rewards.tests import solved as is_solved
from ratchet.task_records import Rejection, Task, Validation
from ratchet.tasks.behaviour import record_probes
from ratchet.tasks.candidates import Candidate
from ratchet.tasks.coverage import Coverage, coverage_of
from ratchet.tasks.extraction import extract
from ratchet.tasks.grading import grade
from ratchet.tasks.prepare import apply_patch, start_layers, task_layers
from ratchet.tasks.statement import statement
from ratchet.tasks.suite import Suite, SuiteRun, run_suite, suite_of
from ratchet.tasks.traces import find_traces, told
from ratchet.tasks.wrong import inverse_applied, skipped, stub

MOST_TESTS = 150
MOST_SECONDS = 2.5
"""Of the selected tests together, as they were measured: they are run about eight times."""

RUNS = 3
_MOST_OUTSIDE = 0.2  # of the failing tests may be such that never ran the changed lines
_SLOWER = 5.0  # a run may take so many times what was measured, and
_STARTING_S = 30.0  # so much more
_FEW = 10  # tests, one of which fails with nearly every wrong solution
GATE = 3
"""Goes up when the gate changes so that what it refused or let through has to be looked at again."""


def candidate_id(environment: Environment, candidate: Candidate) -> str:
    """What names a candidate before it is a task: the hash of what the gate looks at."""
    return content_id(
        [GATE, environment.id, candidate.kind, candidate.changes, candidate.hidden, sorted(candidate.covering)]
    )


def validate(
    workshop: Workshop,
    environment: Environment,
    candidate: Candidate,
    coverage: Coverage,
    *,
    stop: threading.Event | None = None,
) -> tuple[Task | None, Validation]:
    """The task that `candidate` is, or None, and what the gate found. Nothing is stored. The same
    candidate gives the same task.

    Raises `SandboxError` where the machinery failed, and soon after `stop` was set.
    """
    gate = _Gate(workshop, environment, candidate, coverage, suite_of(environment), stop or threading.Event())
    task: Task | None = None
    rejection: Rejection | None = None
    detail = ""
    began = time.monotonic()
    try:
        task, detail = gate.task()
    except _RejectedError as refused:
        rejection, detail = refused.rejection, refused.detail
    return task, Validation(
        candidate.kind,
        rejection,
        detail,
        task.id if task else "",
        round(time.monotonic() - began, 2),
        dict(candidate.origin),
        {name: round(seconds, 2) for name, seconds in gate.seconds.items()},
    )


def check(workshop: Workshop, environment: Environment, task: Task) -> Validation:
    """Whether a stored task still holds, by one run with nothing done and one of the reference. Its flaky tests and
    wrong solutions were looked at when it was let in."""
    began = time.monotonic()
    tests = frozenset((*task.fail_to_pass, *task.pass_to_pass))
    candidate = Candidate(task.kind, task.language, task.changes, (), tests, task.origin, task.hidden)
    gate = _Gate(
        workshop, environment, candidate, coverage_of(workshop, environment), suite_of(environment), threading.Event()
    )
    rejection: Rejection | None = None
    detail = ""
    try:
        gate.check(task)
    except _RejectedError as refused:
        rejection, detail = refused.rejection, refused.detail
    return Validation(task.kind, rejection, detail, task.id, round(time.monotonic() - began, 2), dict(task.origin))


class _RejectedError(Exception):
    def __init__(self, rejection: Rejection, detail: str) -> None:
        super().__init__(detail)
        self.rejection = rejection
        self.detail = detail


@dataclass
class _Gate:
    """The way of one candidate through the gate; `seconds` are those of its steps."""

    workshop: Workshop
    environment: Environment
    candidate: Candidate
    coverage: Coverage
    suite: Suite
    stop: threading.Event
    seconds: dict[str, float] = field(default_factory=dict)

    def task(self) -> tuple[Task, str]:
        """The task, and what could not be looked at. Raises _RejectedError."""
        candidate = self.candidate
        rng = random.Random(candidate_id(self.environment, candidate))  # noqa: S311 - to be reproducible
        tests = selected(candidate, self.coverage, rng)
        with self._timed("start"):
            layers, layer = start_layers(
                self.workshop, self.environment, (*candidate.changes, *inverse(candidate.hidden))
            )
        try:
            task, note = self._prepared(layers, tests)
            task = self._graded(layers, task)
        finally:
            self.workshop.layers.remove(layer)
        with self._timed("probes"):
            probes = record_probes(self.workshop, self.environment, candidate, task.fail_to_pass, rng)
        return replace(task, probes=probes), note

    def check(self, task: Task) -> None:
        """Raises _RejectedError where the task does not hold."""
        layers = task_layers(self.workshop, self.environment, task)
        tests = (*task.fail_to_pass, *task.pass_to_pass)
        with self._sandbox(layers) as sandbox:
            kept = passed(self._run(sandbox, tests).tests, tests)
        if solved := kept.intersection(task.fail_to_pass):
            raise _RejectedError(Rejection.NO_TEST_FAILS, f"with nothing done {min(solved)} passes")
        if lost := set(task.pass_to_pass) - kept:
            raise _RejectedError(Rejection.FLAKY, f"with nothing done {min(lost)} does not pass")
        self._refuse_leaks(layers, task)
        given = grade(self.workshop, self.environment, task, inverse(task.changes))
        if not is_solved(given, task):
            raise _RejectedError(Rejection.REFERENCE_FAILS, given.detail or "the reference does not score 1")

    def _refuse_leaks(self, layers: tuple[str, ...], task: Task) -> None:
        if leaks := told(task.statement, task):
            raise _RejectedError(Rejection.STATEMENT_TELLS, "; ".join(leaks)[:300])
        with self._timed("traces"), self._sandbox(layers) as sandbox:
            if traces := find_traces(sandbox, task):
                raise _RejectedError(Rejection.SOLUTION_LEFT, "; ".join(traces)[:300])

    def _prepared(self, layers: tuple[str, ...], tests: tuple[str, ...]) -> tuple[Task, str]:
        """The task, as far as runs over the `layers` of its start can tell."""
        candidate = self.candidate
        with self._timed("nothing"), self._sandbox(layers) as sandbox:
            nothing = self._run(sandbox, tests)
        if nothing.result.limit is not None:
            raise _RejectedError(Rejection.TOO_SLOW, "with nothing done the tests do not end in time")
        kept = passed(nothing.tests, tests)
        failing = tuple(test for test in tests if test not in kept)
        self._check_failing(failing, kept)
        text = statement(candidate, [_case(test, nothing) for test in failing])
        task = self._task(text, failing, tuple(test for test in tests if test in kept))
        self._refuse_leaks(layers, task)
        with self._timed("wrong solutions"):
            self._refuse_wrong(layers, task, "a stub that returns nothing", stub(candidate.changes))
            backwards = inverse_applied(candidate.changes)
            self._refuse_wrong(layers, task, "the inverse patch", backwards)
        task = self._without_flaky(layers, tests, task)
        with self._timed("wrong solutions"):
            self._refuse_skip(layers, task)
        return task, "" if backwards else "the inverse patch does not apply"

    def _check_failing(self, failing: Collection[str], kept: Collection[str]) -> None:
        if not failing:
            raise _RejectedError(Rejection.NO_TEST_FAILS, "all selected tests pass with nothing done")
        about = judges(self.candidate, self.coverage)
        outside = [test for test in failing if test not in about]
        if len(outside) > _MOST_OUTSIDE * len(failing):
            raise _RejectedError(
                Rejection.BREAKS_OTHERS,
                f"{len(outside)} of {len(failing)} failing tests never ran the changed lines, such as {outside[0]}",
            )
        if not kept:
            raise _RejectedError(Rejection.NOTHING_PASSES_LEFT, f"all {len(failing)} selected tests fail")

    def _refuse_wrong(self, layers: tuple[str, ...], task: Task, name: str, patch: Patch) -> None:
        """A wrong solution fails a test that is to be mended, or breaks one that is to be kept. A few of the former say
        it mostly, and quicker."""
        if not patch:
            return
        mended = task.fail_to_pass
        for tests in filter(None, (mended[:_FEW], mended[_FEW:], task.pass_to_pass)):
            with self._sandbox(layers, patch) as sandbox:
                if passed(self._run(sandbox, tests).tests, tests) != set(tests):
                    return
        raise _RejectedError(Rejection.WRONG_SOLUTION_PASSES, f"{name} passes all tests")

    def _without_flaky(self, layers: tuple[str, ...], tests: tuple[str, ...], task: Task) -> Task:
        """`task` with those of its tests to keep that gave the same in all runs. The third run of the reference is the
        one through the grading."""
        flaky: set[str] = set()
        with self._timed("nothing"):
            for _ in range(RUNS - 1):
                with self._sandbox(layers) as sandbox:
                    flaky |= passed(self._run(sandbox, tests).tests, tests) ^ set(task.pass_to_pass)
        with self._timed("reference"):
            runs = []
            for _ in range(RUNS - 1):
                with self._sandbox(layers, inverse(task.changes)) as sandbox:
                    runs.append(passed(self._run(sandbox, tests).tests, tests))
        always, ever = set.intersection(*runs), set.union(*runs)
        if never := [test for test in task.fail_to_pass if test not in ever]:
            raise _RejectedError(Rejection.REFERENCE_FAILS, f"{len(never)} tests fail with it, such as {never[0]}")
        flaky |= ever - always
        if unsteady := sorted(flaky.intersection(task.fail_to_pass)):
            raise _RejectedError(Rejection.FLAKY, f"{len(unsteady)} tests, such as {unsteady[0]}")
        steady = tuple(test for test in task.pass_to_pass if test in always and test not in flaky)
        if not steady:
            raise _RejectedError(Rejection.NOTHING_PASSES_LEFT, "no test that passes with nothing done is steady")
        return self._task(task.statement, task.fail_to_pass, steady)

    def _refuse_skip(self, layers: tuple[str, ...], task: Task) -> None:
        """What skips the tests has to stay in the sandbox; what leaves it all the same may not pass them."""
        with self._sandbox(layers) as sandbox:
            for path, data in skipped(sandbox, task):
                sandbox.write(f"{WORKSPACE}/{path}", data, user=BASE_USER)
            layer = sandbox.keep()
        try:
            left = extract(self.workshop, layers, layer, self.environment, task).patch
        finally:
            self.workshop.layers.remove(layer)
        self._refuse_wrong(layers, task, "a skip of the tests", left)

    def _graded(self, layers: tuple[str, ...], task: Task) -> Task:
        """`task`, after the reference solved it as a policy's patch would. A test to keep that fails here alone is
        flaky, and goes."""
        with self._timed("grading"):
            given = grade(self.workshop, self.environment, task, inverse(task.changes), layers=layers)
        if is_solved(given, task):
            return task
        good = passed(given.tests, (*task.fail_to_pass, *task.pass_to_pass))
        bad = [test for test in task.fail_to_pass if test not in good]
        kept = tuple(test for test in task.pass_to_pass if test in good)
        why = [f"{flag.kind}: {flag.detail}" for flag in given.flags if flag.decisive]
        if bad or why or not kept:
            lost = f"{len(bad)} tests fail, such as {bad[0]}" if bad else ""
            detail = "; ".join(filter(None, [*why, lost, given.detail]))
            raise _RejectedError(Rejection.REFERENCE_FAILS, f"graded: {detail}"[:300])
        return self._task(task.statement, task.fail_to_pass, kept)

    def _task(self, text: str, failing: tuple[str, ...], kept: tuple[str, ...]) -> Task:
        candidate = self.candidate
        tests = (tuple(sorted(failing)), tuple(sorted(kept)))
        return Task(
            content_id([self.environment.id, candidate.kind, candidate.changes, candidate.hidden, tests]),
            self.environment.id,
            candidate.kind,
            candidate.language,
            text,
            candidate.changes,
            *tests,
            candidate.hidden,
            timeout_s=self._timeout_s((*failing, *kept)),
            origin=dict(candidate.origin),
        )

    # ------------------------------------------------------------------ runs

    @contextmanager
    def _sandbox(self, layers: tuple[str, ...], patch: Patch = ()) -> Iterator[Sandbox]:
        """A fresh one over the task's start, with `patch` applied, the judging tests restored, and services up."""
        if self.stop.is_set():
            raise SandboxError("the validation was stopped")
        with self.workshop.offline(layers, self.environment.limits) as sandbox:
            started = start(sandbox, self.environment.recipe)
            if started is not None and not started.ok:
                raise SandboxError(f"the start script failed with {started.exit_status}: {started.output[-500:]}")
            apply_patch(sandbox, patch)
            yield sandbox

    def _run(self, sandbox: Sandbox, tests: Collection[str]) -> SuiteRun:
        apply_patch(sandbox, self.candidate.hidden)
        return run_suite(sandbox, self.suite, tests, timeout_s=self._timeout_s(tests))

    def _timeout_s(self, tests: Collection[str]) -> float:
        return round(min(self.suite.timeout_s, _STARTING_S + _SLOWER * sum(map(self.coverage.seconds, tests))), 1)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began


def _case(test: str, run: SuiteRun) -> TestCase:
    """What a failing test said; of one that was not run, what pytest says of its file."""
    known = {case.id: case for case in run.tests.cases}
    if test in known:
        return known[test]
    file = re.escape(test.partition("::")[0])
    error = re.search(rf"^ERROR {file}(?: - (.+))?$", run.result.output, re.MULTILINE)
    return TestCase(test, Outcome.ERROR, (error and error[1]) or "it was not run")


def judges(candidate: Candidate, coverage: Coverage) -> frozenset[str]:
    """The tests that are about the change: those that ran the changed lines, and those of the test files that came
    with it."""
    hidden = {change.path for change in candidate.hidden}
    return (
        candidate.covering | {test for test in coverage.tests if test.partition("::")[0] in hidden}
    ) & coverage.passing


def selected(candidate: Candidate, coverage: Coverage, rng: random.Random) -> tuple[str, ...]:
    """The tests that are run: those that ran the changed lines, up to three quarters of what there is room for, then
    others of their files and of the changed files. Only such as always pass in the environment."""
    about = sorted(judges(candidate, coverage))
    files = {test.partition("::")[0] for test in about}
    near = {test for test in coverage.passing if test.partition("::")[0] in files}
    for change in candidate.changes:
        near |= coverage.tests_of(change.path, 1, 1 << 30) & coverage.passing
    rest = sorted(near - set(about))
    rng.shuffle(about)
    rng.shuffle(rest)
    chosen = _fitting(about, coverage, MOST_TESTS * 3 // 4, MOST_SECONDS * 3 / 4)
    if not chosen:
        raise _RejectedError(
            *(
                (Rejection.TOO_SLOW, f"each of the {len(about)} tests takes over {MOST_SECONDS * 3 / 4:.0f} s")
                if about
                else (Rejection.NO_TEST_FAILS, "no test that always passes ran the changed lines")
            )
        )
    left_s = MOST_SECONDS - sum(map(coverage.seconds, chosen))
    return tuple(sorted([*chosen, *_fitting(rest, coverage, MOST_TESTS - len(chosen), left_s)]))


def _fitting(tests: list[str], coverage: Coverage, most: int, most_seconds: float) -> list[str]:
    chosen: list[str] = []
    for test in tests:
        seconds = coverage.seconds(test)
        if len(chosen) < most and seconds <= most_seconds:
            chosen.append(test)
            most_seconds -= seconds
    return chosen
