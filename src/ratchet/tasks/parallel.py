"""Doing many things in a few threads, as many as this machine holds."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from queue import SimpleQueue
from typing import TypeVar

# What a machine can spare: the rest is for us, the model and the page cache.
_MEMORY_SHARE = 0.8
_LEAST_MEMORY_BYTES = 1 << 30

_TRIES = 3
_PAUSE_S = 2.0
_END_S = 20.0

Job = TypeVar("Job")
Result = TypeVar("Result")


def in_threads(
    jobs: Iterable[Job],
    do: Callable[[Job], Result],
    number: int,
    end: Callable[[Sequence[threading.Thread]], None],
) -> Iterator[Result]:
    """`do` of each job, as the results come, in `number` threads. `jobs` are taken as they are needed, and no results
    pile up. An error in a job is raised here. `end` is called with the threads once nobody wants results any more; the
    threads do not keep the process alive."""
    todo: SimpleQueue[Job | None] = SimpleQueue()
    done: SimpleQueue[Result | BaseException] = SimpleQueue()

    def work() -> None:
        while (job := todo.get()) is not None:
            try:
                done.put(do(job))
            except BaseException as error:  # noqa: BLE001  it is raised where the results are wanted
                done.put(error)

    threads = [threading.Thread(target=work, daemon=True, name=f"ratchet-rollout-{n}") for n in range(number)]
    for thread in threads:
        thread.start()
    waiting = iter(jobs)
    under_way = 0
    try:
        for job in islice(waiting, number):
            todo.put(job)
            under_way += 1
        while under_way:
            result = done.get()
            under_way -= 1
            if isinstance(result, BaseException):
                raise result
            for job in islice(waiting, 1):
                todo.put(job)
                under_way += 1
            yield result
    finally:
        for _ in threads:
            todo.put(None)
        end(threads)


def end_by_closing(threads: Sequence[threading.Thread], ending: threading.Event, close: Callable[[], None]) -> None:
    """Tell `threads` to end and `close` what they work with until they have. Soon after this nothing runs any more; a
    thread that waits for a model ends with the process."""
    ending.set()
    deadline = time.monotonic() + _END_S
    while any(thread.is_alive() for thread in threads) and time.monotonic() < deadline:
        close()
        for thread in threads:
            thread.join(0.2)


def insist(
    do: Callable[[], Result],
    broke: tuple[type[Exception], ...],
    ending: threading.Event,
    tell: Callable[[int, Exception], None] = lambda _tries, _error: None,
) -> Result:
    """What `do` gives, tried again where it `broke`: three times in all, and not once all is `ending`. `tell` hears of
    each failure that is followed by another try."""
    for tries in count(1):
        try:
            return do()
        except broke as error:
            if tries == _TRIES or ending.is_set():
                raise
            tell(tries, error)
            ending.wait(_PAUSE_S * tries)
    raise AssertionError("the count has no end")


def possible_jobs(jobs: int, *, waits: bool = False) -> int:
    """As many of `jobs` as there are cores and memory for, and one at least. Those that mostly wait (for a model) need
    no core each."""
    most = jobs if waits else min(jobs, cores())
    return max(1, min(most, spare_memory_bytes() // _LEAST_MEMORY_BYTES))


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


def spare_memory_bytes() -> int:
    """The part of this machine's memory that jobs may share."""
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * _MEMORY_SHARE)
