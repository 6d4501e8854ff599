"""Traces of a solution: whether what a task took away can be found where the policy starts, or in its statement."""

from __future__ import annotations

import ast
import io
import itertools
import re
import shlex
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from ratchet.autoinstall.workshop import WORKSPACE
from ratchet.errors import SandboxError
from ratchet.patches import Patch, inverse
from ratchet.protocols import Sandbox
from ratchet.task_records import FileChange, Task

_SHORTEST = 8  # characters of a line that is looked for
_TELLING = 60  # characters of three lines or more that tell by themselves
_MOST_PATTERNS = 6
_MOST_FILES = 400
_MOST_ARCHIVES = 60
_LARGEST_BYTES = 32 << 20
_TIMEOUT_S = 300.0
_FOLDER = "/tmp/ratchet-removed"  # noqa: S108 - in a sandbox that is thrown away
_ARCHIVES = ("*.whl", "*.egg", "*.zip", "*.tar", "*.tar.gz", "*.tgz", "*.tar.bz2", "*.tar.xz")


@dataclass(frozen=True)
class _Removed:
    """What was removed from one file: its distinctive lines, and pairs of neighbouring lines of which at least one was
    removed."""

    path: str
    lines: frozenset[bytes]
    pairs: frozenset[tuple[bytes, bytes]]

    def found_in(self, data: bytes) -> str:
        """A line that tells it, where `data` holds a part of the removed text; else empty.

        One line that looks alike is chance. It is a trace beside its old neighbour, or with two others of them.
        """
        there = [line.strip() for line in data.splitlines()]
        known = {line for line in there if line in self.lines}
        if not known:
            return ""
        filled = [line for line in there if line]
        beside = next((a for a, b in itertools.pairwise(filled) if (a, b) in self.pairs), None)
        if beside is None and (len(known) < 3 or sum(map(len, known)) < _TELLING):
            return ""
        return (beside or max(known, key=len)).decode("utf-8", "replace")


def find_traces(sandbox: Sandbox, task: Task) -> tuple[str, ...]:
    """What the sandbox still holds of the text that `task` took away, as "path: line"; empty where there is nothing.

    Every file is searched, archives are opened, bytecode of the changed modules may not exist, and the history of the
    workspace has to be one commit that is its content. What is compressed or encoded otherwise is not found, nor what
    was always in another file of the checkout.
    """
    removed = [known for change in _taken_away(task) if (known := _removed(change)) is not None]
    if not removed:
        return ()
    found = [*_in_files(sandbox, removed), *_in_archives(sandbox, removed), *_in_bytecode(sandbox, task)]
    return tuple(dict.fromkeys([*found, *_in_history(sandbox)]))


def told(statement: str, task: Task) -> tuple[str, ...]:
    """The lines of code of the solution that a statement holds. What documents it (signatures, docstrings, comments)
    may be told."""
    flat = " ".join(statement.split())
    return tuple(line for change in task.changes for line in _code_lines(change) if " ".join(line.split()) in flat)


# --------------------------------------------------------------------------- what was removed


def _taken_away(task: Task) -> Patch:
    return (*task.changes, *inverse(task.hidden))


def _removed(change: FileChange) -> _Removed | None:
    before = [line.strip() for line in (change.before or "").splitlines()]
    after = {line.strip() for line in (change.after or "").splitlines()}
    gone = {line for line in before if line and line not in after}
    lines = {line for line in gone if _tells(line)}
    filled = [line for line in before if line]
    pairs = {
        (a, b)
        for a, b in itertools.pairwise(filled)
        if (a in gone or b in gone) and len(a) + len(b) >= 3 * _SHORTEST and min(len(a), len(b)) > 3
    }
    # A pair that is still there was never taken away.
    left = [line.strip() for line in (change.after or "").splitlines() if line.strip()]
    pairs -= set(itertools.pairwise(left))
    if not lines:
        return None
    return _Removed(
        change.path,
        frozenset(map(_encoded, lines)),
        frozenset((_encoded(a), _encoded(b)) for a, b in pairs),
    )


def _tells(line: str) -> bool:
    return (
        len(line) >= _SHORTEST and bool(re.search(r"[^\W\d_]{3}", line)) and not line.startswith(("import ", "from "))
    )


def _encoded(line: str) -> bytes:
    return line.encode("utf-8", "surrogateescape")


def _code_lines(change: FileChange) -> Iterator[str]:
    """The removed lines that say how, not what."""
    after = {line.strip() for line in (change.after or "").splitlines()}
    text = change.before or ""
    documentation = _documentation_lines(text) if change.path.endswith(".py") else frozenset()
    for number, line in enumerate(text.splitlines(), 1):
        short = line.strip()
        is_comment = short.startswith(("#", "//", "/*", "*"))
        if short not in after and number not in documentation and not is_comment and _tells(short):
            yield short


