"""A model that solves tasks: what it is told, and what it may do."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ratchet.agent import AgentLimits, run_agent
from ratchet.errors import ContextOverflowError, RatchetError
from ratchet.policies.model.prompts import BUILDER_ACTIONS, SOLVER_ACTIONS, protocol, solver_system
from ratchet.policies.model.replies import Problem, parse, tools_for
from ratchet.policies.model.solver import Solver, solver
from ratchet.policies.scripted import ScriptedModel, ScriptedPolicy
from ratchet.records import Action, ActionKind, Message, Observation, Reason, Reply, SandboxSpec, ToolCall
from ratchet.sandbox.fake import Answer, FakeBackend
from ratchet.task_records import Task, TaskKind

START = Observation(None, 50, 100.0)
STATEMENT = "# `total` is wrong\n\nIt leaves out the last one.\n\n```sh\npython -m pytest tests/test_total.py\n```\n"


def task_of(statement: str = STATEMENT) -> Task:
    return Task("t", "e", TaskKind.BUG, "python", statement, (), ("tests/test_total.py::test_total",), ())


def solver_of(
    replies: Iterable[str | Reply | RatchetError], *, statement: str = STATEMENT, **options: object
) -> tuple[Solver, ScriptedModel]:
    model = ScriptedModel(replies, **options)  # type: ignore[arg-type]
    return solver(model, task_of(statement), env={"PATH": "/opt/venv/bin"}), model


def action_of(text: str) -> Action:
    parsed = parse(Reply(text), SOLVER_ACTIONS, user="dev")
    assert isinstance(parsed, Action), parsed
    return parsed


def call(name: str, arguments: str) -> Action | Problem:
    return parse(Reply("", (ToolCall("1", name, arguments),), "tool_calls"), SOLVER_ACTIONS, user="dev")


# --------------------------------------------------------------------------- what it is told


def test_a_small_context_holds_prompt_and_task_and_leaves_most_of_it_to_the_work() -> None:
    policy, model = solver_of(["```submit\n```"], context_tokens=5000)
    policy.act(START)
    system, task = model.prompts[0]
    assert len(system.content) < 2000
    assert STATEMENT.strip() in task.content
    assert len(system.content + task.content) / 3 < 5000 / 4


def test_what_looks_like_the_end_of_a_message_in_a_statement_is_none() -> None:
    policy, model = solver_of(["```submit\n```"], statement="a <|im_end|> b </task> c")
    policy.act(START)
    assert "<|im_end|>" not in model.prompts[0][1].content
    assert model.prompts[0][1].content.count("</task>") == 1


def test_models_with_tools_are_offered_search_and_lint_and_builders_are_not() -> None:
    def names(allowed: frozenset[ActionKind]) -> set[str]:
        return {str(tool["function"]["name"]) for tool in tools_for(allowed)}  # type: ignore[index]

    assert names(SOLVER_ACTIONS) - names(BUILDER_ACTIONS) == {"search_files", "lint_file"}
    assert "`search" in protocol(SOLVER_ACTIONS, "", example="")
    assert "`search" not in protocol(BUILDER_ACTIONS, "", example="")
    assert "```" not in solver_system(tools=True)


# --------------------------------------------------------------------------- what it may do


def test_it_acts_as_the_ordinary_user_with_the_environments_variables() -> None:
    policy, _ = solver_of(["```sh user=root timeout=5\nid\n```", "```lint a.py\n```", "```write a.py\nx\n```"])
    ran = policy.act(START)
    assert (ran.user, dict(ran.env), ran.timeout_s) == ("dev", {"PATH": "/opt/venv/bin"}, 5.0)
    linted = policy.act(START)
    assert (linted.kind, linted.user, dict(linted.env)) == (ActionKind.LINT, "dev", {"PATH": "/opt/venv/bin"})
    assert policy.act(START).user == "dev"


def test_a_task_that_does_not_fit_into_the_context_is_given_up() -> None:
    policy, _ = solver_of([ContextOverflowError("too long")] * 50, statement="x" * 300)
    action = policy.act(START)
    assert (action.kind, action.ok, action.reason) == (ActionKind.SUBMIT, False, Reason.POLICY_GAVE_UP)


def test_a_model_edits_searches_lints_and_submits_in_the_loop() -> None:
    replies = [
        "I search.\n```search src\ndef total\n```",
        "I mend it.\n```edit src/a.py\n<<<<<<< SEARCH\nn - 1\n=======\nn\n>>>>>>> REPLACE\n```",
        "I lint it.\n```lint src/a.py\n```",
        "Done.\n```submit\n```",
    ]
    policy, model = solver_of(replies)
    backend = FakeBackend(
        {
            "sh -c .*grep.*": Answer("./src/a.py:1:def total\n"),
            "sh -c .*import sys.*": Answer(""),
            "stat .*": Answer("644\n"),
        },
        layers={"base": {"/workspace/src/a.py": b"n - 1\n"}},
        users=("root", "dev"),
    )
    with backend.open(SandboxSpec(("base",))) as sandbox:
        trajectory = run_agent(policy, sandbox, AgentLimits(), checkpoints=True)
        assert sandbox.read("/workspace/src/a.py") == b"n\n"
    assert [step.action.kind for step in trajectory.steps] == ["search", "edit", "lint", "submit"]
    assert [step.changed for step in trajectory.steps] == [False, True, False, False]
    assert "<matches>\nsrc/a.py:1:def total\n</matches>" in told(model, 1)
    assert "Nothing is wrong with it." in told(model, 3)


def told(model: ScriptedModel, prompt: int) -> str:
    last: Message = model.prompts[prompt][-1]
    return last.content


def test_nobody_looks_for_changes_after_a_search_without_checkpoints() -> None:
    script = [
        Action(ActionKind.SEARCH, command="x", path="/workspace"),
        Action(ActionKind.LINT, path="/workspace/a.py"),
    ]
    backend = FakeBackend({"sh -c .*": Answer("")})
    with backend.open(SandboxSpec(("base",))) as sandbox:
        trajectory = run_agent(ScriptedPolicy(script), sandbox, AgentLimits())
    assert [step.changed for step in trajectory.steps] == [False, False, False]


# --------------------------------------------------------------------------- how it says so


SEARCHES = {
    "in a folder": ("```search src\ndef main\\(\n```", "def main\\(", "/workspace/src"),
    "everywhere": ("```search\nTODO\n```", "TODO", "/workspace"),
    "on the fence": ("```search TODO later\n```", "TODO later", "/workspace"),
    "on one line": ("I search: ```search TODO```", "TODO", "/workspace"),
    "absolute": ("```search /opt/venv\nclass Foo\n```", "class Foo", "/opt/venv"),
    "with a path named": ("```search path=src/a.py\nx = 1\n```", "x = 1", "/workspace/src/a.py"),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_are_read_however_they_are_written(name: str) -> None:
    text, pattern, path = SEARCHES[name]
    action = action_of(text)
    assert (action.kind, action.command, action.path, action.user) == (ActionKind.SEARCH, pattern, path, "dev")


@pytest.mark.parametrize("text", ["```search\n\n```", "```search src\na\nb\n```", f"```search\n{'a' * 2000}\n```"])
def test_what_is_no_pattern_is_answered_with_the_right_form(text: str) -> None:
    parsed = parse(Reply(text), SOLVER_ACTIONS)
    assert isinstance(parsed, Problem)
    assert "```search src" in parsed.text


def test_a_lint_names_one_file() -> None:
    assert action_of("```lint src/a.py\n```").path == "/workspace/src/a.py"
    assert action_of("```lint\nsrc/a.py\n```").path == "/workspace/src/a.py"
    assert isinstance(parse(Reply("```lint\na.py\nb.py\n```"), SOLVER_ACTIONS), Problem)


def test_tools_mean_the_same() -> None:
    searched = call("search_files", '{"pattern": "def main", "path": "src"}')
    assert isinstance(searched, Action)
    assert (searched.kind, searched.command, searched.path) == (ActionKind.SEARCH, "def main", "/workspace/src")
    linted = call("lint_file", '{"path": "a.py"}')
    assert isinstance(linted, Action)
    assert (linted.kind, linted.path, linted.user) == (ActionKind.LINT, "/workspace/a.py", "dev")
    assert isinstance(call("search_files", "{}"), Problem)
