"""Which tests of an environment pass every time, how long they take, and which lines of the project each of them runs.

Lines are measured by the `coverage` package with its contexts, in one process: programs that tests start, and threads
that outlive their test, are not attributed to it. Lines that run when a module is imported belong to no test, unless
a test imports it.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from ratchet.autoinstall.verify import environment_layers, start
from ratchet.autoinstall.workshop import Workshop
from ratchet.errors import MachineError, SandboxError, UnsupportedSuiteError
from ratchet.records import Environment, Outcome
from ratchet.tasks.project_files import test_files
from ratchet.tasks.suite import Suite, SuiteRun, run_suite, suite_of

KIND: Final = "coverage"
PLAIN_RUNS: Final = 2  # and one that is measured
SLOW_TEST_S: Final = 30.0

_FOLDER = "/var/lib/ratchet-coverage"
_INSTALL = (
    f'uv pip install --quiet --no-progress --python "$(command -v python)" --target {_FOLDER} coverage'
    f" && chmod -R a+rX {_FOLDER}"
)
_INSTALL_S = 300.0
_SLOWDOWN = 4.0  # of a suite that is measured, at most
_LARGEST_SET_BYTES = 1 << 17


@dataclass(frozen=True)
class Coverage:
    """Made by `measure`, kept in the store under the environment's id.

    A test is a place in `tests`. `sets` are the distinct sets of tests that lines were run by: bitmaps (bit n of byte
    n // 8 is test n), compressed by zlib, in base 64. `files` gives of each file of the project, tests aside, "line
    set line set …" in decimal. Look with the methods.
    """

    environment: str
    tests: tuple[str, ...]
    durations_s: tuple[float, ...]
    passed: tuple[int, ...]
    sets: tuple[str, ...]
    files: Mapping[str, str]

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The files, relative to the workspace, of which any test ran a line; tests are left out."""
        return tuple(sorted(self.files))

    @cached_property
    def passing(self) -> frozenset[str]:
        """The tests that passed in all runs, and took no longer than `SLOW_TEST_S` in any."""
        return frozenset(self.tests[place] for place in self.passed)

    def tests_of(self, path: str, first_line: int, last_line: int) -> frozenset[str]:
        """The tests that ran any of these lines (counted from 1, the last one included)."""
        lines = self._lines_of(path)
        found = 0
        for number in {lines[line] for line in lines if first_line <= line <= last_line}:
            found |= self._bitmap(number)
        return frozenset(test for place, test in enumerate(self.tests) if found >> place & 1)

    def covered_lines(self, path: str) -> frozenset[int]:
        """The lines of a file that any test ran."""
        return frozenset(self._lines_of(path))

    def seconds(self, test_id: str) -> float:
        """How long a test took, with its fixtures, at the longest; 0.0 where it is not known."""
        return self._seconds.get(test_id, 0.0)

    @cached_property
    def _seconds(self) -> dict[str, float]:
        return dict(zip(self.tests, self.durations_s, strict=True))

    @cached_property
    def _read(self) -> dict[str, dict[int, int]]:
        return {}

    def _lines_of(self, path: str) -> dict[int, int]:
        if path not in self._read:
            numbers = [int(word) for word in self.files.get(path, "").split()]
            self._read[path] = dict(zip(numbers[::2], numbers[1::2], strict=True))
        return self._read[path]

    @cached_property
    def _bitmaps(self) -> dict[int, int]:
        return {}

    def _bitmap(self, number: int) -> int:
        if number not in self._bitmaps:
            self._bitmaps[number] = int.from_bytes(_unpacked(self.sets[number]), "little")
        return self._bitmaps[number]


def coverage_of(workshop: Workshop, environment: Environment) -> Coverage:
    """The coverage of an environment: the one in the store, else it is measured and stored."""
    if workshop.store.record_file(KIND, environment.id).is_file():
        return workshop.store.get(KIND, environment.id, Coverage)
    measured = measure(workshop, environment)
    workshop.store.put(KIND, measured, id=environment.id)
    return measured


def measure(workshop: Workshop, environment: Environment) -> Coverage:
    """Run the suite `PLAIN_RUNS` times, and once measured. Needs the package index, for `coverage`: it is installed
    beside the environment with its own Python, and removed afterwards.

    Raises UnsupportedSuiteError where no test passes in every run, MachineError where `coverage` cannot be had.
    """
    suite = suite_of(environment)
    layers = environment_layers(workshop, environment)
    plain = [_run(workshop, environment, suite, layers) for _ in range(PLAIN_RUNS)]
    if not frozenset.intersection(*map(_passed, plain)):
        raise UnsupportedSuiteError(
            f"no test of {environment.name} passes in each of {PLAIN_RUNS} runs: {_last_line(plain[-1])}",
            remedy="see what its suite does: ratchet env run ENVIRONMENT COMMAND",
        )
    tools = _install(workshop, environment, layers)
    try:
        slowly = replace(suite, timeout_s=suite.timeout_s * _SLOWDOWN)
        measured = _run(workshop, environment, slowly, (*layers, tools), coverage=_FOLDER)
    finally:
        workshop.layers.remove(tools)
    return summary(environment.id, plain, measured, test_files(workshop, environment))


def _passed(run: SuiteRun) -> frozenset[str]:
    return frozenset(case.id for case in run.tests.cases if case.outcome is Outcome.PASSED)


def _last_line(run: SuiteRun) -> str:
    lines = [line for line in run.result.output.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"


def _run(
    workshop: Workshop, environment: Environment, suite: Suite, layers: Sequence[str], *, coverage: str | None = None
) -> SuiteRun:
    limits = replace(environment.limits, time_s=max(environment.limits.time_s, suite.timeout_s))
    with workshop.offline(layers, limits) as sandbox:
        started = start(sandbox, environment.recipe)
        if started is not None and not started.ok:
            raise SandboxError(f"the start script of {environment.name} failed: {started.output.strip()[-300:]}")
        return run_suite(sandbox, suite, coverage=coverage)


def _install(workshop: Workshop, environment: Environment, layers: Sequence[str]) -> str:
    with (
        workshop.store.cache(environment.checkout.id) as cache,
        workshop.online(layers, environment.limits, cache) as sandbox,
    ):
        result = sandbox.run(_INSTALL, env=environment.recipe.env, timeout_s=_INSTALL_S)
        if not result.ok:
            raise MachineError(
                f"`coverage` could not be installed for {environment.name}: {result.output.strip()[-500:]}",
                remedy="see whether the package index can be reached: ratchet doctor",
            )
        return sandbox.keep()


def summary(environment: str, plain: Sequence[SuiteRun], measured: SuiteRun, tests: frozenset[str]) -> Coverage:
    """What some plain runs and a measured one say. `tests` are the files that are no code of the project."""
    steady = frozenset.intersection(*map(_passed, (*plain, measured)))
    slowest: dict[str, float] = {}
    for run in plain:
        for case in run.tests.cases:
            slowest[case.id] = max(slowest.get(case.id, 0.0), case.seconds)
    quick = {name for name in steady if slowest[name] <= SLOW_TEST_S}
    sets: dict[str, int] = {}
    files: dict[str, str] = {}
    for path, lines in sorted(measured.lines.items()):
        if path not in tests and not path.startswith("../"):
            files[path] = " ".join(f"{line} {sets.setdefault(by, len(sets))}" for line, by in sorted(lines.items()))
    return Coverage(
        environment,
        measured.collected,
        tuple(round(slowest.get(name, 0.0), 4) for name in measured.collected),
        tuple(place for place, name in enumerate(measured.collected) if name in quick),
        tuple(sets),
        files,
    )


def packed(places: Iterable[int]) -> str:
    """A set of tests in the form of `Coverage.sets`."""
    bits = sum(1 << place for place in set(places))
    return base64.b64encode(zlib.compress(bits.to_bytes(bits.bit_length() // 8 + 1, "little"))).decode()


def _unpacked(text: str) -> bytes:
    # What a sandbox said may be anything: a small text can become gigabytes.
    return zlib.decompressobj().decompress(base64.b64decode(text), _LARGEST_SET_BYTES)
