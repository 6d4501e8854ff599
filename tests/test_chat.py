"""A served model, against a real server that speaks the protocol, its faults included."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from model_server import ModelServer, Turn, cut, empty, garbage, hang_up, slow, status, text, tool
from ratchet.errors import BudgetSpentError, ContextOverflowError, ModelServerError, UsageError
from ratchet.policies.budget import Budget, Meter
from ratchet.policies.chat import ChatModel
from ratchet.policies.chat_faults import StatusError, asked_wait
from ratchet.policies.chat_wire import split_thoughts
from ratchet.policies.profiles import Profile
from ratchet.policies.scripted import ScriptedModel
from ratchet.records import Message, Reply, ToolCall, Usage

KEY = "4f7a0123456789abcdef"
HELLO = [Message("system", "You are a test."), Message("user", "Say hello.")]
TOOLS = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}]


class Waits(list[float]):
    """Sleeps that only note how long they would have been."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def model(
    server: ModelServer | str, *, meter: Meter | None = None, waits: Waits | None = None, **more: Any
) -> ChatModel:
    url = server if isinstance(server, str) else server.url
    on_text: Callable[[str], None] = more.pop("on_text", lambda _: None)
    profile = Profile("test", "test", url, **{"attempts": 3, **more})
    sleep = waits if waits is not None else Waits()
    return ChatModel(profile, meter or Meter(), on_text=on_text, sleep=sleep, jitter=lambda: 0.5)


def ask(server: ModelServer | str, messages: list[Message] = HELLO, **more: Any) -> Reply:
    return model(server, **more).reply(messages, stage="test")


# --------------------------------------------------------------------------- what works


def test_a_reply_comes_with_its_tokens_and_its_cost() -> None:
    with ModelServer([text("hello there", usage=(1000, 500))]) as server:
        reply = ask(server, price_per_million_prompt=2.0, price_per_million_completion=4.0)
    assert (reply.text, reply.finish, reply.prompt_tokens, reply.completion_tokens) == (
        "hello there",
        "stop",
        1000,
        500,
    )
    assert reply.cost == pytest.approx(0.004)


def test_the_request_is_what_the_profile_and_the_caller_say() -> None:
    with ModelServer([text("ok")]) as server:
        model(server, temperature=0.7, top_p=0.9, extra_body={"top_k": 20}).reply(HELLO, stage="test", max_tokens=77)
    request = server.requests[0]
    assert request["messages"] == [{"role": m.role, "content": m.content} for m in HELLO]
    assert {name: request[name] for name in ("model", "temperature", "top_p", "top_k", "max_tokens")} == {
        "model": "test",
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 20,
        "max_tokens": 77,
    }


def test_text_is_handed_on_as_it_comes() -> None:
    pieces: list[str] = []
    with ModelServer([text("one two three")]) as server:
        ask(server, on_text=pieces.append)
    assert pieces == ["one ", "two ", "three"]


def test_without_usage_tokens_are_estimated() -> None:
    with ModelServer([text("12345678", usage=None)]) as server:
        reply = ask(server, [Message("user", "x" * 400)])
    assert (reply.prompt_tokens, reply.completion_tokens) == (100, 2)


def test_tool_calls_are_put_together_from_their_pieces() -> None:
    with ModelServer([tool("run", {"command": "ls -l /workspace"}, say="Let me look.")]) as server:
        reply = model(server).reply(HELLO, stage="test", tools=TOOLS)
    assert reply.text == "Let me look."
    assert reply.finish == "tool_calls"
    assert [(c.id, c.name, json.loads(c.arguments)) for c in reply.tool_calls] == [
        ("call_1", "run", {"command": "ls -l /workspace"})
    ]
    assert server.requests[0]["tools"] == TOOLS


def test_calls_that_share_an_index_stay_apart() -> None:
    def call(name: str) -> dict[str, Any]:
        return {"tool_calls": [{"index": 0, "id": f"id-{name}", "function": {"name": name, "arguments": "{}"}}]}

    with ModelServer([Turn((call("read"), call("run")), finish="tool_calls")]) as server:
        reply = ask(server)
    assert [c.name for c in reply.tool_calls] == ["read", "run"]


