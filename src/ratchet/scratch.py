"""Locks between processes, and temporary files that a killed process cannot leave behind for good.

Locks are `flock`s: they end with the process that holds them, however it ends. A temporary file or directory is
locked for the life of its process, so that a sweep tells what is abandoned from what is being made.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ratchet.errors import StoreError


class TakenError(BlockingIOError):
    """Somebody else holds the lock."""


@contextmanager
def locked(path: Path, operation: int) -> Iterator[None]:
    """Hold a lock on the file `path`, made where it is absent. `operation` is as for `fcntl.flock`; with LOCK_NB,
    TakenError is raised instead of waiting."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(descriptor, operation)
            except BlockingIOError:
                raise TakenError(path) from None
            if not _same_file(descriptor, path):
                continue  # it was removed between the opening and the locking
            yield
            return
        finally:
            os.close(descriptor)


class Scratch:
    """Temporary files and directories in one directory, made at first use; they can be renamed out of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = directory / ".lock"

    @contextmanager
    def temporary(self) -> Iterator[Path]:
        """A new directory, removed at the end with what is left in it.

        What killed processes left of theirs is removed on the way.
        """
        self.sweep()
        path, descriptor = self._claim(directory=True)
        try:
            yield path
        finally:
            remove_tree(path)
            os.close(descriptor)

    def write_file(self, path: Path, data: bytes) -> None:
        """Write a file so that a crash at any moment leaves the old one or the new one, never a part."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary, descriptor = self._claim(directory=False)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def sweep(self) -> None:
        """Remove what belongs to no process any more."""
        if not self.directory.is_dir():
            return
        with locked(self._lock, fcntl.LOCK_EX):  # meanwhile nothing is made, and not yet locked
            entries = [path for path in self.directory.iterdir() if path != self._lock]
            dead = [(path, lock) for path in entries if (lock := _try_lock(path)) is not None]
        for path, descriptor in dead:
            remove_tree(path)
            os.close(descriptor)

    def _claim(self, *, directory: bool) -> tuple[Path, int]:
        """A new file or directory, and the descriptor that keeps it locked for this process."""
        path = self.directory / secrets.token_hex(8)
        with locked(self._lock, fcntl.LOCK_EX):
            if directory:
                path.mkdir(mode=0o700)
            descriptor = os.open(path, os.O_RDONLY if directory else os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        return path, descriptor


def remove_tree(path: Path) -> None:
    """Remove a directory or file with all that is in it; no error when it is not there.

    By `rm` and not by `shutil.rmtree`: a hostile tree may be deeper than Python's stack and than a path may be long.
    """
    command = ["rm", "-rf", "--one-file-system", "--", str(path)]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if result.returncode != 0:
        raise StoreError(
            f"{path} cannot be removed: {os.fsdecode(result.stderr[-300:]).strip()}",
            remedy="look for a mount below it, or for files of another user",
        )


def _try_lock(path: Path) -> int | None:
    """The descriptor of the locked file or directory; None when its process lives, or it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
