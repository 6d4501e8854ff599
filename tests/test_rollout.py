"""Rollouts on a real task: scored, resumed, retried, interrupted, and shown."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ratchet.autoinstall.workshop import Workshop
from ratchet.cli import rollout as cli
from ratchet.errors import ModelServerError, SandboxError, UsageError
from ratchet.patches import inverse
from ratchet.policies.scripted import ScriptedPolicy
from ratchet.protocols import Policy
from ratchet.records import Action, ActionKind, Observation, Outcome, Reason, Recipe, SandboxSpec, Step, Trajectory
from ratchet.rewards import RewardConfig
from ratchet.rollout import RolloutLimits, rollout_id, run_rollouts
from ratchet.sandbox.fake import Answer, FakeBackend
from ratchet.task_records import FailureKind, Rollout, Task
from ratchet.tasks import parallel
from ratchet.tasks.baselines import NOTHING, reference_actions
from ratchet.tasks.failures import failure_of
from ratchet.tasks.parallel import possible_jobs
from ratchet.tasks.services import BrokenStartError, ServedSandbox
from sample_project import sample_environment, sample_task

SUBMIT = Action(ActionKind.SUBMIT)


@pytest.fixture(scope="module")
def workshop(home: Path, base: str) -> Iterator[Workshop]:
    with Workshop.open(home) as workshop:
        yield workshop


@pytest.fixture(scope="module")
def task(workshop: Workshop) -> Task:
    environment = sample_environment(workshop)
    workshop.store.put("environment", environment)
    task = sample_task(environment)
    workshop.store.put("task", task)
    return task


@pytest.fixture
def name(workshop: Workshop) -> Iterator[str]:
    """Of a policy that nobody has had, whose rollouts are gone afterwards."""
    name = f"test-{secrets.token_hex(4)}"
    yield name
    for each in workshop.store.ids("rollout"):
        if workshop.store.get("rollout", each, Rollout).policy.startswith(name):
            workshop.store.remove("rollout", each)


def never(_task: Task, _sample: int) -> Policy:
    raise AssertionError("nothing was to be run")


def reference(task: Task, _sample: int = 0) -> Policy:
    return ScriptedPolicy(reference_actions(task))


def left(home: Path, rollout: Rollout) -> list[str]:
    return [path.name for path in (home / "runs" / "rollouts").glob(f"{rollout.id[:32]}*")]


class Raises:
    """A policy in whose hands our own machinery breaks."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def act(self, observation: Observation) -> Action:
        raise self.error


# --------------------------------------------------------------------------- what comes of them


@pytest.mark.sandbox
def test_the_reference_scores_1_and_nothing_scores_0_and_neither_is_run_twice(
    workshop: Workshop, task: Task, name: str
) -> None:
    def make(task: Task, sample: int) -> Policy:
        return ScriptedPolicy(reference_actions(task) if sample == 0 else NOTHING)

    done = {r.sample: r for r in run_rollouts(workshop, [task], make, policy_name=name, samples=2, jobs=2)}
    solved, nothing = done[0], done[1]
    assert (solved.reward.total, solved.failure, solved.end) == (1.0, None, "submitted")  # type: ignore[union-attr]
    assert [(c.path, c.after) for c in solved.patch] == [(c.path, c.after) for c in inverse(task.changes)]
    assert (nothing.reward.total, nothing.failure, nothing.patch) == (0.0, None, ())  # type: ignore[union-attr]
    trajectory = workshop.store.get("trajectory", solved.trajectory, Trajectory)
    assert (trajectory.role, trajectory.policy, len(trajectory.steps)) == ("solver", name, solved.steps)
    assert left(workshop.home, solved) == left(workshop.home, nothing) == []
    assert workshop.store.get("rollout", solved.id, Rollout) == solved

    again = run_rollouts(workshop, [task, task], never, policy_name=name, samples=2)
    assert {r.sample: r for r in again} == done