def test_called_tools_and_their_results_are_sent_back() -> None:
    called = Message("assistant", "", (ToolCall("c1", "run", '{"command": "ls"}'),))
    with ModelServer([text("ok"), text("ok")]) as server:
        chat = model(server)
        chat.reply([*HELLO, called, Message("tool", "a.py", tool_call="c1")], stage="test", tools=TOOLS)
        chat.reply([*HELLO, called, Message("tool", "a.py", tool_call="c1")], stage="test")
    with_tools, without = (request["messages"][2:] for request in server.requests)
    assert with_tools[0]["tool_calls"][0]["function"] == {"name": "run", "arguments": '{"command": "ls"}'}
    assert with_tools[1] == {"role": "tool", "content": "a.py", "tool_call_id": "c1"}
    assert [m["role"] for m in without] == ["assistant", "user"]
    assert '"ls"' in without[0]["content"]


def test_thoughts_are_kept_apart_from_the_text() -> None:
    thinking = Turn(({"reasoning_content": "hm, "}, {"reasoning_content": "yes"}, {"content": "answer"}))
    with ModelServer([thinking, text("<think>well\n</think>\n\nanswer")]) as server:
        assert [(r.reasoning, r.text) for r in (ask(server), ask(server))] == [
            ("hm, yes", "answer"),
            ("well", "answer"),
        ]


@pytest.mark.parametrize(
    ("written", "parts"),
    [
        ("answer", ("", "answer")),
        ("<think>a</think>b", ("a", "b")),
        ("a</think>b", ("a", "b")),
        ("<think>cut off", ("cut off", "")),
        ("```sh\ngrep '</think>' x\n```", ("", "```sh\ngrep '</think>' x\n```")),
        ("see <think>a</think>", ("", "see <think>a</think>")),
    ],
)
def test_thoughts_are_split_off_only_at_the_beginning(written: str, parts: tuple[str, str]) -> None:
    assert split_thoughts(written) == parts


def test_lone_surrogates_in_prompts_and_replies_do_no_harm() -> None:
    halves = Turn(({"content": "a\ud83d"}, {"content": "\ude00b"}, {"content": "\udc80"}))
    with ModelServer([halves]) as server:
        reply = ask(server, [Message("user", "x\udcffy")])
    assert reply.text == "a\U0001f600b\ufffd"
    assert server.requests[0]["messages"][0]["content"] == "x\ufffdy"


def test_a_server_that_does_not_stream_is_understood() -> None:
    whole = {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}
    with ModelServer([status(200, body=whole)]) as server:
        assert ask(server).text == "hello"


# --------------------------------------------------------------------------- token ids


def test_token_ids_of_vllm_are_kept() -> None:
    entries = {"content": [{"token": "he", "logprob": -0.5}, {"token": "llo", "logprob": -0.25}]}
    turn = text("hello", choice={"token_ids": [5, 6], "logprobs": entries}, top={"prompt_token_ids": [1, 2, 3]})
    with ModelServer([turn]) as server:
        reply = ask(server, token_ids=True)
    assert (reply.prompt_token_ids, reply.token_ids, reply.logprobs) == ((1, 2, 3), (5, 6), (-0.5, -0.25))
    assert server.requests[0]["return_token_ids"] is True


def test_token_ids_of_llama_cpp_are_kept() -> None:
    entries = {"content": [{"id": 5, "token": "he", "logprob": -0.5}, {"id": 6, "token": "llo", "logprob": 0}]}
    with ModelServer([text("hello", choice={"logprobs": entries})]) as server:
        reply = ask(server, token_ids=True)
    assert (reply.token_ids, reply.logprobs) == ((5, 6), (-0.5, 0.0))


def test_log_probabilities_that_do_not_fit_the_tokens_are_dropped() -> None:
    choice = {"token_ids": [5, 6, 7], "logprobs": {"content": [{"logprob": -0.5}]}}
    with ModelServer([text("hello", choice=choice)]) as server:
        assert ask(server, token_ids=True).logprobs == ()


