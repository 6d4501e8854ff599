"""Doing one action in a sandbox. What goes wrong in there is a result, as of a failed command."""

from __future__ import annotations

import errno
import posixpath
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

_LOOK_TIMEOUT_S = 30.0  # of a search, and of a lint


def perform(
    action: Action, sandbox: Sandbox, seconds_left: float, on_output: Callable[[bytes], None] | None = None
) -> CommandResult | None:
    """Do an action that is no ROLLBACK and no SUBMIT. None means a file was written. `timeout_s` is bounded by
    `seconds_left`."""
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
        case ActionKind.SEARCH:
            return _search(action, sandbox, seconds_left)
        case ActionKind.LINT:
            return _lint(action, sandbox, seconds_left)
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


# --------------------------------------------------------------------------- search

_NOT_STARTED = (125, 126, 127)  # as a shell and timeout(1) have it
_LONGEST_PATTERN = 1000
_MOST_MATCHES = 100
_MOST_COUNTED = 1000
_LONGEST_MATCH_BYTES = 300
_NOT_SEARCHED = (".git", ".hg", ".svn", "__pycache__", ".*_cache", ".tox", ".nox", ".venv", "node_modules")

# $1 is the pattern, $2 where; the rest are options of grep. The status is grep's and not that of what cuts its output,
# and a search that takes too long ends without ending the services of the sandbox.
_SEARCH = f"""
pattern=$1 place=$2; shift 2
exec 4>&1
status=$({{ {{ timeout -k 2 {_LOOK_TIMEOUT_S:.0f} grep -rnIEsH -D skip "$@" -e "$pattern" -- "$place"
  echo $? >&3; }} 2>&1 | head -n {_MOST_COUNTED} | cut -b 1-{_LONGEST_MATCH_BYTES} >&4; }} 3>&1)
exit "$status"
"""


def _search(action: Action, sandbox: Sandbox, seconds_left: float) -> CommandResult:
    """The lines below `path` that match, as `grep -E` has it; at most a hundred of them, and status 1 where none does.
    What versions control and caches keep is left out."""
    pattern = action.command.strip("\n")
    name = f"search {pattern[:_LONGEST_PATTERN]}"
    if not pattern or len(pattern) > _LONGEST_PATTERN:
        return failed(name, f"a pattern has from 1 to {_LONGEST_PATTERN} characters")
    excluded = [f"--exclude-dir={folder}" for folder in _NOT_SEARCHED]
    result = _look(_SEARCH, [pattern, _from_cwd(action), *excluded], action, sandbox, seconds_left)
    lines = [line.removeprefix("./") for line in result.output.split("\n") if line]
    if result.exit_status in (1, *_NOT_STARTED):
        return failed(name, result.output.strip() or f"no line below {action.path} matches")
    if result.exit_status == 2 and not lines:
        return failed(name, f"there is no {action.path} that can be searched")
    if result.exit_status == 2 and lines[0].startswith("grep: "):
        return failed(name, f"{lines[0]}\nThe pattern is a regular expression: write \\( where you mean a bracket.")
    shown = sorted(lines, key=_place)[:_MOST_MATCHES]
    if (more := len(lines) - len(shown)) > 0:
        least = "at least " if len(lines) >= _MOST_COUNTED else ""
        shown.append(f"[{least}{more} more lines match: search for something rarer, or in fewer files]")
    if result.limit is not None or result.exit_status == _TIMED_OUT:
        shown.append(f"[not all was searched: that takes more than {_LOOK_TIMEOUT_S:.0f} s]")
    output = "\n".join(shown) + "\n"
    return CommandResult(name, 0, output, len(output), result.seconds)


def _place(line: str) -> tuple[str, int]:
    """File and line of a match."""
    path, _, rest = line.partition(":")
    number = rest.partition(":")[0]
    return path, int(number) if number.isdecimal() and number.isascii() else 0


# --------------------------------------------------------------------------- lint

