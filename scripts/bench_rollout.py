#!/usr/bin/env python3
"""Measure rollouts on this machine: how much faster two at once are, what we cost beside the tests, and what stays.

    .venv/bin/python scripts/bench_rollout.py TASK [--rollouts 64] [--memory-rollouts 500] [--json]

TASK is a task in the store ($RATCHET_HOME), best of a real project. A script looks round, runs the failing tests, puts
the reference solution in place, runs them again and submits. `overhead_s` is what one rollout takes beside what the
script does and what a plain run of the task's tests takes, which is measured in the same sandbox and with no more load.
Nobody else may be using the store, or what is theirs counts as left behind.

Exit status 1 where a promise is not kept: two jobs at least 1.7 times as fast as one; an overhead of at most a quarter
of the tests' own time or one second, whichever is more; memory that does not grow; nothing left behind.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench_sandbox import traces

from ratchet.autoinstall.verify import start
from ratchet.autoinstall.workshop import BASE_USER, WORKSPACE, Workshop
from ratchet.policies.scripted import ScriptedPolicy
from ratchet.protocols import Policy
from ratchet.records import Action, ActionKind, Environment
from ratchet.rollout import run_rollouts
from ratchet.store import default_home
from ratchet.task_records import Rollout, Task
from ratchet.tasks.baselines import reference_actions
from ratchet.tasks.parallel import possible_jobs
from ratchet.tasks.prepare import task_layers

SPEED_UP, OVERHEAD_SHARE, OVERHEAD_S = 1.7, 0.25, 1.0
GROWTH_BYTES = 16 << 20
WARM_UP = 100  # rollouts after which memory has to stay where it is


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("--rollouts", type=int, default=64)
    parser.add_argument("--memory-rollouts", type=int, default=500, help="0: memory is not looked at")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with Workshop.open(default_home()) as workshop:
        task = workshop.store.get("task", options.task, Task)
        bench = Bench(workshop, task)
        results, kept = bench.measure(options.rollouts, options.memory_rollouts)
    if options.json:
        print(json.dumps(results))
    else:
        for name, value in results.items():
            print(f"{name:32} {value}")
    for promise, holds in kept.items():
        if not holds:
            print(f"not kept: {promise}", file=sys.stderr)
    return int(not all(kept.values()))


class Bench:
    def __init__(self, workshop: Workshop, task: Task) -> None:
        self._workshop = workshop
        self._task = task
        self._environment = workshop.store.get("environment", task.environment, Environment)
        self._tests = f"python -m pytest -q -p no:cacheprovider {shlex.join([*task.fail_to_pass, *task.pass_to_pass])}"
        self._names: set[str] = set()
        self._sandboxes: set[str] = set()
        workshop.events.subscribe(lambda event: self._sandboxes.add(str(event.data.get("sandbox"))))

    def measure(self, rollouts: int, memory_rollouts: int) -> tuple[dict[str, object], dict[str, bool]]:
        self.rollouts("warm", 1, 1)  # makes the layer of the task
        before = self._places()
        tests_s = self.tests_alone()
        one_s, done = self.rollouts("one", rollouts, 1)
        two_s, _ = self.rollouts("two", rollouts, 2)
        overheads = [sum(r.seconds.values()) - r.seconds["act"] - tests_s for r in done]
        overhead_s, speed_up = statistics.median(overheads), one_s / two_s
        parts = {name: statistics.median(r.seconds[name] for r in done) for name in done[0].seconds}
        early, late = self.memory(memory_rollouts)
        self._forget()
        left = sorted(self._places() - before) + self._remains()
        results: dict[str, object] = {
            "rollouts": rollouts,
            "solved": sum(bool(r.reward and r.reward.total == 1) for r in done),
            "one_job_s": round(one_s, 1),
            "two_jobs_s": round(two_s, 1),
            "speed_up": round(speed_up, 2),
            "tests_alone_s": round(tests_s, 2),
            "overhead_s": round(overhead_s, 2),
            "overhead_share": round(overhead_s / tests_s, 2),
            **{f"median_{name}_s": round(value, 3) for name, value in parts.items()},
            "rss_early_mb": round(early / 1e6, 1),
            "rss_late_mb": round(late / 1e6, 1),
            "left_behind": left,
        }
        kept = {
            "every rollout solves the task": results["solved"] == rollouts,
            f"two jobs are {SPEED_UP} times as fast": speed_up >= SPEED_UP or possible_jobs(2) < 2,
            "the overhead is small": overhead_s <= max(OVERHEAD_S, OVERHEAD_SHARE * tests_s),
            "memory does not grow": late - early <= GROWTH_BYTES,
            "nothing is left behind": not left,
        }
        return results, kept

    def tests_alone(self, times: int = 5) -> float:
        """Seconds of one plain run of the task's tests on the reference solution, the median of some."""
        layers = task_layers(self._workshop, self._environment, self._task)
        seconds = []
        with self._workshop.offline(layers, self._environment.limits) as sandbox:
            for action in reference_actions(self._task):
                if action.kind is ActionKind.WRITE:
                    sandbox.write(action.path, action.content.encode("utf-8", "surrogateescape"), user=BASE_USER)
                elif action.kind is ActionKind.RUN:
                    sandbox.run(action.command, user=BASE_USER, env=action.env)
            start(sandbox, self._environment.recipe)
            for _ in range(times):
                env = self._environment.recipe.env
                result = sandbox.run(self._tests, user=BASE_USER, cwd=WORKSPACE, env=env)
                seconds.append(result.seconds)
        return statistics.median(seconds)

    def rollouts(self, name: str, number: int, jobs: int) -> tuple[float, list[Rollout]]:
        """Seconds in all, and the rollouts."""
        began = time.monotonic()
        done = list(self._run(name, number, jobs))
        return time.monotonic() - began, done

    def memory(self, number: int) -> tuple[int, int]:
        """Our resident memory after the first rollouts and after all, in bytes."""
        early = late = 0
        warm_up = min(WARM_UP, number // 2)
        for count, _ in enumerate(self._run("memory", number, possible_jobs(2)), 1):
            if count == warm_up:
                early = resident_bytes()
            late = resident_bytes()
        return early, late

    def _run(self, name: str, number: int, jobs: int) -> Iterator[Rollout]:
        policy = f"bench-{name}-{time.time_ns()}"
        self._names.add(policy)
        return run_rollouts(self._workshop, [self._task], self._policy, policy_name=policy, samples=number, jobs=jobs)

    def _policy(self, task: Task, _sample: int) -> Policy:
        env, user = self._environment.recipe.env, BASE_USER
        changed = task.changes[0].path
        failing = f"python -m pytest -x -q -p no:cacheprovider {shlex.join(task.fail_to_pass[:3])}"
        look = Action(ActionKind.SEARCH, command="^(class|def) ", path=f"{WORKSPACE}/{changed}", user=user)
        read = Action(ActionKind.READ, path=f"{WORKSPACE}/{changed}", last=200, user=user)
        run = Action(ActionKind.RUN, command=failing, user=user, env=env)
        *mend, submit = reference_actions(task)
        return ScriptedPolicy([look, read, run, *mend, run, submit])

    def _forget(self) -> None:
        """The records of the bench are nobody's."""
        store = self._workshop.store
        for name in store.ids("rollout"):
            rollout = store.get("rollout", name, Rollout)
            if rollout.policy in self._names:
                store.remove("rollout", name)
                if rollout.trajectory in store.ids("trajectory"):
                    store.remove("trajectory", rollout.trajectory)

    def _places(self) -> set[str]:
        home = self._workshop.home
        folders = ("layers", "sandboxes", "snapshots", "staging", "trash", "tmp", "runs/rollouts")
        return {str(path) for folder in folders for path in (home / folder).glob("[!.]*")}

    def _remains(self) -> list[str]:
        """Mounts, control groups and processes of the sandboxes that were opened."""
        return sorted(t for t in traces(self._workshop.backend) if any(name in t for name in self._sandboxes))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


if __name__ == "__main__":
    sys.exit(main())
