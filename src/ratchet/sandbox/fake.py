"""An in-memory sandbox: scripted commands on a file system of names and bytes. Deterministic, and made for tests.

What it can do: `read`, `write`, users by name, snapshots, rollback, forks, and the answers that a script gives. What
it cannot: run a shell. A command that no rule of the script answers fails with status 127 and says so. There are no
links, no permissions, no processes, no network, and no time: a rule says itself when a limit is to be hit.
"""

from __future__ import annotations

import dataclasses
import itertools
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from ratchet.errors import PolicyRefusedError, StoreError, UsageError
from ratchet.records import CommandResult, LimitHit, Network, SandboxSpec

Files = dict[str, bytes]


@dataclass(frozen=True)
class FakeCommand:
    """A command as a rule sees it. `files` maps absolute paths to contents, and may be changed."""

    command: str
    user: str
    cwd: str
    env: Mapping[str, str]
    timeout_s: float
    files: Files
    match: re.Match[str]


@dataclass(frozen=True)
class Answer:
    """What a command does. `files` are written; `limit` ends the command instead of `exit_status`."""

    output: str = ""
    exit_status: int = 0
    limit: LimitHit | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)


Response = Answer | Callable[[FakeCommand], Answer]


class FakeBackend:
    """`script` maps regular expressions, which must match the whole command, to answers; the first match counts.

    `layers` maps layer ids to their files; an id that is not in it is an empty layer where `any_layer`, and otherwise
    an error as on a real machine. Layers kept by sandboxes are added to it.
    """

    def __init__(
        self,
        script: Mapping[str, Response] | Iterable[tuple[str, Response]] = (),
        *,
        layers: Mapping[str, Mapping[str, bytes]] | None = None,
        any_layer: bool = True,
        users: Iterable[str] = ("root",),
    ) -> None:
        rules = script.items() if isinstance(script, Mapping) else script
        self.rules = [(re.compile(pattern, re.DOTALL), response) for pattern, response in rules]
        self.layers: dict[str, Files] = {name: dict(files) for name, files in (layers or {}).items()}
        self.users = frozenset(users)
        self._any_layer = any_layer
        self._numbers = itertools.count(1)

    def open(self, spec: SandboxSpec) -> FakeSandbox:
        if spec.network is not Network.OFFLINE:
            raise PolicyRefusedError("the fake has no network to enforce a policy on", remedy="open it offline")
        if not spec.layers:
            raise UsageError("a sandbox needs at least one layer, its base")
        files: Files = {}
        for layer in spec.layers:
            if layer not in self.layers and not self._any_layer:
                raise StoreError(f"there is no layer {layer}")
            files.update(self.layers.get(layer, {}))
        return FakeSandbox(self, spec, files)

    def new_name(self, kind: str) -> str:
        return f"{kind}{next(self._numbers)}"


class FakeSandbox:
    """See `protocols.Sandbox`. `commands` are those that were run, in order."""

    def __init__(self, backend: FakeBackend, spec: SandboxSpec, files: Files) -> None:
        self.spec = spec
        self.name = backend.new_name("fake")
        self.commands: list[str] = []
        self._backend = backend
        self._files: Files | None = files
        self._snapshots: dict[str, Files] = {}

    def run(
        self,
        command: str,
        *,
        user: str = "root",
        cwd: str = "/",
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        proxied: bool = True,  # noqa: ARG002 - it refuses the install phase
        on_output: Callable[[bytes], None] | None = None,
    ) -> CommandResult:
        files = self._open_files()
        if "\0" in command:
            raise UsageError("a command cannot hold NUL characters")
        self.commands.append(command)
        limit_s = self.spec.limits.time_s
        time_s = limit_s if timeout_s is None else min(timeout_s, limit_s)
        answer = self._answer(command, user, cwd, env or {}, time_s, files)
        files.update({_absolute(path): data for path, data in answer.files.items()})
        output = answer.output.encode()
        if output and on_output is not None:
            on_output(output)
        exit_status = None if answer.limit else answer.exit_status
        return CommandResult(command, exit_status, answer.output, len(output), 0.0, answer.limit)

    def read(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        try:
            return self._open_files()[_absolute(path)][:max_bytes]
        except KeyError:
            raise FileNotFoundError(2, "no regular file in the sandbox", path) from None

    def write(self, path: str, data: bytes, *, mode: int = 0o644, user: str = "root") -> None:  # noqa: ARG002
        """The mode and the owner are not kept."""
        files, target = self._open_files(), _absolute(path)
        if user not in self._backend.users:
            raise UsageError(f"there is no user {user} in the sandbox")
        if any(other.startswith(target.rstrip("/") + "/") for other in files):
            raise IsADirectoryError(21, "a directory of the sandbox", path)
        parents = itertools.accumulate(target.split("/")[1:-1], lambda above, name: f"{above}/{name}", initial="")
        if not files.keys().isdisjoint(parents):
            raise NotADirectoryError(20, "a file of the sandbox is in the way", path)
        files[target] = bytes(data)

    def snapshot(self) -> str:
        files = self._open_files()
        last = next(reversed(self._snapshots), None)
        if last is not None and self._snapshots[last] == files:
            return last
        name = self._backend.new_name("snapshot")
        self._snapshots[name] = dict(files)
        return name

    def rollback(self, snapshot: str) -> None:
        self._open_files()
        if snapshot not in self._snapshots:
            raise UsageError(f"{snapshot} is no snapshot of this sandbox")
        self._files = dict(self._snapshots[snapshot])
        names = list(self._snapshots)
        for later in names[names.index(snapshot) + 1 :]:
            del self._snapshots[later]

    def fork(self, *, network: Network | None = None) -> FakeSandbox:
        spec = dataclasses.replace(self.spec, network=network or self.spec.network)
        return FakeSandbox(self._backend, spec, dict(self._open_files()))

    def keep(self) -> str:
        """The layer holds all files, not only what changed: opened on the same layers it gives the same files, save
        that it cannot hide one that was removed."""
        layer = self._backend.new_name("layer")
        self._backend.layers[layer] = dict(self._open_files())
        return layer

    def close(self) -> None:
        self._files = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(
        self, command: str, user: str, cwd: str, env: Mapping[str, str], timeout_s: float, files: Files
    ) -> Answer:
        if user not in self._backend.users:
            return Answer(f"sandbox: there is no user {user}\n", 126)
        for pattern, response in self._backend.rules:
            if match := pattern.fullmatch(command):
                if isinstance(response, Answer):
                    return response
                return response(FakeCommand(command, user, cwd, env, timeout_s, files, match))
        return Answer(f"fake sandbox: no rule of the script answers {command!r}\n", 127)

    def _open_files(self) -> Files:
        if self._files is None:
            raise UsageError(f"sandbox {self.name} is closed")
        return self._files


def _absolute(path: str) -> str:
    return posixpath.normpath("/" + path).replace("//", "/", 1)
