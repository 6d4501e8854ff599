"""Traces of a solution: whether what a task took away can be found where the policy starts, or in its statement."""

from __future__ import annotations

import ast
import bz2
import gzip
import io
import itertools
import lzma
import re
import shlex
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from ratchet.autoinstall.workshop import WORKSPACE
from ratchet.errors import SandboxError
from ratchet.patches import Patch, inverse, lines_of
from ratchet.protocols import Sandbox
from ratchet.python_trees import tree_of
from ratchet.task_records import FileChange, Task
from ratchet.tasks.project_files import tails_of

_SHORTEST = 8  # characters of a line that is looked for
_TELLING = 60  # characters of three lines or more that tell by themselves
_PATTERNS_A_FILE = 4
_MOST_PATTERNS = 24
_MOST_FILES = 400
_MOST_ARCHIVES = 60
_LARGEST_TEXT_BYTES = 8 << 20
_LARGEST_BYTES = 32 << 20
_LARGEST_ARCHIVE_BYTES = 128 << 20  # unpacked
_PIECE_BYTES = 1 << 20
_PACKED: Mapping[bytes, Callable[[io.BytesIO], io.BufferedIOBase]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ": lzma.LZMAFile,
}
_MOSTLY = 0.8
_DAMAGED = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
)
_TIMEOUT_S = 300.0
_FOLDER = "/tmp/ratchet-removed"  # noqa: S108 - in a sandbox that is thrown away
_ARCHIVES = ("*.whl", "*.egg", "*.zip", "*.tar", "*.tar.gz", "*.tgz", "*.tar.bz2", "*.tar.xz")


@dataclass(frozen=True)
class _Removed:
    """What was removed from one file, of which `whole` are all lines: its distinctive lines, and pairs of neighbouring
    lines of which at least one was removed."""

    path: str
    whole: frozenset[bytes]
    lines: frozenset[bytes]
    pairs: frozenset[tuple[bytes, bytes]]

    def found_in(self, data: bytes) -> str:
        """A line that tells it, where `data` holds a part of the removed text; else empty.

        One line that looks alike is chance. It is a trace beside its old neighbour, or with two others of them.
        """
        filled = [line for each in data.splitlines() if (line := each.strip())]
        known = self.lines.intersection(filled)
        beside = next((max(pair, key=len) for pair in itertools.pairwise(filled) if pair in self.pairs), None)
        if beside is None and (len(known) < 3 or sum(map(len, known)) < _TELLING):
            return ""
        return (beside or max(known, key=lambda line: (len(line), line))).decode("utf-8", "replace")

    @property
    def patterns(self) -> list[bytes]:
        """What every file that holds a part of it has a line of: as few as find it, since all files are searched."""
        longest = sorted(self.lines, key=lambda line: (-len(line), line))[:_PATTERNS_A_FILE]
        return longest or sorted({max(pair, key=len) for pair in self.pairs})[:_PATTERNS_A_FILE]


