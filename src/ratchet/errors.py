"""One tree of errors. Each has an exit code, and says what happened, the likely cause and the remedy.

Only misuse and broken infrastructure raise. What the world does to us (a build that fails, a suite that
hangs) is a recorded value with a typed `Reason`, see `records.py`.
"""


class RatchetError(Exception):
    """What happened, in one sentence; `remedy` says what the reader can do about it."""

    exit_code = 1

    def __init__(self, what: str, *, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}\n  remedy: {self.remedy}" if self.remedy else self.what


class UsageError(RatchetError):
    """The caller asked for something that makes no sense: a wrong name, an unknown environment."""

    exit_code = 2


class SourceError(UsageError):
    """The source names nothing that can be checked out, or what it names is unsafe to unpack."""


class MachineError(RatchetError):
    """This machine cannot do it: no root, no runc, no user namespaces, a file system that does not fit."""

    exit_code = 4


class SandboxError(RatchetError):
    """The sandbox machinery itself failed. Infrastructure: retried, never scored."""


class StoreError(RatchetError):
    """A record or a layer is missing or damaged."""


class PolicyRefusedError(MachineError):
    """A backend was asked for a network policy or a limit that it cannot enforce."""


class ModelServerError(RatchetError):
    """The server of a model cannot be used: it is down, refuses us, or answers with something else. Infrastructure:
    never scored, and nothing is lost: the same command goes on where it stopped."""


class ContextOverflowError(RatchetError):
    """A prompt is longer than the model's context. Whoever made the conversation shortens it and asks again."""


class BudgetSpentError(RatchetError):
    """The next call of a model is not allowed by the budget. Policies submit when they meet it."""


class UnsupportedSuiteError(UsageError):
    """An environment has no test suite of a kind that can be run test by test."""