@pytest.mark.sandbox
def test_what_our_machinery_breaks_is_tried_again_and_never_scored(
    workshop: Workshop, task: Task, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "_PAUSE_S", 0.0)
    tries: list[int] = []

    def breaks_once(task: Task, sample: int) -> Policy:
        tries.append(sample)
        return Raises(SandboxError("runc went away")) if len(tries) == 1 else reference(task)

    def breaks_always(task: Task, sample: int) -> Policy:
        tries.append(sample)
        return Raises(ModelServerError("the server is down"))

    (mended,) = run_rollouts(workshop, [task], breaks_once, policy_name=name)
    assert (mended.failure, mended.reward and mended.reward.total, tries) == (None, 1.0, [0, 0])

    tries.clear()
    (broken,) = run_rollouts(workshop, [task], breaks_always, policy_name=f"{name}-b")
    assert (broken.failure, broken.reward, broken.grade) == (FailureKind.INFRASTRUCTURE, None, None)
    assert "the server is down" in broken.detail
    assert len(tries) == 3
    (later,) = run_rollouts(workshop, [task], reference, policy_name=f"{name}-b")
    assert (later.id, later.failure) == (broken.id, None)


@pytest.mark.sandbox
def test_what_a_limit_ended_is_graded_as_far_as_it_came(workshop: Workshop, task: Task, name: str) -> None:
    def make(task: Task, _: int) -> Policy:
        wait = Action(ActionKind.RUN, command="true", user="dev")
        return ScriptedPolicy([*reference_actions(task)[:-1], *[wait] * 9])

    limits = RolloutLimits(steps=3)
    (rollout,) = run_rollouts(workshop, [task], make, policy_name=name, limits=limits)
    assert (rollout.failure, rollout.end, rollout.steps) == (FailureKind.LIMITS, "out of steps", 3)
    assert rollout.reward is not None
    assert rollout.reward.total == 1.0


@pytest.mark.sandbox
def test_a_start_script_that_fails_is_the_fault_of_the_task(workshop: Workshop, task: Task, name: str) -> None:
    environment = sample_environment(workshop)
    broken = replace(
        environment, id=environment.id[::-1], recipe=replace(environment.recipe, start="echo no database; exit 3")
    )
    workshop.store.put("environment", broken)
    other = replace(task, id=task.id[::-1], environment=broken.id)
    look = Action(ActionKind.RUN, command="true", user="dev")
    (rollout,) = run_rollouts(workshop, [other], lambda _, __: ScriptedPolicy([look]), policy_name=name)
    workshop.layers.remove(f"task-{other.id[:32]}")
    workshop.store.remove("environment", broken.id)
    assert (rollout.failure, rollout.grade) == (FailureKind.TASK, None)
    assert "no database" in rollout.detail


@pytest.mark.sandbox
def test_with_a_spent_budget_nothing_is_begun_and_nothing_recorded(workshop: Workshop, task: Task, name: str) -> None:
    begun: list[int] = []

    def make(_: Task, sample: int) -> Policy:
        begun.append(sample)
        return ScriptedPolicy([replace(SUBMIT, ok=False, reason=Reason.BUDGET_SPENT)])

    assert list(run_rollouts(workshop, [task], make, policy_name=name, samples=9)) == []
    assert len(begun) < 3
    assert not [each for each in workshop.store.ids("rollout") if _policy(workshop, each) == name]


def _trouble(rollout: Rollout) -> list[str]:
    """What went wrong in grading, for when a test fails."""
    grade = rollout.grade
    if grade is None:
        return [rollout.detail]
    failed = [f"{case.id}: {case.message}" for case in grade.tests.cases if case.outcome is not Outcome.PASSED]
    return [*filter(None, [grade.detail]), *failed, *(f"{flag.kind}: {flag.detail}" for flag in grade.flags)]


def _policy(workshop: Workshop, rollout: str) -> str:
    return workshop.store.get("rollout", rollout, Rollout).policy


