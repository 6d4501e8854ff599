"""Bugs: faults planted in code that tests run."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ratchet.task_records import FileChange, TaskKind
from ratchet.tasks.candidates import Candidate, Definition, LineCoverage
from ratchet.tasks.languages import language_of
from ratchet.tasks.mutations import Mutation, mutations_in
from ratchet.tasks.syntax import Source, body_of, edited, function_nodes, parse_source

MOST_COVERING = 0.4
"""Of the tests: what more of them run breaks everything at once, and is about nothing."""

_TRIES = 60  # of mutations that go together


@dataclass(frozen=True)
class _Fault:
    source: Source
    definition: Definition
    mutation: Mutation
    covering: frozenset[str]


def bug_candidates(
    sources: Mapping[str, str], coverage: LineCoverage, rng: random.Random, *, mutations: int = 1
) -> Iterator[Candidate]:
    """Candidates with `mutations` faults each, no two alike, spread over the functions that tests run.

    First a function is drawn, then an operator, then a place, so that neither long functions nor frequent operators
    have more than their share. Several faults are of one file and share tests. Ends when all were given.
    """
    functions = [faults for path in sorted(sources) for faults in _faults(path, sources[path], coverage)]
    rng.shuffle(functions)
    seen: set[bytes] = set()
    while functions:
        for faults in tuple(functions):
            first = _draw(faults, rng)
            others = [] if mutations < 2 else [fault for group in functions for fault in group]
            candidate = _candidate([first, *_partners(first, others, rng, mutations - 1)], mutations)
            if candidate is not None and (digest := _digest(candidate.changes[0])) not in seen:
                seen.add(digest)
                yield candidate
        functions = [faults for faults in functions if faults]


def _digest(change: FileChange) -> bytes:
    text = f"{change.path}\0{change.after}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def _draw(faults: list[_Fault], rng: random.Random) -> _Fault:
    """Take one out: an operator first, so that rare ones come as often."""
    operator = rng.choice(sorted({fault.mutation.operator for fault in faults}))
    fault = rng.choice([fault for fault in faults if fault.mutation.operator == operator])
    faults.remove(fault)
    return fault


def _partners(first: _Fault, faults: list[_Fault], rng: random.Random, wanted: int) -> list[_Fault]:
    """Faults on other lines of the same file that share tests with the first."""
    chosen: list[_Fault] = []
    possible = [fault for fault in faults if fault.source is first.source and fault.covering & first.covering]
    for _ in range(min(_TRIES, len(possible)) if wanted > 0 else 0):
        fault = rng.choice(possible)
        if all(_apart(fault.mutation, other.mutation) for other in (first, *chosen)):
            chosen.append(fault)
        if len(chosen) == wanted:
            break
    return chosen


def _apart(one: Mutation, other: Mutation) -> bool:
    return one.last_line < other.first_line or other.last_line < one.first_line


def _candidate(faults: list[_Fault], wanted: int) -> Candidate | None:
    if len(faults) != wanted:
        return None
    source = faults[0].source
    text = edited(source, [fault.mutation.edit for fault in faults])
    if text is None:
        return None
    before = source.data.decode("utf-8", "surrogateescape")
    return Candidate(
        TaskKind.BUG,
        source.language.name,
        (FileChange(source.path, before, text),),
        tuple(dict.fromkeys(fault.definition for fault in faults)),
        frozenset().union(*(fault.covering for fault in faults)),
        {
            "operators": ", ".join(fault.mutation.operator for fault in faults),
            "path": source.path,
            "lines": ", ".join(str(fault.mutation.first_line) for fault in faults),
            "names": ", ".join(dict.fromkeys(fault.definition.name for fault in faults)),
        },
    )


def _faults(path: str, text: str, coverage: LineCoverage) -> Iterator[list[_Fault]]:
    """The faults that tests would run into, one list for each function."""
    language = language_of(path)
    covered = coverage.covered_lines(path)
    source = parse_source(path, text, language) if language is not None and covered else None
    if source is None:
        return
    most = MOST_COVERING * len(coverage.passing)
    for node, definition in function_nodes(source):
        faults = []
        body = body_of(node)
        inside = source.lines_of(body) if body is not None else source.lines_of(node)
        for mutation in mutations_in(source, node):
            # A default counts where the function runs: its own line runs when the module is imported.
            lines = (mutation.first_line, mutation.last_line) if mutation.last_line >= inside[0] else inside
            if covered.isdisjoint(range(lines[0], lines[1] + 1)):
                continue
            tests = coverage.tests_of(path, *lines) & coverage.passing
            if 1 <= len(tests) <= max(most, 1):
                faults.append(_Fault(source, definition, mutation, tests))
        if faults:
            yield faults
