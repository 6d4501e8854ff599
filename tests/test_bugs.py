"""Bugs as candidates: of code that some tests run, no two alike, the same for the same seed."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from ratchet.patches import removed_lines
from ratchet.task_records import TaskKind
from ratchet.tasks.bugs import bug_candidates
from ratchet.tasks.candidates import Candidate
from sample_project import PRICES, STOCK, TEXT

SOURCES = {"p/prices.py": PRICES, "p/stock.py": STOCK, "p/text.py": TEXT}


@dataclass
class Lines:
    """Coverage as a table: path to line to tests."""

    lines: Mapping[str, Mapping[int, set[str]]]
    passing: frozenset[str] = field(default_factory=lambda: frozenset(f"t{n}" for n in range(10)))

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(sorted(self.lines))

    def tests_of(self, path: str, first_line: int, last_line: int) -> frozenset[str]:
        found = [tests for line, tests in self.lines.get(path, {}).items() if first_line <= line <= last_line]
        return frozenset().union(*found)

    def covered_lines(self, path: str) -> frozenset[int]:
        return frozenset(self.lines.get(path, {}))


def lines_of(text: str, *between: str) -> range:
    """From the line that holds the first word to the one that holds the second."""
    lines = text.splitlines()
    first, last = (next(n for n, line in enumerate(lines, 1) if word in line) for word in between)
    return range(first, last + 1)


DISCOUNT = lines_of(PRICES, "share = 100", "return cents * count")
TAKE = lines_of(STOCK, "left = self", "return left")
COVERED = Lines(
    {
        "p/prices.py": {line: {"t1", "t2"} for line in DISCOUNT},
        "p/stock.py": {line: {"t3"} for line in TAKE},
        "p/text.py": {line: {f"t{n}" for n in range(5)} for line in range(1, 40)},
    }
)


def bugs(seed: int = 0, mutations: int = 1, sources: Mapping[str, str] = SOURCES) -> list[Candidate]:
    rng = random.Random(seed)
    return list(itertools.islice(bug_candidates(sources, COVERED, rng, mutations=mutations), 300))


def test_faults_are_planted_in_covered_lines_only() -> None:
    found = bugs()
    assert len(found) > 15
    for candidate in found:
        (change,) = candidate.changes
        assert candidate.kind is TaskKind.BUG
        assert change.before == SOURCES[change.path] != change.after
        inside = DISCOUNT if change.path == "p/prices.py" else TAKE
        assert int(candidate.origin["lines"]) in inside or candidate.origin["operators"] == "wrong-default"
        assert 1 <= len(removed_lines([change])) <= 3
    assert {candidate.about[0].name for candidate in found} == {"discount", "Stock.take"}
    assert {tuple(sorted(candidate.covering)) for candidate in found} == {("t1", "t2"), ("t3",)}


def test_what_more_than_two_fifths_of_the_tests_run_is_left_alone() -> None:
    assert not [candidate for candidate in bugs() if candidate.changes[0].path == "p/text.py"]


def test_no_two_are_alike_and_a_seed_gives_the_same() -> None:
    for mutations in (1, 2):
        found = bugs(3, mutations)
        assert len({candidate.changes for candidate in found}) == len(found)
        assert found == bugs(3, mutations)
        assert found != bugs(4, mutations)


def test_several_faults_go_together_on_lines_of_their_own() -> None:
    found = bugs(mutations=2)
    assert found
    for candidate in found:
        lines = candidate.origin["lines"].split(", ")
        assert len(lines) == len(set(lines)) == 2
        assert len(candidate.origin["operators"].split(", ")) == 2


def test_functions_and_operators_take_turns() -> None:
    """Neither the function with the most places nor the operator with the most has all of the first ones."""
    found = bugs()[:8]
    assert Counter(candidate.about[0].name for candidate in found) == {"discount": 4, "Stock.take": 4}
    assert len({candidate.origin["operators"] for candidate in found}) >= 3


def test_a_default_counts_where_its_function_runs() -> None:
    """The line of a `def` runs when its module is imported, which is no test of its default."""
    found = [candidate for candidate in bugs() if candidate.origin["operators"] == "wrong-default"]
    assert [(candidate.about[0].name, candidate.covering) for candidate in found] == [("Stock.take", frozenset({"t3"}))]


def test_what_is_no_source_of_a_known_language_is_left_out() -> None:
    assert bugs(sources={"p/prices.py": "def f(:\n", "p/stock.txt": STOCK}) == []
