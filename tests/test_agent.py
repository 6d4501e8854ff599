"""The loop, and the recipe that is distilled from what it did."""

from __future__ import annotations

from ratchet.agent import AgentLimits, distill, run_agent
from ratchet.policies.scripted import ScriptedPolicy
from ratchet.records import (
    Action,
    ActionKind,
    CommandResult,
    Edit,
    RecipeStep,
    SandboxSpec,
    Step,
    Trajectory,
    from_json,
    to_json,
)
from ratchet.sandbox.fake import Answer, FakeBackend, FakeSandbox

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


def play(actions: list[Action], recorded: tuple[Step, ...] = ()) -> tuple[Trajectory, FakeSandbox]:
    rules = {
        "touch (.*)": lambda c: Answer(files={c.match[1]: b"here"}),
        "see": Answer("seen"),
        "stat .*": Answer("755\n"),
    }
    rules["spoil (.*)"] = lambda c: Answer("no", 1, files={c.match[1]: b"spoilt"})
    sandbox = FakeBackend(rules).open(SPEC)
    policy = ScriptedPolicy(actions)
    trajectory = run_agent(policy, sandbox, AgentLimits(), checkpoints=True, recorded=recorded)
    return trajectory, sandbox


def do(command: str) -> Action:
    return Action(ActionKind.RUN, command=command)


def exists(sandbox: FakeSandbox, path: str) -> bool:
    try:
        sandbox.read(path)
    except FileNotFoundError:
        return False
    return True


def back(undo: int) -> Action:
    return Action(ActionKind.ROLLBACK, undo=undo)


def test_steps_say_whether_they_changed_a_file() -> None:
    trajectory, _ = play([do("touch /a"), do("see"), DONE])
    assert [step.changed for step in trajectory.steps] == [True, False, False]


def test_going_back_one_change_leaves_the_ones_before_it_in_the_sandbox_and_in_the_recipe() -> None:
    trajectory, sandbox = play([do("touch /a"), do("see"), do("touch /b"), do("see"), back(1), do("touch /c"), DONE])
    assert [exists(sandbox, path) for path in ("/a", "/b", "/c")] == [True, False, True]
    assert [step.command for step in distill(trajectory).steps] == ["touch /a", "touch /c"]


def test_going_back_further_than_there_is_ends_at_the_initial_state() -> None:
    trajectory, sandbox = play([do("touch /a"), back(5), do("touch /c"), DONE])
    assert [exists(sandbox, path) for path in ("/a", "/c")] == [False, True]
    assert [step.command for step in distill(trajectory).steps] == ["touch /c"]


def test_a_failed_command_that_was_rolled_back_leaves_no_trace() -> None:
    trajectory, sandbox = play([do("touch /a"), do("spoil /a"), back(1), DONE])
    assert sandbox.read("/a") == b"here"
    assert [step.command for step in distill(trajectory).steps] == ["touch /a"]


def test_a_failed_command_that_changed_something_and_was_built_on_is_replayed_and_may_fail_again() -> None:
    trajectory, _ = play([do("spoil /a"), do("see"), DONE])
    assert distill(trajectory).steps == (RecipeStep("spoil /a", may_fail=True),)


def test_a_step_of_an_older_record_has_to_succeed() -> None:
    old = {name: value for name, value in to_json(RecipeStep("make")).items() if name != "may_fail"}
    assert from_json(old, RecipeStep) == RecipeStep("make", may_fail=False)


def edit(*edits: tuple[str, str]) -> Action:
    return Action(ActionKind.EDIT, path="/f", edits=tuple(Edit(*pair) for pair in edits))


def test_an_edit_is_in_the_recipe_as_what_the_file_holds_afterwards() -> None:
    start = Action(ActionKind.WRITE, path="/f", content="one\ntwo\n")
    trajectory, sandbox = play([start, edit(("two", "three"), ("one", "zero")), DONE])
    assert sandbox.read("/f") == b"zero\nthree\n"
    assert [(step.content, step.mode) for step in distill(trajectory).steps][-1] == ("zero\nthree\n", 0o755)


def test_an_edit_changes_nothing_unless_all_of_it_fits() -> None:
    start = Action(ActionKind.WRITE, path="/f", content="a\na\nb\n")
    for edits in ([("b", "c"), ("nothing", "x")], [("a", "x")], [("", "x")]):
        trajectory, sandbox = play([start, edit(*edits), DONE])
        result = trajectory.steps[1].result
        assert result is not None
        assert not result.ok
        assert sandbox.read("/f") == b"a\na\nb\n"


def test_reading_gives_numbered_lines_and_says_how_many_there_are() -> None:
    start = Action(ActionKind.WRITE, path="/f", content="".join(f"line {n}\n" for n in range(1, 10)))
    trajectory, _ = play([start, Action(ActionKind.READ, path="/f", first=2, last=3), DONE])
    result = trajectory.steps[1].result
    assert result is not None
    assert result.output == "2: line 2\n3: line 3\n[6 more lines, 9 in all]\n"


def test_a_run_that_was_ended_from_outside_goes_on_after_its_last_step() -> None:
    before, _ = play([do("touch /a"), do("see"), do("touch /b"), DONE])
    told: list[Step] = []
    sandbox = FakeBackend({"touch (.*)": lambda c: Answer(files={c.match[1]: b"here"})}).open(SPEC)
    policy = ScriptedPolicy([do("touch /a"), do("see"), do("touch /b"), DONE])
    after = run_agent(
        policy,
        sandbox,
        AgentLimits(),
        checkpoints=True,
        recorded=before.steps[:2],
        on_step=lambda _, step: told.append(step),
    )
    assert [step.action.command for step in told] == ["touch /b", ""]
    assert after.steps[:2] == before.steps[:2]
    assert policy.observations[2].result == before.steps[1].result, "what changed nothing is not run again"
    assert exists(sandbox, "/a")


def test_a_record_that_no_longer_holds_is_left() -> None:
    before, _ = play([do("touch /a"), do("see"), DONE])
    sandbox = FakeBackend({"touch /a": Answer("disk full", 1), "see": Answer("other")}).open(SPEC)
    policy = ScriptedPolicy([do("touch /a"), do("see"), DONE])
    after = run_agent(policy, sandbox, AgentLimits(), checkpoints=True, recorded=before.steps)
    assert [step.result.output for step in after.steps if step.result] == ["disk full", "other"]
