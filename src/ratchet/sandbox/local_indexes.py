"""Local package indexes and wheel directories of the operator, made visible in the install phase, read-only.

One that is not whole is left out and named: it must not be able to break installs that would work without it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

SETTINGS = "/run/ratchet"  # where sandboxes in the install phase have the files that are bound in
MAX_PAGE_BYTES = 4 << 20
MAX_ENTRIES = 100_000

_HREF = re.compile(r"""<a\s[^>]*?href\s*=\s*["']([^"']*)["']""", re.IGNORECASE)


class _BrokenIndexError(Exception):
    """Why a local index cannot be carried."""


class LocalIndexes:
    """Collects the directories to bind while settings are read. `mounts` are pairs of host path and sandbox path;
    `notes` says what was left out, and why."""

    def __init__(self) -> None:
        self.mounts: list[tuple[str, str]] = []
        self.notes: list[str] = []

    def index(self, location: str) -> str | None:
        """The URL inside the sandbox of a local index (PEP 503 layout); None when it is left out."""
        return self._carry(location, _index_root)

    def wheels(self, location: str) -> str | None:
        """The same for a directory of distribution files."""
        return self._carry(location, _wheel_directory)

    def _carry(self, location: str, root_of: Callable[[Path], Path]) -> str | None:
        directory = Path(local_path(location) or "")
        try:
            root = root_of(directory)
        except _BrokenIndexError as error:
            self.notes.append(f"the local index {directory} is left out: {error}")
            return None
        inside = next((point for host, point in self.mounts if host == str(root)), None)
        if inside is None:
            inside = f"{SETTINGS}/index-{len(self.mounts)}"
            self.mounts.append((str(root), inside))
        relative = directory.relative_to(root).as_posix()
        return f"file://{inside}" + ("" if relative == "." else f"/{relative}")


def local_path(location: str) -> str | None:
    """The path that a `file:` URL or an absolute path names; None for anything else."""
    if location.startswith("/"):
        return location
    parts = urlsplit(location)
    return unquote(parts.path) if parts.scheme == "file" and parts.netloc in {"", "localhost"} else None


def _wheel_directory(directory: Path) -> Path:
    if not directory.is_dir():
        raise _BrokenIndexError("it is no directory")
    for entry in _entries(directory):
        if entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(directory.resolve()):
            raise _BrokenIndexError(f"{entry.name} leads out of it")
        if not Path(entry.path).exists():
            raise _BrokenIndexError(f"{entry.name} leads to nothing")
    return _modest(directory, directory)


def _index_root(directory: Path) -> Path:
    """Pages may refer to files beside the index: the directory that holds both is what has to be visible."""
    if not directory.is_dir():
        raise _BrokenIndexError("it is no directory")
    folders = {directory}
    projects = [Path(entry.path) for entry in _entries(directory) if entry.is_dir()]
    for project in projects:
        for target in _targets(project):
            if not target.is_file():
                raise _BrokenIndexError(f"{project.name} refers to {target.name}, which is not there")
            folders.add(target.parent)
    if not projects:
        raise _BrokenIndexError("it has no projects")
    return _modest(Path(os.path.commonpath([str(each) for each in folders])), directory)


def _targets(project: Path) -> Iterator[Path]:
    page = project / "index.html"
    try:
        with page.open("rb") as stream:
            text = stream.read(MAX_PAGE_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise _BrokenIndexError(f"{project.name} has no readable page: {error.strerror}") from error
    for href in _HREF.findall(text):
        parts = urlsplit(unescape(href))
        if parts.scheme in {"http", "https"}:
            continue
        if parts.scheme or parts.netloc or parts.path.startswith("/"):
            raise _BrokenIndexError(f"{project.name} refers to an absolute path")
        if parts.path:
            yield Path(os.path.normpath(project / unquote(parts.path)))


def _entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            for number, entry in enumerate(entries):
                if number >= MAX_ENTRIES:
                    raise _BrokenIndexError(f"it has more than {MAX_ENTRIES} entries")
                yield entry
    except OSError as error:
        raise _BrokenIndexError(str(error.strerror)) from error


def _modest(root: Path, directory: Path) -> Path:
    """Refuse to show a large part of the machine to hostile code because an index reaches far."""
    shared = root != directory and len(root.parts) < 3
    if shared or root == Path("/") or Path.home().is_relative_to(root):
        raise _BrokenIndexError(f"all of {root} would have to be visible in sandboxes")
    return root
