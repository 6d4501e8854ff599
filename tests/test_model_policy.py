"""A model as a policy: one action in each reply, and an end to whatever goes wrong."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest

from ratchet.agent import AgentLimits, run_agent
from ratchet.errors import BudgetSpentError, ContextOverflowError, ModelServerError, RatchetError
from ratchet.policies.model.prompts import BUILDER_ACTIONS, builder_system
from ratchet.policies.model.turns import ModelPolicy
from ratchet.policies.scripted import ScriptedModel
from ratchet.records import Action, ActionKind, CommandResult, Observation, Reason, Reply, SandboxSpec, ToolCall
from ratchet.sandbox.fake import Answer, FakeBackend

LOOK = "I look.\n```sh\nls\n```"
DONE = "It works.\n```submit\n```"
START = Observation(None, 50, 100.0)


def policy_of(replies: Iterable[str | Reply | RatchetError], **options: object) -> tuple[ModelPolicy, ScriptedModel]:
    tools = bool(options.pop("uses_tools", False))
    model = ScriptedModel(replies, context_tokens=8192, uses_tools=tools)
    policy = ModelPolicy(
        model,
        system="system",
        task="task",
        stage="builder",
        allowed=BUILDER_ACTIONS,
        **options,  # type: ignore[arg-type]
    )
    return policy, model


def saw(output: str, status: int = 0, *, steps_left: int = 50, changed: bool | None = False) -> Observation:
    return Observation(CommandResult("c", status, output, len(output), 0.1), steps_left, 100.0, changed)


def last_told(model: ScriptedModel) -> str:
    return model.prompts[-1][-1].content


def test_a_reply_becomes_an_action_and_its_result_the_next_message() -> None:
    policy, model = policy_of([LOOK, DONE], user="dev", env={"A": "1"}, timeout_s=60.0)
    action = policy.act(START)
    assert (action.kind, action.command, action.user, action.timeout_s) == (ActionKind.RUN, "ls", "dev", 60.0)
    assert (dict(action.env), action.keep, action.note) == ({"A": "1"}, True, "I look.")
    assert policy.act(saw("setup.py\n")).kind is ActionKind.SUBMIT
    assert [message.role for message in model.prompts[-1]] == ["system", "user", "assistant", "user"]
    assert last_told(model) == "exit status 0\n<output>\nsetup.py\n</output>"
    assert model.stages == ["builder", "builder"]


def test_exchanges_hold_all_that_was_asked_and_answered() -> None:
    policy, model = policy_of([LOOK, "hm", DONE])
    actions = [policy.act(START), policy.act(saw("a")), policy.act(saw("b"))]
    prompt: list[object] = []
    for action, asked in zip(actions, model.prompts, strict=True):
        (exchange,) = action.exchanges
        prompt = [*prompt[: exchange.kept], *exchange.messages]
        assert prompt == list(asked)
        assert exchange.model == model.name
    assert [exchange.reply.text for action in actions for exchange in action.exchanges] == [LOOK, "hm", DONE]
    assert [bool(action.exchanges[0].problem) for action in actions] == [False, True, False]


def test_a_malformed_reply_costs_a_step_and_gets_its_correction() -> None:
    policy, model = policy_of(["I would install it.", LOOK])
    action = policy.act(START)
    assert action.kind is ActionKind.NONE
    assert policy.act(saw(action.detail, 1)).kind is ActionKind.RUN
    assert last_told(model) == action.detail
    assert "```sh" in action.detail


def test_three_malformed_replies_in_a_row_are_the_end() -> None:
    policy, _ = policy_of(["a", "b", LOOK, "c", "d", "e"])
    actions = [policy.act(START), *(policy.act(saw("")) for _ in range(5))]
    assert [action.kind for action in actions] == ["none", "none", "run", "none", "none", "submit"]
    assert (actions[-1].ok, actions[-1].reason) == (False, Reason.BAD_REPLIES)
    assert actions[-1].exchanges[0].reply.text == "e"


def test_going_in_circles_is_remarked_upon_and_then_the_end() -> None:
    policy, model = policy_of([LOOK] * 5)
    policy.act(START)
    policy.act(saw("1 failed in 0.1s", 1))
    assert "with the same result" not in last_told(model)
    for times in (2, 3):
        policy.act(saw(f"1 failed in 0.{times}s", 1))
        assert f"You did exactly this {times} times, with the same result" in last_told(model)
    action = policy.act(saw("1 failed in 0.44s", 1))
    assert (action.kind, action.ok, action.reason) == (ActionKind.SUBMIT, False, Reason.GOING_IN_CIRCLES)
    assert "ls" in action.detail
    assert len(model.prompts) == 4


def test_a_circle_of_two_actions_is_one_too() -> None:
    policy, _ = policy_of(["```sh\npip install x\n```", "```rollback\n```"] * 5)
    action = policy.act(START)
    steps = 0
    while action.kind is not ActionKind.SUBMIT:
        steps += 1
        done = saw("installed x", changed=True) if action.kind is ActionKind.RUN else Observation(None, 50, 100.0)
        action = policy.act(done)
    assert action.reason is Reason.GOING_IN_CIRCLES
    assert steps < 10


def test_trying_again_after_each_change_is_no_circle() -> None:
    replies = [reply for number in range(6) for reply in ("```sh\npytest\n```", f"```write /a{number}\nx\n```")]
    policy, _ = policy_of([*replies, DONE])
    action = policy.act(START)
    while action.kind is not ActionKind.SUBMIT:
        failed = saw("1 failed", 1)
        action = policy.act(failed if action.kind is ActionKind.RUN else Observation(None, 50, 100.0, changed=True))
    assert action.ok


def test_the_same_command_with_other_results_is_no_circle() -> None:
    policy, _ = policy_of([LOOK] * 6 + [DONE])
    policy.act(START)
    actions = [policy.act(saw(f"{number} failed", 1)) for number in range(6)]
    assert actions[-1].ok


def test_the_same_command_over_and_over_is_one_whatever_it_prints() -> None:
    policy, model = policy_of([LOOK] * 9)
    policy.act(START)
    actions = [policy.act(saw(f"log in /tmp/{number}")) for number in range(8)]
    assert "You did exactly this 7 times" in last_told(model)
    assert actions[-1].reason is Reason.GOING_IN_CIRCLES


def test_a_spent_budget_is_submitted() -> None:
    policy, _ = policy_of([LOOK, BudgetSpentError("1,000 tokens are spent")])
    policy.act(START)
    action = policy.act(saw(""))
    assert (action.ok, action.reason, action.detail) == (False, Reason.BUDGET_SPENT, "1,000 tokens are spent")


def test_a_dead_server_is_no_action() -> None:
    policy, _ = policy_of([ModelServerError("down")])
    with pytest.raises(ModelServerError):
        policy.act(START)


def test_after_an_overflow_the_model_is_asked_again_with_less() -> None:
    policy, model = policy_of([LOOK, "```sh\ncat b\n```", ContextOverflowError("too long"), DONE])
    policy.act(START)
    policy.act(saw("a" * 2000))
    assert policy.act(saw("b" * 2000)).ok
    sizes = [sum(len(message.content) for message in prompt) for prompt in model.prompts]
    assert sizes[3] < sizes[2]


def test_a_context_that_is_too_small_for_the_task_is_an_error() -> None:
    policy, _ = policy_of([ContextOverflowError("too long")] * 50)
    with pytest.raises(ContextOverflowError):
        policy.act(START)


def test_a_rejected_submission_is_told() -> None:
    policy, model = policy_of([DONE, LOOK])
    policy.act(START)
    policy.tell("Not yet: `pytest` does not hold.")
    assert policy.act(saw("1 failed", 1)).kind is ActionKind.RUN
    assert last_told(model) == "Not yet: `pytest` does not hold.\nexit status 1\n<output>\n1 failed\n</output>"


def test_results_without_output_are_told_in_words() -> None:
    policy, model = policy_of(
        ["```write /a\nx\n```", "```rollback\n```", "```rollback\nall\n```", "```sh\ncd src\n```", DONE]
    )
    policy.act(START)
    told = []
    for _ in range(3):
        policy.act(Observation(None, 50, 100.0, changed=True))
        told.append(last_told(model))
    assert told == ["/a is written.", "It is undone.", "All of it is undone: this is the initial state."]
    policy.act(saw(""))
    assert "no effect on later commands" in last_told(model)


def test_a_model_is_told_when_few_steps_are_left() -> None:
    policy, model = policy_of([LOOK] * 3)
    policy.act(START)
    policy.act(saw("a", steps_left=3))
    assert last_told(model).endswith("\n3 steps left.")
    policy.act(saw("b", steps_left=1))
    assert last_told(model).endswith("\nThis is the last step.")


def test_a_model_with_tools_gets_its_result_as_that_of_the_call() -> None:
    call = ToolCall("c7", "run_command", json.dumps({"command": "ls"}))
    policy, model = policy_of([Reply("", tool_calls=(call,), finish="tool_calls"), LOOK], uses_tools=True)
    assert policy.act(START).command == "ls"
    assert policy.act(saw("a")).command == "ls"  # in text this time
    assert model.prompts[-1][-1].role == "tool"
    assert model.prompts[-1][-1].tool_call == "c7"


def test_only_the_first_of_several_actions_is_done_and_told() -> None:
    policy, model = policy_of([f"{LOOK}\n{DONE}", DONE])
    policy.act(START)
    policy.act(saw("a"))
    assert last_told(model).startswith("Only the first of your 2 blocks was done.\nexit status 0\n")


def test_the_same_replies_and_results_lead_to_the_same_prompts() -> None:
    def play() -> tuple[list[Action], list[object]]:
        replies = [f"```sh\nmake {number}\n```" if number % 7 else "hm" for number in range(1, 60)]
        policy, model = policy_of([*replies, DONE])
        actions = [policy.act(START)]
        for number in range(59):
            told = saw(f"{number}\n" * 500, number % 2)
            actions.append(policy.act(replace(told, seconds_left=1.0 / (1 + len(actions)))))
        return actions, list(model.prompts)

    first, second = play(), play()
    assert first == second
    assert any(action.exchanges[0].kept < 3 for action in first[0][1:])  # it was cut on the way


def test_in_the_loop_a_model_installs_reads_and_submits() -> None:
    model = ScriptedModel(
        ["```sh\npip install x\n```", "```write /opt/a\none\ntwo\n```", "```read /opt/a 2-2\n```", "hm", DONE]
    )
    policy = ModelPolicy(model, system=builder_system(), task="task", stage="builder", allowed=BUILDER_ACTIONS)
    with FakeBackend({"pip install x": Answer("installed\n")}).open(SandboxSpec(("base",))) as sandbox:
        trajectory = run_agent(policy, sandbox, AgentLimits(steps=20))
    assert trajectory.end == "submitted"
    assert [step.action.kind for step in trajectory.steps] == ["run", "write", "read", "none", "submit"]
    told = [prompt[-1].content for prompt in model.prompts[1:]]
    assert "installed" in told[0]
    assert "<file>\n2: two\n</file>" in told[2]
