"""The files of a checkout, seen read-only and within limits.

A repository is hostile: links may lead out, files may be FIFOs or enormous, folders may never end. `Tree` lists
only regular files inside the checkout and reads only those of at most `max_bytes`.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from ratchet.survey.formats import names

T = TypeVar("T")

MAX_FILES = 20_000
MAX_BYTES = 1 << 20
MAX_DEPTH = 24
MAX_VENDORED_FILES = 500
CODE = (".py", ".pyx", ".pyi", ".c", ".cpp", ".rs", ".so")

# Never source of the project: version control, caches, environments.
SKIPPED = names(
    """
    .git .hg .svn .bzr node_modules bower_components .venv venv .virtualenv virtualenv .env .tox .nox .eggs
    __pycache__ .mypy_cache .pytest_cache .ruff_cache .cache .hypothesis .idea .gradle site-packages
    """
)
# Build results, when they lie at the top.
SKIPPED_AT_TOP = frozenset({"build", "dist", "target", "_build", "htmlcov"})
# Other people's code.
VENDORED = names(
    """
    vendor vendors vendored _vendor _vendored third_party thirdparty third-party 3rdparty subprojects
    externals submodules
    """
)


def is_vendored(path: str) -> bool:
    return not VENDORED.isdisjoint(PurePosixPath(path).parts[:-1])


class Tree:
    """Regular files below `root`, as POSIX paths relative to it, in a stable order: short paths first.

    Folders that are links are not entered; a file that is a link counts when its target is a regular file inside.
    Names that are not UTF-8 are left out, since facts are text.
    """

    def __init__(self, root: Path, *, max_files: int = MAX_FILES, max_bytes: int = MAX_BYTES) -> None:
        self.root = root
        self._real_root = Path(os.path.realpath(root))
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._texts: dict[str, str | None] = {}
        self._remembered: dict[str, Any] = {}

    @cached_property
    def files(self) -> tuple[str, ...]:
        return tuple(self._walk())

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.files)

    @cached_property
    def directories(self) -> frozenset[str]:
        """Every folder that holds a listed file, at any depth; the top is not among them."""
        return _folders(self.files)

    @cached_property
    def code_directories(self) -> frozenset[str]:
        """Folders that hold source code of a Python package, at any depth."""
        return _folders(name for name in self.files if name.endswith(CODE))

    def __contains__(self, path: str) -> bool:
        return path in self._names

    def matching(self, *patterns: str, depth: int | None = None) -> list[str]:
        """Files whose path or name matches a shell pattern, at most `depth` folders down (0: at the top)."""
        return [
            name
            for name in self.files
            if (depth is None or name.count("/") <= depth)
            and any(fnmatchcase(name if "/" in p else name.rsplit("/", 1)[-1], p) for p in patterns)
        ]

    def text(self, path: str) -> str | None:
        """The text of a listed file; None when it is not listed, too large or binary."""
        if path not in self._names:
            return None
        if path not in self._texts:
            self._texts[path] = self._read(path)
        return self._texts[path]

    def remember(self, key: str, compute: Callable[[], T]) -> T:
        """What `compute` gave the first time it was asked for under this key: several readers parse the same file."""
        if key not in self._remembered:
            self._remembered[key] = compute()
        value: T = self._remembered[key]
        return value

    def text_once(self, path: str) -> str | None:
        """Like `text`, for files that nobody reads a second time: nothing is remembered."""
        if path in self._texts:
            return self._texts[path]
        return self._read(path) if path in self._names else None

    def _read(self, path: str) -> str | None:
        target = self._inside(self.root / path)
        if target is None:
            return None
        try:
            handle = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        with os.fdopen(handle, "rb") as stream:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            data = stream.read(self._max_bytes + 1)
        return None if len(data) > self._max_bytes else decode(data)

    def _inside(self, path: Path) -> Path | None:
        try:
            real = Path(os.path.realpath(path, strict=True))
        except (OSError, ValueError):
            return None
        return real if real.is_relative_to(self._real_root) else None

    def _walk(self) -> Iterator[str]:
        folders: deque[tuple[str, int]] = deque([("", 0)])
        count = vendored = entered = 0
        while folders and entered < self._max_files:
            prefix, depth = folders.popleft()
            entered += 1
            for entry in self._entries(prefix):
                path = prefix + entry.name
                if entry.is_dir(follow_symlinks=False):
                    if depth < MAX_DEPTH and not self._skips(entry.name, depth):
                        folders.append((path + "/", depth + 1))
                    continue
                if not self._is_file(entry):
                    continue
                if is_vendored(path):
                    vendored += 1
                    if vendored > MAX_VENDORED_FILES:
                        continue
                yield path
                count += 1
                if count >= self._max_files:
                    return

    def _entries(self, prefix: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.root / prefix) as entries:
                named = [entry for _, entry in zip(range(self._max_files), entries, strict=False)]
        except OSError:
            return []
        return sorted((entry for entry in named if _is_text(entry.name)), key=lambda entry: entry.name)

    def _is_file(self, entry: os.DirEntry[str]) -> bool:
        try:
            if not entry.is_symlink():
                return entry.is_file(follow_symlinks=False)
            target = self._inside(Path(entry.path))
            return target is not None and target.is_file()
        except OSError:
            return False

    def _skips(self, name: str, depth: int) -> bool:
        if name in SKIPPED:
            return True
        return depth == 0 and name in SKIPPED_AT_TOP and not (self.root / name / "__init__.py").is_file()


def decode(data: bytes) -> str | None:
    """Text from bytes: UTF-8 or UTF-16 by its mark, else UTF-8 with what does not decode replaced; None for binary."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    if b"\0" in data[:8192]:
        return None
    return data.decode("utf-8-sig", errors="replace")


def _folders(names: Iterable[str]) -> frozenset[str]:
    found: set[str] = set()
    for name in names:
        folder = name.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return frozenset(found)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return "\n" not in name
