"""Who builds in which attempt, and what is taken from an earlier run that was ended from outside."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from ratchet.autoinstall.builders import Builders
from ratchet.autoinstall.construct import act
from ratchet.autoinstall.job import Clock, Job
from ratchet.autoinstall.journal import Journal, open_journal
from ratchet.autoinstall.memory import Memory, remember
from ratchet.autoinstall.options import Options, PolicyChoice, Roles
from ratchet.policies.rules.planning import Lesson
from ratchet.policies.scripted import ScriptedModel
from ratchet.records import (
    Attempt,
    Base,
    Checkout,
    Fact,
    Goal,
    GoalKind,
    Reason,
    Recipe,
    SandboxSpec,
    Survey,
    Trajectory,
)
from ratchet.sandbox.fake import Answer, FakeBackend
from ratchet.store import Store
from ratchet.trajectories import TrajectoryLog

LOOK = "```sh\nls\n```"
GIVE_UP = "```submit\ncannot: no idea\n```"
TARGET = Goal("true", "", GoalKind.LAUNCH)
BASE = Base("base", "bookworm", "bookworm", "amd64", "made", ("3.11",))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


def memory(fix: str, worked: int) -> Memory:
    return Memory("python", "lxml", f"fatal error: <n>.h: {fix}", (fix,), worked, tuple(f"p{n}" for n in range(worked)))


def job_of(store: Store, journal: Journal, model: ScriptedModel, checkout: Path) -> Job:
    """A job with what builders look at; its workshop has no sandboxes."""
    workshop = SimpleNamespace(
        store=store, events=SimpleNamespace(emit=lambda *_, **__: None), show=lambda _: None, home=store.home
    )
    survey = Survey("c" * 64, (Fact("requirement", "lxml", "pyproject.toml"), Fact("project-name", "shop", "x")))
    options = Options(roles=Roles(builder=PolicyChoice(rules=False, model=model)), model_steps=5)
    tree = Checkout("c" * 64, "shop", "shop", str(checkout))
    return Job(tree, survey, options, workshop, Clock(workshop), checkout, journal)  # type: ignore[arg-type]


def attempt(job: Job, builders: Builders, number: int) -> Trajectory:
    path = job.journal.trajectory(f"builder-{number}")
    plan = builders.next_plan()
    assert path is not None
    assert plan is not None
    script = [("ls", Answer("setup.py\n")), (".*", Answer())]
    backend = FakeBackend(script, users=("root", "dev"))
    with TrajectoryLog(path, job.header("builder", "m", number)) as log, backend.open(SandboxSpec(("b",))) as sandbox:
        return act(job.workshop, builders.make(plan, BASE, log), sandbox, builders.limits(), log)


def test_a_run_that_goes_on_offers_what_the_first_offered_so_that_nothing_is_asked_again(
    store: Store, tmp_path: Path
) -> None:
    remember(store, [memory("apt-get install first", 2)])
    with open_journal(store, "key") as journal:
        model = ScriptedModel([LOOK, GIVE_UP])
        job = job_of(store, journal, model, tmp_path)
        attempt(job, before := Builders(job, [TARGET], ("3.11",)), 1)
    assert "apt-get install first" in model.prompts[0][-1].content

    remember(store, [memory(f"apt-get install better-{number}", 9) for number in range(3)])
    with open_journal(store, "key") as journal:
        model = ScriptedModel([])
        job = job_of(store, journal, model, tmp_path)
        attempt(job, after := Builders(job, [TARGET], ("3.11",)), 1)
    assert not model.prompts
    assert after.memories_offered == before.memories_offered


def test_what_ended_attempts_were_offered_stays_known_and_the_next_is_offered_what_is_known_then(
    store: Store, tmp_path: Path
) -> None:
    remember(store, [memory("apt-get install first", 2)])
    with open_journal(store, "key") as journal:
        job = job_of(store, journal, ScriptedModel([GIVE_UP]), tmp_path)
        builders = Builders(job, [TARGET], ("3.11",))
        plan = builders.next_plan()
        attempt(job, builders, 1)
    assert plan is not None
    remember(store, [memory(f"apt-get install better-{number}", 9) for number in range(3)])
    with open_journal(store, "key") as journal:
        model = ScriptedModel([GIVE_UP])
        job = job_of(store, journal, model, tmp_path)
        builders = Builders(job, [TARGET], ("3.11",))
        failed = Attempt(1, "bookworm", Reason.POLICY_GAVE_UP, "no idea", Recipe())
        builders.learned(failed, Lesson(plan, Reason.POLICY_GAVE_UP, "no idea"))
        attempt(job, builders, 2)
    assert "apt-get install better" in model.prompts[0][-1].content
    assert ["first" in text for text in builders.memories_offered] == [True, False, False, False]