# --------------------------------------------------------------------------- what servers refuse


@pytest.mark.parametrize(
    ("complaint", "gone"),
    [
        ("Unrecognized request argument supplied: return_token_ids", {"return_token_ids"}),
        ("logprobs are not available for this model", {"logprobs"}),
        ("Bad request", {"return_token_ids", "logprobs"}),
        ("'temperature' does not support 0.0 with this model", {"temperature"}),
        ("Use 'max_completion_tokens' instead", {"max_tokens"}),
        ("stream_options is not supported", {"stream_options"}),
        ("logprobs is not supported with tools + stream", {"stream", "stream_options"}),
    ],
)
def test_what_a_server_refuses_is_left_out_from_then_on(complaint: str, gone: set[str]) -> None:
    with ModelServer([status(400, body=complaint), text("ok"), text("ok")]) as server:
        chat = model(server, token_ids=True)
        assert [chat.reply(HELLO, stage="test").text for _ in range(2)] == ["ok", "ok"]
    first, *later = (set(request) for request in server.requests)
    assert [first - request for request in later] == [gone, gone]


@pytest.mark.parametrize(
    "refusal",
    [
        status(400, body='"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        status(400, body="registry.ollama.ai/library/x does not support tools"),
        status(500, body="tools param requires --jinja flag"),
        status(404, body="No endpoints found that support tool use"),
        status(422, body={"detail": [{"loc": ["body", "tools"], "msg": "Extra inputs are not permitted"}]}),
    ],
)
def test_a_server_without_tools_is_asked_without_them(refusal: Turn) -> None:
    with ModelServer([refusal, text("ok")]) as server:
        chat = model(server)
        assert chat.reply(HELLO, stage="test", tools=TOOLS).text == "ok"
        assert not chat.uses_tools
    assert "tools" not in server.requests[1]


@pytest.mark.parametrize("able", [True, False])
def test_whether_a_model_calls_tools_is_tried_once(able: bool) -> None:
    meter, heard = Meter(), list[str]()
    with ModelServer(tools=able) as server:
        chat = model(server, meter=meter, on_text=heard.append)
        assert [chat.uses_tools, chat.uses_tools] == [able, able]
    assert meter.usage["probe"].calls == 1
    assert heard == []


def test_tools_that_were_demanded_are_not_dropped() -> None:
    with (
        ModelServer([status(400, body="tools are not supported")]) as server,
        pytest.raises(ModelServerError, match="tools are not supported"),
    ):
        model(server, tools="on").reply(HELLO, stage="test", tools=TOOLS)


def test_tools_that_are_off_are_not_offered() -> None:
    with ModelServer([text("ok")]) as server:
        chat = model(server, tools="off")
        chat.reply(HELLO, stage="test", tools=TOOLS)
    assert not chat.uses_tools
    assert "tools" not in server.requests[0]


# --------------------------------------------------------------------------- faults that pass


@pytest.mark.parametrize(
    "fault",
    [
        status(500, body="boom"),
        status(503, body="loading model"),
        status(408),
        status(429, body="slow down"),
        cut("half a rep"),
        cut("half a rep", abrupt=False),
        garbage(),
        garbage("<html>Bad gateway</html>", stream=False),
        garbage('"just text"'),
        garbage('{"something": "else"}'),
        garbage('{"error": {"message": "engine died", "code": 500}}'),
        garbage("[" * 100_000),
        status(200, body={"error": {"message": "no capacity"}}),
        hang_up(),
        empty(),
        slow(5, "too late"),
    ],
    ids=lambda turn: f"{turn.status}-{turn.end}-{(turn.body or str(turn.deltas))[:20]}",
)
def test_a_fault_that_passes_is_tried_again(fault: Turn) -> None:
    with ModelServer([fault, text("whole")]) as server:
        reply = ask(server, idle_s=0.3 if fault.wait_s else 30.0)
    assert (reply.text, len(server.requests)) == ("whole", 2)


def test_a_reply_that_trickles_longer_than_its_time_is_given_up() -> None:
    endless = {"choices": [{"delta": {"content": "x"}}]}
    waits = Waits()
    with (
        _Trickle(f"data: {json.dumps(endless)}\n\n".encode()) as url,
        pytest.raises(ModelServerError, match=r"did not end its reply within 0\.3 s"),
    ):
        ask(url, timeout_s=0.3, attempts=1, waits=waits)


class _Trickle:
    """A server that never stops sending the same piece."""

    def __init__(self, piece: bytes) -> None:
        self._piece = piece
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._stop = threading.Event()

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection:
            connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            while not self._stop.wait(0.02):
                try:
                    connection.sendall(self._piece)
                except OSError:
                    return

    def __enter__(self) -> str:
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._socket.close()


def test_the_server_says_how_long_to_wait() -> None:
    waits = Waits()
    with ModelServer([status(429, {"Retry-After": "7"}, "slow down"), text("ok")]) as server:
        ask(server, waits=waits)
    assert waits == [7.5]


def test_waits_grow_with_every_try() -> None:
    waits = Waits()
    with ModelServer(lambda _: status(500)) as server, pytest.raises(ModelServerError):
        ask(server, waits=waits, attempts=5)
    assert waits == [0.5, 1.0, 2.0, 4.0]


NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "soon"}, None),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"Retry-After": "Thu, 01 Jan 2026 12:00:30 GMT"}, 30.0),
        ({"Retry-After": "86400"}, 120.0),
        ({"Retry-After": "Thu, 01 Jan 2015 12:00:30 GMT"}, 0.0),
        ({"x-ratelimit-reset-requests": "1m2s", "x-ratelimit-remaining-requests": "0"}, 62.0),
        ({"x-ratelimit-reset-requests": "120ms", "x-ratelimit-remaining-requests": "0"}, 0.12),
        ({"x-ratelimit-reset-requests": "1m2s", "x-ratelimit-remaining-requests": "9"}, None),
        (
            {"anthropic-ratelimit-tokens-reset": "2026-01-01T12:00:05Z", "anthropic-ratelimit-tokens-remaining": "0"},
            5.0,
        ),
        ({"x-ratelimit-reset": str(int(NOW.timestamp()) + 9)}, 9.0),
        ({"Retry-After": "9" * 5000}, None),
    ],
)
def test_every_way_to_ask_for_a_wait_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert asked_wait(headers, NOW) == (None if seconds is None else pytest.approx(seconds))