ENDS = {
    "submitted": ("submitted", SUBMIT, None),
    "gave up": ("submitted", replace(SUBMIT, ok=False, reason=Reason.POLICY_GAVE_UP, detail="no"), FailureKind.POLICY),
    "bad replies": ("submitted", replace(SUBMIT, ok=False, reason=Reason.BAD_REPLIES), FailureKind.POLICY),
    "circles": ("submitted", replace(SUBMIT, ok=False, reason=Reason.GOING_IN_CIRCLES), FailureKind.POLICY),
    "budget": ("submitted", replace(SUBMIT, ok=False, reason=Reason.BUDGET_SPENT), FailureKind.LIMITS),
    "steps": ("out of steps", Action(ActionKind.RUN, command="ls"), FailureKind.LIMITS),
    "time": ("out of time", Action(ActionKind.RUN, command="ls"), FailureKind.LIMITS),
}


@pytest.mark.parametrize("how", ENDS)
def test_each_end_has_its_kind_of_failure(how: str) -> None:
    end, action, kind = ENDS[how]
    failure, detail = failure_of(Trajectory((Step(action, None),), end))
    assert failure is kind
    assert bool(detail) is (kind is not None)


def test_more_jobs_than_the_machine_holds_are_not_run() -> None:
    assert possible_jobs(1) == 1
    assert 1 <= possible_jobs(10_000) <= len(os.sched_getaffinity(0))


# --------------------------------------------------------------------------- services


def test_services_are_up_for_each_command_and_started_only_when_they_are_down() -> None:
    backend = FakeBackend({"start": Answer("up"), "ls": Answer("a")})
    with backend.open(SandboxSpec(("base",))) as opened:
        sandbox = ServedSandbox(opened, Recipe(start="start"))
        for _ in range(2):
            sandbox.run("ls")
        sandbox.snapshot()
        sandbox.run("ls")
        assert opened.commands == ["start", "ls", "ls", "start", "ls"]


def test_services_that_never_come_up_are_told_from_those_that_a_policy_broke() -> None:
    backend = FakeBackend({"start": Answer("no port", exit_status=1), "ls": Answer("a")})
    with backend.open(SandboxSpec(("base",))) as opened:
        sandbox = ServedSandbox(opened, Recipe(start="start"))
        with pytest.raises(BrokenStartError, match="no port"):
            sandbox.run("ls")
        backend.rules.insert(0, (re.compile("start"), Answer("up")))
        sandbox.run("ls")
        sandbox.snapshot()
        del backend.rules[0]
        assert sandbox.run("ls").output == "no port"


# --------------------------------------------------------------------------- ends that nobody chose

SCRIPT = """
import sys
from pathlib import Path
from ratchet.autoinstall.workshop import Workshop
from ratchet.policies.scripted import ScriptedPolicy
from ratchet.records import Action, ActionKind
from ratchet.rollout import run_rollouts
from ratchet.task_records import Task
from ratchet.tasks.baselines import reference_actions

home, task, name = sys.argv[1:]

def make(task, sample):
    sleep = Action(ActionKind.RUN, command="sleep 600", user="dev")
    return ScriptedPolicy([*([sleep] if sample else []), *reference_actions(task)])

with Workshop.open(Path(home)) as workshop:
    for done in run_rollouts(workshop, [workshop.store.get("task", task, Task)], make, policy_name=name, samples=2):
        print(done.sample, flush=True)
"""


@pytest.mark.sandbox
def test_after_a_kill_only_what_had_not_ended_is_run_again(workshop: Workshop, task: Task, name: str) -> None:
    killed = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(workshop.home), task.id, name], stdout=subprocess.PIPE, text=True
    )
    assert killed.stdout is not None
    assert killed.stdout.readline() == "0\n"
    log = workshop.home / "runs" / "rollouts" / f"{rollout_id(task, name, 1, 0)[:32]}.jsonl"
    _wait_until(log.is_file)
    with pytest.raises(UsageError, match="under way in another process"):
        list(run_rollouts(workshop, [task], never, policy_name=name, samples=2))
    killed.send_signal(signal.SIGKILL)
    killed.wait()

    made: list[int] = []

    def make(task: Task, sample: int) -> Policy:
        made.append(sample)
        return reference(task)

    done = list(run_rollouts(workshop, [task], make, policy_name=name, samples=2))
    assert made == [1]
    assert [(r.sample, r.reward and r.reward.total, _trouble(r)) for r in done] == [(0, 1.0, []), (1, 1.0, [])]
    assert [left(workshop.home, r) for r in done] == [[], []]


