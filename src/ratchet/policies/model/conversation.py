"""The conversation with a model: append-only for as long as it fits, so that a server can go on from what it has
read; then cut in one big go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ratchet.errors import ContextOverflowError
from ratchet.policies.model.prompts import as_data, cleaned, cut_middle, encodable
from ratchet.policies.model.replies import spoken
from ratchet.policies.model.tool_calls import arguments_of
from ratchet.records import CommandResult, Message, Reply

# Characters per token: assumed before the server has said how many tokens a prompt had, and the most and the least
# that is believed then. Logs and code have fewer than prose.
_ASSUMED = 3.0
_MOST, _LEAST = 4.0, 0.5

# What a message costs beside its text, in characters.
_MESSAGE_CHARACTERS = 16

# A token count is an estimate: this part of the context stays free.
_SPARE = 0.05

_SHORT_LINE_CHARACTERS = 160
_MOST_COMMANDS_NAMED = 20
_LEAST_CHARACTERS = 200


@dataclass(frozen=True)
class _Turn:
    """A reply, and what came back for it. `did` names the action, for when nothing else is left of the turn."""

    reply: Message
    did: str
    result: Message | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        return (self.reply,) if self.result is None else (self.reply, self.result)


class Conversation:
    """A system message, a task, and turns. `prompt` fits `context_tokens` less `reply_tokens`, as far as can be told
    from the number of characters; when a server disagrees, `overflowed` makes it shorter."""

    def __init__(self, system: str, task: str, *, context_tokens: int, reply_tokens: int) -> None:
        self._system = Message("system", encodable(system))
        self._task = encodable(task)
        self._turns: list[_Turn] = []
        self._left_out: list[str] = []  # what was done in the turns that are gone
        self._limit_tokens = max(1.0, (context_tokens - reply_tokens) * (1 - _SPARE))
        self._characters_per_token = _ASSUMED

    @property
    def room_characters(self) -> int:
        """How many characters a prompt can have, as far as is known."""
        return int(self._limit_tokens * self._characters_per_token)

    def add_reply(self, reply: Reply, did: str = "") -> str:
        """Add what the model answered to the last `prompt`, and return the id of the tool call that a result has to
        name, empty where there is none. Of several calls only the first is kept, since only that is done; one with
        arguments that servers cannot read back becomes text."""
        if reply.prompt_tokens > 0:
            measured = _size(self._messages()) / reply.prompt_tokens
            self._characters_per_token = min(_MOST, max(_LEAST, measured))
        call = reply.tool_calls[0] if reply.tool_calls else None
        text = spoken(reply).strip()
        if call is not None and arguments_of(call) is None:
            text, call = f"{text}\n{encodable(call.name)} {encodable(call.arguments)}".strip(), None
        if call is None:
            message = Message("assistant", text or "(nothing)")
        else:
            kept = replace(call, name=encodable(call.name), arguments=encodable(call.arguments) or "{}")
            message = Message("assistant", text, tool_calls=(kept,))
        self._turns.append(_Turn(message, did))
        return call.id if call is not None else ""

    def add_result(self, text: str, tool_call: str = "") -> None:
        """Add what the last reply led to. Before any reply, it belongs to the task."""
        text = encodable(text)
        if not self._turns:
            self._task = f"{self._task}\n\n{text}"
            return
        last = self._turns[-1]
        if last.result is not None:
            result = replace(last.result, content=f"{last.result.content}\n\n{text}")
        else:
            result = Message("tool" if tool_call else "user", text, tool_call=tool_call)
        self._turns[-1] = replace(last, result=result)

    def prompt(self) -> tuple[Message, ...]:
        """All messages. Where they are too long, they are cut first, for good, to about half of what fits."""
        if _size(self._messages()) > self.room_characters:
            self._cut(self.room_characters // 2)
        return self._messages()

    def overflowed(self, error: ContextOverflowError) -> None:
        """The server says that the last prompt was too long: believe it, and cut. Raises `error` when nothing is
        left to be cut."""
        before = _size(self._messages())
        self._limit_tokens = min(self._limit_tokens, before / self._characters_per_token) * 0.75
        self._cut(self.room_characters // 2)
        if _size(self._messages()) >= before:
            raise error

    # ------------------------------------------------------------------ cutting

    def _messages(self) -> tuple[Message, ...]:
        task = self._task
        if self._left_out:
            task = f"{task}\n\n{_naming(self._left_out)}"
        return (self._system, Message("user", task), *(message for turn in self._turns for message in turn.messages))

    def _cut(self, most_characters: int) -> None:
        """First old results become short, then the oldest turns are left out, then the task and the last turn are cut
        in the middle. The system message stays."""
        for index in range(len(self._turns) - 1):
            if _size(self._messages()) <= most_characters:
                return
            self._turns[index] = _shortened(self._turns[index])
        while len(self._turns) > 1 and _size(self._messages()) > most_characters:
            self._left_out.append(self._turns.pop(0).did or "a reply without an action")
        rest = max(_LEAST_CHARACTERS, most_characters - len(self._system.content))
        if _size(self._messages()) > most_characters:
            self._task = cut_middle(self._task, max(_LEAST_CHARACTERS, rest // 2))
        if self._turns and (over := _size(self._messages()) - most_characters) > 0:
            self._turns[-1] = _trimmed(self._turns[-1], over)


def _size(messages: Sequence[Message]) -> int:
    """In characters."""
    calls = (call for message in messages for call in message.tool_calls)
    texts = sum(len(message.content) + _MESSAGE_CHARACTERS for message in messages)
    return texts + sum(len(call.name) + len(call.arguments) for call in calls)


def _shortened(turn: _Turn) -> _Turn:
    """A turn with only the first two and the last two lines of its result."""
    if turn.result is None:
        return turn
    lines = turn.result.content.split("\n")
    ends = [line[:_SHORT_LINE_CHARACTERS] for line in lines[:2] + lines[2:][-2:]]
    left_out = len(turn.result.content) - sum(len(line) + 1 for line in ends) + 1
    if left_out <= _SHORT_LINE_CHARACTERS:
        return turn
    mark = f"[… {left_out} characters of output left out …]"
    return replace(turn, result=replace(turn.result, content="\n".join([*ends[:2], mark, *ends[2:]])))


def _trimmed(turn: _Turn, over: int) -> _Turn:
    """A turn that is `over` characters shorter, if it is long enough: first its result, then the reply."""
    if turn.result is not None:
        most = max(_LEAST_CHARACTERS, len(turn.result.content) - over - _LEAST_CHARACTERS)
        result = replace(turn.result, content=cut_middle(turn.result.content, most))
        over -= len(turn.result.content) - len(result.content)
        turn = replace(turn, result=result)
    if over > 0:
        # A call whose arguments were cut could not be read back, so it stays as text.
        call = "".join(f"\n{call.name} {call.arguments}" for call in turn.reply.tool_calls)
        most = max(_LEAST_CHARACTERS, len(turn.reply.content) + len(call) - over - _LEAST_CHARACTERS)
        if len(turn.reply.content) + len(call) > most:
            turn = replace(turn, reply=Message("assistant", cut_middle(f"{turn.reply.content}{call}".strip(), most)))
            if call and turn.result is not None:
                turn = replace(turn, result=Message("user", turn.result.content))
    return turn


def _naming(left_out: Sequence[str]) -> str:
    """The mark for turns that are gone."""
    named = [f"- {' '.join(did.split())[:100]}" for did in left_out[-_MOST_COMMANDS_NAMED:]]
    more = f" The last {len(named)} of them:" if len(left_out) > len(named) else ""
    return "\n".join([f"[… {len(left_out)} earlier actions and their results left out.{more} …]", *named])


def delta(previous: Sequence[Message], prompt: Sequence[Message]) -> tuple[int, tuple[Message, ...]]:
    """How many messages `prompt` has in common with the start of the `previous` one, and the rest of it."""
    kept = 0
    for old, new in zip(previous, prompt, strict=False):
        if old != new:
            break
        kept += 1
    return kept, tuple(prompt[kept:])


# --------------------------------------------------------------------------- results


def shown(result: CommandResult, most_characters: int, what: str = "output") -> str:
    """A result as a model sees it: how it ended, and the output, as data, cut in the middle."""
    if result.limit is not None:
        ended = f"ended by the {result.limit} limit after {result.seconds:.0f} s"
    else:
        seconds = f", {result.seconds:.0f} s" if result.seconds >= 1 else ""
        ended = f"exit status {result.exit_status}{seconds}"
    output = cleaned(result.output).strip("\n")
    if not output.strip():
        return f"{ended}, no output"
    # The sandbox may have cut a very long one already.
    missing = max(0, result.output_bytes - len(result.output.encode(errors="replace")))
    return f"{ended}\n{as_data(cut_middle(output, most_characters, missing), what)}"
