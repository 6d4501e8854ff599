"""Keeping the services of an environment up while a policy works in it."""

from __future__ import annotations

from typing import Any

from ratchet.autoinstall.verify import start
from ratchet.protocols import Sandbox
from ratchet.records import CommandResult, Network, Recipe


class BrokenStartError(Exception):
    """The start script of an environment fails before the policy ran anything."""


class ServedSandbox:
    """A sandbox in which the services of an environment are up whenever a command runs: what ends processes (a
    checkpoint, a limit) ends them too. Raises `BrokenStartError` where they do not come up the first time; later that
    is the policy's doing, and the result of its command."""

    def __init__(self, sandbox: Sandbox, recipe: Recipe) -> None:
        self._sandbox = sandbox
        self._recipe = recipe
        self._up = self._was_up = False
        self.name = sandbox.name
        self.read, self.write, self.close = sandbox.read, sandbox.write, sandbox.close

    def run(self, command: str, **options: Any) -> CommandResult:
        if not self._up:
            started = start(self._sandbox, self._recipe)
            if started is not None and not started.ok:
                if not self._was_up:
                    raise BrokenStartError(started.output.strip()[-500:])
                return started
            self._up = self._was_up = True
        result = self._sandbox.run(command, **options)
        self._up = result.limit is None
        return result

    def snapshot(self) -> str:
        self._up = False
        return self._sandbox.snapshot()

    def rollback(self, snapshot: str) -> None:
        self._up = False
        self._sandbox.rollback(snapshot)

    def fork(self, *, network: Network | None = None) -> Sandbox:
        self._up = False
        return self._sandbox.fork(network=network)

    def keep(self) -> str:
        self._up = False
        return self._sandbox.keep()

    def __enter__(self) -> ServedSandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
