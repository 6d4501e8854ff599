"""Reading and writing a sandbox's files from the host, without trusting a single name in it."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack
from pathlib import Path

from ratchet.sandbox import kernel
from ratchet.sandbox.kernel import ID_SHIFT
from ratchet.sandbox.runtime import User

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.ENAMETOOLONG, errno.ENXIO)


def read(root: Path, path: str, max_bytes: int) -> bytes:
    """At most `max_bytes` of the regular file at `path` below `root`. FileNotFoundError where there is none."""
    with ExitStack() as stack:
        found = -1
        try:
            root_fd = _opened(stack, os.open(root, os.O_PATH | os.O_CLOEXEC))
            found = _opened(stack, kernel.open_in_root(root_fd, path, os.O_PATH))
        except OSError as error:
            if error.errno not in _ABSENT:
                raise
        # looked at before it is opened: opening a pipe would wait, or wake somebody
        if found < 0 or not stat.S_ISREG(os.fstat(found).st_mode):
            raise FileNotFoundError(errno.ENOENT, "no regular file in the sandbox", path)
        with Path(f"/proc/self/fd/{found}").open("rb") as file:
            return file.read(max_bytes)


def is_odd(root: Path, path: str) -> bool:
    """Whether something is at `path` that is no regular file, or a link to what the root file system does not hold."""
    with ExitStack() as stack:
        root_fd = _opened(stack, os.open(root, os.O_PATH | os.O_CLOEXEC))
        try:
            _opened(stack, kernel.open_in_root(root_fd, path, os.O_PATH | os.O_NOFOLLOW))
        except OSError as error:
            if error.errno in _ABSENT:
                return False
            raise
        try:
            found = _opened(stack, kernel.open_in_root(root_fd, path, os.O_PATH))
        except OSError as error:
            if error.errno in _ABSENT:
                return True
            raise
        return not stat.S_ISREG(os.fstat(found).st_mode)


def write(root: Path, path: str, data: bytes, mode: int, user: User) -> None:
    """Write a file below `root` as `user` of the sandbox would. Raises OSError as `open` does."""
    with ExitStack() as stack:
        root_fd = _opened(stack, os.open(root, os.O_PATH | os.O_CLOEXEC))
        if user.uid != 0:
            stack.enter_context(kernel.file_access_as(ID_SHIFT + user.uid, ID_SHIFT + user.gid))
        _make_folders(root_fd, path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY
        target = _opened(stack, kernel.open_in_root(root_fd, path, flags, mode & 0o7777))
        if not stat.S_ISREG(os.fstat(target).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        _give_to_root(target)
        os.ftruncate(target, 0)
        view = memoryview(data)
        while view:
            view = view[os.write(target, view) :]
        os.fchmod(target, mode & 0o7777)


def _make_folders(root_fd: int, path: str) -> None:
    parts = [part for part in path.split("/") if part]
    for end in range(1, len(parts)):
        folder = "/".join(parts[:end])
        try:
            os.close(kernel.open_in_root(root_fd, folder, os.O_PATH | os.O_DIRECTORY))
        except FileNotFoundError:
            _make_folder(root_fd, "/".join(parts[: end - 1]) or ".", parts[end - 1])


def _make_folder(root_fd: int, parent: str, name: str) -> None:
    with ExitStack() as stack:
        parent_fd = _opened(stack, kernel.open_in_root(root_fd, parent, os.O_PATH | os.O_DIRECTORY))
        os.mkdir(name, 0o755, dir_fd=parent_fd)
        made = _opened(stack, os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent_fd))
        _give_to_root(made)


def _give_to_root(descriptor: int) -> None:
    """What we made as the host's root belongs to an id that the sandbox does not even have."""
    if os.fstat(descriptor).st_uid == 0:
        os.fchown(descriptor, ID_SHIFT, ID_SHIFT)


def _opened(stack: ExitStack, descriptor: int) -> int:
    stack.callback(os.close, descriptor)
    return descriptor