def _documentation_lines(text: str) -> frozenset[int]:
    """The lines of docstrings, signatures and decorators."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    lines: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            continue
        if not isinstance(node, ast.Module):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            lines.update(range(first, max(node.body[0].lineno, node.lineno + 1)))
        first_statement = node.body[0] if node.body else None
        if isinstance(first_statement, ast.Expr) and isinstance(first_statement.value, ast.Constant):
            lines.update(range(first_statement.lineno, (first_statement.end_lineno or first_statement.lineno) + 1))
    return frozenset(lines)


# --------------------------------------------------------------------------- where it may still be


def _in_files(sandbox: Sandbox, removed: list[_Removed]) -> Iterator[str]:
    patterns = sorted({line for known in removed for line in known.lines}, key=lambda line: (-len(line), line))
    sandbox.write(f"{_FOLDER}/lines", b"\n".join(patterns[:_MOST_PATTERNS]) + b"\n")
    # Files of the kernel are no files; what is asked for is in the list of what is searched for.
    aside = " -o ".join(f"-path .{path}" for path in (_FOLDER, "/proc", "/sys", "/dev"))
    command = (
        f"cd / && find . -xdev \\( {aside} \\) -prune -o -type f -size -{_LARGEST_BYTES >> 10}k -print0"
        f" | LC_ALL=C xargs -0 -r grep -aFlZ -f {_FOLDER}/lines -- 2>/dev/null"
        f" | head -z -n {_MOST_FILES} > {_FOLDER}/found; true"
    )
    _run(sandbox, command)
    given = _given_files(sandbox)
    for name in sandbox.read(f"{_FOLDER}/found").split(b"\0"):
        path = name.decode("utf-8", "surrogateescape").removeprefix(".")
        if not path or not _readable(path):
            continue
        data = _read(sandbox, path)
        inside = path.removeprefix(f"{WORKSPACE}/")
        for known in removed:
            line = known.found_in(data)
            # The project may well say the same thing twice; then it says it to everybody.
            if line and not (inside in given and not _mostly(known, data)):
                yield f"{path}: {line}"
                break


def _given_files(sandbox: Sandbox) -> frozenset[str]:
    """The files of the commit that the policy gets: all that the project itself has."""
    listed = sandbox.run("git ls-files -z", user="dev", cwd=WORKSPACE)
    return frozenset(listed.output.split("\0")) if listed.ok else frozenset()


def _mostly(known: _Removed, data: bytes) -> bool:
    """Whether nearly all that was removed is there: a copy and no likeness."""
    there = {line.strip() for line in data.splitlines()}
    return len(known.lines & there) > 0.8 * len(known.lines) and len(known.lines) >= 3


def _in_archives(sandbox: Sandbox, removed: list[_Removed]) -> Iterator[str]:
    names = " -o ".join(f"-name {shlex.quote(pattern)}" for pattern in _ARCHIVES)
    found = _run(sandbox, f"find / -xdev -path /proc -prune -o -type f \\( {names} \\) -print0")
    for path in sorted(found.split("\0"))[: _MOST_ARCHIVES + 1]:
        if not path or not _readable(path):
            continue
        for member, data in _members(_read(sandbox, path)):
            if line := next(filter(None, (known.found_in(data) for known in removed)), ""):
                yield f"{path}: {member}: {line}"
                break


def _members(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The files of an archive that could be opened; what is damaged holds nothing that anybody could read."""
    try:
        if zipfile.is_zipfile(io.BytesIO(data)):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                for info in archive.infolist():
                    if info.file_size <= _LARGEST_BYTES:
                        yield info.filename, archive.read(info)
            return
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isreg() and member.size <= _LARGEST_BYTES else None
                if file is not None:
                    yield member.name, file.read()
    except (zipfile.BadZipFile, tarfile.TarError, OSError, EOFError, ValueError, NotImplementedError, RuntimeError):
        return


def _in_bytecode(sandbox: Sandbox, task: Task) -> Iterator[str]:
    """Bytecode that was compiled from a file that changed: its names and constants are the solution's."""
    for change in task.changes:
        path = PurePosixPath(change.path)
        if path.suffix != ".py" or change.before is None:
            continue
        tail = "/".join(path.parts[-2:])
        found = _run(
            sandbox,
            f"find / -xdev -path /proc -prune -o -type f -name {shlex.quote(path.stem + '.*pyc')} "
            f"-exec grep -aFlZ -e {shlex.quote(tail)} -- {{}} +; true",
        )
        yield from (f"{name}: bytecode of {change.path}" for name in sorted(found.split("\0")) if name)


_HISTORY = """\
git rev-parse --git-dir >/dev/null 2>&1 || exit 0
[ "$(git rev-list --all --count)" = 1 ] || echo more than one commit
[ -z "$(git fsck --unreachable --no-reflogs 2>/dev/null)" ] || echo objects that no commit has
[ ! -e .git/logs ] || echo a reflog
[ -z "$(git remote)" ] || echo a remote
[ -z "$(git stash list)" ] || echo a stash
"""


def _in_history(sandbox: Sandbox) -> Iterator[str]:
    for line in _run(sandbox, _HISTORY, user="dev", cwd=WORKSPACE).splitlines():
        yield f"{WORKSPACE}/.git: {line}"


# --------------------------------------------------------------------------- in the sandbox


def _run(sandbox: Sandbox, command: str, *, user: str = "root", cwd: str = "/") -> str:
    done = sandbox.run(command, user=user, cwd=cwd, timeout_s=_TIMEOUT_S)
    if done.limit is not None:
        raise SandboxError(
            f"the search for traces of a solution ended with the {done.limit} limit",
            remedy="give the environment more time or memory, or leave its tasks out",
        )
    return done.output


def _readable(path: str) -> bool:
    return not path.startswith((_FOLDER, "/proc/", "/sys/", "/dev/"))


def _read(sandbox: Sandbox, path: str) -> bytes:
    try:
        return sandbox.read(path, max_bytes=_LARGEST_BYTES)
    except FileNotFoundError:  # it was a link's name, or went while it was looked for
        return b""
