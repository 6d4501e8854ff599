"""The tokens of rollouts: what a model saw and sampled, and nothing that was tokenised again."""

from __future__ import annotations

from pathlib import Path

from model_server import ModelServer, Turn, text
from ratchet.policies.budget import Meter
from ratchet.policies.chat import ChatModel
from ratchet.policies.model.solver import solver
from ratchet.policies.profiles import Profile
from ratchet.records import CommandResult, Exchange, Message, Observation, Reply
from ratchet.store import Store
from ratchet.task_records import Rollout, Task, TaskKind, TokenTrace
from ratchet.tasks.tokens import token_traces, usage_of

TASK = Task("t", "e", TaskKind.BUG, "python", "Mend it.", (), ("tests/a.py::test",), ())


def exchange(prompt: tuple[int, ...], sampled: tuple[int, ...], logprobs: tuple[float, ...] = ()) -> Exchange:
    reply = Reply(
        "x",
        prompt_tokens=len(prompt),
        completion_tokens=len(sampled),
        prompt_token_ids=prompt,
        token_ids=sampled,
        logprobs=logprobs,
    )
    return Exchange("m", 0, (Message("user", "u"),), reply)


def test_a_conversation_that_only_grows_is_one_sequence() -> None:
    traces = token_traces([exchange((1, 2), (3, 4), (-0.5, -1.0)), exchange((1, 2, 3, 4, 5), (6,), (-0.25,))])
    assert traces == (TokenTrace((1, 2, 3, 4, 5, 6), (0, 0, 1, 1, 0, 1), (0.0, 0.0, -0.5, -1.0, 0.0, -0.25)),)


def test_a_prompt_that_begins_otherwise_starts_a_new_sequence() -> None:
    cut = exchange((1, 2, 9, 4, 5), (6,), (-0.25,))
    shorter = exchange((1, 2, 9), (7,), (-0.125,))
    traces = token_traces([exchange((1, 2), (3, 4), (-0.5, -1.0)), cut, shorter])
    assert [trace.ids for trace in traces] == [(1, 2, 3, 4), (1, 2, 9, 4, 5, 6), (1, 2, 9, 7)]
    assert [trace.mask for trace in traces] == [(0, 0, 1, 1), (0, 0, 0, 0, 0, 1), (0, 0, 0, 1)]


def test_without_ids_there_is_no_sequence_and_without_probabilities_none_are_made_up() -> None:
    assert token_traces([exchange((), (3,)), exchange((1,), ())]) == ()
    traces = token_traces([exchange((1,), (2,), (-0.5,)), exchange((1, 2, 3), (4,))])
    assert traces == (TokenTrace((1, 2, 3, 4), (0, 1, 0, 1)),)


def test_usage_is_summed() -> None:
    usage = usage_of([exchange((1, 2), (3,)), exchange((1, 2, 3, 4), (5, 6))])
    assert (usage.calls, usage.prompt_tokens, usage.completion_tokens, usage.tokens) == (2, 6, 3, 9)


def given(content: str, prompt: list[int], sampled: list[int], logprobs: list[float]) -> Turn:
    said = {"token_ids": sampled, "logprobs": {"content": [{"token": "t", "logprob": p} for p in logprobs]}}
    return text(content, top={"prompt_token_ids": prompt}, choice=said, usage=(len(prompt), len(sampled)))


def test_what_a_server_sampled_comes_back_from_the_store_unchanged(tmp_path: Path) -> None:
    prompt, first, second = [151644, 8948, 198], [40, 1401, 13], [34, 15]
    turns = [
        given("I look.\n```sh\nls\n```", prompt, first, [-0.123456789012345, -1e-9, 0.0]),
        given("Done.\n```submit\n```", [*prompt, *first, 151645], second, [-2.5, -0.75]),
    ]
    with ModelServer(turns) as server:
        profile = Profile("p", "test", server.url, token_ids=True, context_tokens=8192, tools="off")
        policy = solver(ChatModel(profile, Meter()), TASK)
        looked = policy.act(Observation(None, 9, 99.0))
        done = policy.act(Observation(CommandResult("ls", 0, "a\n", 2, 0.1), 8, 98.0, changed=False))
    traces = token_traces([*looked.exchanges, *done.exchanges])
    sampled = (-0.123456789012345, -1e-9, 0.0, 0.0, -2.5, -0.75)
    assert traces == (
        TokenTrace((*prompt, *first, 151645, *second), (0, 0, 0, 1, 1, 1, 0, 1, 1), (0.0,) * 3 + sampled),
    )

    rollout = Rollout("r", "t", "e", "p", 0, "", "submitted", (), None, tokens=traces)
    store = Store(tmp_path)
    store.put("rollout", rollout)
    assert store.get("rollout", "r", Rollout) == rollout
