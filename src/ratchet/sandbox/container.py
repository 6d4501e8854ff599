"""One start of a sandbox's container: from process 1 until nothing of it is left."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ratchet.errors import SandboxError
from ratchet.records import LimitHit, Limits
from ratchet.sandbox import kernel
from ratchet.sandbox.cgroups import Cgroup
from ratchet.sandbox.command import Channels, Ending, follow
from ratchet.sandbox.runtime import CannotStartError, ProcessSpec, Runtime, User, process_config
from ratchet.sandbox.watch import DiskGauge, Watch

_FILE_SIZE_STATUS = 128 + signal.SIGXFSZ
_KILLED = 128 + signal.SIGKILL
_CANNOT_EXECUTE = 126
_REAP_S, _STOP_S = 0.05, 30.0

# The status comes back through what is standard input at first, and not as the status of a process of ours: nothing
# of ours stays beside a running command, and who is left in the background holds nothing that we wait for.
_ENTER = 'exec 3>&0 </dev/null; if cd -- "$0"; then /bin/sh -c "$1" 3>&-; else (exit 126); fi; echo $? >&3'

Receive = Callable[[bytes], None]


@dataclass(frozen=True)
class Outcome:
    """What became of a command; `exit_status` is None where a limit ended it."""

    exit_status: int | None
    limit: LimitHit | None = None
    message: str = ""


class Container:
    """A running container on the bundle at `directory`. Not to be used after `stop`."""

    def __init__(
        self, runtime: Runtime, name: str, cgroup: Cgroup, directory: Path, limits: Limits, gauge: DiskGauge
    ) -> None:
        self.name = name
        self._runtime = runtime
        self._cgroup = cgroup
        self._directory = directory
        self._limits = limits
        self._numbers = itertools.count(1)
        self._unreaped: list[int] = []
        self.pid, self._pid_fd = 0, -1
        self._resources = contextlib.ExitStack()
        with contextlib.ExitStack() as started:
            started.callback(self._remove)
            kernel.adopt_orphans()
            reading, writing = os.pipe()  # see runtime.py: process 1 lives as long as we hold this
            started.callback(os.close, writing)
            try:
                self.pid = runtime.start(name, directory, reading, cgroup.kill)
            finally:
                os.close(reading)
            self._pid_fd = self._open_pid()
            self.watch = Watch(limits, cgroup, gauge, self.kill)
            started.callback(self.watch.stop)
            self._resources = started.pop_all()

    def attach(self, attachment: contextlib.AbstractContextManager[object]) -> None:
        """Something that is to end before the container does."""
        self._resources.enter_context(attachment)

    @property
    def alive(self) -> bool:
        return not kernel.ends_within(self._pid_fd, 0)

    def kill(self) -> None:
        """Kill process 1, with which the kernel ends all others. Returns at once."""
        if self._pid_fd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pid_fd, signal.SIGKILL)

    def stop(self) -> None:
        """End everything, and wait until it is gone."""
        self.kill()
        self._resources.close()

    def execute(
        self, command: str, cwd: str, user: User, env: Mapping[str, str], *, timeout_s: float, receive: Receive
    ) -> Outcome:
        """Run a command to its end. Raises SandboxError where the machinery fails."""
        process = ProcessSpec(["/bin/sh", "-c", _ENTER, cwd, command], user, env)
        refused, killed = self._cgroup.forks_refused(), self._cgroup.oom_kills()
        deadline = time.monotonic() + timeout_s
        with Channels() as channels:
            try:
                pid = self._begin(process, channels, timeout_s)
            except CannotStartError as error:
                timed_out = time.monotonic() >= deadline
                limit = self._limit(Ending(None, timed_out), refused=refused, killed=killed)
                return Outcome(None, limit) if limit else self._not_started(str(error))
            try:
                ending = follow(channels, deadline=deadline, kill=self.kill, receive=receive)
            finally:
                self._reap(pid)
        limit = self._limit(ending, refused=refused, killed=killed)
        if limit is not None:
            return Outcome(None, limit)
        return Outcome(_KILLED if ending.exit_status is None else ending.exit_status)

    def _begin(self, process: ProcessSpec, channels: Channels, timeout_s: float) -> int:
        workspace = self._directory / f"exec-{next(self._numbers)}"
        workspace.mkdir()
        config = process_config(process, self._limits)
        try:
            return self._runtime.execute(self.name, workspace, config, channels.theirs, timeout_s, self.kill)
        finally:
            channels.close_theirs()
            for left in workspace.iterdir():
                left.unlink()
            workspace.rmdir()

    def _reap(self, pid: int) -> None:
        """A detached command is our child once the runtime is gone (`kernel.adopt_orphans`). Where it has not ended
        yet, it will have when the container is stopped."""
        if not kernel.reap(pid, timeout_s=_REAP_S):
            self._unreaped.append(pid)

    def _limit(self, ending: Ending, *, refused: int, killed: int) -> LimitHit | None:
        """Which limit ended the command, if one did."""
        if self.watch.hit is not None:
            return self.watch.hit
        if ending.exit_status == 0:
            return None
        if self._cgroup.oom_kills() > killed:
            return LimitHit.MEMORY
        if self._cgroup.forks_refused() > refused:
            return LimitHit.PROCESSES
        if ending.timed_out:
            return LimitHit.TIME
        return LimitHit.DISK if ending.exit_status == _FILE_SIZE_STATUS else None

    def _not_started(self, problem: str) -> Outcome:
        if not self.alive:
            raise SandboxError(f"sandbox {self.name} ended while a command was started in it: {problem}")
        if any(text in problem for text in ("no such file", "permission denied", "format error", "too long")):
            return Outcome(_CANNOT_EXECUTE, message=problem)  # the sandbox's own /bin/sh is gone or broken
        raise SandboxError(f"a command could not be started in sandbox {self.name}: {problem}")

    def _open_pid(self) -> int:
        try:
            return os.pidfd_open(self.pid)
        except ProcessLookupError as error:
            raise SandboxError(
                f"process 1 of sandbox {self.name} ended at once",
                remedy="check that /bin/sh of the base runs on this machine's architecture",
            ) from error

    def _reap_rest(self) -> None:
        """Collect what has ended. Process 1 is the last: the kernel lets it wait until all others are collected."""
        for pid in self._unreaped:
            kernel.reap(pid, timeout_s=_REAP_S)
        if self._pid_fd < 0:  # it never came to be
            self._reap_strays()
            return
        deadline = time.monotonic() + _STOP_S
        while not kernel.reap(self.pid, timeout_s=_REAP_S):
            if kernel.ends_within(self._pid_fd, 0) or time.monotonic() > deadline:
                return  # somebody else collected it; or the group will say which process does not die
            self._reap_strays()

    def _reap_strays(self) -> None:
        """Children that a runtime left us when it failed: their numbers we were not told."""
        for pid in kernel.ended_children():
            if self._cgroup.holds(pid):
                kernel.reap(pid, timeout_s=0)

    def _remove(self) -> None:
        self.kill()
        self._reap_rest()
        self._cgroup.kill()
        self._cgroup.remove()
        self._runtime.forget(self.name)
        if self._pid_fd >= 0:
            os.close(self._pid_fd)


def stray_runtime_processes(name: str) -> list[int]:
    """Runtime calls about `name` that outlived the process which made them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if name.encode() in words and b"--root" in words and int(entry.name) != os.getpid():
                    found.append(int(entry.name))
    return found


def end_stray_runtime_processes(name: str) -> None:
    for pid in stray_runtime_processes(name):
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                if pid in stray_runtime_processes(name):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            finally:
                os.close(descriptor)
