"""The frozen dataclasses of learning: problems, samples, evaluations, generations. Data only, as in `records.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ratchet.task_records import FailureKind, TokenTrace

# --------------------------------------------------------------------------- problems and samples of them


class ProblemKind(StrEnum):
    INSTALL = "install"
    TASK = "task"


@dataclass(frozen=True)
class Problem:
    """Something that a policy is trained or evaluated on: to install a checkout whose goals are known, or a task.

    `subject` is the id of the environment (INSTALL) or of the task (TASK). `repository` is what must not be both in
    training and in evaluation: see `generations.repository_of`. `name` is for people.
    """

    kind: ProblemKind
    subject: str
    repository: str
    name: str = ""

    @property
    def id(self) -> str:
        return f"{self.kind}:{self.subject}"


@dataclass(frozen=True)
class Sample:
    """One try at a problem, as training and evaluation need it.

    `trace` is the longest sequence of tokens of the model (None where it sampled none), `traces` how many there were.
    `reward` is None where `failure` is INFRASTRUCTURE: that is sampled again, and never scored. `passed` is the verdict
    of the proof (all targets on fresh replay; all tests of the task), `claimed` whether the policy submitted a success,
    `held_out` the share of the held-out goals or probes that hold, where they were looked at. `flags` are the kinds
    of what an honest policy does not do, the decisive ones only. `steps` counts the policy's own actions, `set_up`
    those of them that installed something (none in a task: its environment is made).
    """

    problem: str
    sample: int
    passed: bool
    claimed: bool
    reward: float | None
    parts: Mapping[str, float] = field(default_factory=dict)
    trace: TokenTrace | None = None
    traces: int = 0
    held_out: float | None = None
    flags: tuple[str, ...] = ()
    failure: FailureKind | None = None
    detail: str = ""
    steps: int = 0
    set_up: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)


# --------------------------------------------------------------------------- evaluations


@dataclass(frozen=True)
class Suite:
    """Problems that nobody trains on."""

    name: str
    problems: tuple[Problem, ...]
    samples: int = 1


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % confidence interval, by a bootstrap over repositories. `count` is that of the problems."""

    mean: float
    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Evaluation:
    """What a generation did on a suite. `samples` have no traces. `metrics` are computed from them; see `evaluate.py`
    for their names."""

    id: str
    generation: str
    suite: Suite
    samples: tuple[Sample, ...]
    metrics: Mapping[str, Interval]
    seed: int = 0
    seconds: float = 0.0
    created: str = ""


# --------------------------------------------------------------------------- generations


class Standing(StrEnum):
    CANDIDATE = "candidate"
    PROMOTED = "promoted"
    REFUSED = "refused"


@dataclass(frozen=True)
class Generation:
    """A policy with its lineage. `id` is the hash of everything that makes it what it is, which excludes what was found
    out later (its standing and its evaluations: those are records of their own that name it).

    `policy` is "rules" or "local:" and the path of a checkpoint, relative to the home where it lies in there.
    `weights` is the SHA-256 of the checkpoint's files. `repositories` are those of all its training data, as
    `Problem.repository`. `configuration` is the text of the turn's configuration, `code` the version of ratchet.
    `cost` are seconds by stage.
    """

    id: str
    number: int
    name: str
    parent: str | None
    policy: str
    base_model: str = ""
    weights: str = ""
    environments: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()
    configuration: str = ""
    code: str = ""
    seed: int = 0
    cost: Mapping[str, float] = field(default_factory=dict)
    created: str = ""


@dataclass(frozen=True)
class Ruling:
    """What the gate decided of a generation, and why. `against` is the generation that it was compared with."""

    generation: str
    against: str | None
    standing: Standing
    reason: str
    evaluation: str = ""
    against_evaluation: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    created: str = ""
