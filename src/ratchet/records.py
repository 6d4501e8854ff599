"""The frozen dataclasses that cross module borders, and their JSON form.

Everything here is data: no behaviour beyond small derived properties. `to_json` and `from_json` convert
any record; `content_id` names one by the hash of its content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from cattrs.preconf.json import make_converter

# --------------------------------------------------------------------------- sources and survey


@dataclass(frozen=True)
class Checkout:
    """One repository at one commit, copied without its history.

    `id` is the hash of the content (paths, modes, bytes, link targets). `path` is the copy on this machine, and
    no part of the identity. `date` is ISO 8601 (commit date, upload date, or newest file); `missing` names
    submodules and LFS objects that the content refers to and does not hold.
    """

    id: str
    name: str
    source: str
    path: str
    commit: str | None = None
    date: str | None = None
    version: str | None = None
    missing: tuple[str, ...] = ()
    files: int = 0
    size_bytes: int = 0


@dataclass(frozen=True)
class Fact:
    """Something that the survey found, with where: `file` is relative to the checkout, `line` counts from 1.

    `kind` is one of the kinds listed in `survey/__init__.py`; `value` is its text; `group` says which part it
    belongs to (the extra of a requirement, the CI job of a command), or is empty.
    """

    kind: str
    value: str
    file: str
    line: int = 1
    group: str = ""


@dataclass(frozen=True)
class Survey:
    """All facts about one checkout."""

    checkout: str
    facts: tuple[Fact, ...] = ()

    def of(self, kind: str, group: str | None = None) -> tuple[Fact, ...]:
        return tuple(f for f in self.facts if f.kind == kind and (group is None or f.group == group))

    def values(self, kind: str, group: str | None = None) -> tuple[str, ...]:
        """The distinct values of one kind, in the order found."""
        return tuple(dict.fromkeys(f.value for f in self.of(kind, group)))

    def first(self, kind: str) -> str | None:
        return next((f.value for f in self.facts if f.kind == kind), None)


# --------------------------------------------------------------------------- sandbox


class Network(StrEnum):
    OFFLINE = "offline"  # loopback only
    INSTALL = "install"  # loopback, and the allowlist proxy


@dataclass(frozen=True)
class Limits:
    """What one sandbox may use. `cpus` None means all cores; `time_s` is the wall time of one command."""

    memory_bytes: int = 8 << 30
    processes: int = 2048
    cpus: float | None = None
    disk_bytes: int = 12 << 30
    time_s: float = 1800.0


@dataclass(frozen=True)
class SandboxSpec:
    """From what, and within what, a sandbox is opened.

    `layers` are layer ids, bottom first. `cache` is a host directory that is mounted writable at
    `/var/cache/ratchet` (install phase only: it is shared by the attempts of one install).
    """

    layers: tuple[str, ...]
    network: Network = Network.OFFLINE
    limits: Limits = Limits()
    cache: str | None = None
    hostname: str = "sandbox"


class LimitHit(StrEnum):
    TIME = "time"
    MEMORY = "memory"
    PROCESSES = "processes"
    DISK = "disk"


@dataclass(frozen=True)
class CommandResult:
    """What one command did. `output` is stdout and stderr as they came, cut in the middle where it was too long;
    `output_bytes` is how much there was. `exit_status` is None when a limit ended the command."""

    command: str
    exit_status: int | None
    output: str
    output_bytes: int
    seconds: float
    limit: LimitHit | None = None

    @property
    def ok(self) -> bool:
        return self.exit_status == 0


@dataclass(frozen=True)
class Base:
    """The root file system that sandboxes start from. `id` is the layer id; `pythons` are the versions found in it
    ("3.11"); `origin` says how it was made."""

    id: str
    name: str
    suite: str | None
    architecture: str
    origin: str
    pythons: tuple[str, ...] = ()
    size_bytes: int = 0
    created: str = ""


# --------------------------------------------------------------------------- models


@dataclass(frozen=True)
class ToolCall:
    """A native call of one of the tools that were offered; `arguments` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Message:
    """One message of a conversation. `role` is system, user, assistant or tool; `tool_call` is what a tool answers."""

    role: str
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call: str = ""


