"""Laying files out safely, and naming a checkout by the hash of its content.

Every kind of source is a stream of entries, and this module alone turns entries into files. No link exists in the
tree while files are written, so no entry can be written through one; links are made at the end, and only those
that stay inside. That does not depend on the checks of an archive library, and it treats all sources alike.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from ratchet.errors import SourceError

MAX_TOTAL_BYTES = 2 << 30
MAX_FILE_BYTES = 1 << 30
MAX_FILES = 200_000
MAX_DEPTH = 128
MAX_PATH_BYTES = 2000  # the kernel takes 4096, with the folders of ours that it will lie in
CHUNK_BYTES = 1 << 20

_MAX_LINK_BYTES = 4096
_MAX_LINK_HOPS = 40
_LFS_POINTER = b"version https://git-lfs.github.com/spec/v1"
_MAX_LFS_POINTER_BYTES = 1024
_SUBMODULE_PATH = re.compile(r"^\s*path\s*=\s*(.+?)\s*$", re.MULTILINE)


class Kind(StrEnum):
    FILE = "file"
    LINK = "link"
    DIRECTORY = "directory"
    SUBMODULE = "submodule"
    HARD_LINK = "hard-link"
    SPECIAL = "special"


@dataclass(frozen=True)
class Entry:
    """One thing in a source, before it is on the disk.

    `path` is relative, with `/`; it is checked here. `chunks` gives the bytes of a file, and is consumed before the
    next entry is asked for. `target` is what a link points at, or the path of the entry that a hard link repeats.
    `size_bytes` is what the source claims, for refusing early; what comes is counted all the same.
    """

    path: str
    kind: Kind
    chunks: Iterable[bytes] = ()
    executable: bool = False
    target: str = ""
    mtime: float | None = None
    size_bytes: int = 0


@dataclass(frozen=True)
class Content:
    """What was laid out: the identity, the tree's root on the disk, and what is known about it.

    `missing` is as in `Checkout.missing`: "submodule: PATH", "lfs-object: PATH", "outside-link: PATH -> TARGET",
    "special-file: PATH". `newest` is the newest modification time, in seconds since 1970, if entries carry any.
    """

    id: str
    root: Path
    files: int
    size_bytes: int
    missing: tuple[str, ...]
    newest: float | None


@dataclass
class _Layout:
    """The tree as far as it is written."""

    root: Path
    files: dict[str, tuple[bool, str]] = field(default_factory=dict)  # path -> executable, SHA-256
    links: dict[str, str] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)
    mtimes: dict[str, float] = field(default_factory=dict)
    size_bytes: int = 0
    count: int = 0


def lay_out(entries: Iterable[Entry], tree: Path, *, strip: bool = False) -> Content:
    """Write the entries into the new directory `tree`. With `strip`, a single top folder is left away.

    `.git` at any depth is left out. Raises SourceError for a path that leaves the tree, and above the limits.
    """
    tree.mkdir()
    layout = _Layout(tree)
    for entry in entries:
        layout.count += 1
        if layout.count > MAX_FILES:
            raise _too_large(f"more than {MAX_FILES} files")
        path = _safe_path(entry.path)
        if path and ".git" not in path.split("/"):
            _add(layout, path, entry)
    if strip:
        _strip_top_folder(layout)
    _add_links(layout)
    _name_missing(layout)
    return Content(
        id=_identity(layout),
        root=layout.root,
        files=len(layout.files) + len(layout.links),
        size_bytes=layout.size_bytes,
        missing=tuple(sorted(set(layout.missing))),
        newest=max(layout.mtimes.values(), default=None),
    )


def printable(path: str) -> str:
    """`path` as text that can be stored and shown: undecodable bytes and control characters are escaped."""
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _add(layout: _Layout, path: str, entry: Entry) -> None:
    try:
        match entry.kind:
            case Kind.FILE:
                _write_file(layout, path, entry.chunks, entry)
            case Kind.HARD_LINK:
                _repeat_file(layout, path, entry)
            case Kind.LINK:
                layout.links[path] = entry.target
            case Kind.DIRECTORY:
                _make_directory(layout, path)
            case Kind.SUBMODULE:
                layout.missing.append(f"submodule: {printable(path)}")
            case Kind.SPECIAL:
                layout.missing.append(f"special-file: {printable(path)}")
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise SourceError(
            f"the source uses {printable(path)[:200]} both as a file and as a folder",
            remedy="the archive is damaged or was made to do harm: get it from another place",
        ) from error
    except OSError as error:
        raise SourceError(
            f"{printable(path)[:200]} cannot be written: {error.strerror}",
            remedy="free some disk space, or set RATCHET_HOME to a file system that can hold such a file",
        ) from error


def _write_file(layout: _Layout, path: str, chunks: Iterable[bytes], entry: Entry) -> None:
    _check_size(layout, path, entry.size_bytes, entry.size_bytes)
    layout.links.pop(path, None)  # the last entry of a name counts, as in tar
    parent = path.rpartition("/")[0]
    if parent:
        _make_directory(layout, parent)
    digest, size, mode = hashlib.sha256(), 0, 0o755 if entry.executable else 0o644
    target = layout.root / path
    target.unlink(missing_ok=True)
    with target.open("xb") as file:  # x: never what is there already, nor through a link
        os.fchmod(file.fileno(), mode)
        for chunk in _source_errors(path, chunks):
            size += len(chunk)
            _check_size(layout, path, size, len(chunk))
            layout.size_bytes += len(chunk)
            digest.update(chunk)
            file.write(chunk)
    if entry.mtime is not None and 0 <= entry.mtime < 1 << 33:
        os.utime(target, (entry.mtime, entry.mtime))
        layout.mtimes[path] = entry.mtime
    layout.files[path] = (entry.executable, digest.hexdigest())


def _check_size(layout: _Layout, path: str, file_bytes: int, more_bytes: int) -> None:
    if file_bytes > MAX_FILE_BYTES:
        raise _too_large(f"{printable(path)[:200]} has more than {MAX_FILE_BYTES >> 20} MiB")
    if layout.size_bytes + more_bytes > MAX_TOTAL_BYTES:
        raise _too_large(f"more than {MAX_TOTAL_BYTES >> 20} MiB in all")


def _source_errors(path: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Keep apart what reading and what writing raises."""
    try:
        yield from chunks
    except OSError as error:
        raise SourceError(
            f"{printable(path)[:200]} cannot be read: {error.strerror or error}",
            remedy="check the permissions of the file and the state of the disk; a download may be damaged",
        ) from error


