"""The few system calls that Python's standard library lacks: mounts, openat2, and file access as another user."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ID_SHIFT = 100_000
"""Host id of the container's root. One block for every sandbox, so layers are shared as they lie on disk."""
ID_COUNT = 65_536

MS_NOSUID, MS_NODEV = 2, 4
_MNT_DETACH = 2
_PR_SET_CHILD_SUBREAPER = 36
_OPENAT2 = 437  # the same number on every architecture
_SETFSUID = {"x86_64": 122, "aarch64": 151, "riscv64": 151, "s390x": 215, "ppc64le": 138}
_SETFSGID = {"x86_64": 123, "aarch64": 152, "riscv64": 152, "s390x": 216, "ppc64le": 139}

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_IN_ROOT = 0x10

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _raise_errno(path: str) -> None:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), path)


def mount(source: str, target: Path, kind: str, options: str, flags: int = 0) -> None:
    """mount(2). Raises OSError."""
    given = (source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), os.fsencode(options))
    if _libc.mount(*given) != 0:
        _raise_errno(str(target))


def unmount(target: Path) -> bool:
    """Detach what is mounted at `target`; False where nothing is."""
    if _libc.umount2(os.fsencode(target), _MNT_DETACH) == 0:
        return True
    if ctypes.get_errno() in (22, 2):  # EINVAL: not a mount point; ENOENT
        return False
    _raise_errno(str(target))
    return False


def unmount_below(directory: Path) -> None:
    """Detach all that is mounted at or below a directory of ours."""
    real = f"{directory.resolve()}/"
    mounts = os.fsdecode(Path("/proc/self/mountinfo").read_bytes()).splitlines()
    for line in reversed(mounts):  # what was mounted last goes first
        # proc(5): the fifth field is the mount point, with space, tab, newline and backslash as octal numbers
        target = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), line.split()[4])
        if f"{target}/".startswith(real):
            unmount(Path(target))


def adopt_orphans() -> None:
    """From now on, processes whose parent ends become children of this process if they descend from it."""
    if _libc.prctl(ctypes.c_int(_PR_SET_CHILD_SUBREAPER), ctypes.c_ulong(1), *[ctypes.c_ulong(0)] * 3) != 0:
        _raise_errno("prctl")


def ends_within(pid_fd: int, timeout_s: float) -> bool:
    """Whether the process of a pidfd has ended, or does so within the time."""
    poll = select.poll()  # not select.select, which knows no descriptors above 1023
    poll.register(pid_fd, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))


def reap(pid: int, *, timeout_s: float) -> bool:
    """Collect a child that ends; False where it goes on, or is none of ours."""
    deadline, pause_s = time.monotonic() + timeout_s, 0.0002
    while True:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return True
        except ChildProcessError:
            return False
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.01)


def ended_children() -> list[int]:
    """Children of this process that have ended, and whose status nobody has asked for."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state == "Z" and int(parent) == os.getpid():
                found.append(int(entry.name))
    return found


def open_in_root(root_fd: int, path: str, flags: int, mode: int = 0) -> int:
    """Open `path` as a process chroot'ed to `root_fd` would: no link and no `..` leads out, and no mount is crossed.

    Raises OSError; EXDEV where the path leads to another mount.
    """
    how = _OpenHow(flags | os.O_CLOEXEC, mode, RESOLVE_IN_ROOT | RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS)
    while True:
        opened = _libc.syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_int(root_fd),
            os.fsencode(path),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if opened >= 0:
            return int(opened)
        if ctypes.get_errno() != 11:  # EAGAIN: something was renamed meanwhile, look again
            _raise_errno(path)


@contextmanager
def file_access_as(uid: int, gid: int) -> Iterator[None]:
    """File access of this thread alone happens with these host ids, without root's rights over files."""
    machine = platform.machine()
    set_uid, set_gid = _SETFSUID[machine], _SETFSGID[machine]
    try:
        _libc.syscall(ctypes.c_long(set_gid), ctypes.c_int(gid))
        _libc.syscall(ctypes.c_long(set_uid), ctypes.c_int(uid))
        if _libc.syscall(ctypes.c_long(set_uid), ctypes.c_int(-1)) != uid:
            raise PermissionError(1, "setfsuid was refused", str(uid))
        yield
    finally:
        _libc.syscall(ctypes.c_long(set_uid), ctypes.c_int(os.geteuid()))
        _libc.syscall(ctypes.c_long(set_gid), ctypes.c_int(os.getegid()))
