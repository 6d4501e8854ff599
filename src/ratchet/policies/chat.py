"""A model that is served: any server with chat completions (vLLM, llama.cpp, Ollama, hosted ones).

`ChatModel` is a `protocols.Model`. Servers differ in what they understand: whatever one refuses (tools, streams, token
ids, a temperature) is left out from then on. What may pass is tried again; what does not is one clear error.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from ratchet.errors import MachineError, ModelServerError, UsageError
from ratchet.policies.budget import Meter
from ratchet.policies.chat_faults import LONGEST_WAIT_S, StatusError, TransientError, connection_fault, scrubbed, until
from ratchet.policies.chat_wire import Answer, events, written_messages
from ratchet.policies.profiles import Profile
from ratchet.records import Message, Reply

if TYPE_CHECKING:
    import openai

_PLACEHOLDER = "no-key"  # servers without keys want to see one all the same
_DEFAULT_CONTEXT_TOKENS = 8192
_CONNECT_S = 10.0
_LONGEST_BACKOFF_S = 30.0
_EMPTY_REPLIES = 3
_PROBE = Message("user", "Call the tool named ready.")
_PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": "ready",
        "description": "Says that you are ready.",
        "parameters": {"type": "object", "properties": {}},
    },
}
_PROBE_TOKENS = 256
_Answered = TypeVar("_Answered")


@dataclass(frozen=True)
class _Request:
    messages: Sequence[Message]
    tools: Sequence[Mapping[str, object]]
    max_tokens: int
    on_text: Callable[[str], None] = lambda _: None


class ChatModel:
    """The model of a profile. Calls are counted by `meter`; several threads may use it.

    `on_text` gets the text of replies as it comes, that of tries that break included. The key is read from the
    environment when the first call is made, and appears nowhere: no record, no message.
    """

    def __init__(
        self,
        profile: Profile,
        meter: Meter,
        *,
        on_text: Callable[[str], None] = lambda _: None,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.profile = profile
        self._meter = meter
        self._on_text = on_text
        self._sleep = sleep
        self._jitter = jitter
        self._refused: set[str] = set()
        self._context_tokens = profile.context_tokens
        self._uses_tools = {"on": True, "off": False}.get(profile.tools)
        self._client: openai.OpenAI | None = None
        # What is found out about the server is found out once, by the thread that comes first.
        self._finding_out = threading.RLock()

    @property
    def name(self) -> str:
        return self.profile.model

    @property
    def uses_tools(self) -> bool:
        """What the profile says, else ("auto") whether the model calls a tool when it is told to: tried once, in a
        short call that is counted as stage "probe". Prompts are written for the one or the other, so this has to be
        known before the first of them."""
        with self._finding_out:
            if self._uses_tools is None:
                self._uses_tools = self._insist(self._try_tool)
            return self._uses_tools

    @property
    def context_tokens(self) -> int:
        """What the profile says, else what the server says (asked once), else 8192."""
        with self._finding_out:
            if self._context_tokens is None:
                self._context_tokens = self._insist(self._ask_context) or _DEFAULT_CONTEXT_TOKENS
            return self._context_tokens

    def reply(
        self,
        messages: Sequence[Message],
        *,
        stage: str,
        tools: Sequence[Mapping[str, object]] = (),
        max_tokens: int = 1024,
    ) -> Reply:
        """See `protocols.Model`. A reply without text is asked for again, and returned when the model has no other.
        `seconds` of the reply includes tries that failed; their tokens, which nobody counts, are not in it."""
        asked = self.profile.max_reply_tokens or max_tokens
        for tried in count(1):
            self._meter.check()
            left = self._meter.left_tokens
            bound = asked if left is None else min(asked, left)
            request = _Request(messages, tools, bound, self._on_text)
            reply = self._insist(partial(self._ask_plainer, request, time.monotonic()))
            self._meter.add(stage, reply)
            if reply.text.strip() or reply.tool_calls or reply.finish != "stop" or tried == _EMPTY_REPLIES:
                return reply
        raise AssertionError("the count has no end")

    # ----------------------------------------------------------------------- trying again

    def _insist(self, ask: Callable[[], _Answered]) -> _Answered:
        """What `ask` answers, tried as often as the profile allows."""
        url, model = self.profile.base_url, self.profile.model
        for tries in count(1):
            try:
                return ask()
            except StatusError as error:
                meant = error.to_error(url, model, self._key())
                if not isinstance(meant, TransientError):
                    raise meant from None
                fault = meant
            except TransientError as error:
                fault = error
            if tries >= self.profile.attempts:
                what = scrubbed(fault.what, self._key())[:400]
                times = "" if tries == 1 else f" (tried {tries} times)"
                raise ModelServerError(f"The server of {model} at {url} {what}{times}", remedy=fault.remedy) from None
            self._sleep(self._wait_s(tries, fault.wait_s))
        raise AssertionError("the count has no end")

    def _wait_s(self, tries: int, asked_s: float | None) -> float:
        """Exponential backoff with full jitter; never sooner than the server asked for."""
        if asked_s is not None:
            return min(asked_s + self._jitter(), LONGEST_WAIT_S)
        return self._jitter() * min(_LONGEST_BACKOFF_S, 2.0 ** (tries - 1))

    def _ask_plainer(self, request: _Request, started: float) -> Reply:
        """Ask, and without what the server refuses, as long as it refuses something."""
        while True:
            offered = self._offered(request)
            try:
                answer = self._ask(request, offered)
            except StatusError as error:
                refused = set() if error.is_overflow() else error.refused(offered)
                if self.profile.tools == "on":
                    refused.discard("tools")
                if not refused:
                    raise
                with self._finding_out:
                    self._refused = self._refused | refused  # a new set: others may be reading the old one
                    if "tools" in refused:
                        self._uses_tools = False
                continue
            characters = sum(len(message.content) for message in request.messages)
            return answer.reply(asked=characters, seconds=time.monotonic() - started, cost=self.profile.cost)

    def _offered(self, request: _Request) -> set[str]:
        """The parts of a request that a server may refuse."""
        offered = {"max_tokens", "temperature", "stream", "usage"}
        if self.profile.token_ids:
            offered |= {"token_ids", "logprobs"}
        if request.tools and self._uses_tools is not False:
            offered.add("tools")
        offered -= self._refused
        return offered if "stream" in offered else offered - {"usage"}

    # ----------------------------------------------------------------------- one try

    def _ask(self, request: _Request, offered: set[str]) -> Answer:
        client = self._open()
        import httpx2
        import openai

        profile, answer = self.profile, Answer()
        written: Any = written_messages(request.messages, with_tools="tools" in offered)
        silence_s = min(profile.idle_s, profile.timeout_s) if "stream" in offered else profile.timeout_s
        deadline = time.monotonic() + profile.timeout_s
        try:
            with client.chat.completions.with_streaming_response.create(
                model=profile.model,
                messages=written,
                extra_body=_body(profile, request, offered),
                timeout=openai.Timeout(silence_s, connect=_CONNECT_S),
            ) as response:
                for event in events(until(deadline, response.iter_bytes(), profile.timeout_s)):
                    if new := answer.add(event):
                        request.on_text(new)
        except openai.APIStatusError as error:
            raise _status_error(error) from None
        except (openai.APIConnectionError, httpx2.RequestError) as error:
            if not answer.finish:  # else only the end of the connection is missing
                raise connection_fault(error, silence_s) from None
        return answer

    def _try_tool(self) -> bool:
        tokens = self.profile.max_reply_tokens or _PROBE_TOKENS
        reply = self._ask_plainer(_Request([_PROBE], [_PROBE_TOOL], tokens), time.monotonic())
        self._meter.add("probe", reply)
        return bool(reply.tool_calls)

    def _ask_context(self) -> int | None:
        """How many tokens the server says there is room for: vLLM and others in the list of models, llama.cpp in its
        properties (the list there holds what the model was trained with)."""
        models = _first(self._get("/models"), "data")
        mine = [entry for entry in models if entry.get("id") == self.profile.model] or models[:1]
        entry: Mapping[str, Any] = mine[0] if mine else {}
        for name in ("max_model_len", "loaded_context_length", "context_length", "context_window"):
            if tokens := _context(entry.get(name)):
                return tokens
        properties = self._get(re.sub(r"/v1$", "", self.profile.base_url) + "/props")
        settings, meta = properties.get("default_generation_settings"), entry.get("meta")
        return (
            _context(settings.get("n_ctx") if isinstance(settings, dict) else None)
            or _context(properties.get("n_ctx"))
            or _context(meta.get("n_ctx") if isinstance(meta, dict) else None)
        )

    def _get(self, path: str) -> Mapping[str, Any]:
        """A page of the server; empty where it has no such page, or another one than we expect."""
        client = self._open()
        import httpx2
        import openai

        timeout_s = min(60.0, self.profile.timeout_s)
        try:
            response = client.get(path, cast_to=httpx2.Response, options={"timeout": timeout_s})
            page = response.json()
        except openai.APIStatusError as error:
            if error.status_code in (401, 429) or error.status_code >= 500:
                raise _status_error(error) from None
            return {}
        except (openai.APIConnectionError, httpx2.RequestError) as error:
            raise connection_fault(error, timeout_s) from None
        except (ValueError, RecursionError):
            return {}
        return page if isinstance(page, dict) else {}

    # ----------------------------------------------------------------------- the client

    def _open(self) -> openai.OpenAI:
        with self._finding_out:
            if self._client is None:
                self._client = self._make_client()
            return self._client

    def _make_client(self) -> openai.OpenAI:
        # A proxy that is set for the world does not lead to a server on this machine.
        here = urlsplit(self.profile.base_url).hostname in ("localhost", "127.0.0.1", "::1")
        try:
            import openai

            return openai.OpenAI(
                api_key=self._key(),
                base_url=self.profile.base_url,
                max_retries=0,
                http_client=openai.DefaultHttpxClient(trust_env=not here),
            )
        except ImportError as error:
            what = f"Served models need the package openai, which cannot be loaded: {error}"
            raise MachineError(what, remedy="pip install 'ratchet-rl[models]'") from error
        except ValueError as error:
            what = f"No client can be made for {self.profile.base_url}: {error}"
            raise UsageError(what, remedy="check the URL, and the proxy variables of the environment") from error

    def _key(self) -> str:
        key = os.environ.get(self.profile.key_variable, "").strip()
        if not re.fullmatch(r"[!-~]*", key):
            what = f"The environment variable {self.profile.key_variable} holds what cannot be a key"
            raise UsageError(what, remedy="set it to the key alone, without spaces or line breaks")
        return key or _PLACEHOLDER


def _status_error(error: openai.APIStatusError) -> StatusError:
    return StatusError.from_body(error.body, error.status_code, error.response.headers)


def _body(profile: Profile, request: _Request, offered: set[str]) -> dict[str, Any]:
    """The request beside the conversation."""
    length = "max_tokens" if "max_tokens" in offered else "max_completion_tokens"
    body: dict[str, Any] = {length: request.max_tokens}
    if "tools" in offered:
        body["tools"] = list(request.tools)
    if "temperature" in offered:
        body["temperature"] = profile.temperature
        if profile.top_p is not None:
            body["top_p"] = profile.top_p
    if "stream" in offered:
        body["stream"] = True
    if "usage" in offered:
        body["stream_options"] = {"include_usage": True}
    if "logprobs" in offered:
        body["logprobs"] = True
    if "token_ids" in offered:
        body["return_token_ids"] = True  # vLLM; llama.cpp has them in its log-probabilities
    return {**body, **profile.extra_body}


def _first(page: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    entries = page.get(name)
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _context(value: object) -> int | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and 256 <= value <= 1 << 27
    return value if fits and isinstance(value, int) else None