def test_an_empty_reply_is_returned_when_the_model_has_no_other() -> None:
    meter = Meter()
    with ModelServer(lambda _: empty()) as server:
        reply = ask(server, meter=meter)
    assert (reply.text, len(server.requests), meter.usage["test"].calls) == ("", 3, 3)


def test_a_connection_that_breaks_after_the_reply_does_not_lose_it() -> None:
    done = {"choices": [{"delta": {"content": "whole"}, "finish_reason": "stop"}]}
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            data = f"data: {json.dumps(done)}\n\n".encode()
            connection.sendall(head + b"%x\r\n%s\r\n" % (len(data), data))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with server:
        assert ask(f"http://127.0.0.1:{server.getsockname()[1]}/v1", attempts=1).text == "whole"
    thread.join()


# --------------------------------------------------------------------------- faults that stay


def test_a_dead_server_gives_one_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
    waits = Waits()
    with pytest.raises(ModelServerError) as caught:
        ask(url, waits=waits)
    assert f"The server of test at {url} cannot be reached" in caught.value.what
    assert "Connection refused" in caught.value.what
    assert "ratchet serve" in caught.value.remedy
    assert "goes on where it stopped" in caught.value.remedy
    assert len(waits) == 2


def test_a_server_that_stays_broken_gives_what_it_said() -> None:
    with (
        ModelServer(lambda _: status(500, body="out of memory")) as server,
        pytest.raises(ModelServerError, match=r"status 500: out of memory \(tried 3 times\)"),
    ):
        ask(server)


@pytest.mark.parametrize("turn", [cut("half"), garbage(), hang_up()])
def test_a_reply_that_stays_broken_is_an_error(turn: Turn) -> None:
    with ModelServer(lambda _: turn) as server, pytest.raises(ModelServerError, match=r"tried 3 times"):
        ask(server)


