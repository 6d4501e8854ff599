"""Making tasks: which candidates become tasks, in which order, and what an interruption loses."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ratchet.autoinstall.workshop import Workshop
from ratchet.errors import SandboxError, UsageError
from ratchet.records import Audit, Base, Checkout, Environment, Recipe, content_id
from ratchet.task_records import FileChange, Rejection, Task, TaskKind, TaskYield, Validation
from ratchet.tasks import make
from ratchet.tasks.candidates import Candidate
from ratchet.tasks.make import Wanted, make_tasks

ENVIRONMENT = Environment(
    "e" * 64,
    "small",
    Base("base", "bookworm", None, "amd64", "test"),
    Checkout("c", "small", "s", "p"),
    Recipe(),
    "layer",
    (),
    (),
    (),
    Audit(),
)


class World:
    """Candidates 0, 1, 2 …: those whose number is even pass the gate, and the first take longest."""

    def __init__(self) -> None:
        self.validated: list[int] = []
        self.broken = 0
        self.lock = threading.Lock()

    def candidates_of(self, *_: Any) -> Iterator[Candidate]:
        for number in range(40):
            change = FileChange("a.py", "", f"{number}")
            yield Candidate(TaskKind.BUG, "python", (change,), origin={"number": str(number)})

    def validate(self, _w: Any, _e: Any, candidate: Candidate, _c: Any, **_: Any) -> tuple[Task | None, Validation]:
        number = int(candidate.origin["number"])
        with self.lock:
            self.validated.append(number)
            if self.broken:
                self.broken -= 1
                raise SandboxError("the machinery failed")
        time.sleep(0.03 / (number + 1))
        if number % 2:
            return None, Validation(TaskKind.BUG, Rejection.NO_TEST_FAILS)
        name = content_id(candidate.changes)
        task = Task(name, ENVIRONMENT.id, TaskKind.BUG, "python", "s", candidate.changes, ("t",), ("k",))
        return task, Validation(TaskKind.BUG, None, task=name)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(make, "candidates_of", world.candidates_of)
    monkeypatch.setattr(make, "validate", world.validate)
    monkeypatch.setattr(make, "coverage_of", lambda *_: None)
    return world


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    with Workshop.open(tmp_path) as workshop:
        yield workshop


def numbers(tasks: tuple[Task, ...]) -> list[str | None]:
    return [task.changes[0].after for task in tasks]


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("jobs", [1, 4])
def test_the_order_of_candidates_decides_with_any_number_of_jobs(workshop: Workshop, jobs: int) -> None:
    tasks, done = make_tasks(workshop, ENVIRONMENT, Wanted(TaskKind.BUG, 3), jobs=jobs)
    assert numbers(tasks) == ["0", "2", "4"]
    assert [validation.rejection for validation in done.validations].count(Rejection.NO_TEST_FAILS) == 2
    assert sorted(workshop.store.ids("task")) == sorted(task.id for task in tasks)


def test_an_interruption_ends_what_is_under_way_and_loses_nothing_that_was_told(
    workshop: Workshop, world: World
) -> None:
    def interrupt(validation: Validation, _task: Task | None) -> None:
        if validation.rejection is not None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_tasks(workshop, ENVIRONMENT, Wanted(TaskKind.BUG, 9), jobs=2, on_validation=interrupt)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPool")]
    before = list(world.validated)
    make_tasks(workshop, ENVIRONMENT, Wanted(TaskKind.BUG, 3))
    assert not {0, 1}.intersection(world.validated[len(before) :])


def test_what_was_validated_once_is_not_validated_again(workshop: Workshop, world: World) -> None:
    first, _ = make_tasks(workshop, ENVIRONMENT, Wanted(TaskKind.BUG, 2))
    again, done = make_tasks(workshop, ENVIRONMENT, Wanted(TaskKind.BUG, 3))
    assert world.validated == [0, 1, 2, 3, 4]
    assert again[:2] == first
    assert len(done.validations) == 5
    (stored,) = workshop.store.ids("task-yield")
    assert workshop.store.get("task-yield", stored, TaskYield) == done


def test_a_task_that_was_removed_is_made_again(workshop: Workshop, world: World) -> None:
    (task,), _ = make_tasks(workshop, ENVIRONMENT, Wanted(TaskKind.BUG, 1))
    workshop.store.remove("task", task.id)
    assert make_tasks(workshop, ENVIRONMENT, Wanted(TaskKind.BUG, 1))[0] == (task,)
    assert world.validated == [0, 0]


@pytest.mark.usefixtures("world")
def test_there_is_an_end_to_trying(workshop: Workshop) -> None:
    tasks, done = make_tasks(workshop, ENVIRONMENT, Wanted(TaskKind.BUG, 30, tries=7))
    assert numbers(tasks) == ["0", "2", "4", "6"]
    assert len(done.validations) == 7


@pytest.mark.parametrize("times", [2, 3])
def test_broken_machinery_is_tried_again_and_is_no_reason_against_a_candidate(
    workshop: Workshop, world: World, times: int
) -> None:
    world.broken = times
    if times == 3:
        with pytest.raises(SandboxError):
            make_tasks(workshop, ENVIRONMENT, Wanted(TaskKind.BUG, 1))
    else:
        assert numbers(make_tasks(workshop, ENVIRONMENT, Wanted(TaskKind.BUG, 1))[0]) == ["0"]


def test_each_feature_comes_once_before_any_comes_in_its_other_way() -> None:
    def ways() -> Iterator[Candidate]:
        for name in "abc":
            for mode in ("stub", "whole"):
                yield Candidate(TaskKind.FEATURE, "python", (), origin={"path": "p", "names": name, "mode": mode})

    found = list(make._one_way_first(ways(), random.Random(3)))
    assert [candidate.origin["names"] for candidate in found] == ["a", "b", "c", "a", "b", "c"]
    assert len({(candidate.origin["names"], candidate.origin["mode"]) for candidate in found}) == 6


def test_too_few_bugs_cannot_be_combined(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "coverage_of", lambda *_: None)
    with pytest.raises(UsageError, match="0 bug tasks"):
        make_tasks(workshop, ENVIRONMENT, Wanted(TaskKind.BUG, 1, combined=2))
