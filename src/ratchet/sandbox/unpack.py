"""Unpack a root file system archive from standard input into the directory named on the command line.

Run as a program of its own, by root, with nothing but the standard library: it changes its root to the directory
before it reads the archive, so no name, link or `..` in it can lead out. Owners are shifted into the block of the
sandboxes; device nodes are left out; setuid bits, hard links and file capabilities stay right.
"""

from __future__ import annotations

import os
import stat
import struct
import sys
import tarfile
from pathlib import Path

_CAPABILITY = "security.capability"
_PAX_CAPABILITY = f"SCHILY.xattr.{_CAPABILITY}"
_OVERFLOW_ID = 65_534
_RESERVE_BYTES = 1 << 30


def unpack(archive: tarfile.TarFile, shift: int, count: int) -> None:
    """Into the current root directory. Raises OSError and tarfile's errors."""
    directories: list[tarfile.TarInfo] = []
    left_out: set[str] = set()
    for member in archive:
        name = os.path.normpath("/" + member.name).lstrip("/")
        linked = os.path.normpath("/" + member.linkname).lstrip("/") if member.islnk() else None
        if member.ischr() or member.isblk() or linked in left_out:
            left_out.add(name)
            continue
        if member.isreg():
            _check_room(member)
        member.name = name or "."
        if linked is not None:
            member.linkname = linked
        member.uid, member.gid = (shift + (old if old < count else _OVERFLOW_ID) for old in (member.uid, member.gid))
        member.uname = member.gname = ""
        _make_room(name, member.isdir(), shift)
        archive.extract(
            member, "/", set_attrs=not (member.isdir() or member.islnk()), numeric_owner=True, filter="fully_trusted"
        )
        if member.isdir():
            directories.append(member)
        elif _PAX_CAPABILITY in member.pax_headers and member.isreg():
            _set_capability("/" + name, member.pax_headers[_PAX_CAPABILITY], shift)
    for member in reversed(directories):  # last, as their times change while they are filled
        path = Path("/", member.name)
        if stat.S_ISDIR(path.lstat().st_mode):
            os.chown(path, member.uid, member.gid)
            path.chmod(member.mode)
            os.utime(path, (member.mtime, member.mtime))


def _make_room(name: str, is_directory: bool, shift: int) -> None:
    """The folders above `name`, and nothing (but a directory for a directory) at `name` itself."""
    path = Path("/", name)
    for parent in reversed(path.parents):
        if not os.path.lexists(parent):
            parent.mkdir(mode=0o755)
            os.chown(parent, shift, shift)
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        if not is_directory or not path.is_dir():  # a directory may go through a link, as /lib -> usr/lib
            path.unlink()
    elif path.is_dir() and not is_directory:
        path.rmdir()


def _check_room(member: tarfile.TarInfo) -> None:
    usage = os.statvfs("/")
    if usage.f_bavail * usage.f_frsize - member.size < _RESERVE_BYTES:
        raise OSError(28, "the archive would fill the disk", member.name)


def _set_capability(path: str, value: str, shift: int) -> None:
    """Version 3 of the attribute names the user namespace's root in whose eyes it counts."""
    data = value.encode("utf-8", "surrogateescape")
    magic, rest = struct.unpack("<I", data[:4])[0], data[4:20]
    if magic >> 24 in (2, 3) and len(rest) == 16:
        data = struct.pack("<I", 0x03000000 | magic & 1) + rest + struct.pack("<I", shift)
        os.setxattr(path, _CAPABILITY, data)


def main() -> None:
    target, shift, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|*", errorlevel=1) as archive:
        os.chroot(target)
        os.chdir("/")
        os.umask(0o022)
        unpack(archive, shift, count)


if __name__ == "__main__":
    try:
        main()
    except (OSError, tarfile.TarError, EOFError, struct.error) as error:
        sys.exit(f"{type(error).__name__}: {error}")
