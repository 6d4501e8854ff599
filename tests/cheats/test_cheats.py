"""No scripted cheat is rewarded, an honest fix is, and of each defence there is a cheat that needs it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cheats import policies
from cheats.policies import Cheat
from cheats.project import AVERAGE, FILES, LIBRARY, bug
from ratchet.agent import AgentLimits, run_agent
from ratchet.autoinstall.workshop import Workshop
from ratchet.patches import Patch, inverse
from ratchet.policies.scripted import ScriptedPolicy
from ratchet.records import Environment, Limits, content_id
from ratchet.rewards.tests import passed, solved
from ratchet.sandbox.oci import OciBackend
from ratchet.task_records import Flag, Grade, Task
from ratchet.tasks.behaviour import record_probes
from ratchet.tasks.candidates import Candidate, Definition
from ratchet.tasks.defences import DEFENCES, Defence, Defences
from ratchet.tasks.extraction import Extracted, extract
from ratchet.tasks.grading import grade
from ratchet.tasks.prepare import task_layers
from sample_project import sample_environment

pytestmark = pytest.mark.sandbox

_LIMITS = Limits(memory_bytes=1 << 30, processes=128, disk_bytes=256 << 20, time_s=30.0)

# Each is defeated by this defence alone. NO_LINKS needs a file of the host, and has a test of its own.
NEEDED: dict[Defence, Cheat] = {
    Defence.SOURCES_ONLY: policies.IN_THE_WAY,
    Defence.TEXT_ONLY: policies.COMPILED,
    Defence.TESTS_RESTORED: policies.EDITS_THE_TEST,
    Defence.TESTS_READ_ONLY: policies.REWRITES_TESTS,
    Defence.CANARIES: policies.NO_ASSERTS,
    Defence.RUNNER_KNOWN: policies.BY_TEST,
    Defence.ALWAYS_EQUAL: policies.ALWAYS_EQUAL,
    Defence.PATCHED_MODULES: policies.PATCHES,
    Defence.CALLERS_READ: policies.FRAMES,
    Defence.TESTS_READ: policies.READS_TESTS,
    Defence.HIDDEN_CODE: policies.HIDDEN,
    Defence.PROBES: policies.SPECIAL_CASES,
}
# Solve but one of the tests, which then is the one that judges.
_LIBRARY_ONLY = (policies.IN_THE_WAY, policies.PATCHES, policies.AMONG_THE_PACKAGES)

CHEATS = (*policies.AROUND_THE_TESTS, *policies.LOOKING, *policies.HARMFUL, *policies.IN_PROCESS)


@dataclass
class Place:
    """Where policies are tried. What left of a rollout is often the same, and then graded once."""

    workshop: Workshop
    environment: Environment
    task: Task
    layers: tuple[str, ...]
    graded: dict[tuple[str, Patch, float], Grade] = field(default_factory=dict)

    @contextmanager
    def rolled_out(self, cheat: Cheat) -> Iterator[tuple[str, str]]:
        """The layer that a policy leaves, and what its commands printed."""
        env = self.environment.recipe.env
        policy = ScriptedPolicy([replace(action, env=env) for action in cheat.actions])
        with self.workshop.offline(self.layers, _LIMITS) as sandbox:
            trajectory = run_agent(policy, sandbox, AgentLimits(steps=10, seconds=60.0))
            layer = sandbox.keep()
        try:
            yield layer, "".join(step.result.output for step in trajectory.steps if step.result)
        finally:
            self.workshop.layers.remove(layer)

    def extract(self, layer: str, defences: Defences = DEFENCES) -> Extracted:
        return extract(self.workshop, self.layers, layer, self.environment, self.task, defences=defences)

    def left_by(self, cheat: Cheat) -> tuple[Extracted, str]:
        with self.rolled_out(cheat) as (layer, output):
            return self.extract(layer), output

    def grade(self, patch: Patch, task: Task, defences: Defences = DEFENCES, on_top: Sequence[str] = ()) -> Grade:
        layers = (*self.layers, *on_top)
        return grade(self.workshop, self.environment, task, patch, layers=layers, defences=defences)

    def grade_once(self, patch: Patch, task: Task, timeout_s: float) -> Grade:
        key = (content_id(task), patch, timeout_s)
        if key not in self.graded:
            self.graded[key] = self.grade(patch, replace(task, timeout_s=timeout_s))
        return self.graded[key]


@pytest.fixture(scope="module")
def place(home: Path, backend: OciBackend) -> Iterator[Place]:
    with Workshop.open(home) as workshop:
        environment = sample_environment(workshop, FILES, "stats")
        task = bug(environment.id)
        layers = task_layers(workshop, environment, task)
        yield Place(workshop, environment, task, layers)
        workshop.layers.remove(layers[-1])


@pytest.fixture(scope="module")
def probed(place: Place) -> Task:
    """The task with probes."""
    mean = Definition("stats/average.py", "mean", "function", "def mean(values):", "", 4, 9)
    tests = place.task.fail_to_pass
    candidate = Candidate(place.task.kind, "python", place.task.changes, (mean,), frozenset(tests))
    probes = record_probes(place.workshop, place.environment, candidate, tests, random.Random(1))
    return replace(place.task, probes=probes)


def _kinds(flags: Sequence[Flag]) -> set[str]:
    return {flag.kind for flag in flags}


@pytest.mark.parametrize("policy", [policies.HONEST, policies.HONEST_AND_TIDY], ids=lambda policy: policy.name)
def test_an_honest_fix_is_rewarded(place: Place, policy: Cheat) -> None:
    extracted, _ = place.left_by(policy)
    given = place.grade(extracted.patch, place.task)
    assert solved(given, place.task)
    assert (given.compiles, given.imports, given.detail) == (True, True, "")
    assert [*extracted.flags, *given.flags] == []


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_a_cheat_is_not_rewarded(place: Place, cheat: Cheat) -> None:
    extracted, output = place.left_by(cheat)
    given = place.grade_once(extracted.patch, place.task, cheat.timeout_s)
    assert not solved(given, place.task)
    assert set(cheat.flags) <= _kinds([*extracted.flags, *given.flags])
    assert (passed(given.tests, place.task.fail_to_pass) == set(place.task.fail_to_pass)) == cheat.solves
    assert "REACHED" not in output


def test_a_table_of_the_tests_inputs_is_told_by_other_inputs_only(place: Place, probed: Task) -> None:
    """The tests are all right with it: nothing but a look at what it does elsewhere, and a flag that decides nothing,
    tells it from a solution."""
    extracted, _ = place.left_by(policies.SPECIAL_CASES)
    given = place.grade_once(extracted.patch, probed, policies.SPECIAL_CASES.timeout_s)
    assert solved(given, probed)
    assert given.probes
    assert not all(given.probes)
    assert "special-cases" in _kinds(given.flags)
    assert all(place.grade(inverse(probed.changes), probed).probes)


@pytest.mark.parametrize("defence", NEEDED, ids=str)
def test_without_this_defence_a_cheat_wins(place: Place, probed: Task, defence: Defence) -> None:
    cheat, less = NEEDED[defence], DEFENCES - {defence}
    task = bug(place.environment.id, LIBRARY) if cheat in _LIBRARY_ONLY else place.task
    task = probed if defence is Defence.PROBES else task
    with place.rolled_out(cheat) as (layer, _):
        defended = place.grade_once(place.extract(layer).patch, task, cheat.timeout_s)
        undefended = place.grade(place.extract(layer, less).patch, task, less)
    assert not _wins(defended, task)
    assert _wins(undefended, task)


def test_without_care_for_links_a_file_of_the_host_leaves(place: Place, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(AVERAGE)
    with place.rolled_out(Cheat("a link to the host", f"ln -sf {secret} stats/average.py")) as (layer, _):
        assert place.extract(layer).patch == ()
        (change,) = place.extract(layer, DEFENCES - {Defence.NO_LINKS}).patch
    assert change.after == AVERAGE


def test_every_defence_is_shown_to_be_needed() -> None:
    assert {*NEEDED, Defence.NO_LINKS} == DEFENCES


def test_what_was_changed_outside_of_the_sources_wins_where_the_sandbox_is_not_a_fresh_one(place: Place) -> None:
    task = bug(place.environment.id, LIBRARY)
    with place.rolled_out(policies.AMONG_THE_PACKAGES) as (layer, _):
        assert not solved(place.grade((), task), task)
        assert solved(place.grade((), task, on_top=[layer]), task)


def _wins(given: Grade, task: Task) -> bool:
    return solved(given, task) and all(given.probes)
