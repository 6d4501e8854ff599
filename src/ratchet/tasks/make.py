"""Making tasks: candidates in the order of a seed, each through the gate, until there are enough.

The order of the candidates decides which become tasks, not which is validated first: a seed gives the same tasks with
any number of jobs. What the gate found is stored as it comes, so that making goes on where it was interrupted.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace

from ratchet.autoinstall.workshop import Workshop
from ratchet.errors import SandboxError, UsageError
from ratchet.records import Environment, content_id
from ratchet.task_records import Task, TaskKind, TaskYield, Validation
from ratchet.tasks.bugs import bug_candidates
from ratchet.tasks.candidates import Candidate
from ratchet.tasks.coverage import Coverage, coverage_of
from ratchet.tasks.curriculum import combine
from ratchet.tasks.features import feature_candidates
from ratchet.tasks.history import history_candidates
from ratchet.tasks.prepare import sources_of
from ratchet.tasks.validate import candidate_id, validate

TASK, VALIDATION, YIELD = "task", "validation", "task-yield"
"""The kinds of the records in the store."""

_TRIES_EACH = 6
_ATTEMPTS = 3
_CLOSING_S = 0.2
_MOST_DRAWN = 2000  # combinations, many of which come more than once


@dataclass(frozen=True)
class Wanted:
    """What to make: `count` tasks of a kind for a seed, from at most `tries` candidates (0: six for each task).

    `mutations` are the faults that are planted together in one bug. With `combined`, bugs are made of so many of the
    environment's bug tasks instead.
    """

    kind: TaskKind
    count: int
    seed: int = 0
    mutations: int = 1
    combined: int = 0
    tries: int = 0

    @property
    def most_candidates(self) -> int:
        return self.tries or self.count * _TRIES_EACH


def make_tasks(
    workshop: Workshop,
    environment: Environment,
    wanted: Wanted,
    *,
    jobs: int = 1,
    on_validation: Callable[[Validation, Task | None], None] = lambda _validation, _task: None,
    rewritten: Callable[[Task], Task] = lambda task: task,
) -> tuple[tuple[Task, ...], TaskYield]:
    """The first tasks that pass the gate, stored, and what came of the candidates up to the last of them.

    `jobs` candidates are validated at once. `on_validation` is told of each, in their order. `rewritten` may give a
    task another statement before it is stored. Infrastructure that fails is tried again; then `SandboxError`.
    """
    coverage = coverage_of(workshop, environment)
    known = set(workshop.store.ids(TASK))
    candidates = itertools.islice(
        _distinct(environment, candidates_of(workshop, environment, wanted, coverage)), wanted.most_candidates
    )
    tasks: list[Task] = []
    validations: list[Validation] = []
    with closing(_validated(workshop, environment, coverage, candidates, jobs)) as results:
        for name, task, validation in results:
            if task is not None and task.id not in known:
                task = rewritten(task)
                workshop.store.put(TASK, task)
            workshop.store.put(VALIDATION, validation, id=name)
            validations.append(validation)
            tasks += [task] if task is not None else []
            _tell(workshop, environment, validation)
            on_validation(validation, task)
            if len(tasks) >= wanted.count:
                break
    seconds = round(sum(validation.seconds for validation in validations), 2)
    done = TaskYield(environment.id, wanted.kind, wanted.seed, tuple(validations), seconds)
    workshop.store.put(YIELD, done, id=content_id([environment.id, replace(wanted, count=0, tries=0)]))
    return tuple(tasks), done


def candidates_of(
    workshop: Workshop, environment: Environment, wanted: Wanted, coverage: Coverage
) -> Iterator[Candidate]:
    """All candidates of a kind, in the order of the seed. Raises UsageError where there are too few bugs to combine."""
    rng = random.Random(content_id([environment.id, wanted.kind, wanted.seed]))  # noqa: S311 - to be reproducible
    match wanted.kind:
        case TaskKind.BUG if wanted.combined:
            return _combinations(_bugs(workshop, environment, wanted.combined), wanted.combined, rng)
        case TaskKind.BUG:
            sources = sources_of(workshop, environment)
            return bug_candidates(sources, coverage, rng, mutations=wanted.mutations)
        case TaskKind.FEATURE:
            return _one_way_first(feature_candidates(sources_of(workshop, environment), coverage, rng), rng)
        case TaskKind.HISTORY:
            return history_candidates(workshop, environment, coverage, rng)


def _one_way_first(candidates: Iterator[Candidate], rng: random.Random) -> Iterator[Candidate]:
    """One of the ways in which each feature can be taken out; then the others, once there are no more features."""
    others: list[Candidate] = []
    for _, ways in itertools.groupby(candidates, key=lambda c: (c.origin["path"], c.origin["names"])):
        first, *rest = sorted(ways, key=lambda _: rng.random())
        yield first
        others += rest
    yield from others


def _bugs(workshop: Workshop, environment: Environment, fewest: int) -> list[Task]:
    """The bug tasks of an environment that are no combinations themselves, in the order of their ids."""
    every = [workshop.store.get(TASK, name, Task) for name in sorted(workshop.store.ids(TASK))]
    bugs = [
        task
        for task in every
        if task.environment == environment.id and task.kind is TaskKind.BUG and "combined" not in task.origin
    ]
    if len(bugs) < fewest:
        raise UsageError(
            f"{environment.name} has {len(bugs)} bug tasks, too few to combine {fewest} of them",
            remedy=f"make some first: ratchet task make {environment.id[:12]} --kind bug",
        )
    return bugs


def _combinations(bugs: list[Task], number: int, rng: random.Random) -> Iterator[Candidate]:
    """Of `number` bugs each, in random order; those that cannot be told apart are left out."""
    for _ in range(_MOST_DRAWN):
        candidate = combine(sorted(rng.sample(bugs, number), key=lambda task: task.id))
        if candidate is not None:
            yield candidate


def _distinct(environment: Environment, candidates: Iterator[Candidate]) -> Iterator[tuple[str, Candidate]]:
    seen: set[str] = set()
    for candidate in candidates:
        name = candidate_id(environment, candidate)
        if name not in seen:
            seen.add(name)
            yield name, candidate


def _validated(
    workshop: Workshop,
    environment: Environment,
    coverage: Coverage,
    candidates: Iterator[tuple[str, Candidate]],
    jobs: int,
) -> Generator[tuple[str, Task | None, Validation]]:
    """What the gate says of each candidate, in their order, `jobs` at once. When it is closed, those under way end."""
    stop = threading.Event()

    def one(name: str, candidate: Candidate) -> tuple[str, Task | None, Validation]:
        return name, *(_found_before(workshop, name) or _tried(workshop, environment, candidate, coverage, stop))

    with ThreadPoolExecutor(jobs) as pool:
        waiting: deque[Future[tuple[str, Task | None, Validation]]] = deque()
        try:
            while True:
                missing = jobs + (jobs > 1) - len(waiting)
                waiting += [pool.submit(one, *each) for each in itertools.islice(candidates, missing)]
                if not waiting:
                    return
                result = waiting[0].result()
                waiting.popleft()
                yield result
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            # Not `concurrent.futures.wait`: for it, what was cancelled before it began is never done.
            while not all(future.done() for future in waiting):
                workshop.backend.close_all()
                time.sleep(_CLOSING_S)


def _tried(
    workshop: Workshop, environment: Environment, candidate: Candidate, coverage: Coverage, stop: threading.Event
) -> tuple[Task | None, Validation]:
    """Through the gate; what our own machinery spoils is tried again."""
    for attempt in itertools.count(1):
        try:
            return validate(workshop, environment, candidate, coverage, stop=stop)
        except SandboxError as error:
            if attempt == _ATTEMPTS or stop.is_set():
                raise
            workshop.events.emit("retry", what="validation", why=error.what)
    raise AssertionError  # counting does not end


def _found_before(workshop: Workshop, name: str) -> tuple[Task | None, Validation] | None:
    """What an earlier run stored of a candidate; None where it did not, or its task was removed."""
    store = workshop.store
    if not store.record_file(VALIDATION, name).is_file():
        return None
    validation = store.get(VALIDATION, name, Validation)
    if not validation.task:
        return None, validation
    if not store.record_file(TASK, validation.task).is_file():
        return None
    return store.get(TASK, validation.task, Task), validation


def _tell(workshop: Workshop, environment: Environment, validation: Validation) -> None:
    workshop.events.emit(
        "validation",
        environment=environment.name,
        task_kind=validation.kind,
        rejection=validation.rejection,
        detail=validation.detail,
        task=validation.task,
        seconds=validation.seconds,
    )
