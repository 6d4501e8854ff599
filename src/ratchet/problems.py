"""Trying problems: installs whose goals are known, and tasks. What training and evaluation both do.

A try that has ended is a record, so that what was interrupted goes on after it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from ratchet.autoinstall.practice import PracticeLimits, Practised, practise
from ratchet.autoinstall.workshop import Workshop
from ratchet.errors import RatchetError, UsageError
from ratchet.generation_records import Problem, ProblemKind, Sample
from ratchet.policies.local.model import LocalModel
from ratchet.policies.local.templates import Tokens
from ratchet.policies.model.brief import BriefSolver, excerpt
from ratchet.protocols import Model, Policy, Sampler
from ratchet.records import ActionKind, Environment, Reason, Survey, Trajectory, content_id
from ratchet.rewards.install import install_reward
from ratchet.rollout import INFRASTRUCTURE, RolloutLimits, run_rollouts
from ratchet.sandbox.oci import OciBackend
from ratchet.survey import survey
from ratchet.task_records import FailureKind, Rollout, Task, TokenTrace
from ratchet.tasks.parallel import end_by_closing, in_threads, insist, possible_jobs
from ratchet.tasks.tokens import token_traces, usage_of

KIND = "sample"

MakeModel = Callable[[Problem, int], Model]
"""The model for one try at a problem. Called maybe in several threads at once."""


# Commands that make an environment. In a task there is one already, so they are counted.
_SET_UP = re.compile(
    r"(?:^|[;&|\n(]|\bsudo\b)\s*(?:\S+/)?(?:python[\d.]*\s+-m\s+)?"
    r"(?:(?:uv\s+)?pip[\d.]*\s+(?:\S+\s+)*?install|uv\s+(?:sync|add|venv)|apt(?:-get)?\s+(?:\S+\s+)*?install"
    r"|conda\s+install|npm\s+(?:ci|i|install)|poetry\s+(?:install|add)|virtualenv|venv)\b"
)


@dataclass(frozen=True)
class TryLimits:
    """What one try may take: commands of an install, replies in a task, tokens of one reply, tokens of a conversation,
    seconds of one command."""

    install_steps: int = 5
    task_steps: int = 1
    reply_tokens: int = 96
    context_tokens: int = 1536
    command_s: float = 300.0

    def model(self, sampler: Sampler, tokens: Tokens, name: str, temperature: float) -> LocalModel:
        """The model that tries with what `sampler` samples. Many tries may share it."""
        return LocalModel(
            sampler,
            tokens,
            name,
            context_tokens=self.context_tokens,
            temperature=temperature,
            max_reply_tokens=self.reply_tokens,
        )


class Player:
    """Tries problems, `jobs` at once, as far as this machine's memory goes; what needs its cores waits for them."""

    def __init__(self, workshop: Workshop, limits: TryLimits, jobs: int) -> None:
        self._workshop = workshop
        self._limits = limits
        self._jobs = possible_jobs(jobs, waits=True)
        self._surveys: dict[str, Survey] = {}
        self._lock = threading.Lock()

    def play(
        self, problems: Sequence[Problem], samples: int, make_model: MakeModel, *, name: str, held_out: bool = True
    ) -> Generator[Sample, None, None]:
        """`samples` tries at each problem, as they end. `name` says whose tries they are: the same problem, name,
        sample and limits are not played again, but for what failed by the infrastructure. `held_out` is whether the
        held-out goals of installs are looked at.

        Leaving the iterator early closes all sandboxes. Raises UsageError for a problem that cannot be tried, and
        whatever the models raise beside ModelServerError.
        """
        installs = [problem for problem in problems if problem.kind is ProblemKind.INSTALL]
        tasks = [problem for problem in problems if problem.kind is ProblemKind.TASK]
        if installs:
            yield from self._installs(installs, samples, make_model, name, held_out)
        if tasks:
            yield from self._tasks(tasks, samples, make_model, name)

    # ------------------------------------------------------------------ installs

    def _installs(
        self, problems: Sequence[Problem], samples: int, make_model: MakeModel, name: str, held_out: bool
    ) -> Iterator[Sample]:
        backend = OciBackend(self._workshop.home, emit=self._workshop.backend.emit, network=self._workshop.network)
        workshop = replace(self._workshop, backend=backend, layers=backend.layers)
        ending = threading.Event()

        def do(wanted: tuple[Problem, int]) -> Sample:
            return self._install(workshop, *wanted, make_model, name, held_out, ending)

        def end(threads: Sequence[threading.Thread]) -> None:
            end_by_closing(threads, ending, backend.close_all)

        wanted = [(problem, sample) for sample in range(samples) for problem in problems]
        try:
            yield from in_threads(wanted, do, min(self._jobs, len(wanted)), end)
        finally:
            backend.layers.trash.wait()

    def _install(
        self,
        workshop: Workshop,
        problem: Problem,
        sample: int,
        make_model: MakeModel,
        name: str,
        held_out: bool,
        ending: threading.Event,
    ) -> Sample:
        store = workshop.store
        record = content_id([problem.id, name, sample, self._limits, held_out])
        if store.record_file(KIND, record).is_file():
            return store.get(KIND, record, Sample)
        environment = store.get("environment", problem.subject, Environment)
        limits = PracticeLimits(steps=self._limits.install_steps, command_s=self._limits.command_s)

        def attempt() -> Practised:
            model = make_model(problem, sample)
            known = self._survey(environment)
            return practise(workshop, environment, known, model, limits, look_at_held_out=held_out)

        try:
            done = insist(attempt, INFRASTRUCTURE, ending)
        except INFRASTRUCTURE as error:
            if ending.is_set():
                raise
            return _broken(problem, sample, error)
        ended = install_sample(problem, sample, environment, done)
        store.put("trajectory", done.trajectory)
        store.put(KIND, ended, id=record)
        return ended

    def _survey(self, environment: Environment) -> Survey:
        with self._lock:
            checkout = environment.checkout
            if checkout.id not in self._surveys:
                self._surveys[checkout.id] = survey(checkout)
            return self._surveys[checkout.id]

    # ------------------------------------------------------------------ tasks

    def _tasks(self, problems: Sequence[Problem], samples: int, make_model: MakeModel, name: str) -> Iterator[Sample]:
        by_task = {problem.subject: problem for problem in problems}
        tasks = [self._workshop.store.get("task", problem.subject, Task) for problem in problems]

        def make_policy(task: Task, sample: int) -> Policy:
            return brief_solver(make_model(by_task[task.id], sample), task, self._limits)

        rollouts = run_rollouts(
            self._workshop,
            tasks,
            make_policy,
            policy_name=content_id([name, self._limits])[:16],
            samples=samples,
            jobs=self._jobs,
            waits=True,
            limits=RolloutLimits(steps=2 * self._limits.task_steps + 2, command_s=self._limits.command_s),
        )
        with closing(rollouts):
            for rollout in rollouts:
                yield task_sample(by_task[rollout.task], rollout, self._trajectory(rollout))

    def _trajectory(self, rollout: Rollout) -> Trajectory:
        if not rollout.trajectory:
            return Trajectory((), "broken off")
        return self._workshop.store.get("trajectory", rollout.trajectory, Trajectory)


