"""From the reply of a model to an action. Whatever a model writes is an action or a `Problem`, never an error."""

from __future__ import annotations

from collections.abc import Sequence

from ratchet.policies.model.checked import Problem
from ratchet.policies.model.prompts import encodable
from ratchet.policies.model.text_protocol import parse_text
from ratchet.policies.model.tool_calls import parse_call, tools_for
from ratchet.records import Action, ActionKind, Reply

__all__ = ["Problem", "parse", "spoken", "tools_for"]

_MOST_CHARACTERS = 200_000


def parse(
    reply: Reply,
    allowed: frozenset[ActionKind],
    *,
    submit_blocks: Sequence[str] = ("submit",),
    user: str = "root",
) -> Action | Problem:
    """The action that a reply asks for: its first tool call, or the first block of its text that is an action.

    `note` is then the thought beside it, and `detail` says so where there were more. Commands and files are `user`'s
    where the reply names nobody. Where `submit_blocks` are others than "submit", any of them in the text submits
    all of it as `content`.
    """
    if reply.tool_calls:
        return parse_call(reply, allowed, user)
    text = spoken(reply)
    if len(text) > _MOST_CHARACTERS:
        return Problem(f"Your reply has {len(text)} characters, which is too long. Write one short action.")
    return parse_text(text, allowed, was_cut=reply.finish == "length", submit_blocks=submit_blocks, user=user)


def spoken(reply: Reply) -> str:
    """The text of a reply as it can be sent back, without the thoughts that some servers leave in it."""
    text = encodable(reply.text).replace("\r\n", "\n")
    if "</think>" in text and (text.lstrip().startswith("<think>") or "<think>" not in text):
        return text.rpartition("</think>")[2].lstrip("\n")
    return text
