"""Which tests run which lines: how it is kept, and that it is measured right."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ratchet.autoinstall.workshop import Workshop
from ratchet.errors import UnsupportedSuiteError
from ratchet.records import CommandResult, Outcome, TestCase, TestRun, from_json, to_json
from ratchet.sandbox.oci import OciBackend
from ratchet.tasks.coverage import Coverage, coverage_of, measure, packed, summary
from ratchet.tasks.suite import SuiteRun
from sample_project import FILES, sample_environment

RESULT = CommandResult("pytest", 0, "", 0, 1.0)


def run(
    outcomes: Mapping[str, Outcome], *, seconds: float = 0.5, lines: Mapping[str, Mapping[int, str]] = {}
) -> SuiteRun:
    cases = tuple(TestCase(name, outcome, "", seconds) for name, outcome in outcomes.items())
    return SuiteRun(TestRun(cases), RESULT, (), (), tuple(outcomes), lines)


GOOD = {"t::a": Outcome.PASSED, "t::b": Outcome.PASSED, "t::c": Outcome.PASSED}
LINES = {"src/m.py": {1: packed([0, 2]), 2: packed([0, 2]), 4: packed([1])}, "t.py": {1: packed([0])}}
MEASURED = run(GOOD, lines=LINES)


def test_lines_lead_to_their_tests() -> None:
    found = summary("e", [run(GOOD)], MEASURED, frozenset({"t.py"}))
    assert found.paths == ("src/m.py",)
    assert found.covered_lines("src/m.py") == {1, 2, 4}
    assert found.tests_of("src/m.py", 1, 3) == {"t::a", "t::c"}
    assert found.tests_of("src/m.py", 2, 4) == set(GOOD)
    assert found.tests_of("src/m.py", 3, 3) == found.tests_of("nowhere.py", 1, 9) == frozenset()


def test_only_what_passes_every_time_and_quickly_is_passing() -> None:
    flaky = run(GOOD | {"t::b": Outcome.FAILED})
    found = summary("e", [run(GOOD), flaky], MEASURED, frozenset())
    assert found.passing == {"t::a", "t::c"}
    assert summary("e", [run(GOOD, seconds=31)], MEASURED, frozenset()).passing == frozenset()


def test_a_test_that_was_not_in_all_runs_is_not_passing() -> None:
    found = summary("e", [run({"t::a": Outcome.PASSED})], MEASURED, frozenset())
    assert (found.passing, found.seconds("t::a"), found.seconds("t::z")) == ({"t::a"}, 0.5, 0.0)


def test_a_large_one_is_small_on_disk_and_comes_back_equal() -> None:
    names = {f"tests/test_{n % 90}.py::test_{n}": Outcome.PASSED for n in range(5000)}
    lines = {f"src/m{n}.py": {line: packed(range(line, 5000, n + 2)) for line in range(1, 201)} for n in range(10)}
    found = summary("e", [run(names)], run(names, lines=lines), frozenset())
    text = json.dumps(to_json(found))
    again = from_json(json.loads(text), Coverage)
    assert again == found
    assert len(again.tests_of("src/m0.py", 1, 1)) == 2500
    assert len(text) < 20 << 20


def test_a_set_that_unpacks_to_gigabytes_is_cut() -> None:
    bomb = base64.b64encode(zlib.compress(bytes(64 << 20))).decode()
    found = Coverage("e", ("t::a",), (0.0,), (0,), (bomb,), {"m.py": "1 0"})
    assert found.tests_of("m.py", 1, 1) == frozenset()


@pytest.fixture
def workshop(home: Path, backend: OciBackend) -> Iterator[Workshop]:
    with Workshop.open(home) as opened:
        yield opened


@pytest.mark.sandbox
def test_a_project_is_measured_once(workshop: Workshop) -> None:
    environment = sample_environment(workshop)
    measured = coverage_of(workshop, environment)
    try:
        assert "inventory/prices.py" in measured.paths
        assert not [path for path in measured.paths if path.startswith("tests/")]
        line = FILES["inventory/prices.py"].splitlines().index("        share = 80") + 1
        assert measured.tests_of("inventory/prices.py", line, line) == {"tests/test_prices.py::test_discount[100-8000]"}
        assert "tests/test_cli.py::test_main" in measured.tests_of("inventory/prices.py", line - 2, line)
        assert len(measured.passing) == 28
        assert coverage_of(workshop, environment) == measured
    finally:
        workshop.store.remove("coverage", environment.id)


@pytest.mark.sandbox
def test_a_suite_of_which_nothing_passes_is_refused(workshop: Workshop) -> None:
    environment = sample_environment(workshop, {"tests/test_none.py": "def test_it(): assert 0\n"}, "nothing")
    with pytest.raises(UnsupportedSuiteError, match="no test of nothing passes"):
        measure(workshop, environment)
