"""Every Protocol, on one page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ratchet.records import (
    Action,
    CommandResult,
    Goal,
    Message,
    Network,
    Observation,
    Opinion,
    Reply,
    Sampled,
    SandboxSpec,
)


class Sandbox(Protocol):
    """An isolated root file system in which commands run. A context manager: leaving it closes it.

    A command that fails, or is ended by a limit, is a value (`CommandResult`). Only broken machinery raises
    (`SandboxError`). After a limit ended a command, no process of the sandbox is left, the files stay, and the
    sandbox can go on being used.
    """

    @property
    def name(self) -> str: ...

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
        """Run `command` with `/bin/sh -c`. Standard input is empty. `user` is a name of the sandbox's passwd.
        `timeout_s` None means the limit of the spec, which also bounds it. In the install phase a command gets the
        variables that lead clients to the registries, unless `proxied` is false: tests must not see them. Processes
        left in the background stay."""
        ...

    def read(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        """The content of a regular file, links resolved *inside* the sandbox. FileNotFoundError when it is absent
        or no regular file; at most `max_bytes` come back."""
        ...

    def write(self, path: str, data: bytes, *, mode: int = 0o644, user: str = "root") -> None:
        """Write a file as `user`, making the folders that it needs."""
        ...

    def snapshot(self) -> str:
        """Freeze the present files as a layer and return its id; that of the last snapshot when no file was written
        since. Processes of the sandbox end."""
        ...

    def rollback(self, snapshot: str) -> None:
        """Back to a snapshot of this sandbox. Processes end; nothing is copied."""
        ...

    def fork(self, *, network: Network | None = None) -> Sandbox:
        """A new sandbox that starts from the present files of this one (takes a snapshot)."""
        ...

    def keep(self) -> str:
        """Like `snapshot`, but the layer stays in the store after the sandbox is closed; returns its id. One layer
        holds all that changed since the sandbox was opened."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Sandbox: ...

    def __exit__(self, *_: object) -> None: ...


class SandboxBackend(Protocol):
    """Opens sandboxes. Refuses (`PolicyRefusedError`) a network policy or limit that it cannot enforce."""

    def open(self, spec: SandboxSpec) -> Sandbox: ...


class Policy(Protocol):
    """Decides the next action. Rules, scripts and models interchange."""

    def act(self, observation: Observation) -> Action: ...


class Model(Protocol):
    """A language model that answers a conversation: a served one (`policies/chat.py`), or one that plays a script."""

    @property
    def name(self) -> str: ...

    @property
    def context_tokens(self) -> int:
        """How many tokens prompt and reply may have together."""
        ...

    @property
    def uses_tools(self) -> bool:
        """Whether `tools` are offered to it natively; else it writes its actions in fenced blocks."""
        ...

    def reply(
        self,
        messages: Sequence[Message],
        *,
        stage: str,
        tools: Sequence[Mapping[str, object]] = (),
        max_tokens: int = 1024,
    ) -> Reply:
        """The next message of the assistant. `tools` are JSON schemas in the form of chat completions.

        Raises `BudgetSpentError` before a call that the budget does not allow, `ContextOverflowError` when the prompt
        is too long, `ModelServerError` when the server cannot be used, after retries.
        """
        ...


class Judge(Protocol):
    """Compares what a command printed with the description of a goal, where nothing machine-checkable is left."""

    def compare(self, goal: Goal, result: CommandResult) -> Opinion: ...


class Sampler(Protocol):
    """Samples the tokens that follow a prompt. May be called in several threads at once: what is asked for at the same
    time is sampled as one batch."""

    def sample(
        self, prompt_ids: Sequence[int], *, max_tokens: int, temperature: float = 1.0, stop: Sequence[str] = ()
    ) -> Sampled:
        """Temperature 0 is greedy. The sequence ends after a token that ends a turn, after the first of `stop` in its
        text, or after `max_tokens`. Log-probabilities are of the distribution that was sampled from (of the softmax of
        logits / temperature; at temperature 0 of the softmax of the logits)."""
        ...