def find_traces(sandbox: Sandbox, task: Task) -> tuple[str, ...]:
    """What the sandbox still holds of the text that `task` took away, as "path: line"; empty where there is nothing.

    Every file of at most 8 MiB is searched, archives are opened, bytecode of the changed modules may not exist, and the
    history of the workspace has to be one commit that is its content. To be called before anything ran in the
    workspace. What is compressed or encoded otherwise is not found, nor what was always in another file of the
    checkout, nor a fault so small that no line of some length tells it.
    """
    removed = [known for change in _taken_away(task) if (known := _removed(change)) is not None]
    _list_files(sandbox, removed, task)
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
    if not lines and not pairs:
        return None
    return _Removed(
        change.path,
        frozenset(map(_encoded, filled)),
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
    for number, line in enumerate(lines_of(text), 1):
        short = line.strip()
        is_comment = short.startswith(("#", "//", "/*", "*"))
        if short not in after and number not in documentation and not is_comment and _tells(short):
            yield short


def _documentation_lines(text: str) -> frozenset[int]:
    """The lines of docstrings, signatures and decorators."""
    try:
        tree = tree_of(text)
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


def _list_files(sandbox: Sandbox, removed: list[_Removed], task: Task) -> None:
    """Three lists, of one walk: the archives, the bytecode of the changed modules, and the files in which a pattern is
    found."""
    patterns = dict.fromkeys(itertools.chain.from_iterable(itertools.zip_longest(*(k.patterns for k in removed))))
    patterns.pop(None, None)
    sandbox.write(f"{_FOLDER}/lines", b"\n".join(list(patterns)[:_MOST_PATTERNS]))
    # Files of the kernel are no files; what is asked for is in the list of what is searched for.
    aside = " -o ".join(f"-path {path}" for path in (_FOLDER, "/proc", "/sys", "/dev"))
    archives = _any_name(_ARCHIVES)
    bytecode = _any_name(sorted({f"{_plain(path.stem)}.*py[co]" for path in _modules(task)}))
    search = f"LC_ALL=C xargs -0 -r grep -aFlZ -f {_FOLDER}/lines -- 2>/dev/null | head -z -n {_MOST_FILES}"
    lists = f"{archives} -fprint0 archives -o {bytecode} -fprint0 bytecode"
    command = (
        f"cd {_FOLDER} && find / -xdev \\( {aside} \\) -prune -o -type f"
        f" \\( {lists} -o -size -{_LARGEST_TEXT_BYTES >> 10}k -print0 \\)"
        f" | {search if removed and patterns else 'cat >/dev/null'} > found; true"
    )
    _run(sandbox, command)


def _any_name(patterns: Sequence[str]) -> str:
    """For `find`: never true where there are no patterns."""
    names = " -o ".join(f"-name {shlex.quote(pattern)}" for pattern in patterns)
    return f"\\( {names or '-false'} \\)"


def _plain(name: str) -> str:
    return re.sub(r"([*?\[\]\\])", r"\\\1", name)


def _modules(task: Task) -> list[PurePosixPath]:
    changed = [PurePosixPath(change.path) for change in _taken_away(task) if change.before is not None]
    return [path for path in changed if path.suffix == ".py"]


def _listed(sandbox: Sandbox, name: str) -> list[str]:
    paths = sandbox.read(f"{_FOLDER}/{name}").split(b"\0")
    return sorted(path.decode("utf-8", "surrogateescape") for path in paths if path)


def _in_files(sandbox: Sandbox, removed: list[_Removed]) -> Iterator[str]:
    given = _given_files(sandbox)
    for path in _listed(sandbox, "found"):
        data = _read(sandbox, path)
        inside = path.removeprefix(f"{WORKSPACE}/")
        for known in removed:
            line = known.found_in(data)
            # The project may well say the same thing twice; then it says it to everybody.
            if line and not (inside in given and not _is_copy(known, inside, data)):
                yield f"{path}: {line}"
                break


def _given_files(sandbox: Sandbox) -> frozenset[str]:
    """The files of the commit that the policy gets: all that the project itself has."""
    listed = sandbox.run("git ls-files -z", user="dev", cwd=WORKSPACE)
    return frozenset(listed.output.split("\0")) if listed.ok else frozenset()


def _is_copy(known: _Removed, path: str, data: bytes) -> bool:
    """Whether nearly all of another file is there that was changed, or of what was removed: no mere likeness."""
    there = {line.strip() for line in data.splitlines()}
    removed = len(known.lines & there) > _MOSTLY * len(known.lines) and len(known.lines) >= 3
    return removed or (path != known.path and len(known.whole & there) > _MOSTLY * len(known.whole))


def _in_archives(sandbox: Sandbox, removed: list[_Removed]) -> Iterator[str]:
    for path in _listed(sandbox, "archives")[:_MOST_ARCHIVES]:
        for member, data in _members(_read(sandbox, path)):
            if line := next(filter(None, (known.found_in(data) for known in removed)), ""):
                yield f"{path}: {member}: {line}"
                break


def _members(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The files of an archive that could be opened, up to a size; what is damaged holds nothing that anybody could
    read."""
    try:
        yield from _of_zip(data) if zipfile.is_zipfile(io.BytesIO(data)) else _of_tar(data)
    except _DAMAGED:
        return


def _of_zip(data: bytes) -> Iterator[tuple[str, bytes]]:
    """A size is what an archive claims, so what it packs is unpacked piece by piece; other ways of packing than the
    usual one cannot be stopped half-way."""
    unpacked = 0
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            unpacked += info.file_size
            if unpacked > _LARGEST_ARCHIVE_BYTES:
                return
            if info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                with archive.open(info) as file:
                    yield info.filename, b"".join(iter(lambda: file.read(_PIECE_BYTES), b""))


def _of_tar(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Unpacked first: headers may be of any size as well."""
    unpack = next((unpack for magic, unpack in _PACKED.items() if data.startswith(magic)), None)
    if unpack is not None:
        data = unpack(io.BytesIO(data)).read(_LARGEST_ARCHIVE_BYTES)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for member in archive:
            if member.offset_data + member.size > _LARGEST_ARCHIVE_BYTES:
                return
            file = archive.extractfile(member) if member.isreg() else None
            if file is not None:
                yield member.name, file.read()


def _in_bytecode(sandbox: Sandbox, task: Task) -> Iterator[str]:
    """Bytecode that was compiled from a file that changed: its names and constants are the solution's."""
    tails = {tail: str(path) for path in _modules(task) for tail in tails_of(str(path))}
    for name in _listed(sandbox, "bytecode"):
        path = PurePosixPath(name)
        folder = path.parent.parent if path.parent.name == "__pycache__" else path.parent
        beside = "/".join((folder / f"{path.name.partition('.')[0]}.py").parts[-2:])
        data = _read(sandbox, name)
        of = tails.get(beside) or next((tails[tail] for tail in sorted(tails) if _encoded(tail) in data), None)
        if of is not None:
            yield f"{name}: bytecode of {of}"


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


def _read(sandbox: Sandbox, path: str) -> bytes:
    try:
        return sandbox.read(path, max_bytes=_LARGEST_BYTES)
    except FileNotFoundError:  # it was a link's name, or went while it was looked for
        return b""
