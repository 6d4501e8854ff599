"""Rollouts: policies act on tasks, many at once; what they leave is graded, scored and stored.

    runs/rollouts/ID.jsonl    what the policy of one that is under way has done so far
    runs/rollouts/ID.layer    the layer that it left, until that is graded

A rollout that has ended is a record, and neither file is there any more. One that was killed is run again from its
start when it is asked for again; what it left is removed then.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from ratchet.agent import AgentLimits, run_agent
from ratchet.autoinstall.workshop import Workshop
from ratchet.errors import ModelServerError, RatchetError, SandboxError, UsageError
from ratchet.protocols import Policy
from ratchet.records import Environment, Limits, Reason, Trajectory, content_id
from ratchet.rewards import DEFAULT, RewardConfig, score_stored
from ratchet.rewards.preference import stored_model
from ratchet.sandbox.oci import OciBackend
from ratchet.store import Store
from ratchet.task_records import FailureKind, Grade, Rollout, Task
from ratchet.tasks.extraction import Extracted, extract
from ratchet.tasks.failures import failure_of, last_reason
from ratchet.tasks.grading import grade
from ratchet.tasks.parallel import cores, end_by_closing, in_threads, insist, possible_jobs, spare_memory_bytes
from ratchet.tasks.prepare import task_layers
from ratchet.tasks.services import BrokenStartError, ServedSandbox
from ratchet.tasks.tokens import token_traces, usage_of
from ratchet.trajectories import Header, TrajectoryLog, under_way

KIND = "rollout"
ROLE = "solver"

Result = TypeVar("Result")

MakePolicy = Callable[[Task, int], Policy]
"""The policy for one sample of a task. Called once for each try, maybe in several threads at once."""

_HANDOVER_S = 2.0

INFRASTRUCTURE = (SandboxError, ModelServerError, OSError)
"""What our own machinery and the servers of models raise: it is tried again, and never scored."""


@dataclass(frozen=True)
class RolloutLimits:
    """What one rollout may take. `command_s` bounds one command. Where several run at once, `memory_bytes` is lowered
    to their share of the machine's memory."""

    steps: int = 50
    seconds: float = 3600.0
    command_s: float = 600.0
    memory_bytes: int = 4 << 30
    disk_bytes: int = 8 << 30
    processes: int = 1024


