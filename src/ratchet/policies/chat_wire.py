"""The chat completions protocol itself: conversations as JSON, and what a server sends back as a reply.

Nothing that a server sends is trusted: it may be of any shape, size and encoding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ratchet.policies.chat_faults import StatusError, TransientError
from ratchet.records import Message, Reply, ToolCall

_MOST_BYTES = 64 << 20
_MOST_CALLS = 64
_FINISHES = {"length": "length", "max_tokens": "length", "content_filter": "content_filter"}


# --------------------------------------------------------------------------- asking


def clean_text(text: str) -> str:
    """Text that can be sent as UTF-8: halves of surrogate pairs are put together, lone ones replaced."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def written_messages(messages: Sequence[Message], *, with_tools: bool) -> list[dict[str, Any]]:
    """The conversation as the protocol writes it. Without tools, what was called and answered becomes plain text:
    servers refuse the one without the other."""
    return [_written(message, with_tools) for message in messages]


def _written(message: Message, with_tools: bool) -> dict[str, Any]:
    content = clean_text(message.content)
    if not with_tools:
        called = [clean_text(f"{call.name} {call.arguments}") for call in message.tool_calls]
        role = "user" if message.role == "tool" else message.role
        return {"role": role, "content": "\n".join([content, *called]) if called else content}
    if message.role == "tool":
        return {"role": "tool", "content": content, "tool_call_id": message.tool_call}
    if message.tool_calls:
        return {"role": message.role, "content": content, "tool_calls": [_written_call(c) for c in message.tool_calls]}
    return {"role": message.role, "content": content}


def _written_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": clean_text(call.name), "arguments": clean_text(call.arguments)}
    return {"id": clean_text(call.id), "type": "function", "function": function}


# --------------------------------------------------------------------------- reading


