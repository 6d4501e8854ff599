"""The default sandbox: an OCI runtime on an overlay of layers, with no daemon.

A sandbox is a directory `home/sandboxes/<id>` (its upper layers, the bundle of the runtime), an overlay mounted under
/run/ratchet, a container, and a control group. All four carry the sandbox's name, so that whatever a killed process
left can be found and removed, from any point at which it was interrupted.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol, Self

from ratchet.errors import PolicyRefusedError, SandboxError, UsageError
from ratchet.records import CommandResult, LimitHit, Network, SandboxSpec
from ratchet.sandbox import accounts, cgroups, claims, files, kernel, runtime, watch
from ratchet.sandbox.cgroups import Cgroup
from ratchet.sandbox.claims import Claim
from ratchet.sandbox.command import Transcript
from ratchet.sandbox.container import Container, end_stray_runtime_processes
from ratchet.sandbox.kernel import ID_SHIFT
from ratchet.sandbox.layers import Layers
from ratchet.sandbox.rootfs import RootFs
from ratchet.sandbox.runtime import Mount, Runtime, User
from ratchet.sandbox.snapshots import Snapshots
from ratchet.sandbox.watch import DiskGauge

CACHE_PATH = "/var/cache/ratchet"
_RUN = Path("/run/ratchet")
_ACCOUNT_FILES = ("/etc/passwd", "/etc/group")
_ACCOUNT_FILE_BYTES = 1 << 20
_CANNOT_EXECUTE = 126

Emit = Callable[[str, Mapping[str, object]], None]


class InstallNetwork(Protocol):
    """What lets a sandbox of the install phase reach the package registries, and nothing else."""

    def attach(self, pid: int, sandbox: str) -> AbstractContextManager[object]:
        """Serve the allowlist inside the network namespace of `pid` until the context is left."""
        ...

    def env(self) -> Mapping[str, str]:
        """What every command gets in its environment."""
        ...

    def mounts(self) -> Sequence[tuple[str, str]]:
        """(host path, path in the sandbox) of what is bound in, read-only."""
        ...


class OciBackend:
    """Opens sandboxes whose state lies under `home`. Several processes may use one home at once.

    `emit(kind, data)` is told what happens. Without `network`, the install phase's network policy is refused.
    Nothing is done before the first `open` or `sweep`.
    """

    def __init__(self, home: Path, *, emit: Emit | None = None, network: InstallNetwork | None = None) -> None:
        self.home = home.absolute()
        self.layers = Layers(self.home)
        self.network = network
        self.emit: Emit = emit or _tell_nobody
        self.snapshots = Snapshots(self.home / "snapshots", self.layers.trash)
        mark = hashlib.sha256(os.fsencode(self.home.resolve())).hexdigest()[:12]
        self.prefix = f"ratchet-{mark}-"
        self.run = _RUN / mark
        self._sandboxes = self.home / "sandboxes"
        self._swept = False
        self._open: weakref.WeakSet[OciSandbox] = weakref.WeakSet()
        self._lock = threading.Lock()

    def open(self, spec: SandboxSpec) -> OciSandbox:
        """Raises MachineError where this machine cannot, PolicyRefusedError, StoreError (no such layer)."""
        if spec.network is Network.INSTALL and self.network is None:
            raise PolicyRefusedError(
                "this backend was made without an install network, so it cannot enforce the allowlist",
                remedy="pass `network=` to OciBackend, or open the sandbox offline",
            )
        if not spec.layers:
            raise UsageError("a sandbox needs at least one layer, its base")
        self.runtime.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._lock:
            if not self._swept:
                self.sweep()
                self._swept = True
        watch.refuse_full_machine(self.home)
        sandbox = OciSandbox(self, spec, claims.claim(self._sandboxes))
        with self._lock:
            self._open.add(sandbox)
        return sandbox

    def close_all(self) -> None:
        """Close the sandboxes that this backend opened. Commands in them end; who uses one gets a UsageError then."""
        with self._lock:
            opened = list(self._open)
        for sandbox in opened:
            sandbox.close()

    def sweep(self) -> tuple[str, ...]:
        """Remove what dead processes left of their sandboxes, and nothing else; says what that was."""
        swept: list[str] = []
        dead = claims.claim_dead(self._sandboxes)
        for claimed in dead:
            self._remove_remains(claimed.id)
            swept.append(f"sandbox {claimed.id}")
            self.layers.trash.discard(claimed.path)
            claimed.close()
        for sandbox in self._traces():
            if not (self._sandboxes / sandbox).exists() and self._remove_remains(sandbox):
                swept.append(f"remains of sandbox {sandbox}")
        swept += self.snapshots.sweep()
        swept += self.layers.sweep()
        if swept:
            self.emit("sandbox.swept", {"swept": swept})
        return tuple(swept)

    @functools.cached_property
    def runtime(self) -> Runtime:
        return Runtime(runtime.find_program(), self.run / "runtime", self.trees)

    @functools.cached_property
    def trees(self) -> tuple[cgroups.Hierarchy, ...]:
        return cgroups.hierarchies()

    def cgroup(self, sandbox: str) -> Cgroup:
        return Cgroup(self.prefix + sandbox, self.trees)

    def make_mountpoint(self, sandbox: str) -> Path:
        """Not under `home`: the container's root, an ordinary user of the host, must be able to get there. Nobody else
        of the host is."""
        mountpoint = self.run / "roots" / sandbox
        for directory in (_RUN, self.run, mountpoint.parent, mountpoint):
            directory.mkdir(exist_ok=True, mode=0o711)
            directory.chmod(0o711)
        os.chown(mountpoint.parent, 0, ID_SHIFT)
        mountpoint.parent.chmod(0o710)
        return mountpoint

    def _traces(self) -> set[str]:
        """Sandboxes of which something is to be seen outside of `home`."""
        directories = (self.run / "roots", self.run / "runtime")
        found = {entry.name for directory in directories if directory.is_dir() for entry in directory.iterdir()}
        found |= set(cgroups.groups_named(self.prefix, self.trees))
        return {name.removeprefix(self.prefix) for name in found}

    def _remove_remains(self, sandbox: str) -> bool:
        """True where there were any."""
        name, group, root = self.prefix + sandbox, self.cgroup(sandbox), self.run / "roots" / sandbox
        end_stray_runtime_processes(name)
        found = bool(group.directories())
        group.kill()
        found = kernel.unmount(root) or found
        found = self.runtime.forget(name) or found
        group.remove()
        with suppress(FileNotFoundError):
            root.rmdir()
            found = True
        return found


def _tell_nobody(_kind: str, _data: Mapping[str, object]) -> None:
    pass


class OciSandbox:
    """See `protocols.Sandbox`. Commands may run at the same time from several threads; `snapshot`, `rollback`,
    `keep` and a limit end all of them. `read` and `write` see the root file system, not what is mounted in it
    (/proc, /dev, the cache)."""

    def __init__(self, backend: OciBackend, spec: SandboxSpec, claimed: Claim) -> None:
        self.spec = spec
        self._backend = backend
        self._claim = claimed
        self._container: Container | None = None
        self._gauge = DiskGauge(spec.limits.disk_bytes, backend.cgroup(claimed.id))
        self._closed = False
        self._lock = threading.RLock()
        self._rootfs: RootFs | None = None
        try:
            root = backend.make_mountpoint(claimed.id)
            self._rootfs = RootFs(claimed.path, root, spec.layers, backend.layers, backend.snapshots)
            self._rootfs.mount()
            self._write_bundle(root)
            try:
                self._started()
            except SandboxError:
                if not self._is_broken_inside():
                    raise
        except BaseException:
            self.close()
            raise
        backend.emit("sandbox.opened", {"sandbox": self.name, "layers": list(spec.layers), "network": spec.network})

    @property
    def name(self) -> str:
        return self._claim.id

    def run(
        self,
        command: str,
        *,
        user: str = "root",
        cwd: str = "/",
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        proxied: bool = True,
        on_output: Callable[[bytes], None] | None = None,
    ) -> CommandResult:
        """As in the protocol. `timeout_s` beyond the spec's limit counts as that limit. Where the user, the folder or
        the shell does not exist in the sandbox, the status is 126 and the output says so."""
        if "\0" in command + cwd + "".join(f"{name}{value}" for name, value in (env or {}).items()):
            raise UsageError("a command, its folder and its environment cannot hold NUL characters")
        started, transcript = time.monotonic(), Transcript()

        def receive(chunk: bytes) -> None:
            transcript.add(chunk)
            if on_output is not None:
                on_output(chunk)

        def result(exit_status: int | None, limit: LimitHit | None = None) -> CommandResult:
            seconds = time.monotonic() - started
            return CommandResult(command, exit_status, transcript.text(), transcript.total_bytes, seconds, limit)

        account = self._account(user)
        problem = "" if account else f"there is no user {user}"
        for path in _ACCOUNT_FILES:  # the runtime reads them too, and would wait for ever where one is a pipe
            if files.is_odd(self._files.path, path):
                problem = f"{path} is no regular file"
        if account is None or problem:
            receive(f"sandbox: {problem}\n".encode())
            return result(_CANNOT_EXECUTE)
        limit_s = self.spec.limits.time_s
        time_s = limit_s if timeout_s is None else min(timeout_s, limit_s)
        variables = self._env(account, env or {}, proxied=proxied)
        container: Container | None = None
        try:
            container = self._started()
            outcome = container.execute(command, cwd, account, variables, timeout_s=time_s, receive=receive)
        except SandboxError as error:
            self._stop(container)
            if not self._is_broken_inside():
                raise
            receive(f"sandbox: what is in it cannot start a shell any more: {error.what}\n".encode())
            return result(_CANNOT_EXECUTE)
        except BaseException:
            self._stop(container)
            raise
        if outcome.limit is not None or not container.alive:
            self._stop(container)
        if outcome.limit is not None:
            self._backend.emit("sandbox.limit", {"sandbox": self.name, "limit": outcome.limit, "command": command})
        if outcome.message:
            receive(f"sandbox: {outcome.message}\n".encode())
        return result(outcome.exit_status, outcome.limit)

    def read(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        return files.read(self._files.path, path, max_bytes)

    def write(self, path: str, data: bytes, *, mode: int = 0o644, user: str = "root") -> None:
        """As in the protocol. Raises OSError as `open` would for that user, UsageError where there is no such user."""
        account = self._account(user)
        if account is None:
            raise UsageError(f"there is no user {user} in the sandbox")
        files.write(self._files.path, path, data, mode, account)

    def snapshot(self) -> str:
        with self._halted() as rootfs:
            if rootfs.unchanged and rootfs.frozen:
                return rootfs.frozen[-1]
            return rootfs.freeze()

    def rollback(self, snapshot: str) -> None:
        with self._halted() as rootfs:
            rootfs.back_to(snapshot)

    def fork(self, *, network: Network | None = None) -> OciSandbox:
        with self._lock:
            with self._halted() as rootfs:
                if not rootfs.unchanged:
                    rootfs.freeze()
            network = network or self.spec.network
            cache = self.spec.cache if network is Network.INSTALL else None
            return self._backend.open(
                dataclasses.replace(self.spec, layers=self._files.stack, network=network, cache=cache)
            )

    def keep(self) -> str:
        """As in the protocol. The sandbox goes on, standing on the new layer: that must not be removed before it is
        closed."""
        with self._halted() as rootfs:
            return rootfs.keep()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._stop(self._container)
            if self._rootfs is not None:
                self._rootfs.close()
            with suppress(FileNotFoundError):
                (self._backend.run / "roots" / self.name).rmdir()
            self._backend.layers.trash.discard(self._claim.path)
            self._claim.close()
        self._backend.emit("sandbox.closed", {"sandbox": self.name})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _files(self) -> RootFs:
        if self._closed or self._rootfs is None:
            raise UsageError(f"sandbox {self.name} is closed")
        return self._rootfs

    @contextmanager
    def _halted(self) -> Iterator[RootFs]:
        """The root file system with no process on it and not mounted. The next command starts the container again."""
        with self._lock:
            rootfs = self._files
            self._stop(self._container)
            rootfs.unmount()
            try:
                yield rootfs
            finally:
                rootfs.mount()

    def _started(self) -> Container:
        with self._lock:
            rootfs = self._files
            if self._container is not None and not self._container.alive:
                self._stop(self._container)
            if self._container is None:
                self._container = self._start(rootfs)
            return self._container

    def _start(self, rootfs: RootFs) -> Container:
        backend, limits = self._backend, self.spec.limits
        cache = [Path(self.spec.cache)] if self.spec.cache else []
        self._gauge.start([*rootfs.own_directories, *cache], rootfs.path)
        name, group = backend.prefix + self.name, backend.cgroup(self.name)
        container = Container(backend.runtime, name, group, self._claim.path, limits, self._gauge)
        try:
            if self._network is not None:
                container.attach(self._network.attach(container.pid, self.name))
        except BaseException:
            container.stop()
            raise
        return container

    def _is_broken_inside(self) -> bool:
        """Whether the bottom layer alone does start, so that what lies on it took away what a shell needs."""
        if len(self._files.stack) == 1 and self._files.unchanged:
            return False
        bottom = dataclasses.replace(self.spec, layers=self.spec.layers[:1], network=Network.OFFLINE, cache=None)
        try:
            with self._backend.open(bottom) as alone:
                return alone.run("true").ok
        except SandboxError:
            return False

    def _stop(self, container: Container | None) -> None:
        with self._lock:
            if container is not None and container is self._container:
                self._container = None
                container.stop()

    @property
    def _network(self) -> InstallNetwork | None:
        return self._backend.network if self.spec.network is Network.INSTALL else None

    def _write_bundle(self, root: Path) -> None:
        mounts = [Mount(*pair) for pair in self._network.mounts()] if self._network else []
        if self.spec.cache is not None:
            cache = Path(self.spec.cache)
            cache.mkdir(parents=True, exist_ok=True)
            os.chown(cache, ID_SHIFT, ID_SHIFT)
            cache.chmod(0o1777)
            mounts.append(Mount(str(cache), CACHE_PATH, read_only=False))
        config = runtime.container_config(
            root,
            self._backend.prefix + self.name,
            self.spec.hostname,
            self.spec.limits,
            mounts,
            limit_swap=self._backend.runtime.limit_swap,
        )
        (self._claim.path / "config.json").write_text(json.dumps(config))

    def _account(self, name: str) -> User | None:
        return accounts.find_user(name, *map(self._account_file, _ACCOUNT_FILES))

    def _account_file(self, path: str) -> bytes:
        try:
            return self.read(path, max_bytes=_ACCOUNT_FILE_BYTES)
        except FileNotFoundError:
            return b""

    def _env(self, user: User, given: Mapping[str, str], *, proxied: bool) -> dict[str, str]:
        identity = {"HOME": user.home, "USER": user.name, "LOGNAME": user.name}
        network = self._network.env() if self._network and proxied else {}
        return {"PATH": runtime.PATH, "LANG": "C.UTF-8", **identity, **network, **given}
