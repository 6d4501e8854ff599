"""The frozen dataclasses of tasks, rollouts, grades and rewards. Data only, as in `records.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ratchet.records import TestRun, Usage

# --------------------------------------------------------------------------- patches and tasks


@dataclass(frozen=True)
class FileChange:
    """One file of a patch: its whole text before and after; None where it is not there. `path` is relative to the
    workspace. Text is UTF-8 with `surrogateescape`, line ends as they are."""

    path: str
    before: str | None
    after: str | None
    mode: int = 0o644


class TaskKind(StrEnum):
    FEATURE = "feature"
    BUG = "bug"
    HISTORY = "history"


@dataclass(frozen=True)
class Probe:
    """A held-out call of the code that a task is about. `call` says in JSON what is called with what; `expected` is
    what the reference gives, in the form that `tasks/behaviour.py` prints."""

    call: str
    expected: str


@dataclass(frozen=True)
class Task:
    """A problem in an environment, with the tests that judge it.

    `changes` lead from the environment to where the policy starts; their inverse is the reference solution. `hidden`
    are changes of test files that the policy does not see, from what it starts with to what grading restores. Test ids
    are pytest's node ids, relative to the workspace. `origin` says how it was made (seed, operators, names, commit).
    """

    id: str
    environment: str
    kind: TaskKind
    language: str
    statement: str
    changes: tuple[FileChange, ...]
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    hidden: tuple[FileChange, ...] = ()
    probes: tuple[Probe, ...] = ()
    timeout_s: float = 300.0
    origin: Mapping[str, str] = field(default_factory=dict)


class Rejection(StrEnum):
    """Why the gate kept a task out."""

    NO_TEST_FAILS = "no-test-fails"
    BREAKS_OTHERS = "breaks-others"
    REFERENCE_FAILS = "reference-fails"
    FLAKY = "flaky"
    NOTHING_PASSES_LEFT = "nothing-passes-left"
    WRONG_SOLUTION_PASSES = "wrong-solution-passes"
    SOLUTION_LEFT = "solution-left"
    STATEMENT_TELLS = "statement-tells"
    NOT_APPLICABLE = "not-applicable"
    TOO_SLOW = "too-slow"


@dataclass(frozen=True)
class Validation:
    """What the gate found of one candidate. `rejection` None: it passed. `steps` are the seconds of its checks."""

    kind: TaskKind
    rejection: Rejection | None
    detail: str = ""
    task: str = ""
    seconds: float = 0.0
    origin: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskYield:
    """What came of one `task make`: of so many candidates, these tasks, and the reasons against the others."""

    environment: str
    kind: TaskKind
    seed: int
    validations: tuple[Validation, ...]
    seconds: float


# --------------------------------------------------------------------------- grades


@dataclass(frozen=True)
class Flag:
    """Something about a rollout that an honest solution does not do. Where it is `decisive` the rollout scores 0."""

    kind: str
    detail: str
    decisive: bool = False


@dataclass(frozen=True)
class Grade:
    """What grading a patch gave. `tests` are the results of the task's tests, by node id; one that is missing did not
    run, which is a failure. `compiles`, `imports` and `type_checks` are None where that could not be looked at;
    `probes` says of each probe of the task whether its output was the reference's."""

    tests: TestRun
    compiles: bool | None = None
    imports: bool | None = None
    type_checks: bool | None = None
    probes: tuple[bool, ...] = ()
    flags: tuple[Flag, ...] = ()
    dropped: tuple[str, ...] = ()
    detail: str = ""
    seconds: float = 0.0


# --------------------------------------------------------------------------- rollouts and rewards


class FailureKind(StrEnum):
    """Who a rollout failed by. What failed by INFRASTRUCTURE is tried again, and never scored."""

    POLICY = "policy"
    TASK = "task"
    LIMITS = "limits"
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True)
class TokenTrace:
    """One sequence of tokens as a model saw and wrote it. `mask` is 1 where the model sampled, 0 for what it was given;
    `logprobs` are natural logarithms, 0.0 where `mask` is 0. All three have the same length; `logprobs` is empty where
    the server gave none."""

    ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...] = ()


@dataclass(frozen=True)
class Reward:
    """One number and its named parts; `by` is the name of the configuration that combined them."""

    total: float
    parts: Mapping[str, float]
    by: str = "default"


@dataclass(frozen=True)
class Rollout:
    """One policy's trajectory on one task. `trajectory` is its id in the store, `end` as in `Trajectory`, `patch` what
    left the sandbox. `failure` None: it was graded, whatever it scored."""

    id: str
    task: str
    environment: str
    policy: str
    sample: int
    trajectory: str
    end: str
    patch: tuple[FileChange, ...]
    grade: Grade | None
    reward: Reward | None = None
    failure: FailureKind | None = None
    detail: str = ""
    steps: int = 0
    usage: Usage = Usage()
    tokens: tuple[TokenTrace, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    created: str = ""