def _repeat_file(layout: _Layout, path: str, entry: Entry) -> None:
    original = _safe_path(entry.target)
    if original not in layout.files:
        raise SourceError(
            f"{printable(path)[:200]} is a hard link to {printable(entry.target)[:200]}, which is not in the source",
            remedy="the archive is damaged or was made to do harm: get it from another place",
        )
    if original != path:
        copy = Entry(path, Kind.FILE, executable=layout.files[original][0], mtime=layout.mtimes.get(original))
        _write_file(layout, path, read_chunks(layout.root / original), copy)


def read_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a file, a piece at a time."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _make_directory(layout: _Layout, path: str) -> None:
    parts = path.split("/")
    for depth in range(1, len(parts) + 1):
        folder = "/".join(parts[:depth])
        if folder not in layout.directories:
            layout.links.pop(folder, None)
            (layout.root / folder).mkdir(mode=0o755)
            layout.directories.add(folder)


def _safe_path(path: str) -> str:
    """The path without `.` and doubled slashes; empty for the root. SourceError when it leaves the tree."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise SourceError(
            f"the source holds {printable(path)[:200]!r}, which lies outside of it",
            remedy="the archive was made to do harm, or by a broken tool: get it from another place",
        )
    if len(parts) > MAX_DEPTH:
        raise _too_large(f"folders nested more than {MAX_DEPTH} deep")
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise _too_large(f"a path of more than {MAX_PATH_BYTES} bytes")
    return "/".join(parts)


# --------------------------------------------------------------------------- when all files are there


def _strip_top_folder(layout: _Layout) -> None:
    paths = layout.files.keys() | layout.links.keys() | layout.directories
    tops = {path.partition("/")[0] for path in paths}
    if len(tops) != 1 or not tops <= layout.directories:
        return
    top = tops.pop()
    layout.root /= top
    cut = len(top) + 1
    layout.files = {path[cut:]: value for path, value in layout.files.items()}
    layout.links = {path[cut:]: value for path, value in layout.links.items()}
    layout.mtimes = {path[cut:]: value for path, value in layout.mtimes.items()}
    layout.directories = {path[cut:] for path in layout.directories if path != top}
    prefix = re.compile(rf"(?<=: ){re.escape(printable(top))}/")
    layout.missing = [prefix.sub("", line, count=1) for line in layout.missing]


def _add_links(layout: _Layout) -> None:
    outside = {path for path in layout.links if _leaves(path, layout.links)}
    for path, target in layout.links.items():
        if path in outside:
            layout.missing.append(f"outside-link: {printable(path)} -> {printable(target)[:200]}")
    layout.links = {path: target for path, target in layout.links.items() if path not in outside}
    for path, target in layout.links.items():
        try:
            parent = path.rpartition("/")[0]
            if parent:
                _make_directory_beside_links(layout, parent)
            if path in layout.files:
                del layout.files[path]  # the link came later
                layout.mtimes.pop(path, None)
                (layout.root / path).unlink()
            (layout.root / path).symlink_to(target)
        except OSError as error:
            raise SourceError(
                f"the link {printable(path)[:200]} cannot be made: {error.strerror}",
                remedy="the source uses one name twice, or a name that this file system refuses",
            ) from error


def _make_directory_beside_links(layout: _Layout, path: str) -> None:
    """Like `_make_directory`, but a folder that is a link is refused instead of replaced."""
    parts = path.split("/")
    if any("/".join(parts[:depth]) in layout.links for depth in range(1, len(parts) + 1)):
        raise NotADirectoryError(0, "its folder is a link")
    _make_directory(layout, path)


def _leaves(path: str, links: dict[str, str]) -> bool:
    """Whether following the link at `path` leads out of the tree, by whatever chain of links.

    Resolved like the kernel does it, part by part, over the links that the source holds: comparing normalised paths
    is not enough, since `a/..` is not the same folder when `a` is a link. A circle counts as leaving.
    """
    here = path.split("/")[:-1]
    pending = _parts(links[path])
    hops = 1
    if pending is None:
        return True
    while pending:
        part = pending.pop()
        if part == "..":
            if not here:
                return True
            here.pop()
            continue
        here.append(part)
        target = links.get("/".join(here))
        if target is None:
            continue
        hops += 1
        more = _parts(target)
        if more is None or hops > _MAX_LINK_HOPS:
            return True
        here.pop()
        pending.extend(more)
    return False


def _parts(target: str) -> list[str] | None:
    """The parts of a link's target, the last first; None where no link in a tree may point at it."""
    if target.startswith("/") or not target or len(target) >= _MAX_LINK_BYTES or "\0" in target:
        return None
    return [part for part in reversed(target.split("/")) if part not in ("", ".")]


