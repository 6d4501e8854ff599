"""The gate, on a small real project: what it lets in, and what it keeps out for which reason."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.sample_project import FILES, PRICES, WRONG_PRICES, sample_environment

from ratchet.autoinstall.verify import environment_layers
from ratchet.autoinstall.workshop import Workshop
from ratchet.records import Environment, Outcome, TestRun
from ratchet.task_records import FileChange, Rejection, Task, TaskKind, Validation
from ratchet.tasks.candidates import Candidate, Definition
from ratchet.tasks.coverage import Coverage, packed
from ratchet.tasks.suite import SuiteRun, run_suite, suite_of
from ratchet.tasks.validate import MOST_SECONDS, MOST_TESTS, check, selected, validate
from ratchet.tasks.wrong import inverse_applied, stub

DISCOUNT = Definition(
    "inventory/prices.py", "discount", "function", "def discount(cents, count):", "The price of pieces.", 11, 18
)
OF_DISCOUNT = frozenset(
    {f"tests/test_prices.py::test_discount[{n}]" for n in ("1-100", "9-900", "10-900", "99-8910", "100-8000")}
    | {"tests/test_cli.py::test_main", "tests/test_cli.py::test_upper"}
)

OF_PRICES = OF_DISCOUNT | {
    *(f"tests/test_prices.py::test_with_tax[{case}]" for case in ("100-19-119", "50-7-54", "0-19-0", "10-5-11")),
    *(f"tests/test_prices.py::test_as_text[{case} EUR]" for case in ("1250-12.50", "-5--0.05", "0-0.00")),
}


def bug(after: str = WRONG_PRICES, before: str = PRICES, path: str = "inventory/prices.py") -> Candidate:
    change = FileChange(path, before, after)
    return Candidate(TaskKind.BUG, "python", (change,), (DISCOUNT,), OF_DISCOUNT, {"operator": "comparison"})


@dataclass(frozen=True)
class Gate:
    workshop: Workshop
    environment: Environment
    coverage: Coverage

    def __call__(self, candidate: Candidate) -> tuple[Task | None, Validation]:
        return validate(self.workshop, self.environment, candidate, self.coverage)

    def reason(self, candidate: Candidate) -> Rejection | None:
        return self(candidate)[1].rejection


@pytest.fixture(scope="module")
def gate(home: Path, base: str) -> Iterator[Gate]:
    with Workshop.open(home) as workshop:
        environment = sample_environment(workshop)
        with workshop.offline(environment_layers(workshop, environment), environment.limits) as sandbox:
            cases = run_suite(sandbox, suite_of(environment)).tests.cases
        assert all(case.outcome is Outcome.PASSED for case in cases)
        yield Gate(workshop, environment, coverage_of_cases([case.id for case in cases], environment.id))


def coverage_of_cases(tests: list[str], environment: str = "e", seconds: float = 0.01) -> Coverage:
    """As if every test that is named after a file had run all of its lines."""
    sets = [packed(i for i, test in enumerate(tests) if f"test_{name}" in test) for name in ("prices", "stock")]
    lines = {f"inventory/{name}.py": f"1 {place}" for place, name in enumerate(("prices", "stock"))}
    return Coverage(environment, tuple(tests), (seconds,) * len(tests), tuple(range(len(tests))), tuple(sets), lines)


# --------------------------------------------------------------------------- let in

UNSTEADY = "tests/test_prices.py::test_as_text[0-0.00 EUR]"


@pytest.fixture(scope="module")
def accepted(gate: Gate) -> tuple[Task, Validation]:
    """A real bug, where one test to keep fails in the first run of the reference (the fifth of all)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ratchet.tasks.validate.run_suite", failing_in(5, UNSTEADY))
        task, validation = gate(bug())
    assert task is not None, validation
    return task, validation


def failing_in(number: int, test: str) -> Callable[..., SuiteRun]:
    """`run_suite`, of which one run says that a test failed."""
    runs = itertools.count(1)

    def run(*arguments: Any, **options: Any) -> SuiteRun:
        done = run_suite(*arguments, **options)
        if next(runs) != number:
            return done
        cases = tuple(replace(c, outcome=Outcome.FAILED) if c.id == test else c for c in done.tests.cases)
        return replace(done, tests=TestRun(cases))

    return run


@pytest.mark.sandbox
def test_a_real_bug_becomes_a_task_with_the_test_that_finds_it(accepted: tuple[Task, Validation]) -> None:
    task, validation = accepted
    assert task.fail_to_pass == ("tests/test_prices.py::test_discount[100-8000]",)
    assert "tests/test_prices.py::test_discount[9-900]" in task.pass_to_pass
    assert validation.task == task.id
    assert len(task.probes) > 1


@pytest.mark.sandbox
def test_its_statement_says_what_happens_and_not_what_was_done(accepted: tuple[Task, Validation]) -> None:
    assert "assert 9000 == 8000" in accepted[0].statement
    assert "count >" not in accepted[0].statement


@pytest.mark.sandbox
def test_a_test_that_does_not_give_the_same_in_all_runs_does_not_judge(accepted: tuple[Task, Validation]) -> None:
    assert UNSTEADY not in accepted[0].pass_to_pass


