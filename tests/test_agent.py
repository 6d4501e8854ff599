"""The loop, and the recipe that is distilled from what it did."""

from __future__ import annotations

from ratchet.agent import AgentLimits, distill, run_agent
from ratchet.policies.scripted import ScriptedPolicy
from ratchet.records import Action, ActionKind, CommandResult, SandboxSpec, Step, Trajectory
from ratchet.sandbox.fake import Answer, FakeBackend

SPEC = SandboxSpec(("base",))
DONE = Action(ActionKind.SUBMIT, env={"A": "1"})


def write(content: str, path: str = "/f") -> Step:
    return Step(Action(ActionKind.WRITE, path=path, content=content), None)


def run(command: str, status: int = 0, *, keep: bool = True) -> Step:
    result = CommandResult(command, status, "", 0, 0.1)
    return Step(Action(ActionKind.RUN, command=command, keep=keep), result)


def recipe(*steps: Step) -> list[str]:
    made = distill(Trajectory((*steps, Step(DONE, None)), "submitted"))
    assert made.env == {"A": "1"}
    return [step.command or step.content for step in made.steps]


def test_kept_commands_that_succeeded_are_the_recipe() -> None:
    assert recipe(run("a"), run("b", 1), run("c", keep=False), run("d")) == ["a", "d"]


def test_a_rollback_undoes_what_was_done() -> None:
    assert recipe(run("a"), write("x"), Step(Action(ActionKind.ROLLBACK), None), run("b")) == ["b"]


def test_a_file_that_is_written_again_after_a_failed_command_is_written_once() -> None:
    assert recipe(write("x"), run("a", 1), write("x"), run("a")) == ["x", "a"]


def test_the_last_content_of_a_file_wins_on_replay() -> None:
    assert recipe(write("x"), write("y"), write("x")) == ["x", "y", "x"]
    assert recipe(write("x"), run("change /f"), write("x")) == ["x", "change /f", "x"]


def test_the_loop_ends_at_its_limit_of_steps() -> None:
    policy = ScriptedPolicy([Action(ActionKind.RUN, command="true")] * 9)
    with FakeBackend({"true": Answer()}).open(SPEC) as sandbox:
        trajectory = run_agent(policy, sandbox, AgentLimits(steps=3))
    assert trajectory.end == "out of steps"
    assert len(trajectory.steps) == 3


def test_a_policy_that_has_no_more_actions_gives_up() -> None:
    with FakeBackend({"true": Answer()}).open(SPEC) as sandbox:
        trajectory = run_agent(ScriptedPolicy([]), sandbox, AgentLimits())
    assert trajectory.end == "submitted"
    assert not trajectory.steps[-1].action.ok
