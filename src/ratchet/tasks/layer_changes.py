"""Reading layers on the host as the kernel's overlay would show them, without following anything that lies in them.

A layer that a rollout left is hostile: links that lead out, pipes, devices, a million files, a thousand folders deep.
Folders are opened one by one, each from the one before, so that no link is ever followed and no path is too long.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ratchet.autoinstall.workshop import WORKSPACE
from ratchet.sandbox.merge import is_opaque

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_FIRST = WORKSPACE.lstrip("/")
_DEEPEST = 64
_MOST_ENTRIES = 100_000


class EntryKind(StrEnum):
    FILE = "file"
    FOLDER = "folder"
    NEW_FOLDER = "new folder"  # hides what lower layers have in its place
    REMOVED = "removed"
    LINK = "link"
    OTHER = "device, pipe or socket"


@dataclass(frozen=True)
class Changes:
    """What lies in an upper layer, by path (relative to its root, no leading slash). `complete` is false where there
    was more than is looked at."""

    entries: Mapping[str, EntryKind]
    complete: bool

    def of(self, path: str) -> EntryKind | None:
        """What became of a path of the layers below; None: it is as it was. FILE: perhaps other content."""
        parts = path.split("/")
        for end in range(1, len(parts)):
            kind = self.entries.get("/".join(parts[:end]))
            if kind is None:
                return None
            if kind is EntryKind.NEW_FOLDER:
                return self.entries.get(path, EntryKind.REMOVED)
            if kind is not EntryKind.FOLDER:
                return EntryKind.REMOVED
        return self.entries.get(path)


def changes(layer: Path) -> Changes:
    """All that lies in `layer`, folders before what is in them, in the order of their names; the workspace first, since
    there may be more than is looked at."""
    entries: dict[str, EntryKind] = {}
    complete = True
    with ExitStack() as stack:
        root = os.open(layer, _FOLDER)
        stack.callback(os.close, root)
        for path, kind in _walk(root, "", 0):
            if len(entries) >= _MOST_ENTRIES or kind is None:
                complete = False
                if kind is None:
                    continue
                break
            entries[path] = kind
    return Changes(entries, complete)


def _walk(folder: int, prefix: str, depth: int) -> Iterator[tuple[str, EntryKind | None]]:
    """With None for a folder that is too deep to be looked into."""
    with os.scandir(folder) as listing:
        names = [entry.name for _, entry in zip(range(_MOST_ENTRIES + 1), listing, strict=False)]
    for name in sorted(names, key=lambda name: (depth > 0 or name != _FIRST, name)):
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        path = f"{prefix}{name}"
        if not stat.S_ISDIR(info.st_mode):
            yield path, _kind(info)
            continue
        if depth >= _DEEPEST:
            yield path, None
            continue
        inner = os.open(name, _FOLDER, dir_fd=folder)
        try:
            yield path, EntryKind.NEW_FOLDER if _opaque(inner) else EntryKind.FOLDER
            yield from _walk(inner, f"{path}/", depth + 1)
        finally:
            os.close(inner)


def _kind(info: os.stat_result) -> EntryKind:
    if stat.S_ISREG(info.st_mode):
        return EntryKind.FILE
    if stat.S_ISLNK(info.st_mode):
        return EntryKind.LINK
    return EntryKind.REMOVED if stat.S_ISCHR(info.st_mode) and info.st_rdev == 0 else EntryKind.OTHER


def _opaque(folder: int) -> bool:
    return is_opaque(Path(f"/proc/self/fd/{folder}"))


class Stack:
    """Layers on one another, given bottom first, as paths of their directories."""

    def __init__(self, layers: Sequence[Path]) -> None:
        self._layers = tuple(reversed(layers))

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def read(self, path: str, max_bytes: int, *, follow: bool = False) -> bytes | None:
        """The first `max_bytes` of the regular file at `path`; None where there is none. `follow` is for the test that
        shows why a link in its place must not be followed."""
        layer = self._find(path)
        if layer is None:
            return None
        *folders, name = path.split("/")
        with ExitStack() as stack:
            folder = os.open(layer, _FOLDER)
            stack.callback(os.close, folder)
            for part in folders:
                folder = os.open(part, _FOLDER, dir_fd=folder)
                stack.callback(os.close, folder)
            if not follow and not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                return None
            try:
                file = os.open(name, _FILE | (0 if follow else os.O_NOFOLLOW), dir_fd=folder)
            except FileNotFoundError:  # a link, followed, that leads nowhere
                return None
            with open(file, "rb") as stream:  # noqa: PTH123 - a descriptor
                return stream.read(max_bytes) if stat.S_ISREG(os.fstat(file).st_mode) else None

    def _find(self, path: str) -> Path | None:
        """The uppermost layer that has something at `path` which nothing above hides."""
        for layer in self._layers:
            found = _look(layer, path.split("/"))
            if found is not None:
                return layer if found else None
        return None


def _look(layer: Path, parts: Sequence[str]) -> bool | None:
    """Whether something lies there (true), is hidden by this layer from those below (false), or neither (None)."""
    hides = False
    with ExitStack() as stack:
        folder = os.open(layer, _FOLDER)
        stack.callback(os.close, folder)
        for number, part in enumerate(parts, 1):
            try:
                info = os.stat(part, dir_fd=folder, follow_symlinks=False)
            except (FileNotFoundError, ValueError):  # ValueError: a NUL in a name
                return False if hides else None
            if not stat.S_ISDIR(info.st_mode):
                return number == len(parts) and _kind(info) is not EntryKind.REMOVED
            if number == len(parts):
                return True
            folder = os.open(part, _FOLDER, dir_fd=folder)
            stack.callback(os.close, folder)
            hides = hides or _opaque(folder)
    return None