def test_a_reply_that_stays_too_slow_is_an_error_that_says_what_to_set() -> None:
    with (
        ModelServer(lambda _: slow(5, "too late")) as server,
        pytest.raises(ModelServerError, match=r"sent nothing for 0\.2 s") as caught,
    ):
        ask(server, idle_s=0.2, attempts=2)
    assert "idle_s" in caught.value.remedy


@pytest.mark.parametrize(("code", "word"), [(401, "key"), (403, "key"), (404, "URL"), (400, "profile")])
def test_a_refusal_is_not_tried_again(code: int, word: str) -> None:
    with ModelServer([status(code, body="no"), text("never")]) as server, pytest.raises(ModelServerError) as caught:
        ask(server)
    assert server.url in caught.value.what
    assert word in caught.value.remedy
    assert len(server.requests) == 1


def test_a_used_up_quota_is_not_tried_again() -> None:
    body = {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}
    with (
        ModelServer([status(429, body=body), text("never")]) as server,
        pytest.raises(ModelServerError, match="quota is used up"),
    ):
        ask(server)


@pytest.mark.parametrize(
    "turn",
    [
        status(401, body=f"Incorrect API key provided: {KEY}"),
        status(500, body=f"cannot verify {KEY}"),
        garbage(f"{{{KEY}"),
        garbage(json.dumps({"error": {"message": f"bad {KEY}"}})),
        status(400, body=f"The prompt is too long for {KEY}"),
    ],
)
def test_the_key_is_sent_and_shown_nowhere(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ModelServer(lambda _: turn) as server:
        chat = model(server)
        with pytest.raises((ModelServerError, ContextOverflowError)) as caught:
            chat.reply(HELLO, stage="test")
    assert server.authorizations[0] == f"Bearer {KEY}"
    shown = f"{caught.value} {caught.value!r} {chat!r} {chat.profile!r} {vars(chat)!r}"
    assert KEY not in shown
    assert "0123456789" not in shown


def test_what_looks_like_a_key_is_not_shown() -> None:
    refusal = status(401, body="Incorrect API key provided: sk-pro**********wxyz.")
    with ModelServer([refusal]) as server, pytest.raises(ModelServerError, match=r"provided: \[key\]\.") as caught:
        ask(server)
    assert "wxyz" not in str(caught.value)


def test_another_variable_may_hold_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not-this-one")
    monkeypatch.setenv("MY_KEY", f" {KEY}\n")
    with ModelServer([text("ok")]) as server:
        ask(server, key_variable="MY_KEY")
    assert server.authorizations == [f"Bearer {KEY}"]


def test_a_key_that_cannot_be_one_is_refused_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY} {KEY}")
    with pytest.raises(UsageError, match="OPENAI_API_KEY") as caught:
        ask("http://127.0.0.1:9/v1")
    assert KEY not in str(caught.value)


def test_an_interrupt_ends_the_call_at_once() -> None:
    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with ModelServer([text("hello"), text("never")]) as server, pytest.raises(KeyboardInterrupt):
        ask(server, on_text=interrupt)
    assert len(server.requests) == 1


def test_a_proxy_for_the_world_does_not_hide_a_server_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with ModelServer([text("ok")]) as server:
        assert ask(server).text == "ok"


# --------------------------------------------------------------------------- the context


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
        "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
        "The input (9000 tokens) is longer than the model's context length (4096 tokens).",
        "The decoder prompt (length 9000) is longer than the maximum model length of 4096.",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",
        "Please reduce the length of the messages or completion.",
        "Your input exceeds the context window of this model.",
        "the input length exceeds the context length",
        "Too many tokens: 9000",
    ],
)
def test_every_wording_of_an_overflow_is_known(message: str) -> None:
    assert StatusError.from_body({"error": {"message": message}}, 400).is_overflow()


