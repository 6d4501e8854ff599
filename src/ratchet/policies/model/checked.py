"""Actions that make sense, or what is wrong with them: what the text protocol and tool calls have in common."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ratchet.policies.model.prompts import RIGHT_FORMS
from ratchet.records import Action, ActionKind, Edit, Reason

LONGEST_TIMEOUT_S = 7200.0

_QUOTE_CHARACTERS = 80
_LONGEST_PATH = 1024
_LONGEST_PATTERN = 1000
_NOTE_CHARACTERS = 300
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_CANNOT = re.compile(r"(?:cannot|can't|can not|impossible)\b[\s:]*", re.IGNORECASE)


@dataclass(frozen=True)
class Problem:
    """Why a reply is no action: the one correction that the model is given."""

    text: str


def run(command: str, user: str, timeout_s: float | None) -> Action | Problem:
    if "\0" in command:
        return Problem("There is a NUL character in your command. Write it without.")
    if not command.strip():
        return Problem(f"Your command is empty. Write, for example:\n{RIGHT_FORMS[ActionKind.RUN]}")
    if not _USER.fullmatch(user):
        return Problem(f"{quoted(user)} is no name of a user. Leave it out, or write, for example: user=dev")
    if timeout_s is not None:
        timeout_s = min(max(timeout_s, 1.0), LONGEST_TIMEOUT_S)
    return Action(ActionKind.RUN, command=command.strip("\n"), user=user, timeout_s=timeout_s)


def write(path: str, content: str, user: str) -> Action | Problem:
    """A WRITE. What starts like a script can be executed."""
    where = sane_path(path, ActionKind.WRITE)
    if isinstance(where, Problem):
        return where
    return Action(
        ActionKind.WRITE, path=where, content=content, user=user, mode=0o755 if content.startswith("#!") else 0o644
    )


def edit(path: str, edits: Sequence[Edit], user: str) -> Action | Problem:
    where = sane_path(path, ActionKind.EDIT)
    if isinstance(where, Problem):
        return where
    if not edits or not all(edit.search.strip() for edit in edits):
        return Problem("The text to search for is empty. Copy the lines that are to change, or write the whole file.")
    return Action(ActionKind.EDIT, path=where, edits=tuple(edits), user=user)


def read(path: str, first: int, last: int) -> Action | Problem:
    where = sane_path(path, ActionKind.READ)
    if isinstance(where, Problem):
        return where
    return Action(ActionKind.READ, path=where, first=max(1, first), last=max(0, last))


def search(pattern: str, path: str, user: str) -> Action | Problem:
    """A SEARCH; without a path, of the whole workspace."""
    pattern = pattern.strip("\n")
    if not pattern.strip() or len(pattern) > _LONGEST_PATTERN or "\0" in pattern or "\n" in pattern:
        what = f"A pattern is one line of at most {_LONGEST_PATTERN} characters."
        return Problem(f"{what} {right_form(ActionKind.SEARCH)}")
    where = sane_path(path or "/workspace", ActionKind.SEARCH)
    return where if isinstance(where, Problem) else Action(ActionKind.SEARCH, command=pattern, path=where, user=user)


def lint(path: str, user: str) -> Action | Problem:
    where = sane_path(path, ActionKind.LINT)
    return where if isinstance(where, Problem) else Action(ActionKind.LINT, path=where, user=user)


def rollback(undo: int) -> Action:
    return Action(ActionKind.ROLLBACK, undo=max(0, undo))


def submit(text: str) -> Action:
    """A SUBMIT, which says so if the work cannot be done."""
    if found := _CANNOT.match(text):
        return give_up(text[found.end() :] or text)
    return Action(ActionKind.SUBMIT, content=text)


def give_up(why: str) -> Action:
    return Action(ActionKind.SUBMIT, ok=False, reason=Reason.POLICY_GAVE_UP, detail=why)


def sane_path(path: str, kind: ActionKind) -> str | Problem:
    """The absolute path that is meant: one that is relative starts at /workspace."""
    path = path.strip().removeprefix("path=").removeprefix("file=").strip("\"'`")
    if not path:
        return Problem(f"There is no path. {right_form(kind)}")
    if (
        len(path) > _LONGEST_PATH
        or path.startswith(("~", "-"))
        or any(ord(letter) < 32 or letter == "\x7f" for letter in path)
    ):
        return Problem(f"{quoted(path)} is no path that can be used. Write all of it, from /. {right_form(kind)}")
    return posixpath.normpath(posixpath.join("/workspace", path)).replace("//", "/")


def right_form(kind: ActionKind) -> str:
    return f"Write it like this:\n{RIGHT_FORMS[kind]}"


def quoted(text: str) -> str:
    """What was wrong, short enough for one line."""
    line = " ".join(text[: 2 * _QUOTE_CHARACTERS].split())
    return repr(line if len(line) <= _QUOTE_CHARACTERS else f"{line[:_QUOTE_CHARACTERS]}…")


def shortened(thought: str, most_characters: int = _NOTE_CHARACTERS) -> str:
    """A text on one line, cut at its end."""
    line = " ".join(thought[: 4 * most_characters].split())
    return line if len(line) <= most_characters else f"{line[: most_characters - 1]}…"


def noted(action: Action, thought: str, left_out: int, what: str) -> Action:
    """`action` with the thought that led to it, and with `detail` where it was the first of several `what`."""
    more = f"Only the first of your {left_out + 1} {what} was done." if left_out else ""
    note = " ".join(filter(None, (shortened(thought), f"({more})" if more else "")))
    return replace(action, note=note, detail=action.detail or more)