def _name_missing(layout: _Layout) -> None:
    for path in layout.files:
        file = layout.root / path
        if file.stat().st_size <= _MAX_LFS_POINTER_BYTES and file.read_bytes().startswith(_LFS_POINTER):
            layout.missing.append(f"lfs-object: {printable(path)}")
    filled = {folder for path in (*layout.files, *layout.links) for folder in _folders(path)}
    for path in _declared_submodules(layout):
        if path not in filled:
            layout.missing.append(f"submodule: {printable(path)}")


def _folders(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _declared_submodules(layout: _Layout) -> Iterator[str]:
    if ".gitmodules" not in layout.files:
        return
    text = os.fsdecode((layout.root / ".gitmodules").read_bytes()[: 1 << 20])
    for match in _SUBMODULE_PATH.finditer(text):
        path = match[1].strip('"').strip("/")
        if path and ".." not in path.split("/"):
            yield path


def _identity(layout: _Layout) -> str:
    """SHA-256 over the sorted entries: path, type, executable bit, and content hash or link target.

    Folders count only where they are empty: the others are in the paths of what they hold.
    """
    lines = [(path, "x" if executable else "f", digest) for path, (executable, digest) in layout.files.items()]
    lines += [(path, "l", target) for path, target in layout.links.items()]
    parents = {path.rpartition("/")[0] for path in (*layout.files, *layout.links, *layout.directories)}
    lines += [(path, "d", "") for path in layout.directories - parents]
    digest = hashlib.sha256()
    for line in sorted(tuple(os.fsencode(part) for part in line) for line in lines):
        digest.update(b"\0".join(line) + b"\0")
    return digest.hexdigest()


def _too_large(what: str) -> SourceError:
    return SourceError(
        f"the source is too large: {what}",
        remedy="leave out data and build results, or install a part of the repository from its own directory",
    )
