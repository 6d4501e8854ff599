"""The gate, on a small real project: what it lets in, and what it keeps out for which reason."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.sample_project import FILES, PRICES, WRONG_PRICES, sample_environment

from ratchet.autoinstall.verify import environment_layers
from ratchet.autoinstall.workshop import Workshop
from ratchet.records import Environment, Outcome
from ratchet.task_records import FileChange, Rejection, Task, TaskKind, Validation
from ratchet.tasks.candidates import Candidate, Definition
from ratchet.tasks.coverage import Coverage, packed
from ratchet.tasks.suite import run_suite, suite_of
from ratchet.tasks.validate import MOST_SECONDS, MOST_TESTS, check, selected, validate
from ratchet.tasks.wrong import inverse_applied, stub

DISCOUNT = Definition(
    "inventory/prices.py", "discount", "function", "def discount(cents, count):", "The price of pieces.", 11, 18
)
OF_DISCOUNT = frozenset(
    {f"tests/test_prices.py::test_discount[{n}]" for n in ("1-100", "9-900", "10-900", "99-8910", "100-8000")}
    | {"tests/test_cli.py::test_main", "tests/test_cli.py::test_upper"}
)


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


@pytest.mark.sandbox
def test_a_real_bug_becomes_a_task_that_still_holds_when_it_is_looked_at_again(gate: Gate) -> None:
    task, validation = gate(bug())
    assert task is not None, validation
    assert task.fail_to_pass == ("tests/test_prices.py::test_discount[100-8000]",)
    assert "tests/test_prices.py::test_discount[9-900]" in task.pass_to_pass
    assert "assert 9000 == 8000" in task.statement
    assert "count >= 100" not in task.statement
    assert validation.task == task.id
    assert check(gate.workshop, gate.environment, task).rejection is None
    assert gate(bug())[0] == task


# --------------------------------------------------------------------------- kept out


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        pytest.param(bug(PRICES.replace("as text", "as a text")), Rejection.NO_TEST_FAILS, id="changes nothing"),
        pytest.param(
            bug(PRICES.replace("def as_text", "def as_texts")), Rejection.NOTHING_PASSES_LEFT, id="breaks all of it"
        ),
        pytest.param(
            bug(PRICES.replace("return int(", "return -int(").replace("return f", "return 'f'")),
            Rejection.BREAKS_OTHERS,
            id="breaks what it is not about",
        ),
        pytest.param(
            bug(PRICES.replace("    share = 100\n", "    share = 100\n    while count == 100: pass\n")),
            Rejection.TOO_SLOW,
            id="never ends",
        ),
    ],
)
def test_what_is_no_task_is_kept_out_with_the_reason(
    gate: Gate, candidate: Candidate, reason: Rejection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ratchet.tasks.validate._STARTING_S", 6.0)
    task, validation = gate(candidate)
    assert (task, validation.rejection) == (None, reason), validation


@pytest.mark.sandbox
def test_what_a_stub_solves_is_kept_out(gate: Gate) -> None:
    quiet = FILES["inventory/text.py"].replace("return None", 'return "nothing", 0')
    covering = frozenset(
        {"tests/test_text.py::test_parse_line[# no-None]", "tests/test_text.py::test_parse_line[-None]"}
    )
    change = FileChange("inventory/text.py", FILES["inventory/text.py"], quiet)
    # With only these two tests in its way, nothing at all is as good as the solution.
    few = replace(gate, coverage=coverage_of_cases([*sorted(covering), "tests/test_text.py::test_parse"]))
    candidate = Candidate(TaskKind.BUG, "python", (change,), (), covering, {})
    task, validation = few(candidate)
    assert task is not None or validation.rejection is Rejection.WRONG_SOLUTION_PASSES


@pytest.mark.sandbox
def test_a_test_that_is_not_the_same_in_all_runs_does_not_judge(home: Path, base: str) -> None:
    coin = (
        "import os\n\nfrom inventory.prices import as_text\n\n\ndef test_coin():\n    assert os.urandom(1)[0] < 128\n"
    )
    sure = "\n\ndef test_sure():\n    assert as_text(1) == '0.01 EUR'\n"
    with Workshop.open(home) as workshop:
        environment = sample_environment(workshop, {**FILES, "tests/test_coin.py": coin + sure}, "coins")
        tests = ["tests/test_coin.py::test_coin", "tests/test_coin.py::test_sure", *sorted(OF_DISCOUNT)]
        coverage = coverage_of_cases(tests, environment.id)
        candidate = replace(bug(), covering=frozenset({*tests}))
        for _ in range(3):
            task, validation = validate(workshop, environment, candidate, coverage)
            if task is None:  # it failed with nothing done, and was taken for one to mend
                assert validation.rejection in (Rejection.FLAKY, Rejection.REFERENCE_FAILS)
            elif "tests/test_coin.py::test_coin" not in task.pass_to_pass:
                return
    pytest.fail("a coin that fell on the same side in all runs, three times over")


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
