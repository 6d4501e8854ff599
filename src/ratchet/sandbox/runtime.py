"""The OCI runtime: what is in `config.json` and `process.json`, and the calls of `runc` (or `crun`)."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.errors import MachineError, SandboxError
from ratchet.records import Limits
from ratchet.sandbox import cgroups, kernel, seccomp
from ratchet.sandbox.kernel import ID_COUNT, ID_SHIFT

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CAPABILITIES = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
]
_MASKED = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
]
_READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
_START_TIMEOUT_S = 120.0
_END_TIMEOUT_S = 10.0
_UNUSABLE_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)

# Process 1 waits, and so reaps orphans, for a child that reads its standard input: a pipe that we hold. When we end,
# however that comes about, the read does too, and with process 1 the kernel ends everything else in the sandbox.
_PROCESS_1 = "exec 3<&0; while :; do read _ <&3 & wait $!; case $? in 1) exit;; esac; done"


@dataclass(frozen=True)
class Mount:
    """A host directory or file bound into a sandbox."""

    source: str
    destination: str
    read_only: bool = True


@dataclass(frozen=True)
class User:
    name: str
    uid: int
    gid: int
    home: str
    groups: tuple[int, ...] = ()


ROOT = User("root", 0, 0, "/root")


@dataclass(frozen=True)
class ProcessSpec:
    """One command in a running sandbox."""

    args: Sequence[str]
    user: User = ROOT
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """One call of the runtime: where its files lie, what it is to do, and its standard input and output.

    It may take `timeout_s`: a runtime opens files of the sandbox by itself, and a pipe in the place of a file makes
    it wait for ever.
    """

    directory: Path
    arguments: Sequence[str]
    fds: tuple[int, int]
    timeout_s: float


class CannotStartError(Exception):
    """The runtime could not start a process; the text is its own."""


class Runtime:
    """The runtime's program, with its state under `state`."""

    def __init__(self, program: str, state: Path, trees: tuple[cgroups.Hierarchy, ...]) -> None:
        self.program = program
        self.state = state
        self.limit_swap = cgroups.swap_can_be_limited(trees) and len(Path("/proc/swaps").read_text().splitlines()) > 1

    def start(self, name: str, bundle: Path, stdin: int, kill: Callable[[], None]) -> int:
        """Start the container of `bundle`; the process id of its process 1, as the host sees it.

        `kill` ends what runs in the container, and is called where the start takes too long. Raises SandboxError.
        """
        call = Call(bundle, ["run", "--detach", "--bundle", str(bundle)], (stdin, subprocess.DEVNULL), _START_TIMEOUT_S)
        try:
            return self._call(name, call, kill)
        except CannotStartError as error:
            raise SandboxError(
                f"{self.program} could not start a sandbox: {error}",
                remedy="`ratchet doctor` checks what the runtime needs; a base needs /bin/sh",
            ) from error

    def execute(
        self,
        name: str,
        directory: Path,
        process: Mapping[str, Any],
        fds: tuple[int, int],
        timeout_s: float,
        kill: Callable[[], None],
    ) -> int:
        """Start a command in the running container `name`, with `fds` as its standard input and output; its process id.

        Detached, because an attached runtime copies the output itself, and waits for whoever holds it open. Files
        about the call are kept in `directory`. Raises CannotStartError.
        """
        spec = directory / "process.json"
        spec.write_text(json.dumps(process))
        return self._call(name, Call(directory, ["exec", "--detach", "--process", str(spec)], fds, timeout_s), kill)

    def forget(self, name: str) -> bool:
        """Drop the runtime's own record of a container whose processes and groups are gone."""
        record = self.state / name
        if not record.is_dir():
            return False
        kernel.unmount_below(record)  # runc mounts a copy of itself here; killed at that moment, it leaves the mount
        shutil.rmtree(record)
        return True

    def _call(self, name: str, call: Call, kill: Callable[[], None]) -> int:
        log, pid_file = call.directory / "runtime.log", call.directory / "pid"
        for old in (log, pid_file):
            old.unlink(missing_ok=True)
        command = [*self._command(log), *call.arguments, "--pid-file", str(pid_file), name]
        with subprocess.Popen(
            command, stdin=call.fds[0], stdout=call.fds[1], stderr=call.fds[1], start_new_session=True
        ) as calling:
            try:
                in_time = _wait(calling, call.timeout_s)
            except BaseException:
                _end(calling, kill)
                raise
            if not in_time:
                _end(calling, kill)
                raise CannotStartError("it took too long")
        if calling.returncode != 0:
            raise CannotStartError(log_message(log) or f"status {calling.returncode}")
        return int(pid_file.read_text())

    def _command(self, log: Path) -> list[str]:
        # A child of `nohup` ignores SIGINT, and so would everything in the sandbox: some test suites hang then.
        ignored = [number.name[3:] for number in _UNUSABLE_SIGNALS if signal.getsignal(number) is signal.SIG_IGN]
        reset = ["env", f"--default-signal={','.join(ignored)}"] if ignored else []
        return [*reset, self.program, "--root", str(self.state), "--log", str(log), "--log-format", "json"]


