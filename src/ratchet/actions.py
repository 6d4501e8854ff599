"""Doing one action in a sandbox. What goes wrong in there is a result, as of a failed command."""

from __future__ import annotations

import errno
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace

from ratchet.errors import UsageError
from ratchet.protocols import Sandbox
from ratchet.records import Action, ActionKind, CommandResult, Edit

# Of the machine, and not of what is in a sandbox.
_OUR_OWN_ERRORS = frozenset(
    {errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
)

START_TIMEOUT_S = 300.0

_LARGEST_EDIT_BYTES = 4 << 20
_MOST_LINES_READ = 400


def perform(
    action: Action, sandbox: Sandbox, seconds_left: float, on_output: Callable[[bytes], None] | None = None
) -> CommandResult | None:
    """Do a RUN, WRITE, EDIT, READ or NONE. None means a file was written. `timeout_s` is bounded by `seconds_left`."""
    match action.kind:
        case ActionKind.RUN:
            try:
                return _run(action, sandbox, seconds_left, on_output)
            except UsageError as error:  # a NUL in a command, say: the policy's fault
                return failed("run", error.what)
        case ActionKind.WRITE | ActionKind.EDIT:
            return write_file(sandbox, action.path, action.content, mode=action.mode, user=action.user)
        case ActionKind.READ:
            return _read_lines(sandbox, action.path, action.first, action.last)
        case ActionKind.NONE:
            return failed("none", action.detail)
        case ActionKind.ROLLBACK | ActionKind.SUBMIT:
            return None


def start_services(
    sandbox: Sandbox,
    script: str,
    env: Mapping[str, str],
    *,
    proxied: bool = True,
    seconds_left: float = START_TIMEOUT_S,
    on_output: Callable[[bytes], None] | None = None,
) -> CommandResult:
    """Run the start script of an environment: as root, in the workspace. It has to return once all services are ready;
    what it leaves in the background stays."""
    return sandbox.run(
        script,
        user="root",
        cwd="/workspace",
        env=env,
        timeout_s=min(seconds_left, START_TIMEOUT_S),
        proxied=proxied,
        on_output=on_output,
    )


def _run(
    action: Action, sandbox: Sandbox, seconds_left: float, on_output: Callable[[bytes], None] | None
) -> CommandResult:
    if action.start:
        started = start_services(
            sandbox,
            action.start,
            action.env,
            proxied=action.proxied,
            seconds_left=seconds_left,
            on_output=on_output,
        )
        if not started.ok:
            return started
        seconds_left = max(1.0, seconds_left - started.seconds)
    return sandbox.run(
        action.command,
        user=action.user,
        cwd=action.cwd,
        env=action.env,
        timeout_s=min(seconds_left, action.timeout_s) if action.timeout_s else seconds_left,
        proxied=action.proxied,
        on_output=on_output,
    )


def write_file(sandbox: Sandbox, path: str, content: str, *, mode: int, user: str) -> CommandResult | None:
    """Write a file; a failed command where what is in the sandbox is in the way: a pipe or a folder in its place, a
    link that leads nowhere, a user who is gone."""
    try:
        sandbox.write(path, content.encode("utf-8", "surrogateescape"), mode=mode, user=user)
    except OSError as error:
        if error.errno in _OUR_OWN_ERRORS:
            raise
        problem = error.strerror or str(error)
    except UsageError as error:
        problem = error.what
    except UnicodeEncodeError:
        problem = "its content cannot be encoded as UTF-8"
    else:
        return None
    return failed(f"write {path}", f"{path} cannot be written: {problem}")


def resolve_edit(action: Action, sandbox: Sandbox) -> tuple[Action, CommandResult | None]:
    """The EDIT with `content` and `mode`, what the file is to hold afterwards; or the failure: nothing was changed."""
    name = f"edit {action.path}"
    try:
        data = sandbox.read(action.path, max_bytes=_LARGEST_EDIT_BYTES + 1)
    except FileNotFoundError:
        return action, failed(name, f"there is no file {action.path}")
    if len(data) > _LARGEST_EDIT_BYTES:
        return action, failed(name, f"{action.path} is larger than {_LARGEST_EDIT_BYTES >> 20} MiB")
    text = data.decode("utf-8", "surrogateescape")
    newline = "\r\n" if "\r\n" in text else "\n"
    for number, edit in enumerate(action.edits, 1):
        search, replacement = (
            part.replace("\r\n", "\n").replace("\n", newline) for part in (edit.search, edit.replace)
        )
        found = text.count(search) if search else 0
        if found != 1:
            return action, failed(name, _not_once(number, edit, found, action.path))
        text = text.replace(search, replacement)
    mode = sandbox.run(f"stat -L -c %a -- {shlex.quote(action.path)}", cwd=action.cwd)
    octal = mode.output.strip()
    return replace(action, content=text, mode=int(octal, 8) if mode.ok and octal.isdigit() else 0o644), None


def _not_once(number: int, edit: Edit, found: int, path: str) -> str:
    if not edit.search:
        return f"the search text of edit {number} is empty; nothing was changed"
    where = "does not occur" if not found else f"occurs {found} times"
    hint = "Take more lines around it, so that it is unique."
    if not found:
        hint = "Read the file and copy the lines exactly, without their numbers."
    return f"the search text of edit {number} {where} in {path}; nothing was changed. {hint}"


def _read_lines(sandbox: Sandbox, path: str, first: int, last: int) -> CommandResult:
    """The lines `first` to `last` (0: as many as are shown at once), with their numbers."""
    name = f"read {path}"
    try:
        text = sandbox.read(path, max_bytes=_LARGEST_EDIT_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return failed(name, f"there is no file {path}")
    lines = text.splitlines()
    first = max(1, first)
    wanted = max(first, last) if last else len(lines)
    end = min(wanted, len(lines), first + _MOST_LINES_READ - 1)
    if lines and first > len(lines):
        return failed(name, f"{path} has only {len(lines)} lines")
    shown = [f"{number}: {line}" for number, line in enumerate(lines[first - 1 : end], first)]
    if end < len(lines):
        shown.append(f"[{len(lines) - end} more lines, {len(lines)} in all]")
    output = "\n".join(shown) + "\n"
    return CommandResult(name, 0, output, len(output), 0.0)


def failed(name: str, problem: str) -> CommandResult:
    output = f"{problem}\n"
    return CommandResult(name, 1, output, len(output), 0.0)
