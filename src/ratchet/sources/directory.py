"""A directory as it is: its files, without git history, caches and virtual environments.

The directory may be hostile. It is walked by folder descriptors, links are never followed, and only regular files
are opened; devices, sockets and FIFOs are named and left out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from ratchet.errors import SourceError
from ratchet.sources.content import CHUNK_BYTES, MAX_DEPTH, Entry, Kind, printable

_CACHE_TAG = b"Signature: 8a477f597d28d172789f06886806bc55"  # the Cache Directory Tagging Specification

Wanted = Callable[[str], bool]
"""Whether a path (relative, with `/`) is copied; asked for folders and files alike."""


def read_entries(directory: Path, *, wanted: Wanted | None = None, leave_out: tuple[Path, ...] = ()) -> Iterator[Entry]:
    """The entries below `directory`, in a fixed order; folders before what they hold.

    Without `wanted`, everything but folders that tools mark as caches (`CACHEDIR.TAG`, `__pycache__`) or as virtual
    environments (`pyvenv.cfg`). Folders in `leave_out` (the store itself may lie below) are skipped.
    """
    skipped = {_identity(path.stat()) for path in leave_out if path.exists()}
    for root, folders, files, descriptor in os.fwalk(directory, follow_symlinks=False, onerror=_unreadable):
        prefix = os.path.relpath(root, directory)
        prefix = "" if prefix == "." else f"{prefix}/"
        if prefix.count("/") > MAX_DEPTH:
            raise SourceError(
                f"{directory} has folders nested more than {MAX_DEPTH} deep",
                remedy="look for a link or a tool that made folders within themselves",
            )
        links = []
        for name in sorted(folders):
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                links.append(name)
            keep = name != ".git" and _identity(status) not in skipped
            if keep and wanted is None:
                keep = not _is_disposable(name, descriptor)
            elif keep and wanted is not None:
                keep = wanted(prefix + name)
            if not keep:
                folders.remove(name)
                links = [link for link in links if link != name]
        folders[:] = sorted(set(folders) - set(links))
        for name in folders:
            yield Entry(prefix + name, Kind.DIRECTORY)
        for name in sorted((*files, *links)):
            if name != ".git" and (wanted is None or wanted(prefix + name)):
                yield _entry(prefix + name, name, descriptor)


def _entry(path: str, name: str, descriptor: int) -> Entry:
    status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        return Entry(path, Kind.LINK, target=os.readlink(name, dir_fd=descriptor))
    if not stat.S_ISREG(status.st_mode):
        return Entry(path, Kind.SPECIAL)
    executable = bool(status.st_mode & 0o100)
    chunks = _chunks(name, descriptor)
    return Entry(path, Kind.FILE, chunks, executable, mtime=status.st_mtime, size_bytes=status.st_size)


def _chunks(name: str, descriptor: int) -> Iterator[bytes]:
    # O_NONBLOCK: should a FIFO have taken the place of the file, opening it must not hang.
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=descriptor)
    with os.fdopen(file, "rb", buffering=0) as stream:
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk


def _is_disposable(name: str, descriptor: int) -> bool:
    if name == "__pycache__":
        return True
    tag = _head(f"{name}/CACHEDIR.TAG", descriptor)
    return tag.startswith(_CACHE_TAG) or b"home" in _head(f"{name}/pyvenv.cfg", descriptor)


def _head(path: str, descriptor: int) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=descriptor)
    except OSError:
        return b""  # absent, a link, or unreadable: no tag
    try:
        return os.read(file, 1024) if stat.S_ISREG(os.fstat(file).st_mode) else b""
    finally:
        os.close(file)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _unreadable(error: OSError) -> None:
    raise SourceError(
        f"{printable(str(error.filename))} cannot be read: {error.strerror}",
        remedy="give yourself read permission for the whole directory",
    ) from error