def _wait(calling: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Whether it ended in time. (`Popen.wait` with a timeout sleeps up to 50 ms too long: more than a whole start.)"""
    descriptor = os.pidfd_open(calling.pid)
    try:
        if not kernel.ends_within(descriptor, timeout_s):
            return False
    finally:
        os.close(descriptor)
    calling.wait()
    return True


def _end(calling: subprocess.Popen[bytes], kill: Callable[[], None]) -> None:
    """First what the runtime waits for: it then cleans up after itself, and leaves us no children to reap."""
    kill()
    if not _wait(calling, _END_TIMEOUT_S):
        calling.kill()


def log_message(log: Path) -> str:
    """The last error in a runtime's log."""
    if not log.exists():
        return ""
    messages = [json.loads(line) for line in log.read_text(errors="replace").splitlines() if line.startswith("{")]
    errors = [str(message.get("msg", "")) for message in messages if message.get("level") in ("error", "fatal")]
    return errors[-1] if errors else ""


def find_program() -> str:
    """`runc`, or `crun` where only that is there and works. Raises MachineError with what to install."""
    if os.geteuid() != 0:
        raise MachineError("sandboxes need root", remedy="run the same command with sudo, or as root")
    if not Path("/proc/self/ns/user").exists() or Path("/proc/sys/user/max_user_namespaces").read_text().strip() == "0":
        raise MachineError("this kernel allows no user namespaces", remedy="sysctl -w user.max_user_namespaces=10000")
    trees = cgroups.hierarchies()
    if not trees:
        raise MachineError("no cgroup file system is mounted", remedy="mount -t cgroup2 none /sys/fs/cgroup")
    program = shutil.which("runc")
    if program is not None:
        return program
    program = shutil.which("crun")
    hybrid = len({bool(tree.controllers) for tree in trees}) == 2
    if program is None or hybrid:
        raise MachineError("no OCI runtime was found that works here", remedy="apt-get install runc")
    return program


def container_config(
    root: Path, cgroup: str, hostname: str, limits: Limits, mounts: Sequence[Mount], *, limit_swap: bool
) -> dict[str, Any]:
    """The OCI configuration of a sandbox whose process 1 only waits and reaps."""
    ids = [{"containerID": 0, "hostID": ID_SHIFT, "size": ID_COUNT}]
    return {
        "ociVersion": "1.0.2",
        "process": process_config(ProcessSpec(["/bin/sh", "-c", _PROCESS_1], env={"PATH": PATH}), limits),
        "root": {"path": str(root), "readonly": False},
        "hostname": hostname,
        "mounts": [*_system_mounts(limits), *map(_bind, mounts)],
        "linux": {
            "uidMappings": ids,
            "gidMappings": ids,
            "cgroupsPath": f"/{cgroup}",
            "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "user", "cgroup", "network")],
            "resources": _resources(limits, limit_swap=limit_swap),
            "maskedPaths": _MASKED,
            "readonlyPaths": _READ_ONLY,
            "seccomp": seccomp.profile(),
        },
    }


def process_config(process: ProcessSpec, limits: Limits) -> dict[str, Any]:
    user = process.user
    held = _CAPABILITIES if user.uid == 0 else []
    return {
        "terminal": False,
        "user": {"uid": user.uid, "gid": user.gid, "additionalGids": list(user.groups)},
        "args": list(process.args),
        "cwd": "/",
        "env": [f"{name}={value}" for name, value in process.env.items()],
        "noNewPrivileges": True,
        "capabilities": {"bounding": _CAPABILITIES, "effective": held, "permitted": held},
        "rlimits": _rlimits(limits),
    }


def _rlimits(limits: Limits) -> list[dict[str, Any]]:
    # A last resort: the watchdog sees a file that is too large before it is twice that, and can say what happened.
    file_bytes = limits.disk_bytes + max(limits.disk_bytes, 4 << 30)
    hard_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = 65_536 if hard_files == resource.RLIM_INFINITY else min(65_536, hard_files)
    return [
        {"type": f"RLIMIT_{name}", "soft": soft, "hard": hard}
        for name, soft, hard in (
            ("CORE", 0, 0),
            ("FSIZE", file_bytes, file_bytes),
            ("NOFILE", files, files),
            ("MEMLOCK", 8 << 20, 8 << 20),
            ("STACK", 8 << 20, 1 << 30),
        )
    ]


def _resources(limits: Limits, *, limit_swap: bool) -> dict[str, Any]:
    memory: dict[str, int] = {"limit": limits.memory_bytes}
    if limit_swap:
        memory["swap"] = limits.memory_bytes  # memory and swap together
    resources: dict[str, Any] = {
        "memory": memory,
        "pids": {"limit": limits.processes},
        "devices": [{"allow": False, "access": "rwm"}],
    }
    if limits.cpus is not None:
        resources["cpu"] = {"quota": max(1000, int(limits.cpus * 100_000)), "period": 100_000}
    return resources


def _system_mounts(limits: Limits) -> list[dict[str, Any]]:
    shared_bytes = limits.memory_bytes // 2
    pseudo_terminals = ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]
    return [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
        # mode 755: a sticky, world-writable /dev makes apt think that gpgv is missing
        {
            "destination": "/dev",
            "type": "tmpfs",
            "source": "tmpfs",
            "options": ["nosuid", "noexec", "mode=755", "size=64k"],
        },
        {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": pseudo_terminals},
        {
            "destination": "/dev/shm",  # noqa: S108
            "type": "tmpfs",
            "source": "shm",
            "options": ["nosuid", "nodev", "mode=1777", f"size={shared_bytes}"],
        },
        {
            "destination": "/sys",
            "type": "sysfs",
            "source": "sysfs",
            "options": ["nosuid", "noexec", "nodev", "ro"],
        },
    ]


def _bind(mount: Mount) -> dict[str, Any]:
    options = ["bind", "nosuid", "nodev", "ro" if mount.read_only else "rw"]
    return {"destination": mount.destination, "type": "bind", "source": mount.source, "options": options}