def run_rollouts(
    workshop: Workshop,
    tasks: Iterable[Task],
    make_policy: MakePolicy,
    *,
    policy_name: str,
    samples: int = 1,
    jobs: int = 1,
    waits: bool = False,
    seed: int = 0,
    limits: RolloutLimits = RolloutLimits(),
    checkpoints: bool = False,
    reward: RewardConfig = DEFAULT,
) -> Generator[Rollout, None, None]:
    """`samples` rollouts of each task, as they end: `jobs` at once, as far as there are cores and memory for them. With
    `waits` the policies mostly wait for a model: more may act at once than there are cores, which grading waits for.

    What is in the store already (the same task, policy's name, sample and seed) is not run again, but for what failed
    by the infrastructure. That is tried three times, and then stored without a grade. `checkpoints` are for policies
    that roll back. Rollouts that would begin with a spent budget are left out, and nothing after them is begun.

    Leaving the iterator early, by an exception too, closes all sandboxes. Raises UsageError where another process runs
    the same rollout, or a rollout that has just ended could not be scored by `reward`; and whatever `make_policy` and
    the policies raise beside `ModelServerError`.
    """
    _refuse_unscorable(workshop.store, reward)
    jobs = possible_jobs(jobs, waits=waits)
    backend = OciBackend(workshop.home, emit=workshop.backend.emit)  # its own: on the way out all of it is closed
    run = _Run(
        workshop=replace(workshop, backend=backend, layers=backend.layers),
        make_policy=make_policy,
        policy_name=policy_name,
        seed=seed,
        limits=replace(limits, memory_bytes=min(limits.memory_bytes, spare_memory_bytes() // jobs)),
        checkpoints=checkpoints,
        reward=reward,
    )
    wanted = ((task, sample) for task in tasks for sample in range(samples))
    try:
        yield from run.rollouts(wanted, jobs)
    finally:
        backend.layers.trash.wait()


def _refuse_unscorable(store: Store, reward: RewardConfig) -> None:
    if reward.weight("judge") or (reward.weight("preference") and stored_model(store) is None):
        wants = "a judge's opinion of them" if reward.weight("judge") else "a model that was fitted on preferences"
        raise UsageError(
            f"the reward {reward.name} cannot score new rollouts: it wants {wants}",
            remedy="run without it, get what it wants, and then: ratchet rollout score --reward FILE",
        )


def rollout_id(task: Task, policy_name: str, sample: int, seed: int) -> str:
    return content_id([task.id, policy_name, sample, seed])


# --------------------------------------------------------------------------- one run of many


@dataclass(frozen=True)
class _Work:
    """One rollout to be had, and where what it does is written meanwhile."""

    id: str
    task: Task
    sample: int
    log: Path

    @property
    def layer(self) -> Path:
        return self.log.with_suffix(".layer")


class _NothingLeftError(Exception):
    """The budget was spent before the rollout began."""


@dataclass
class _Run:
    workshop: Workshop
    make_policy: MakePolicy
    policy_name: str
    seed: int
    limits: RolloutLimits
    checkpoints: bool
    reward: RewardConfig
    ending: threading.Event = field(default_factory=threading.Event)
    spent: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    preparing: dict[str, threading.Lock] = field(default_factory=dict)
    environments: dict[str, Environment] = field(default_factory=dict)
    cores: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(cores()))

    def rollouts(self, wanted: Iterable[tuple[Task, int]], jobs: int) -> Iterator[Rollout]:
        for rollout in in_threads(self._distinct(wanted), self._do, jobs, self._end):
            if rollout is not None:
                yield rollout

    def _distinct(self, wanted: Iterable[tuple[Task, int]]) -> Iterator[_Work]:
        seen: set[str] = set()
        for task, sample in wanted:
            name = rollout_id(task, self.policy_name, sample, self.seed)
            if self.spent.is_set():
                return
            if name not in seen:
                seen.add(name)
                yield _Work(name, task, sample, self.workshop.home / "runs" / "rollouts" / f"{name[:32]}.jsonl")

    def _end(self, threads: Sequence[threading.Thread]) -> None:
        end_by_closing(threads, self.ending, self.workshop.backend.close_all)

    # ------------------------------------------------------------------ in the threads

    def _do(self, work: _Work) -> Rollout | None:
        """None where the budget was spent before it began."""
        store = self.workshop.store
        if (known := finished(store, work.id)) is not None:
            return known
        if self._is_another_s(work):
            raise UsageError(
                f"rollout {work.id[:12]} is under way in another process", remedy="wait until it has ended"
            )
        rollout = Rollout(
            id=work.id,
            task=work.task.id,
            environment=work.task.environment,
            policy=self.policy_name,
            sample=work.sample,
            trajectory="",
            end="broken off",
            patch=(),
            grade=None,
            created=datetime.now(UTC).isoformat(),
        )
        try:
            rollout = self._done(work, rollout)
        except _NothingLeftError:
            self.spent.set()
            return None
        except BrokenStartError as error:
            rollout = replace(rollout, failure=FailureKind.TASK, detail=f"the start script failed: {error}")
        except INFRASTRUCTURE as error:
            if self.ending.is_set():
                raise
            rollout = replace(rollout, failure=FailureKind.INFRASTRUCTURE, detail=_said(error))
        finally:
            self._forget(work)
        if rollout.grade is not None:
            rollout = replace(rollout, reward=score_stored(store, rollout, work.task, self.reward))
        store.put(KIND, rollout)
        self.workshop.events.emit("rollout", rollout=rollout.id, task=rollout.task, failure=rollout.failure)
        return rollout

    def _done(self, work: _Work, rollout: Rollout) -> Rollout:
        clock = _Clock()
        with self.lock:
            environment = self._environment(work.task.environment)
            preparing = self.preparing.setdefault(work.task.id, threading.Lock())
        with preparing:  # what is made once for a task is made by one thread
            layers = task_layers(self.workshop, environment, work.task)
        clock.lap("prepare")
        trajectory = self._insist(lambda: self._acted(work, environment, layers, clock))
        with self.cores:
            clock.lap("wait")
            extracted, graded = self._insist(lambda: self._graded(work, environment, layers, clock))
        self._forget(work)
        exchanges = [exchange for step in trajectory.steps for exchange in step.action.exchanges]
        failure, detail = failure_of(trajectory)
        stored = self.workshop.store.put("trajectory", trajectory)
        clock.lap("clean")
        return replace(
            rollout,
            trajectory=stored,
            end=trajectory.end,
            patch=extracted.patch,
            grade=graded,
            failure=failure,
            detail=detail,
            steps=len(trajectory.steps),
            usage=usage_of(exchanges),
            tokens=token_traces(exchanges),
            seconds=clock.seconds,
        )

    def _acted(self, work: _Work, environment: Environment, layers: Sequence[str], clock: _Clock) -> Trajectory:
        """What the policy did. What it left is the layer that is named in `work.layer`."""
        self._forget(work)
        header = Header(
            role=ROLE,
            policy=self.policy_name,
            checkout=environment.checkout.id,
            project=environment.name,
            attempt=work.sample + 1,
            started=datetime.now(UTC).isoformat(),
        )
        limits = self.limits
        allowed = Limits(limits.memory_bytes, limits.processes, None, limits.disk_bytes, limits.command_s)
        with self.workshop.offline(layers, allowed) as opened, TrajectoryLog(work.log, header) as log:
            sandbox = ServedSandbox(opened, environment.recipe) if environment.recipe.start else opened
            clock.lap("open")
            trajectory = run_agent(
                self.make_policy(work.task, work.sample),
                sandbox,
                AgentLimits(limits.steps, limits.seconds),
                checkpoints=self.checkpoints,
                on_step=lambda _, step: log.step(step),
            )
            if len(trajectory.steps) == 1 and last_reason(trajectory) is Reason.BUDGET_SPENT:
                raise _NothingLeftError
            log.finish(trajectory.end)
            clock.lap("act")
            work.layer.write_text(opened.keep())
        clock.lap("close")
        return replace(trajectory, role=ROLE, policy=self.policy_name)

    def _graded(
        self, work: _Work, environment: Environment, layers: Sequence[str], clock: _Clock
    ) -> tuple[Extracted, Grade]:
        extracted = extract(self.workshop, layers, work.layer.read_text(), environment, work.task)
        clock.lap("extract")
        allowed = replace(
            environment.limits, memory_bytes=min(environment.limits.memory_bytes, self.limits.memory_bytes)
        )
        graded = grade(
            self.workshop,
            replace(environment, limits=allowed),
            work.task,
            extracted.patch,
            flags=extracted.flags,
            dropped=extracted.dropped,
            layers=layers,
        )
        clock.lap("grade")
        return extracted, graded

    def _insist(self, do: Callable[[], Result]) -> Result:
        """What `do` gives, tried again where our own machinery or the server of a model broke."""

        def tell(tries: int, error: Exception) -> None:
            self.workshop.events.emit("rollout.retry", tries=tries, problem=_said(error))

        return insist(do, INFRASTRUCTURE, self.ending, tell)

    def _is_another_s(self, work: _Work) -> bool:
        """Whether another process runs it. What a killed one had just started keeps its lock for a moment."""
        return all(under_way(work.log) and not self.ending.wait(_HANDOVER_S / 20) for _ in range(20))

    def _environment(self, name: str) -> Environment:
        if name not in self.environments:
            self.environments[name] = self.workshop.store.get("environment", name, Environment)
        return self.environments[name]

    def _forget(self, work: _Work) -> None:
        """Remove the files of one that is over, or that a killed process left."""
        if work.layer.is_file():
            self.workshop.layers.remove(work.layer.read_text())
            work.layer.unlink()
        work.log.unlink(missing_ok=True)


class _Clock:
    """Where the time went: the seconds between laps, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.seconds[name] += now - self._last
        self._last = now


# --------------------------------------------------------------------------- records


def finished(store: Store, name: str) -> Rollout | None:
    """The rollout with this id, if it ended; None for one that the infrastructure broke off."""
    if not store.record_file(KIND, name).is_file():
        return None
    rollout = store.get(KIND, name, Rollout)
    return None if rollout.failure is FailureKind.INFRASTRUCTURE else rollout


def _said(error: Exception) -> str:
    return (error.what if isinstance(error, RatchetError) else str(error))[:2000]