@pytest.mark.parametrize(
    "turn",
    [
        status(400, body="the request exceeds the available context size"),
        status(400, body={"error": {"message": "too long", "code": "context_length_exceeded"}}),
        status(400, body={"error": {"message": "too long", "type": "exceed_context_size_error", "code": 400}}),
        status(413),
        status(500, body="Context size has been exceeded."),
        garbage('{"error": {"message": "Context size has been exceeded.", "code": 500}}'),
    ],
)
def test_an_overflow_is_told_at_once(turn: Turn) -> None:
    with ModelServer([turn, text("never")]) as server, pytest.raises(ContextOverflowError, match="too long for test"):
        ask(server, token_ids=True)
    assert len(server.requests) == 1


def test_a_rate_limit_in_tokens_is_no_overflow() -> None:
    with ModelServer([status(429, body="Too many tokens per minute"), text("ok")]) as server:
        assert ask(server).text == "ok"


@pytest.mark.parametrize(
    ("models", "props", "tokens"),
    [
        ([{"id": "other", "max_model_len": 512}, {"id": "test", "max_model_len": 32768}], None, 32768),
        (
            [{"id": "file.gguf", "meta": {"n_ctx_train": 131072}}],
            {"default_generation_settings": {"n_ctx": 4096}},
            4096,
        ),
        ([{"id": "test", "meta": {"n_ctx": 2048}}], None, 2048),
        ([{"id": "test"}], None, 8192),
        ([], None, 8192),
        ([{"id": "test", "max_model_len": "many"}], {"default_generation_settings": []}, 8192),
    ],
)
def test_the_server_is_asked_for_its_context(models: Any, props: Any, tokens: int) -> None:
    with ModelServer(models=models, props=props) as server:
        assert model(server).context_tokens == tokens


def test_a_profile_that_knows_its_context_asks_nobody() -> None:
    assert model("http://127.0.0.1:9/v1", context_tokens=1234).context_tokens == 1234


# --------------------------------------------------------------------------- the budget


def test_tokens_are_counted_by_stage() -> None:
    meter = Meter(spent={"goals": Usage(1, 100, 10)})
    with ModelServer([text("a"), text("b")]) as server:
        chat = model(server, meter=meter)
        chat.reply(HELLO, stage="goals")
        chat.reply(HELLO, stage="builder")
    assert {stage: (u.calls, u.tokens) for stage, u in meter.usage.items()} == {"goals": (2, 120), "builder": (1, 10)}


@pytest.mark.parametrize(
    ("budget", "said"),
    [(Budget(tokens=10), "budget of 10 tokens is spent: 10 were used"), (Budget(cost=0.5), "budget of 0.50 is spent")],
)
def test_a_budget_stops_before_the_call_that_it_does_not_allow(budget: Budget, said: str) -> None:
    with ModelServer([text("a"), text("never")]) as server:
        prices = {"price_per_million_prompt": 1e5, "price_per_million_completion": 1e5}
        chat = model(server, meter=Meter(budget), **prices)
        chat.reply(HELLO, stage="test")
        with pytest.raises(BudgetSpentError, match=said):
            chat.reply(HELLO, stage="test")
    assert len(server.requests) == 1


def test_a_reply_may_be_no_longer_than_what_is_left() -> None:
    with ModelServer([text("a")]) as server:
        ask(server, meter=Meter(Budget(tokens=50)))
    assert server.requests[0]["max_tokens"] == 50


def test_a_scripted_model_plays_counts_and_ends() -> None:
    meter = Meter(Budget(tokens=1000))
    scripted = ScriptedModel(["one", Reply("two", prompt_tokens=5)], meter=meter)
    assert [scripted.reply(HELLO, stage="s").text for _ in range(2)] == ["one", "two"]
    assert meter.usage["s"].calls == 2
    assert scripted.prompts == [tuple(HELLO), tuple(HELLO)]
    with pytest.raises(ModelServerError, match="no more replies"):
        scripted.reply(HELLO, stage="s")


def test_openai_is_loaded_only_by_the_first_call() -> None:
    script = (
        "import sys; from ratchet.policies.chat import ChatModel; from ratchet.policies.budget import Meter;"
        "from ratchet.policies.profiles import parse_model; ChatModel(parse_model('openai:m@http://h/v1'), Meter());"
        "print('openai' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"
