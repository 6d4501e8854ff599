"""Directories that belong to a living process, so that what a dead one left can be told apart and swept.

A claim is a directory with a file `lock`, flock'ed by its owner for the owner's life. The kernel drops the lock when
the process ends, however it ends. Making a claim and looking for dead ones exclude each other (`.lock` of the parent).
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HANDOVER_S = 2.0


class Claim:
    """A claimed directory. Closing the claim (or dying) lets others sweep what is still there."""

    def __init__(self, path: Path, lock_fd: int) -> None:
        self.path = path
        self._lock_fd = lock_fd

    @property
    def id(self) -> str:
        return self.path.name

    def close(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


@contextmanager
def _exclusive(parent: Path) -> Iterator[None]:
    descriptor = os.open(parent / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _try_lock(directory: Path) -> Claim | None:
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return Claim(directory, descriptor)


def claim(parent: Path) -> Claim:
    """Make and claim a new directory under `parent` (made where absent) with a fresh random name."""
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _exclusive(parent):
        directory = parent / secrets.token_hex(8)
        directory.mkdir(mode=0o700)
        claimed = _try_lock(directory)
        (directory / "lock").write_text(str(os.getpid()))
    if claimed is None:
        raise OSError(f"{directory} was claimed by another process in the moment it was made")
    return claimed


def claim_dead(parent: Path) -> list[Claim]:
    """Claim every directory under `parent` whose owner is dead. The caller cleans them up and closes the claims."""
    if not parent.is_dir():
        return []
    with _exclusive(parent):
        directories = sorted(entry for entry in parent.iterdir() if entry.is_dir() and not entry.is_symlink())
        return [dead for directory in directories if (dead := _lock_dead(directory)) is not None]


def _lock_dead(directory: Path) -> Claim | None:
    """A process that was killed while it started another leaves the lock with that one, until it runs its program."""
    deadline = time.monotonic() + _HANDOVER_S
    while (dead := _try_lock(directory)) is None:
        if _owner_lives(directory) or time.monotonic() > deadline:
            return None
        time.sleep(0.005)
    return dead


def _owner_lives(directory: Path) -> bool:
    try:
        owner = (directory / "lock").read_text()
    except FileNotFoundError:  # it has just been removed
        return True
    return not owner.isdigit() or Path("/proc", owner).exists()