@pytest.mark.sandbox
def test_a_task_that_holds_still_does_when_it_is_looked_at_again(gate: Gate, accepted: tuple[Task, Validation]) -> None:
    assert check(gate.workshop, gate.environment, accepted[0]).rejection is None


@pytest.mark.sandbox
def test_a_task_whose_test_to_mend_passes_by_now_does_not_hold(gate: Gate, accepted: tuple[Task, Validation]) -> None:
    task, _ = accepted
    spoilt = replace(task, fail_to_pass=(*task.fail_to_pass, "tests/test_prices.py::test_discount[9-900]"))
    assert check(gate.workshop, gate.environment, spoilt).rejection is Rejection.NO_TEST_FAILS


# --------------------------------------------------------------------------- kept out


def wrong(old: str, new: str, covering: frozenset[str] = OF_DISCOUNT) -> Candidate:
    assert old in PRICES
    return replace(bug(PRICES.replace(old, new)), covering=covering)


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        pytest.param(wrong("rounded half up", "rounded up"), Rejection.NO_TEST_FAILS, id="changes nothing"),
        pytest.param(
            wrong("def as_text", "def as_texts", OF_PRICES), Rejection.NOTHING_PASSES_LEFT, id="nothing can be imported"
        ),
        pytest.param(wrong("return int(", "return -int("), Rejection.BREAKS_OTHERS, id="is about something else"),
    ],
)
def test_what_is_no_task_is_kept_out_with_the_reason(gate: Gate, candidate: Candidate, reason: Rejection) -> None:
    task, validation = gate(candidate)
    assert (task, validation.rejection) == (None, reason), validation


@pytest.mark.sandbox
def test_what_never_ends_is_kept_out(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratchet.tasks.validate._STARTING_S", 3.0)
    endless = wrong("    share = 100\n", "    share = 100\n    while count == 100:\n        pass\n")
    assert gate.reason(endless) is Rejection.TOO_SLOW


@pytest.mark.sandbox
def test_a_test_to_mend_that_passes_by_itself_is_no_judge(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    test = "tests/test_prices.py::test_discount[9-900]"
    monkeypatch.setattr("ratchet.tasks.validate.run_suite", failing_in(1, test))
    for expensive in ("stub", "find_traces"):  # which have no part in this
        monkeypatch.setattr(f"ratchet.tasks.validate.{expensive}", lambda *_: ())
    assert gate.reason(bug()) is Rejection.FLAKY


@pytest.mark.sandbox
def test_what_a_stub_solves_is_kept_out(gate: Gate) -> None:
    text = FILES["inventory/text.py"]
    change = FileChange("inventory/text.py", text, text.replace("return None", 'return "nothing", 0'))
    covering = frozenset(
        {"tests/test_text.py::test_parse_line[# no-None]", "tests/test_text.py::test_parse_line[-None]"}
    )
    tests = (*sorted(covering), "tests/test_stock.py::test_total")
    coverage = Coverage("e", tests, (0.01,) * 3, (0, 1, 2), (packed(range(3)),), {change.path: "1 0"})
    candidate = Candidate(TaskKind.BUG, "python", (change,), (), covering, {})
    assert replace(gate, coverage=coverage).reason(candidate) is Rejection.WRONG_SOLUTION_PASSES


# --------------------------------------------------------------------------- without a sandbox


def test_the_tests_that_ran_the_change_come_first_and_the_rest_fills_what_room_there_is() -> None:
    tests = [f"tests/test_prices.py::t{i}" for i in range(3000)]
    about = frozenset(tests[:1000])
    coverage = coverage_of_cases(tests, seconds=0.001)
    chosen = selected(replace(bug(), covering=about), coverage, random.Random(1))
    assert len(chosen) == MOST_TESTS
    assert len(about.intersection(chosen)) == MOST_TESTS * 3 // 4
    assert chosen == selected(replace(bug(), covering=about), coverage, random.Random(1))
    assert chosen != selected(replace(bug(), covering=about), coverage, random.Random(2))


def test_slow_tests_are_few() -> None:
    tests = [f"tests/test_prices.py::t{i}" for i in range(100)]
    coverage = coverage_of_cases(tests, seconds=1.5)
    chosen = selected(replace(bug(), covering=frozenset(tests[:50])), coverage, random.Random(1))
    assert 0 < len(chosen) * 1.5 <= MOST_SECONDS


def test_a_stub_returns_nothing_and_leaves_the_rest_as_the_solution_has_it() -> None:
    (patch,) = stub(bug().changes)
    assert patch.before == WRONG_PRICES
    assert patch.after is not None
    assert "def discount(cents, count):\n    return None\n" in patch.after
    assert "return int(cents * (100 + rate) / 100 + 0.5)" in patch.after


def test_what_touches_no_function_has_no_stub() -> None:
    assert stub([FileChange("a.py", "LIMIT = 3\n", "LIMIT = 4\n")]) == ()


def test_the_inverse_of_a_solution_applies_only_where_its_lines_are_there_once_more() -> None:
    block = "".join(f"line {i}\n" for i in range(8))
    once = FileChange("a.py", block, block.replace("line 4", "line four"))
    twice = replace(once, before=f"{block}\n\n{block}", after=f"{once.after}\n\n{block}")
    assert inverse_applied([once]) == ()
    assert [change.after for change in inverse_applied([twice])] == [f"{once.after}\n\n{once.after}"]
