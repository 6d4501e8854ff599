"""A model as the builder, in a sandbox of names and bytes: how it tries the targets, and what its steps are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from ratchet.agent import AgentLimits, distill, run_agent
from ratchet.policies.model.builder import OWN_STEPS, START, ModelBuilder, Takeover
from ratchet.policies.model.prompts import BUILDER_ACTIONS
from ratchet.policies.model.turns import ModelPolicy
from ratchet.policies.scripted import ScriptedModel
from ratchet.protocols import Policy
from ratchet.records import Action, ActionKind, Expectation, Goal, GoalKind, Reason, SandboxSpec, Trajectory
from ratchet.sandbox.fake import Answer, FakeBackend, FakeCommand, Response

LS, SUBMIT = "```sh\nls\n```", "```submit\n```"
TARGET = Goal("check", "fine", GoalKind.LAUNCH, Expectation(matches=("fine",)))


def builder_of(
    model: ScriptedModel, most_steps: int = 20, *, targets: Sequence[Goal] = (TARGET,), first: Sequence[Action] = ()
) -> ModelBuilder:
    turns = ModelPolicy(model, system="s", task="t", stage="construction", allowed=BUILDER_ACTIONS)
    return ModelBuilder(turns, targets, {"A": "1"}, first, most_steps=most_steps)


def play(policy: Policy, script: Mapping[str, Response], *, steps: int = 100) -> Trajectory:
    usual: dict[str, Response] = {"for folder in .*": Answer(), "ls": Answer("setup.py\n")}
    backend = FakeBackend([*script.items(), *usual.items(), ("test -x .*", Answer("", 1))], users=("root", "dev"))
    with backend.open(SandboxSpec(("base",))) as sandbox:
        return run_agent(policy, sandbox, AgentLimits(steps=steps))


# --------------------------------------------------------------------------- the start script


def needs_root(command: FakeCommand) -> Answer:
    if command.user != "root" or command.env.get("A") != "1":
        return Answer("no permission", 1)
    command.files["/run/up"] = b""
    return Answer()


def check(command: FakeCommand) -> Answer:
    return Answer("fine" if command.user == "dev" and "/run/up" in command.files else "nobody listens")


SERVED: dict[str, Response] = {f"test -x {START}": Answer(), "check": check}


def test_a_start_script_runs_as_root_and_the_target_as_an_ordinary_user() -> None:
    trajectory = play(builder_of(ScriptedModel([SUBMIT])), {**SERVED, START: needs_root})
    assert trajectory.steps[-1].action.ok, trajectory.steps[-1].action.detail
    recipe = distill(trajectory)
    assert recipe.start == START
    assert not any(step.command in (START, "check") for step in recipe.steps), "trying is no part of a recipe"


def test_a_start_script_that_fails_is_told_as_such_and_no_target_is_run() -> None:
    model = ScriptedModel([SUBMIT, LS])
    trajectory = play(builder_of(model, most_steps=1), {**SERVED, START: Answer("port taken", 3)})
    assert "the start script failed (exit status 3)" in model.prompts[1][-1].content
    assert "port taken" in model.prompts[1][-1].content
    assert not any("fine" in step.result.output for step in trajectory.steps if step.result)
    assert not trajectory.steps[-1].action.ok


# --------------------------------------------------------------------------- steps


def test_a_model_has_its_steps_and_what_it_did_is_tried_at_their_end() -> None:
    model = ScriptedModel([LS, "what?"])
    trajectory = play(builder_of(model, most_steps=2), {"check": Answer("broken")})
    assert len(model.prompts) == 2
    last = trajectory.steps[-1].action
    assert (last.ok, last.reason) == (False, Reason.POLICY_GAVE_UP)
    assert last.detail.startswith("the model has done the 2 actions that it was given; check: ")
    assert play(builder_of(ScriptedModel([LS]), most_steps=1), {"check": Answer("fine")}).steps[-1].action.ok


def test_the_targets_are_not_tried_again_where_the_last_step_has_been_done() -> None:
    model = ScriptedModel([LS, SUBMIT])
    trajectory = play(builder_of(model, most_steps=1), {"check": Answer("broken")})
    tried = [step for step in trajectory.steps if step.action.command == "check"]
    assert len(tried) == 1
    assert trajectory.steps[-1].action.reason is Reason.POLICY_GAVE_UP


def test_a_builder_takes_as_many_steps_as_it_says_beside_those_of_its_model() -> None:
    suites = [Expectation(report="/r", min_tests=least) for least in (1, 2, 99)]
    targets = [Goal(f"suite {each.min_tests}", "", GoalKind.TESTS, each, each.min_tests) for each in suites]
    said = '{"counts": {"ran": 5, "passed": 5, "skipped": 0}, "failures": []}'
    script = {f"test -x {START}": Answer(), START: Answer(), "rm -f /r\nsuite .*": Answer(), "python3 .*": Answer(said)}
    model = ScriptedModel([SUBMIT] * 4)
    policy = builder_of(model, most_steps=1, targets=targets, first=[Action(ActionKind.RUN, command="ls")] * 2)
    trajectory = play(policy, script, steps=1 + OWN_STEPS)
    assert trajectory.steps[-1].action.reason is Reason.TARGETS_FAILED
    assert len(trajectory.steps) == OWN_STEPS


class Rules:
    """Rules that do `commands`, and then give up."""

    lesson = None

    def __init__(self, commands: Sequence[str]) -> None:
        self._left = list(commands)

    def act(self, observation: object) -> Action:
        if self._left:
            return Action(ActionKind.RUN, command=self._left.pop(0))
        return Action(ActionKind.SUBMIT, ok=False, reason=Reason.BUILD_FAILED, detail="no idea")


@pytest.mark.parametrize(("most_steps", "done"), [(9, 7), (5, 5)])
def test_the_steps_of_the_rules_are_no_steps_of_the_model(most_steps: int, done: int) -> None:
    model = ScriptedModel([LS])
    told: list[str] = []

    def take_over(situation: str, outputs: Sequence[str]) -> ModelBuilder:
        told.append(situation)
        return builder_of(model, most_steps=1)

    rules = Rules(["make"] * 7)
    policy = Takeover(rules, lambda _: True, take_over, most_steps=most_steps)  # type: ignore[arg-type]
    trajectory = play(policy, {"make": Answer("no rule", 2), "check": Answer("broken")})
    assert [step.action.command for step in trajectory.steps].count("make") == done
    assert len(model.prompts) == 1
    assert ("no idea" in told[0]) == (done == 7)
    assert len(told) == 1
