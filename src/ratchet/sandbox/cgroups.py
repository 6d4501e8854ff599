"""What one sandbox's control group says and does, on cgroup v1, v2, and both mounted ("hybrid")."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ratchet.errors import SandboxError


@dataclass(frozen=True)
class Hierarchy:
    """One mounted cgroup tree. `controllers` is empty for v2, which has whatever v1 does not hold."""

    root: Path
    controllers: frozenset[str]


def hierarchies(mountinfo: str | None = None) -> tuple[Hierarchy, ...]:
    """The cgroup trees of this machine, read from /proc/self/mountinfo (or from the given text)."""
    found: dict[Path, Hierarchy] = {}
    for line in (Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo).splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.partition(" ")
        root = Path(fields.split()[4].replace("\\040", " "))
        if kind == "cgroup2":
            found[root] = Hierarchy(root, frozenset())
        elif kind == "cgroup":
            found[root] = Hierarchy(root, frozenset(options.split()[-1].split(",")) - {"rw", "ro", "xattr"})
    return tuple(found.values())


class Cgroup:
    """The group `name`, which lies directly under the root of every hierarchy. Missing files read as nothing."""

    def __init__(self, name: str, trees: tuple[Hierarchy, ...]) -> None:
        self.name = name
        self._trees = trees

    def directories(self) -> list[Path]:
        return [directory for tree in self._trees if (directory := tree.root / self.name).is_dir()]

    def pids(self) -> set[int]:
        return {int(word) for directory in self.directories() for word in _read(directory / "cgroup.procs").split()}

    def oom_kills(self) -> int:
        """Processes of this group that the kernel killed for want of memory, so far."""
        v1, v2 = self._file("memory", "memory.oom_control"), self._file("memory", "memory.events")
        return _counter(v1, "oom_kill") + _counter(v2, "oom_kill")

    def forks_refused(self) -> int:
        return _counter(self._file("pids", "pids.events"), "max")

    def processes(self) -> int:
        text = self._file("pids", "pids.current").strip()
        return int(text) if text.isdigit() else 0

    def kill(self, *, timeout_s: float = 30.0) -> None:
        """End every process of the group, and wait until none is left. Raises SandboxError where some will not die."""
        deadline = time.monotonic() + timeout_s
        pause_s = 0.0005
        while pids := self.pids():
            for pid in pids:
                self._kill_member(pid)
            if time.monotonic() > deadline:
                raise SandboxError(
                    f"processes {sorted(pids)[:10]} of sandbox group {self.name} do not die",
                    remedy="they wait inside the kernel (state D in ps): look at the disk, or restart the machine",
                )
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.05)

    def holds(self, pid: int) -> bool:
        """Whether a process is in the group, or was when it ended."""
        return any(line.split(":", 2)[-1].split(" ")[0] == f"/{self.name}" for line in _process_groups(pid))

    def _kill_member(self, pid: int) -> None:
        """Through a descriptor, and with a second look, so that a reused number is never hit."""
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            if self.holds(pid):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it ended by itself
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        """Remove the empty group from every hierarchy."""
        for directory in self.directories():
            for attempt in range(200):
                try:
                    directory.rmdir()
                except FileNotFoundError:
                    break
                except OSError as error:
                    if error.errno != errno.EBUSY or attempt == 199:
                        raise
                    time.sleep(0.005)  # the last process is still being taken apart
                else:
                    break

    def _file(self, controller: str, name: str) -> str:
        for tree in self._trees:
            if not tree.controllers or controller in tree.controllers:
                text = _read(tree.root / self.name / name)
                if text:
                    return text
        return ""


def groups_named(prefix: str, trees: tuple[Hierarchy, ...]) -> Iterator[str]:
    """Names of the groups directly under any root that start with `prefix`."""
    seen = set()
    for tree in trees:
        for entry in tree.root.iterdir():
            if entry.name.startswith(prefix) and entry.name not in seen and entry.is_dir():
                seen.add(entry.name)
                yield entry.name


def swap_can_be_limited(trees: tuple[Hierarchy, ...]) -> bool:
    """v2 always can; v1 where the kernel was started with swap accounting."""
    memory = next((tree for tree in trees if "memory" in tree.controllers), None)
    return memory is None or (memory.root / "memory.memsw.limit_in_bytes").exists()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    except OSError as error:
        if error.errno in (errno.ENODEV, errno.EOPNOTSUPP):  # the group went away; a threaded v2 group
            return ""
        raise


def _process_groups(pid: int) -> list[str]:
    return _read(Path(f"/proc/{pid}/cgroup")).splitlines()


def _counter(text: str, key: str) -> int:
    pairs: Mapping[str, str] = dict(line.split(None, 1) for line in text.splitlines() if " " in line)
    return int(pairs.get(key, "0"))
