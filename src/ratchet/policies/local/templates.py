"""From messages to tokens, such that nothing is ever tokenised twice.

This reads the files of a checkpoint (`tokenizer.json`, and the chat template beside it) with the library that
transformers uses for them, and gives the same ids; transformers itself would load torch.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.errors import MachineError, UsageError
from ratchet.records import Message

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_MOST_REMEMBERED = 4096  # conversations


@dataclass(frozen=True)
class Tokens:
    """The tokenizer of a checkpoint. `ends` are the ids that end a turn."""

    tokenizer: Tokenizer
    template: Any
    ends: frozenset[int]
    pad: int
    names: dict[str, str] = field(default_factory=dict)  # the special tokens that templates name

    @property
    def end(self) -> int:
        """The id with which a model ends its turn: the first such that the template writes after a message."""
        text = self.render((Message("user", "ask"), Message("assistant", "said")), ask=False)
        after = self.encode(text.rpartition("said")[2])
        return next((each for each in after if each in self.ends), min(self.ends, default=self.pad))

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text, without special tokens."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def render(self, messages: Sequence[Message], *, ask: bool = True) -> str:
        """The text of a conversation; with `ask`, up to where the assistant's next message begins."""
        said = [{"role": message.role, "content": message.content} for message in messages]
        return str(self.template.render(messages=said, add_generation_prompt=ask, **self.names))


def read_tokens(checkpoint: Path) -> Tokens:
    """Raises UsageError where the checkpoint has no tokenizer or no chat template."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise train_is_missing() from error
    file = checkpoint / "tokenizer.json"
    if not file.is_file():
        raise UsageError(f"{checkpoint} has no tokenizer.json", remedy="name a folder with a whole checkpoint in it")
    tokenizer = Tokenizer.from_file(str(file))
    config = _json(checkpoint / "tokenizer_config.json")
    names = {name: _text_of(config[name]) for name in ("bos_token", "eos_token", "pad_token") if config.get(name)}
    ends = _ends(checkpoint, tokenizer, names)
    pad = tokenizer.token_to_id(names.get("pad_token", names.get("eos_token", "")))
    return Tokens(
        tokenizer, _template(checkpoint, config), ends, pad if pad is not None else min(ends, default=0), names
    )


def train_is_missing() -> MachineError:
    return MachineError("a local model needs packages that are not installed", remedy="pip install 'ratchet-rl[train]'")


def _template(checkpoint: Path, config: dict[str, Any]) -> Any:
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    file = checkpoint / "chat_template.jinja"
    text = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")
    if not isinstance(text, str):
        raise UsageError(f"{checkpoint} has no chat template", remedy="use a model that was trained for conversations")

    def fail(message: str) -> None:
        raise TemplateError(message)

    jinja = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    jinja.globals["raise_exception"] = fail
    return jinja.from_string(text)


def _ends(checkpoint: Path, tokenizer: Tokenizer, names: dict[str, str]) -> frozenset[int]:
    told = _json(checkpoint / "generation_config.json").get("eos_token_id", [])
    ids = {each for each in (told if isinstance(told, list) else [told]) if isinstance(each, int)}
    for name in (names.get("eos_token", ""), "<|im_end|>", "<|eot_id|>", "<end_of_turn>"):
        known = tokenizer.token_to_id(name)
        ids |= {known} if known is not None else set()
    return frozenset(ids)


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return data if isinstance(data, dict) else {}


def _text_of(token: Any) -> str:
    return str(token["content"]) if isinstance(token, dict) else str(token)


# --------------------------------------------------------------------------- conversations


class Conversations:
    """The exact tokens of conversations that go on: those of a prompt are those of the prompt before, then those that
    were sampled, then those of the text that is new. For many conversations, in many threads.

    Where a chat template writes what was said before in another way, the conversation starts anew: everything is
    tokenised again, and `tasks/tokens.py` makes it a trace of its own.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._known: OrderedDict[tuple[Message, ...], tuple[int, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        whole = self._tokens.render(messages)
        for end in range(len(messages) - 1, 0, -1):
            if messages[end - 1].role != "assistant":
                continue
            with self._lock:
                before = self._known.get(_key(messages[:end]))
            if before is None:
                continue
            rest = self._rest(whole, messages[:end], before)
            if rest is not None:
                return (*before, *self._tokens.encode(rest))
        return self._tokens.encode(whole)

    def remember(self, messages: Sequence[Message], prompt: Sequence[int], sampled: Sequence[int]) -> None:
        """What was sampled after `prompt`, which is that of `messages`. It is found by its text as it comes back."""
        text = self._tokens.decode(sampled).strip()
        key = _key((*messages, Message("assistant", text or "(nothing)")))
        with self._lock:
            self._known[key] = (*prompt, *sampled)
            self._known.move_to_end(key)
            while len(self._known) > _MOST_REMEMBERED:
                self._known.popitem(last=False)

    def _rest(self, whole: str, messages: Sequence[Message], before: tuple[int, ...]) -> str | None:
        """The text after the last of `messages`, an assistant's; None where the template does not keep what it wrote.
        The end of a turn is part of what was sampled, but where the reply was cut."""
        said = self._tokens.render(messages, ask=False)
        opened = self._tokens.render(messages[:-1]) + messages[-1].content
        if not whole.startswith(said) or not said.startswith(opened):
            return None
        rest = whole[len(opened) :]
        if before[-1] in self._tokens.ends:
            closing = str(self._tokens.tokenizer.id_to_token(before[-1]))
            return rest[len(closing) :] if rest.startswith(closing) else None
        return rest


def _key(messages: Sequence[Message]) -> tuple[Message, ...]:
    return tuple(messages)