_SYNTAX = r"""
import sys
path = sys.argv[1]
try:
    with open(path, "rb") as file:
        compile(file.read(), path, "exec", dont_inherit=True)
except SyntaxError as error:
    sys.exit("%s:%s: %s: %s\n%s" % (path, error.lineno, type(error).__name__, error.msg, error.text or ""))
except ValueError as error:
    sys.exit("%s: %s" % (path, error))
"""

# Isolated, so that no module of the project is imported in the place of one of Python's. Only what is wrong in any
# style is wanted: errors of syntax, names that are not defined or not used.
_LINT_PYTHON = f"""
for python in python python3 ''; do command -v "$python" >/dev/null 2>&1 && break; done
[ "$python" ] || {{ echo "there is no Python here that could lint it"; exit 3; }}
has() {{ "$python" -IB -c "import $1" 2>/dev/null; }}
"$python" -IB -c {shlex.quote(_SYNTAX)} "$1" || exit 1
if command -v ruff >/dev/null 2>&1
then ruff check --no-cache --isolated --quiet --select E9,F --output-format concise "$1"
elif has pyflakes; then "$python" -IB -m pyflakes "$1"
elif has flake8; then "$python" -IB -m flake8 --isolated --select E9,F "$1"
else echo "Its syntax is right. There is no linter here that would see more."
fi
"""
_LINT_JAVASCRIPT = """
command -v node >/dev/null 2>&1 || { echo "there is no node here that could lint it"; exit 3; }
node --check "$1"
"""
_LINT_C = """
command -v gcc >/dev/null 2>&1 || { echo "there is no gcc here that could lint it"; exit 3; }
gcc -fsyntax-only -Wall -I. -Iinclude -Isrc "$1"
"""
_LINTS = {
    **dict.fromkeys((".py", ".pyi"), _LINT_PYTHON),
    **dict.fromkeys((".js", ".mjs", ".cjs"), _LINT_JAVASCRIPT),
    **dict.fromkeys((".c", ".h", ".cc", ".cpp", ".cxx", ".hpp"), _LINT_C),
}


def _lint(action: Action, sandbox: Sandbox, seconds_left: float) -> CommandResult:
    """What is wrong with a file, found without running it: status 0 where that is nothing."""
    name = f"lint {action.path}"
    script = _LINTS.get(posixpath.splitext(action.path)[1].lower())
    if script is None:
        return failed(name, f"nothing here can lint {action.path}: only Python, JavaScript and C can be linted")
    script = f'[ -f "$1" ] || {{ echo "there is no such file"; exit 2; }}\n{script}'
    result = _look(script, [_from_cwd(action)], action, sandbox, seconds_left)
    output = result.output if result.output.strip() or not result.ok else "Nothing is wrong with it.\n"
    return replace(result, command=name, output=output, output_bytes=max(result.output_bytes, len(output)))


_TIMED_OUT = 124  # as timeout(1) has it


def _look(script: str, arguments: list[str], action: Action, sandbox: Sandbox, seconds_left: float) -> CommandResult:
    """Run a script that changes nothing, as the action's user."""
    try:
        return sandbox.run(
            shlex.join(["sh", "-c", script, "sh", *arguments]),
            user=action.user,
            cwd=action.cwd,
            env={**action.env, "LC_ALL": "C.UTF-8"},
            timeout_s=min(seconds_left, _LOOK_TIMEOUT_S + 10),
        )
    except UsageError as error:  # a NUL in an argument
        return failed(action.kind, error.what)


def _from_cwd(action: Action) -> str:
    """The path of an action, relative to its working directory where it lies in there: shorter to read."""
    path = posixpath.normpath(posixpath.join(action.cwd, action.path))
    below = posixpath.relpath(path, action.cwd)
    return path if below.startswith("..") else f"./{below}" if below != "." else "."


def failed(name: str, problem: str) -> CommandResult:
    output = f"{problem}\n"
    return CommandResult(name, 1, output, len(output), 0.0)