def events(chunks: Iterable[bytes]) -> Iterator[object]:
    """The JSON values in a body: those of an event stream (a final None is its [DONE]), or the whole body.

    Raises `TransientError` for what is no JSON.
    """
    data: list[bytes] = []
    lines = _lines(chunks)
    for line in lines:
        if line.lstrip()[:1] in (b"{", b"[", b"<"):  # no field of a stream begins so
            yield _parsed(b"\n".join([line, *lines]))
            return
        if not line:
            if data:
                yield _parsed(b"\n".join(data))
                data.clear()
        elif line.startswith(b"data:"):
            value = line[5:].strip()
            if value.startswith(b"[DONE]"):
                yield None
                return
            data.append(value)
    if data:
        yield _parsed(b"\n".join(data))


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without their ends. Not `splitlines`, which also splits at characters that JSON may hold."""
    size, rest = 0, []
    for chunk in chunks:
        size += len(chunk)
        if size > _MOST_BYTES:
            raise TransientError("answered with more than 64 MiB")
        first, *others = chunk.split(b"\n")
        rest.append(first)
        for other in others:
            yield b"".join(rest).rstrip(b"\r")
            rest = [other]
    if last := b"".join(rest).rstrip(b"\r"):
        yield last


def _parsed(data: bytes) -> object:
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        shown = data[:1000].decode("utf-8", "replace")
        raise TransientError(f"answered with something that is no JSON: {shown!r}") from None


class Answer:
    """A reply as it grows. `add` takes one event and returns the text that is new in it."""

    def __init__(self) -> None:
        self.finish = ""  # empty until the reply is whole
        self._seen = False
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []
        self._usage: Mapping[str, object] = {}
        self._prompt_token_ids: list[int] = []
        self._token_ids: list[int] = []
        self._logprobs: list[float] = []

    def add(self, event: object) -> str:
        if event is None:  # [DONE]: whole, also where a server says no reason
            self.finish = self.finish or ("stop" if self._seen else "")
            return ""
        if not isinstance(event, dict):
            raise TransientError(f"answered with something that is no chat completion: {json.dumps(event)[:1000]}")
        if event.get("error"):
            raise StatusError.from_body(event)
        self._usage = _mapping(event.get("usage")) or self._usage
        self._prompt_token_ids = self._prompt_token_ids or _integers(event.get("prompt_token_ids"))
        choice = next(iter(_items(event.get("choices"))), {})
        return self._add_choice(choice) if choice else ""

    def _add_choice(self, choice: Mapping[str, object]) -> str:
        self._seen = True
        whole = _mapping(choice.get("message"))
        part = _mapping(choice.get("delta")) or whole
        self._token_ids += _integers(choice.get("token_ids"))
        for entry in _items(_mapping(choice.get("logprobs")).get("content")):
            if isinstance(entry.get("logprob"), float) or entry.get("logprob") == 0:
                self._logprobs.append(float(entry["logprob"]))
            if "token_ids" not in choice:
                self._token_ids += _integers([entry.get("id")])
        reason = choice.get("finish_reason") or ("stop" if whole else "")
        if reason == "error":
            raise TransientError("ended its reply with an error")
        if reason:
            self.finish = _FINISHES.get(str(reason), "stop")
        for call in _items(part.get("tool_calls")):
            self._add_call(call)
        self._reasoning.append(_string(part.get("reasoning_content")) or _string(part.get("reasoning")))
        new = _string(part.get("content")) or _string(part.get("refusal"))
        self._text.append(new)
        return new

    def _add_call(self, part: Mapping[str, Any]) -> None:
        function = _mapping(part.get("function"))
        name, arguments = _string(function.get("name")), function.get("arguments")
        identity, index = _string(part.get("id")), part.get("index")
        call = next((c for c in self._calls if index is not None and c.index == index), None)
        if call is None and index is None and self._calls and not name:
            call = self._calls[-1]
        if call is None or (name and identity and call.id and identity != call.id):
            # Some servers give every call the same index, or none.
            if len(self._calls) == _MOST_CALLS:
                raise TransientError(f"called more than {_MOST_CALLS} tools at once")
            call = _Call(index)
            self._calls.append(call)
        call.id, call.name = call.id or identity, call.name or name
        call.arguments.append(json.dumps(arguments) if isinstance(arguments, dict) else _string(arguments))

    def reply(self, *, asked: int, seconds: float, cost: Callable[[int, int], float | None]) -> Reply:
        """The whole reply. `asked` is the length of the prompt in characters: where the server counts no tokens, they
        are four characters each. `cost` is what a prompt and a reply of so many tokens cost. Raises `TransientError`
        when the reply was cut."""
        if not self._seen:
            raise TransientError("answered with something that is no chat completion")
        if not self.finish:
            raise TransientError("cut its reply in the middle")
        calls = tuple(
            ToolCall(clean_text(c.id) or f"call_{i}", clean_text(c.name), clean_text("".join(c.arguments)))
            for i, c in enumerate(self._calls)
        )
        reasoning, text = split_thoughts(clean_text("".join(self._text)))
        reasoning = clean_text("".join(self._reasoning)) or reasoning
        written = len(text) + len(reasoning) + sum(len(c.name) + len(c.arguments) for c in calls)
        prompt = _count(self._usage.get("prompt_tokens")) or len(self._prompt_token_ids) or -(-asked // 4)
        completion = _count(self._usage.get("completion_tokens")) or len(self._token_ids) or -(-written // 4)
        aligned = not self._token_ids or len(self._token_ids) == len(self._logprobs)
        return Reply(
            text,
            calls,
            "tool_calls" if calls and self.finish == "stop" else self.finish,
            reasoning,
            prompt,
            completion,
            cost(prompt, completion),
            seconds,
            prompt_token_ids=tuple(self._prompt_token_ids),
            token_ids=tuple(self._token_ids),
            logprobs=tuple(self._logprobs) if aligned else (),
        )


class _Call:
    def __init__(self, index: object) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []


def split_thoughts(text: str) -> tuple[str, str]:
    """(thoughts, answer), where a model wrote its thoughts into the text: <think>…</think> at the beginning. The
    opening mark may be missing (templates write it), and the closing one too (the reply ended before it)."""
    start = text.lstrip()
    opened = start.startswith("<think>")
    thoughts, closed, answer = start.removeprefix("<think>").partition("</think>")
    if opened and not closed:
        return thoughts.strip(), ""
    if closed and (opened or ("<think>" not in thoughts and "```" not in thoughts)):
        return thoughts.strip(), answer.lstrip()
    return "", text


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _integers(value: object) -> list[int]:
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 1 << 32]


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 40 else 0


def _string(value: object) -> str:
    """A text, or the text in a list of parts."""
    if isinstance(value, list):
        return "".join(_string(item.get("text")) for item in _items(value))
    return value if isinstance(value, str) else ""