def brief_solver(model: Model, task: Task, limits: TryLimits) -> Policy:
    """Raises UsageError for a task that is not of the kind that a brief look is enough for."""
    code = excerpt(task)
    if code is None:
        raise UsageError(
            f"task {task.id[:12]} names no single short function, which the brief form needs",
            remedy="try it with a policy that can look around: ratchet rollout",
        )
    return BriefSolver(model, task, code, most_steps=limits.task_steps)


# --------------------------------------------------------------------------- what came of a try


def install_sample(problem: Problem, sample: int, environment: Environment, done: Practised) -> Sample:
    exchanges = [exchange for step in done.trajectory.steps for exchange in step.action.exchanges]
    usage = usage_of(exchanges)
    traces = token_traces(exchanges)
    steps = len(exchanges)
    held = sum(verdict.passed for verdict in done.verdicts) / len(environment.targets)
    reward = install_reward(targets=held, steps=steps, tokens=usage.tokens)
    cheated = done.reason is Reason.TESTS_CHANGED
    return Sample(
        problem=problem.id,
        sample=sample,
        passed=done.reason is None,
        claimed=done.claimed,
        reward=0.0 if cheated else reward.total,
        parts=reward.parts,
        trace=longest(traces),
        traces=len(traces),
        held_out=sum(v.passed for v in done.held_out) / len(done.held_out) if done.held_out else None,
        flags=(str(Reason.TESTS_CHANGED),) if cheated else (),
        failure=None if done.reason is None else FailureKind.POLICY,
        detail=f"{done.reason}: {done.detail}"[:500] if done.reason is not None else "",
        steps=steps,
        set_up=set_up_actions(done.trajectory),
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        seconds=done.seconds,
    )


def task_sample(problem: Problem, rollout: Rollout, trajectory: Trajectory) -> Sample:
    parts = dict(rollout.reward.parts) if rollout.reward is not None else {}
    flags = tuple(flag.kind for flag in rollout.grade.flags if flag.decisive) if rollout.grade is not None else ()
    scored = rollout.failure is not FailureKind.INFRASTRUCTURE
    total = rollout.reward.total if rollout.reward is not None else 0.0
    probes = rollout.grade.probes if rollout.grade is not None else ()
    return Sample(
        problem=problem.id,
        sample=rollout.sample,
        passed=bool(parts.get("solved")) and not flags,
        claimed=rollout.end == "submitted" and rollout.failure is None,
        reward=total if scored else None,
        parts=parts,
        trace=longest(rollout.tokens),
        traces=len(rollout.tokens),
        held_out=sum(probes) / len(probes) if probes else None,
        flags=flags,
        failure=rollout.failure,
        detail=rollout.detail[:500],
        steps=sum(len(step.action.exchanges) for step in trajectory.steps),
        set_up=set_up_actions(trajectory),
        prompt_tokens=rollout.usage.prompt_tokens,
        completion_tokens=rollout.usage.completion_tokens,
        seconds={"act": rollout.seconds.get("act", 0.0), "grade": rollout.seconds.get("grade", 0.0)},
    )


def _broken(problem: Problem, sample: int, error: Exception) -> Sample:
    what = error.what if isinstance(error, RatchetError) else str(error)
    return Sample(problem.id, sample, False, False, None, failure=FailureKind.INFRASTRUCTURE, detail=what[:500])


def longest(traces: Sequence[TokenTrace]) -> TokenTrace | None:
    """The one with most sampled tokens."""
    return max(traces, key=lambda trace: sum(trace.mask), default=None)


def set_up_actions(trajectory: Trajectory) -> int:
    """How many commands of a model made an environment."""
    return sum(
        bool(step.action.kind is ActionKind.RUN and step.action.exchanges and _SET_UP.search(step.action.command))
        for step in trajectory.steps
    )
