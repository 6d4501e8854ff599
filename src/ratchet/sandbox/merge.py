"""Several uppers of an overlay, one on another, made into one.

Works on the directories as they lie on disk, by the rules of the kernel's overlayfs document: a character device 0:0
hides what is below it, the attribute `trusted.overlay.opaque` hides all that is below a directory. (`overlay.mount`
turns redirected directories and metadata-only copies off, so there is nothing else.) Files are hard-linked: frozen
layers never change.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_OPAQUE = "trusted.overlay.opaque"
_OVERLAY_ATTRIBUTES = "trusted.overlay."


def merge(changes: Sequence[Path], target: Path) -> None:
    """`target`, which is made, has the effect of `changes` (bottom first). All must lie on one file system."""
    target.mkdir()
    pending = [(list(changes), target, False)]
    made: list[tuple[Path, Path]] = []
    while pending:
        sources, directory, opaque = pending.pop()
        made.append((sources[-1], directory))
        for name in sorted({entry.name for source in sources for entry in source.iterdir()}):
            stack, hides = _visible(sources, name)
            top, copy = stack[-1], directory / name
            if stat.S_ISDIR(top.lstat().st_mode):
                copy.mkdir()
                if hides:
                    os.setxattr(copy, _OPAQUE, b"y")
                pending.append((stack, copy, opaque or hides))
            elif not (opaque and _is_whiteout(top)):  # below an opaque directory there is nothing to hide
                os.link(top, copy, follow_symlinks=False)
    for source, directory in reversed(made):  # last: they change while they are filled
        _copy_attributes(source, directory)


def _visible(sources: Sequence[Path], name: str) -> tuple[list[Path], bool]:
    """What lies at `name`, down to the first that hides what is below; and whether a directory does so for good."""
    stack: list[Path] = []
    for source in reversed(sources):
        path = source / name
        if not os.path.lexists(path):
            continue
        if stack and not stat.S_ISDIR(path.lstat().st_mode):
            return stack, True
        stack.insert(0, path)
        if not stat.S_ISDIR(path.lstat().st_mode):
            return stack, False
        if is_opaque(path):
            return stack, True
    return stack, False


def _is_whiteout(path: Path) -> bool:
    info = path.lstat()
    return stat.S_ISCHR(info.st_mode) and info.st_rdev == 0


def is_opaque(directory: Path) -> bool:
    """Whether a directory of an upper layer hides all that lower layers have in its place."""
    try:
        return os.getxattr(directory, _OPAQUE) == b"y"
    except OSError:  # it has no such attribute
        return False


def _copy_attributes(source: Path, directory: Path) -> None:
    info = source.lstat()
    for name in os.listxattr(source):
        if not name.startswith(_OVERLAY_ATTRIBUTES):
            with suppress(FileNotFoundError):
                os.setxattr(directory, name, os.getxattr(source, name))
    os.chown(directory, info.st_uid, info.st_gid)
    directory.chmod(stat.S_IMODE(info.st_mode))
    os.utime(directory, ns=(info.st_atime_ns, info.st_mtime_ns))
