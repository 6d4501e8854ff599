"""Generation 0 as the builder: plan, run, read the failure, repair the plan, go on.

A policy like any other: it sees the results of its own commands and nothing else. What it knows is the survey of
the checkout and three targets.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from importlib import resources

from ratchet.policies.rules.diagnose import diagnose
from ratchet.policies.rules.plan import Plan
from ratchet.policies.rules.planning import PYTHON_RELEASED, Lesson, as_of
from ratchet.policies.rules.python_tests import UNITTEST_SHIM
from ratchet.policies.rules.repairs import Context, Failure, Repair, apply, hanging_tests, propose
from ratchet.policies.targets import USER, result_of, try_target
from ratchet.records import Action, ActionKind, CommandResult, Goal, Observation, Reason

VENV = "/opt/venv"
REQUIREMENTS = "/opt/ratchet/requirements.txt"
CONSTRAINTS = "/opt/ratchet/constraints.txt"
BUILD_CONSTRAINTS = "/opt/ratchet/build-constraints.txt"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# A plan that still fails after so many changes is going in circles.
_MOST_REPAIRS = 24

_BUILD_TIMEOUT_S = 1800.0

# A suite is first tried for so long; only if it is stopped, every test gets a limit, and the suite all its time.
_FIRST_TRY_S = 900.0

# Once the targets hold, so many rounds are spent on what is still missing, where the suite is this quick.
_MOST_POLISHES = 2
_POLISH_SUITES_BELOW_S = 300.0

Work = Generator[Action, Observation, None]
Stage = Generator[Action, Observation, Failure | None]


class RulesBuilder:
    """A `Policy` that builds `plan` and repairs it until the targets hold. After it has submitted, `lesson` says what
    a later attempt can learn from it, where it failed.
    """

    def __init__(self, plan: Plan, targets: Sequence[Goal], context: Context, now: datetime) -> None:
        self.plan = plan
        self.repairs: list[Repair] = []
        self.lesson: Lesson | None = None
        self._targets = sorted(targets, key=lambda goal: goal.timeout_s)
        self._context = context
        self._now = now
        self._remaining: Failure | None = None
        self._environment_made = self._installed = False
        self._work = self._run()
        self._started = False

    def act(self, observation: Observation) -> Action:
        if not self._started:
            self._started = True
            return next(self._work)
        return self._work.send(observation)

    # ------------------------------------------------------------------ the loop

    def _run(self) -> Work:
        failure = yield from self._construct()
        while failure is not None:
            fresh = propose(failure, self.plan, self._context, self._applied())
            if not fresh or len(self.repairs) >= _MOST_REPAIRS:
                reason, detail = diagnose(failure, self._context)
                self.lesson = Lesson(self.plan, reason, detail)
                yield Action(ActionKind.SUBMIT, ok=False, reason=reason, detail=detail)
                return
            if (wanted := apply(self.plan, fresh)).python != self.plan.python:
                detail = f"Python {wanted.python} is needed, on a base of its own: {fresh[0].note}"
                self.lesson = Lesson(wanted, Reason.PYTHON_UNAVAILABLE, detail)
                yield Action(ActionKind.SUBMIT, ok=False, reason=Reason.PYTHON_UNAVAILABLE, detail=detail)
                return
            failure = yield from self._repair(fresh, failure)
        yield from self._polish()
        yield Action(ActionKind.SUBMIT, env=self.variables())

    def _polish(self) -> Generator[Action, Observation, None]:
        """The targets hold, but some tests still fail: add what they say is missing. Only additions are tried, and
        what does not do good is undone."""
        for _ in range(_MOST_POLISHES):
            good, failure, count = self.plan, self._remaining, len(self.repairs)
            if failure is None:
                return
            fresh = propose(failure, good, self._context, self._applied())
            fresh = [r for r in fresh if _without_additions(r.change(good)) == _without_additions(good)]
            if not fresh:
                return
            if (yield from self._repair(fresh, failure)) is not None:
                self.plan, self.repairs[count:] = good, []
                yield Action(ActionKind.ROLLBACK, note="that did harm: build again what was good")
                yield from self._construct()
                return

    def _repair(self, repairs: Sequence[Repair], failure: Failure) -> Stage:
        before = self.plan
        self.plan = apply(self.plan, repairs)
        self.repairs += repairs
        return failure if self.plan == before else (yield from self._catch_up(before, failure.stage))

    def _applied(self) -> set[str]:
        return {repair.key for repair in self.repairs}

    def _construct(self) -> Stage:
        """Everything, from the initial state."""
        self._environment_made = self._installed = False
        system = (self._prepare(), self._documented_debian(), self._debian(self.plan.debian))
        for stage in (*system, self._environment(), self._install()):
            if (failure := (yield from stage)) is not None:
                return failure
        return (yield from self._after_install())

    def _after_install(self) -> Stage:
        self._installed = True
        for stage in (self._build_requirements(), self._in_place(), self._check_targets()):
            if (failure := (yield from stage)) is not None:
                return failure
        return None

    def _catch_up(self, before: Plan, failed: str) -> Stage:
        """Do what the changed plan asks for beyond `before`: the little that is new, or everything again."""
        plan = self.plan
        added = tuple(r for r in plan.requirements if r not in before.requirements)
        packages = tuple(p for p in plan.debian if p not in before.debian)
        same = _without_additions(plan) == _without_additions(before)
        grown = set(before.requirements) <= set(plan.requirements)
        rebuilds = dict(plan.env) != dict(before.env) and failed in {"install", "build", "resolve"}
        if not same or not grown or (rebuilds and self._installed):
            yield Action(ActionKind.ROLLBACK, note="start again from the initial state with the changed plan")
            return (yield from self._construct())
        if packages and (failure := (yield from self._debian(packages))) is not None:
            return failure
        if plan.locale and plan.locale != before.locale and (failure := (yield from self._locale())) is not None:
            return failure
        if not self._installed:
            for stage in (self._environment(), self._install()):
                if (failure := (yield from stage)) is not None:
                    return failure
            return (yield from self._after_install())
        if added and (failure := (yield from self._add(added))) is not None:
            return failure
        if plan.in_place and not before.in_place and (failure := (yield from self._in_place())) is not None:
            return failure
        return (yield from self._check_targets())

    # ------------------------------------------------------------------ stages

    def _prepare(self) -> Stage:
        failure = yield from self._do(
            f"id {USER} >/dev/null 2>&1 || useradd --create-home --shell /bin/sh {USER}\n"
            "command -v uv >/dev/null 2>&1 || python3 -m pip install --break-system-packages uv\n"
            # The project's code must not change what says how it is built and judged: /opt/ratchet is root's.
            f"install -d -o {USER} -g {USER} {VENV}\ninstall -d /opt/ratchet",
            "setup",
            user="root",
            note="an ordinary user, and uv, where the base lacks them",
        )
        if failure is not None:
            return failure
        if any(UNITTEST_SHIM in goal.command for goal in self._targets):
            shim = resources.files("ratchet.policies.rules").joinpath("resources/unittest_junit.py").read_text("utf-8")
            yield Action(ActionKind.WRITE, path=UNITTEST_SHIM, content=shim, note="reports what unittest runners run")
        return (yield from self._locale()) if self.plan.locale else None

    def _documented_debian(self) -> Stage:
        """What the docs name may be of another distribution or release: what is not to be had is left out."""
        if not self.plan.documented_debian:
            return None
        names = " ".join(shlex.quote(p) for p in self.plan.documented_debian)
        yield from self._do(
            "apt-get update -q\n"
            f'known=$(for p in {names}; do apt-get install -qq --simulate "$p" >/dev/null 2>&1 && echo "$p"; done)\n'
            "apt-get install -q -y --no-install-recommends $known",
            "apt",
            user="root",
            env={"DEBIAN_FRONTEND": "noninteractive"},
            note="libraries that the project's own docs or CI install",
        )
        return None

    def _debian(self, packages: Sequence[str]) -> Stage:
        if not packages:
            return None
        names = " ".join(shlex.quote(p) for p in packages)
        return (
            yield from self._do(
                f"apt-get update -q && apt-get install -q -y --no-install-recommends {names}",
                "apt",
                user="root",
                env={"DEBIAN_FRONTEND": "noninteractive"},
                note="Debian packages that the build or the tests need",
            )
        )

    def _locale(self) -> Stage:
        name = self.plan.locale or "C.UTF-8"
        language, _, charset = name.partition(".")
        return (
            yield from self._do(
                "apt-get update -q && apt-get install -q -y --no-install-recommends locales && "
                f"localedef -i {shlex.quote(language)} -f {shlex.quote(charset or 'UTF-8')} {shlex.quote(name)}",
                "apt",
                user="root",
                env={"DEBIAN_FRONTEND": "noninteractive"},
                note="a locale that the tests set",
            )
        )

    def _environment(self) -> Stage:
        if self._environment_made:
            return None
        # pip and setuptools need not be older than the interpreter that runs them.
        seed = max(self.plan.exclude_newer or as_of(self._now), self._settled(self.plan.python))
        failure = yield from self._do(
            f"uv venv --quiet --allow-existing --seed --python {self.plan.python} {VENV}",
            "environment",
            env={"UV_EXCLUDE_NEWER": min(seed, as_of(self._now))} if self.plan.exclude_newer else {},
            note="a virtual environment of its own",
        )
        if failure is None and self.plan.git_version:
            tag = shlex.quote(self.plan.git_version)
            failure = yield from self._do(
                "git init -q . && git config user.email dev@localhost && git config user.name dev && git add -A && "
                f"git commit -q -m checkout && git tag {tag}",
                "environment",
                note="git metadata, from which the version is taken",
            )
        self._environment_made = failure is None
        return failure

    def _install(self) -> Stage:
        plan = self.plan
        yield self._write(REQUIREMENTS, plan.requirements, "what is installed beside the project")
        yield self._write(CONSTRAINTS, plan.constraints, "bounds for whatever is installed")
        if plan.build_constraints:
            yield self._write(BUILD_CONSTRAINTS, plan.build_constraints, "bounds for what builds packages")
        if not plan.build_isolation and plan.build_requirements:
            failure = yield from self._pip(map(shlex.quote, plan.build_requirements), "install", "the build backend")
            if failure is not None:
                return failure
        words = [f"-r {REQUIREMENTS}"]
        if plan.install_project:
            target = f".[{','.join(plan.extras)}]" if plan.extras else "."
            words.insert(0, shlex.quote(target) if not plan.editable else f"-e {shlex.quote(target)}")
            if not plan.build_isolation:
                words.insert(0, "--no-build-isolation")
        return (yield from self._pip(words, "install", "the project and what its tests need"))

    def _add(self, requirements: Sequence[str]) -> Stage:
        return (yield from self._pip(map(shlex.quote, requirements), "install", "what turned out to be missing"))

    def _build_requirements(self) -> Stage:
        """What builds the project, so that it can be built offline. A build that has its own isolation works without,
        so a failure here is no failure."""
        if self.plan.build_isolation and self.plan.build_requirements and self.plan.install_project:
            yield from self._pip(map(shlex.quote, self.plan.build_requirements), "install", "builds without a network")
        return None

    def _in_place(self) -> Stage:
        if not self.plan.in_place:
            return None
        # Where it does not work, the targets say whether that matters.
        yield from self._do(
            "python setup.py build_ext --inplace", "build", note="extension modules inside the source tree"
        )
        return None

    def _check_targets(self) -> Stage:
        self._remaining = None
        patient = hanging_tests.KEY in self._applied()
        for goal in self._targets:
            timeout_s = goal.timeout_s if patient else min(goal.timeout_s, _FIRST_TRY_S)
            trial = yield from try_target(goal, self.variables(), timeout_s)
            stage = "collect" if goal.expectation.report and _collecting(trial.result.output) else "test"
            failure = Failure(stage, goal.command, trial.output, trial.result.exit_status, trial.result.limit)
            if trial.unmet:
                return failure
            quick = trial.result.seconds < _POLISH_SUITES_BELOW_S
            if trial.digest is not None and trial.digest.offline_failures and quick:
                self._remaining = failure
        return None

    # ------------------------------------------------------------------ actions

    def variables(self) -> dict[str, str]:
        """What every command in the environment gets."""
        language = self.plan.locale or "C.UTF-8"
        options = {"PYTEST_ADDOPTS": shlex.join(self.plan.pytest_options)} if self.plan.pytest_options else {}
        fixed = {"PATH": f"{VENV}/bin:{SYSTEM_PATH}", "VIRTUAL_ENV": VENV, "LANG": language}
        return fixed | options | dict(self.plan.env)

    def _do(
        self, command: str, stage: str, *, user: str = USER, env: Mapping[str, str] | None = None, note: str = ""
    ) -> Stage:
        observation = yield Action(
            ActionKind.RUN,
            command=command,
            user=user,
            env=self.variables() | dict(env or {}),
            timeout_s=_BUILD_TIMEOUT_S,
            note=note,
        )
        result = result_of(observation)
        return None if result.ok else self._failed(command, result, stage)

    def _pip(self, words: Iterable[str], stage: str, note: str) -> Stage:
        bounds = ["-c", CONSTRAINTS] + (
            ["--build-constraints", BUILD_CONSTRAINTS] if self.plan.build_constraints else []
        )
        binary = [f"--only-binary {shlex.quote(name)}" for name in self.plan.only_binary]
        command = " ".join(["uv pip install --no-progress", *bounds, *binary, *words])
        newest = {"UV_EXCLUDE_NEWER": self.plan.exclude_newer} if self.plan.exclude_newer else {}
        failure = yield from self._do(command, stage, env=newest, note=note)
        if failure is not None and re.search(
            r"No solution found|was not found in the package registry", failure.output
        ):
            return replace(failure, stage="resolve")
        return failure

    def _write(self, path: str, lines: Sequence[str], note: str) -> Action:
        return Action(ActionKind.WRITE, path=path, content="".join(f"{line}\n" for line in lines), note=note)

    def _failed(self, command: str, result: CommandResult, stage: str) -> Failure:
        return Failure(stage, command, result.output, result.exit_status, result.limit)

    def _settled(self, python: str) -> str:
        """Half a year after that Python came out, when the tools had caught up with it."""
        released = PYTHON_RELEASED.get(python)
        return as_of(datetime.fromisoformat(f"{released}T00:00:00+00:00") + timedelta(days=180)) if released else ""


def _without_additions(plan: Plan) -> Plan:
    """The plan less what can be added to an environment that stands: what is left has to be equal for that."""
    return replace(plan, debian=(), requirements=(), env={}, pytest_options=(), locale=None, in_place=False)


def _collecting(output: str) -> bool:
    return bool(re.search(r"errors? during collection|ERROR collecting|ImportError while loading conftest", output))
