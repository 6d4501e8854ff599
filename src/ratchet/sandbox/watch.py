"""The watchdog of a running sandbox: disk and processes. (The kernel holds memory and cpu; `command` holds time.)

File systems without quotas cannot be told how much a directory may hold. So the sandbox's own files are measured,
less often the longer that takes, and the free space of the file system is looked at all the time: that also shows
files that were deleted and are still open, and ends the sandbox before the machine is full.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ratchet.errors import MachineError
from ratchet.records import LimitHit, Limits
from ratchet.sandbox.cgroups import Cgroup

TICK_S = 0.25
_RESERVE_BYTES, _RESERVE_SHARE = 1 << 30, 0.02
_RESERVE_INODES = 50_000
_FORKS_REFUSED_S, _FORKS_REFUSED_COUNT = 3.0, 1000
_PROCESSES_LOOKED_AT, _FILES_LOOKED_AT = 500, 2000


class DiskGauge:
    """How much the files of one sandbox hold, measured in the background: `exceeded` never waits for that.

    Files that were deleted and are still open count: `du` cannot see them, so they are looked for at the processes.

    What is above the limit when the limit first ends a command stays allowed, and a tenth of the limit more, so that
    the next commands can look at what happened and clean up.
    """

    def __init__(self, max_bytes: int, cgroup: Cgroup) -> None:
        self._max_bytes = max_bytes
        self._cgroup = cgroup
        self._allowed_bytes = max_bytes
        self._was_exceeded = False
        self._measuring: subprocess.Popen[bytes] | None = None
        self.directories: list[Path] = []
        self._devices: set[int] = set()
        self.start([], None)

    def start(self, directories: Sequence[Path], root: Path | None) -> None:
        """From now on it is about these directories, none within another, as mounted at `root`."""
        self.directories = list(directories)
        self._devices = {path.stat().st_dev for path in (*directories[:1], root) if path is not None}
        self._last_bytes = 0
        self._due = self._soonest = 0.0
        self._free_bytes = 0

    def exceeded(self) -> bool:
        if self._measuring is None and self._is_due():
            self._free_bytes = _free_bytes(self.directories[0])
            self._measuring = subprocess.Popen(
                ["du", "-scx", "--block-size=1", "--", *map(str, self.directories)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # files vanish while it looks
                start_new_session=True,
            )
        elif self._measuring is not None:
            self._collect(self._measuring)
        self._was_exceeded = self._was_exceeded or self._last_bytes > self._allowed_bytes
        return self._last_bytes > self._allowed_bytes

    def close(self) -> None:
        if self._measuring is not None:
            self._measuring.kill()
            self._measuring.communicate()
            self._measuring = None

    def _is_due(self) -> bool:
        """In time, or sooner when half of what is left to the sandbox is gone from the disk, whoever took it."""
        now = time.monotonic()
        taken = self._free_bytes - _free_bytes(self.directories[0])
        return now >= self._due or (now >= self._soonest and taken > (self._allowed_bytes - self._last_bytes) / 2)

    def _collect(self, measuring: subprocess.Popen[bytes]) -> None:
        pid, status, usage = os.wait4(measuring.pid, os.WNOHANG)
        if pid == 0:
            return
        measuring.returncode = os.waitstatus_to_exitcode(status)
        text = measuring.communicate()[0].decode()
        self._measuring = None
        self._last_bytes = (int(text.splitlines()[-1].split()[0]) if text else 0) + self._deleted_bytes()
        now = time.monotonic()
        if self._was_exceeded and self._allowed_bytes == self._max_bytes:
            self._allowed_bytes = max(self._max_bytes, self._last_bytes + self._max_bytes // 10)
        self._soonest = now + 0.5
        self._due = now + min(30.0, max(1.0, 20 * (usage.ru_utime + usage.ru_stime)))

    def _deleted_bytes(self) -> int:
        """Disk space of files that no directory names any more, and some process of the sandbox has open."""
        sizes: dict[tuple[int, int], int] = {}
        for pid in itertools.islice(self._cgroup.pids(), _PROCESSES_LOOKED_AT):
            with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:  # the process may be gone
                for entry in itertools.islice(entries, _FILES_LOOKED_AT):
                    info = entry.stat()
                    if info.st_nlink == 0 and info.st_dev in self._devices:
                        sizes[info.st_dev, info.st_ino] = info.st_blocks * 512
        return sum(sizes.values())


def _free_bytes(directory: Path) -> int:
    usage = os.statvfs(directory)
    return usage.f_bavail * usage.f_frsize


def machine_is_full(directory: Path) -> bool:
    """Whether the file system has come to the reserve that we leave to the rest of the machine."""
    usage = os.statvfs(directory)
    total_bytes = usage.f_blocks * usage.f_frsize
    if _free_bytes(directory) < min(max(_RESERVE_BYTES, _RESERVE_SHARE * total_bytes), total_bytes / 4):
        return True
    return usage.f_files > 0 and usage.f_favail < min(_RESERVE_INODES, usage.f_files / 20)


def refuse_full_machine(directory: Path) -> None:
    if machine_is_full(directory):
        raise MachineError(
            f"the file system of {directory} is nearly full",
            remedy="`ratchet gc` removes what no environment needs; or set RATCHET_HOME to a larger file system",
        )


class Watch:
    """A thread that ends the sandbox (`kill`) at the first limit it finds passed, and says which in `hit`."""

    def __init__(self, limits: Limits, cgroup: Cgroup, gauge: DiskGauge, kill: Callable[[], None]) -> None:
        self.hit: LimitHit | None = None
        self._limits = limits
        self._cgroup = cgroup
        self._gauge = gauge
        self._kill = kill
        self._refused_since: float | None = None
        self._refused = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="ratchet-watch")
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()
        self._gauge.close()

    def _watch(self) -> None:
        while not self._done.wait(TICK_S):
            if machine_is_full(self._gauge.directories[0]) or self._gauge.exceeded():
                self.hit = LimitHit.DISK
            elif self._forks_refused_for_long():
                self.hit = LimitHit.PROCESSES
            if self.hit is not None:
                self._kill()
                return

    def _forks_refused_for_long(self) -> bool:
        """For some seconds, or so often that nothing but a fork bomb asks like that (some bombs go out at once)."""
        refused, now = self._cgroup.forks_refused(), time.monotonic()
        if refused == self._refused and self._cgroup.processes() < self._limits.processes:
            self._refused_since = None
            return False
        self._refused = refused
        if refused > max(_FORKS_REFUSED_COUNT, self._limits.processes):
            return True
        self._refused_since = self._refused_since or now
        return now - self._refused_since >= _FORKS_REFUSED_S