@dataclass(frozen=True)
class Reply:
    """What a model answered. `finish` is "stop", "length", "tool_calls" or "content_filter".

    `prompt_token_ids`, `token_ids` and `logprobs` (one per sampled token, natural logarithm) are there when the server
    gives them: training uses what was sampled, never text that was tokenised again. `cost` is in the currency of the
    profile's prices, None where it has none.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish: str = "stop"
    reasoning: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    seconds: float = 0.0
    prompt_token_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()


@dataclass(frozen=True)
class Sampled:
    """Tokens that a model sampled, each with its natural log-probability. `finish` is "stop" or "length"."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: str = "stop"


@dataclass(frozen=True)
class Exchange:
    """One call of a model. Its prompt was the first `kept` messages of the prompt of the exchange before, then
    `messages`. `problem` says why the reply could not be taken as an action; empty where it could."""

    model: str
    kept: int
    messages: tuple[Message, ...]
    reply: Reply
    problem: str = ""


@dataclass(frozen=True)
class Usage:
    """What calls of models took."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def plus(self, reply: Reply) -> Usage:
        return Usage(
            self.calls + 1,
            self.prompt_tokens + reply.prompt_tokens,
            self.completion_tokens + reply.completion_tokens,
            self.cost + (reply.cost or 0.0),
            self.seconds + reply.seconds,
        )


# --------------------------------------------------------------------------- policy


class ActionKind(StrEnum):
    RUN = "run"
    WRITE = "write"
    EDIT = "edit"
    READ = "read"
    SEARCH = "search"
    LINT = "lint"
    ROLLBACK = "rollback"
    SUBMIT = "submit"
    NONE = "none"


@dataclass(frozen=True)
class Edit:
    """Replace `search`, which has to occur exactly once in the file, by `replace`."""

    search: str
    replace: str


@dataclass(frozen=True)
class Action:
    """What a policy decides. One flat record, so that rules, scripts and models interchange.

    RUN: `command` as `user` in `cwd`, `proxied` or not (see `Sandbox.run`), once the start script `start`, if there is
    one, has run as root; where that fails, its result is that of the action. WRITE: `content` to `path`. EDIT: `edits`
    in `path`, all or none. READ: the lines `first` to `last` of `path`, counted from 1. SEARCH: the lines below `path`
    that match the regular expression `command`. LINT: what is wrong with the file `path`, without running it.
    ROLLBACK: back to before the last `undo` actions that changed something; 0 is the initial state. SUBMIT: the work is
    done (`ok`) or cannot be done (`reason`, `detail`); `env` is what every command in the environment gets, `start` the
    start script. NONE: nothing is done; `detail` is what the policy is told as the result.
    `keep` marks actions that belong in the recipe (those that change the sandbox); `note` says why. `exchanges` are
    the calls of a model that led to it.
    """

    kind: ActionKind
    command: str = ""
    user: str = "root"
    cwd: str = "/workspace"
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    proxied: bool = True
    path: str = ""
    content: str = ""
    mode: int = 0o644
    edits: tuple[Edit, ...] = ()
    first: int = 1
    last: int = 0
    undo: int = 0
    ok: bool = True
    reason: Reason | None = None
    detail: str = ""
    start: str = ""
    keep: bool = True
    note: str = ""
    exchanges: tuple[Exchange, ...] = ()


@dataclass(frozen=True)
class Observation:
    """What a policy sees: the result of its last action (None at the start), and how much it has left. `changed` is
    whether that action changed any file; None where nobody looked (see `agent.run_agent`)."""

    result: CommandResult | None
    steps_left: int
    seconds_left: float
    changed: bool | None = None


@dataclass(frozen=True)
class Step:
    """`changed` is whether the action changed any file of the sandbox; None where nobody looked."""

    action: Action
    result: CommandResult | None
    changed: bool | None = None


@dataclass(frozen=True)
class Trajectory:
    """`end` is "submitted", or why the loop ended it. `role` says what it was for ("goals", "builder"), `policy` who
    acted."""

    steps: tuple[Step, ...]
    end: str
    role: str = "builder"
    policy: str = "rules"


# --------------------------------------------------------------------------- goals and verdicts


class GoalKind(StrEnum):
    SETUP = "setup"
    TESTS = "tests"
    BUILD = "build"
    LINT = "lint"
    IMPORT = "import"
    LAUNCH = "launch"


@dataclass(frozen=True)
class Expectation:
    """The machine-checkable part of a goal's description.

    `matches` and `excludes` are regular expressions for lines of the output. `report` is where the command
    leaves a JUnit XML report; then at least `min_tests` tests must have run (skipped ones do not count) and
    `min_pass_rate` of them must have passed, and the exit status is not looked at: runners lie both ways.
    """

    exit_status: int | None = 0
    matches: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    report: str | None = None
    min_tests: int = 1
    min_pass_rate: float = 0.95


@dataclass(frozen=True)
class Goal:
    """A command, and a description of its output if the environment is set up correctly."""

    command: str
    description: str
    kind: GoalKind
    expectation: Expectation = Expectation()
    timeout_s: float = 300.0

    @property
    def id(self) -> str:
        return content_id(self)[:12]


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class TestCase:
    __test__ = False  # not for pytest

    id: str
    outcome: Outcome
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class TestRun:
    """The results of one run of a suite, read per test from its report."""

    __test__ = False

    cases: tuple[TestCase, ...] = ()

    def count(self, outcome: Outcome) -> int:
        return sum(case.outcome is outcome for case in self.cases)

    @property
    def ran(self) -> int:
        """Tests that did run: passed, failed or ended in an error."""
        return len(self.cases) - self.count(Outcome.SKIPPED)


@dataclass(frozen=True)
class Opinion:
    """What a judge thinks of an output: as described, or not, or (`holds` None) it cannot tell, which is no pass.
    `quote` is the part of the output that shows it, word for word."""

    holds: bool | None
    why: str
    quote: str = ""


@dataclass(frozen=True)
class Verdict:
    """What judging a goal gave. `evidence` is the part of the output that decided."""

    goal: str
    passed: bool
    why: str
    evidence: str = ""
    exit_status: int | None = None
    seconds: float = 0.0
    limit: LimitHit | None = None
    tests: TestRun | None = None


# --------------------------------------------------------------------------- recipe, attempt, environment


@dataclass(frozen=True)
class RecipeStep:
    """A command, or (where `path` is set) a file to write. Replayed in order from base plus checkout. `may_fail`: the
    command failed where it was first done, and what it had changed by then was built on, so it may fail again."""

    command: str = ""
    user: str = "root"
    cwd: str = "/workspace"
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 1800.0
    path: str = ""
    content: str = ""
    mode: int = 0o644
    note: str = ""
    may_fail: bool = False


@dataclass(frozen=True)
class Recipe:
    steps: tuple[RecipeStep, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    start: str = ""


class Reason(StrEnum):
    """Why an attempt failed or a repository was discarded."""

    EMPTY_CHECKOUT = "empty-checkout"
    UNSUPPORTED = "unsupported"
    NO_TESTS = "no-tests"
    BROKEN_BUILD_SCRIPT = "broken-build-script"
    BUILD_FAILED = "build-failed"
    DEPENDENCY_NOT_FOUND = "dependency-not-found"
    DEPENDENCY_CONFLICT = "dependency-conflict"
    VERSION_NOT_FOUND = "version-not-found"
    PYTHON_UNAVAILABLE = "python-unavailable"
    REGISTRY_UNREACHABLE = "registry-unreachable"
    BUILD_TIMEOUT = "build-timeout"
    TEST_TIMEOUT = "test-timeout"
    MEMORY_LIMIT = "memory-limit"
    PROCESS_LIMIT = "process-limit"
    DISK_LIMIT = "disk-limit"
    TESTS_FAILED = "tests-failed"
    TESTS_NOT_COLLECTED = "tests-not-collected"
    TARGETS_FAILED = "targets-failed"
    REPLAY_DIFFERS = "replay-differs"
    TESTS_CHANGED = "tests-changed"
    NOTHING_NOTICED = "nothing-noticed"
    NO_DISCRIMINATING_GOALS = "no-discriminating-goals"
    POLICY_GAVE_UP = "policy-gave-up"
    BAD_REPLIES = "bad-replies"
    GOING_IN_CIRCLES = "going-in-circles"
    BUDGET_SPENT = "budget-spent"


@dataclass(frozen=True)
class Attempt:
    """One run of stage 2, and why it failed (`reason` None: it did not)."""

    number: int
    base: str
    reason: Reason | None
    detail: str
    recipe: Recipe
    verdicts: tuple[Verdict, ...] = ()
    seconds: float = 0.0
    trajectory: str = ""


@dataclass(frozen=True)
class Sabotage:
    """One way in which the finished environment was broken on purpose, and the target that noticed, if any."""

    name: str
    command: str
    noticed_by: str | None
    why: str = ""


@dataclass(frozen=True)
class Audit:
    held_out: tuple[Verdict, ...] = ()
    sabotages: tuple[Sabotage, ...] = ()
    tests: TestRun = TestRun()
    flaky: tuple[str, ...] = ()
    need_network: tuple[str, ...] = ()
    weak_targets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Environment:
    """base + checkout + recipe layer + start script + goals + verdicts. `id` hashes what rebuilds it."""

    id: str
    name: str
    base: Base
    checkout: Checkout
    recipe: Recipe
    layer: str
    goals: tuple[Goal, ...]
    targets: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    audit: Audit
    python_packages: Mapping[str, str] = field(default_factory=dict)
    debian_packages: Mapping[str, str] = field(default_factory=dict)
    generation: str = "0"
    created: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    limits: Limits = Limits()
    allowed_hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Install:
    """The outcome of one autoinstall: verified with an environment, or discarded with a reason."""

    source: str
    checkout: str
    environment: str | None
    reason: Reason | None
    detail: str
    attempts: tuple[Attempt, ...]
    goals: tuple[Goal, ...]
    pristine: tuple[Verdict, ...]
    targets: tuple[str, ...]
    verdicts: tuple[Verdict, ...]  # of the targets, on fresh replay (or of the last attempt)
    audit: Audit | None
    replayed: bool
    seconds: Mapping[str, float]
    reused: bool = False
    usage: Mapping[str, Usage] = field(default_factory=dict)  # of models, by stage
    goal_origins: Mapping[str, str] = field(default_factory=dict)  # by goal id: the policy that proposed it
    memories_offered: tuple[str, ...] = ()
    trajectories: tuple[str, ...] = ()  # of the goal setter and the judge


# --------------------------------------------------------------------------- JSON

Record = TypeVar("Record")
_converter = make_converter()


def to_json(record: Any) -> Any:
    """The JSON form of a record: dicts, lists, strings, numbers, booleans, None."""
    return _converter.unstructure(record)


def from_json(data: Any, kind: type[Record]) -> Record:
    """The record of the given kind. Raises cattrs' errors where the data does not fit."""
    return _converter.structure(data, kind)


def canonical(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def content_id(record: Any) -> str:
    """SHA-256, in hex, of the canonical JSON of a record."""
    # File names and outputs may hold lone surrogates.
    return hashlib.sha256(canonical(to_json(record)).encode("utf-8", "surrogatepass")).hexdigest()
