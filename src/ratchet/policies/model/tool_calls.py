"""The same actions as native tool calls: the schemas that are offered, and the reading of a call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ratchet.policies.model import checked
from ratchet.policies.model.checked import Problem, noted, quoted
from ratchet.policies.model.prompts import encodable
from ratchet.records import Action, ActionKind, Edit, Reply, ToolCall

_MOST_CHARACTERS = 200_000

_Arguments = Mapping[str, object]


class _ArgumentError(ValueError):
    """An argument is missing or of the wrong type."""


@dataclass(frozen=True)
class _Tool:
    kind: ActionKind
    description: str
    parameters: Mapping[str, Mapping[str, object]]
    required: tuple[str, ...]
    read: Callable[[_Arguments, str], Action | Problem]


def tools_for(allowed: frozenset[ActionKind]) -> list[dict[str, object]]:
    """The schemas of the allowed actions, in the form of chat completions, always in the same order."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": tool.description,
                "parameters": {
                    "type": "object",
                    "properties": dict(tool.parameters),
                    "required": list(tool.required),
                },
            },
        }
        for name, tool in _TOOLS.items()
        if tool.kind in allowed
    ]


def arguments_of(call: ToolCall) -> dict[str, object] | None:
    """The arguments of a call; None where they are no JSON object."""
    if len(call.arguments) > _MOST_CHARACTERS:
        return None
    try:
        arguments = json.loads(encodable(call.arguments) or "{}")
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None


def parse_call(reply: Reply, allowed: frozenset[ActionKind], user: str) -> Action | Problem:
    """The action that the first tool call of a reply asks for, or what is wrong with it."""
    call = reply.tool_calls[0]
    names = [name for name, tool in _TOOLS.items() if tool.kind in allowed]
    if call.name not in names:
        return Problem(f"There is no tool {quoted(call.name)}. Call one of: {', '.join(names)}.")
    arguments = arguments_of(call)
    if arguments is None:
        cut = " They were cut off: write less." if reply.finish == "length" else ""
        return Problem(f"The arguments of {call.name} are no JSON object: {quoted(call.arguments)}.{cut}")
    try:
        action = _TOOLS[call.name].read(arguments, user)
    except _ArgumentError as error:
        return Problem(f"{call.name}: {error}. Call it again with the right arguments.")
    if isinstance(action, Problem):
        return action
    return noted(action, encodable(reply.text), len(reply.tool_calls) - 1, "calls")


# --------------------------------------------------------------------------- one function for each tool


def _run(arguments: _Arguments, user: str) -> Action | Problem:
    timeout_s = _number(arguments, "timeout_s", 0)
    return checked.run(_text(arguments, "command"), _text(arguments, "user", user) or user, timeout_s or None)


def _write(arguments: _Arguments, user: str) -> Action | Problem:
    return checked.write(_text(arguments, "path"), _text(arguments, "content"), user)


def _edit(arguments: _Arguments, user: str) -> Action | Problem:
    edits = arguments.get("edits")
    if not isinstance(edits, list) or not all(isinstance(edit, dict) for edit in edits):
        raise _ArgumentError('edits has to be a list like [{"search": "old lines", "replace": "new lines"}]')
    return checked.edit(
        _text(arguments, "path"), [Edit(_text(edit, "search"), _text(edit, "replace")) for edit in edits], user
    )


def _read(arguments: _Arguments, _: str) -> Action | Problem:
    return checked.read(_text(arguments, "path"), _number(arguments, "first", 1), _number(arguments, "last", 0))


def _search(arguments: _Arguments, user: str) -> Action | Problem:
    return checked.search(_text(arguments, "pattern"), _text(arguments, "path", ""), user)


def _lint(arguments: _Arguments, user: str) -> Action | Problem:
    return checked.lint(_text(arguments, "path"), user)


def _rollback(arguments: _Arguments, _: str) -> Action:
    return checked.rollback(_number(arguments, "undo", 1))


def _submit(arguments: _Arguments, _: str) -> Action:
    ok, text = arguments.get("ok", True), _text(arguments, "text", "")
    if not isinstance(ok, bool):
        raise _ArgumentError("ok has to be true or false")
    return Action(ActionKind.SUBMIT, content=text) if ok else checked.give_up(text)


def _text(arguments: _Arguments, name: str, default: str | None = None) -> str:
    value = arguments.get(name, default)
    if not isinstance(value, str):
        raise _ArgumentError(f"{name} has to be a string, and is {'missing' if value is None else quoted(repr(value))}")
    # An escape in JSON may spell what the text of a reply could not hold.
    return encodable(value)


def _number(arguments: _Arguments, name: str, default: int) -> int:
    value = arguments.get(name)
    if value is None:
        return default
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise _ArgumentError(f"{name} has to be a whole number, and is {quoted(repr(value))}")
    return int(value)


_STRING: Mapping[str, object] = {"type": "string"}
_INTEGER: Mapping[str, object] = {"type": "integer"}
_PATH: Mapping[str, object] = {"type": "string", "description": "absolute, or relative to /workspace"}
_EDITS: Mapping[str, object] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"search": {"type": "string"}, "replace": {"type": "string"}},
        "required": ["search", "replace"],
    },
}
_OK: Mapping[str, object] = {"type": "boolean", "description": "false: it cannot be done; text says why"}
_UNDO: Mapping[str, object] = {"type": "integer", "description": "how many such actions; 0: all of them"}

_TOOLS: dict[str, _Tool] = {
    "run_command": _Tool(
        ActionKind.RUN,
        "Run a command with /bin/sh in /workspace.",
        {"command": _STRING, "user": _STRING, "timeout_s": _INTEGER},
        ("command",),
        _run,
    ),
    "write_file": _Tool(
        ActionKind.WRITE, "Write a file.", {"path": _PATH, "content": _STRING}, ("path", "content"), _write
    ),
    "edit_file": _Tool(
        ActionKind.EDIT,
        "Replace texts in a file. Each text to search for has to occur in it exactly once.",
        {"path": _PATH, "edits": _EDITS},
        ("path", "edits"),
        _edit,
    ),
    "read_file": _Tool(
        ActionKind.READ,
        "Read the lines first to last of a file; without last, as many as are shown at once.",
        {"path": _PATH, "first": _INTEGER, "last": _INTEGER},
        ("path",),
        _read,
    ),
    "search_files": _Tool(
        ActionKind.SEARCH,
        "Find the lines that match a regular expression, in a file or in all files of a folder.",
        {"pattern": _STRING, "path": _PATH},
        ("pattern",),
        _search,
    ),
    "lint_file": _Tool(
        ActionKind.LINT, "Show what is wrong with a file without running it.", {"path": _PATH}, ("path",), _lint
    ),
    "rollback": _Tool(ActionKind.ROLLBACK, "Undo the last actions that changed files.", {"undo": _UNDO}, (), _rollback),
    "submit": _Tool(ActionKind.SUBMIT, "Finish the work.", {"ok": _OK, "text": _STRING}, ("ok",), _submit),
}