@pytest.mark.sandbox
def test_who_leaves_early_leaves_nothing_running(workshop: Workshop, task: Task, name: str) -> None:
    seconds = f"600.{secrets.randbelow(10**9):09}"

    def make(task: Task, sample: int) -> Policy:
        sleep = Action(ActionKind.RUN, command=f"sleep {seconds}", user="dev")
        return ScriptedPolicy([sleep]) if sample else ScriptedPolicy(NOTHING)

    rollouts = run_rollouts(workshop, [task], make, policy_name=name, samples=2, jobs=2)
    if possible_jobs(2) < 2:
        pytest.skip("one core only")
    assert next(rollouts).sample == 0
    _wait_until(lambda: _running(seconds))
    began = time.monotonic()
    rollouts.close()
    assert time.monotonic() - began < 15
    assert not _running(seconds)
    assert not [
        each for each in workshop.store.ids("rollout")[-1:] if workshop.store.get("rollout", each, Rollout).sample
    ]


def _running(argument: str) -> bool:
    found = False
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found = found or argument.encode() in place.read_bytes().split(b"\0")
        except OSError:
            continue
    return found


def _wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# --------------------------------------------------------------------------- the command line


@pytest.mark.sandbox
def test_rollouts_are_run_shown_and_scored_anew_from_the_command_line(
    workshop: Workshop, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATCHET_HOME", str(workshop.home))
    script = tmp_path / f"{secrets.token_hex(4)}.json"
    (change,) = inverse(task.changes)
    edit = {"search": "count > 100", "replace": "count >= 100"}
    actions = [
        {"kind": "run", "command": "python -m pytest -q tests/test_prices.py"},
        {"kind": "edit", "path": f"/workspace/{change.path}", "edits": [edit]},
        {"kind": "submit"},
    ]
    script.write_text(json.dumps(actions))
    (row,) = json.loads(_invoke(task.id[:12], "--policy", f"script:{script}", "--json"))
    assert (row["solved"], row["failure"], row["steps"]) == (True, None, 3)
    shown = _invoke("show", row["rollout"])
    for part in ("discount` takes too little", "1 failed", "+    if count >= 100:", "to mend: 1 of 1 passed", "solved"):
        assert part in shown
    assert row["rollout"][:12] in _invoke("list", "--task", task.id)

    reward = tmp_path / "reward.toml"
    reward.write_text('name = "steps"\n[weights]\nsolved = 1\nsteps = 0.1\n')
    (scored,) = json.loads(_invoke("score", "--reward", str(reward), row["rollout"], "--json"))
    assert (scored["by"], scored["before"]) == ("steps", 1.0)
    assert 0 < scored["reward"] < 1
    workshop.store.remove("rollout", row["rollout"])


def test_what_is_no_policy_is_wrong_usage(tmp_path: Path) -> None:
    from ratchet.cli.contestants import read_script

    (tmp_path / "a.json").write_text('{"kind": "run"}')
    for place in ("a.json", "no.json"):
        with pytest.raises(UsageError):
            read_script(tmp_path / place)


def _invoke(*arguments: str) -> str:
    result = CliRunner().invoke(cli.app, list(arguments))
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def test_a_reward_that_could_not_score_is_refused_before_anything_is_run(tmp_path: Path) -> None:
    with Workshop.open(tmp_path) as workshop, pytest.raises(UsageError, match="a judge's opinion"):
        next(run_rollouts(workshop, [], never, policy_name="p", reward=RewardConfig(weights={"judge": 1.0})))
