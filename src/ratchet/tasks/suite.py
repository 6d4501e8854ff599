"""An environment's own test suite, run so that each test's result is out of reach of the code that is tested."""

from __future__ import annotations

import json
import random
import re
import secrets
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import PurePosixPath

from ratchet.autoinstall.workshop import BASE_USER, WORKSPACE
from ratchet.errors import SandboxError, UnsupportedSuiteError, UsageError
from ratchet.protocols import Sandbox
from ratchet.records import CommandResult, Environment, Goal, GoalKind, TestRun
from ratchet.tasks.canaries import Canaries, make_canaries
from ratchet.tasks.suite_results import read_results

_PLACE = "/var/lib/ratchet"  # not below /opt/ratchet, which a recipe may have given to the ordinary user
_PLUGIN_FILES = {"__init__.py": "results_plugin.py", "integrity.py": "integrity.py", "tracing.py": "tracing.py"}
_LARGEST_RESULTS_BYTES = 256 << 20
_CLEANUP_S = 60.0
_SIGNALLED = 128

_PYTEST = re.compile(
    r"(?:(?:exec|env|xvfb-run)\s+(?:-\S+\s+)*)*(?:[A-Za-z_]\w*=\S*\s+)*(?:\S*/)?"
    r"(?:python[\d.]*(?:\s+-[WX]\s+\S+|\s+-[A-Za-z]\S*)*?\s+-m\s*pytest|pytest|py\.test)(?=\s|$)"
)
_COLLECTS_ONLY = re.compile(r"(?:^|\s)--co(?:llect-?only)?(?=\s|$)")


@dataclass(frozen=True)
class Suite:
    """How the tests of an environment are run: a command that starts pytest once, as the ordinary user in the
    workspace, and the variables that it gets."""

    command: str
    env: Mapping[str, str]
    timeout_s: float


@dataclass(frozen=True)
class SuiteRun:
    """What one run of a suite gave. A test that was asked for and has no case in `tests` did not finish, which is a
    failure. `result` is the command's; its exit status means nothing. `tampered` says in words what an honest run does
    not do; empty where nothing of the kind was seen. `hooks` are pytest's hooks of running a test that code of the
    workspace takes part in ("pytest_runtest_call in tests/conftest.py"). `lines` are there where coverage was measured:
    of each file its lines, with the tests that ran them in the form of `coverage.Coverage.sets`. `collected` are the
    ids of the tests that were about to run, in their order."""

    tests: TestRun
    result: CommandResult
    tampered: tuple[str, ...]
    hooks: tuple[str, ...] = ()
    collected: tuple[str, ...] = ()
    lines: Mapping[str, Mapping[int, str]] = field(default_factory=dict)


def suite_of(environment: Environment) -> Suite:
    """The suite that the goals of an environment run: of those that start pytest, a target first, and then the one
    that expects the most tests. Raises UnsupportedSuiteError where there is none."""
    goals = [goal for goal in environment.goals if goal.kind is GoalKind.TESTS and _runs_pytest(goal.command)]
    if not goals:
        commands = [goal.command for goal in environment.goals if goal.kind is GoalKind.TESTS]
        tried = f"its tests are run by `{commands[0][:160]}`" if commands else "it has no goal that runs tests"
        raise UnsupportedSuiteError(
            f"the tests of {environment.name} are not run by one plain call of pytest: {tried}",
            remedy="choose an environment with a pytest suite: only there results can be had test by test",
        )

    def rank(goal: Goal) -> tuple[bool, int]:
        return goal.id in environment.targets, goal.expectation.min_tests

    goal = max(goals, key=rank)
    return Suite(goal.command, dict(environment.recipe.env), goal.timeout_s)


def _runs_pytest(command: str) -> bool:
    """Whether a command starts pytest exactly once, and not only to list the tests."""
    parts = [part.strip() for part in re.split(r"&&|;|\n", command)]
    runs = [part for part in parts if _PYTEST.match(part)]
    return len(runs) == 1 and not _COLLECTS_ONLY.search(runs[0])


def run_suite(
    sandbox: Sandbox,
    suite: Suite,
    tests: Collection[str] | None = None,
    *,
    canaries: bool = False,
    timeout_s: float | None = None,
    coverage: str | None = None,
) -> SuiteRun:
    """Run the suite in an offline sandbox: all of it as its command says, or (`tests`) those with these ids.

    Tests run in the order in which they are collected, in one process, and none ends the run; plugins of pytest that
    would shuffle, share out, stop early or measure coverage are told not to. With `canaries` a file of tests whose
    outcome is known is laid beside one of the `tests`, which then have to be given, and taken away again.
    `coverage` is a folder of the sandbox from which the package of that name can be imported: then `lines` is filled.

    What runs inside pytest's process can claim what it likes; everything else (programs that the tests start, what
    outlives them, files that lie there) can not. See `canaries.py` and `resources/integrity.py` for what is seen of the
    former. Raises SandboxError where the run could not be supervised.
    """
    planted = _canaries_for(tests) if canaries else None
    name = f"pytest_{secrets.token_hex(4)}"
    place = f"{_PLACE}/{secrets.token_hex(8)}"
    spec = {
        "command": _with_plugin(suite.command, name, f"{place}/plugin"),
        "cwd": WORKSPACE,
        "user": BASE_USER,
        "env": _variables(suite.env, name, f"{place}/plugin"),
        "plugin": {
            "workspace": WORKSPACE,
            "nonce": secrets.token_hex(16),
            "tests": None if tests is None else sorted(tests),
            "canaries": planted and {"path": planted.path, "names": list(planted.expected), "seed": planted.seed},
            "coverage": coverage,
        },
        "results": f"{place}/results",
        "max_bytes": _LARGEST_RESULTS_BYTES,
    }
    for module, file in _PLUGIN_FILES.items():
        sandbox.write(f"{place}/plugin/{name}/{module}", _resource(file))
    sandbox.write(f"{place}/supervisor.py", _resource("supervisor.py"))
    sandbox.write(f"{place}/spec", json.dumps(spec).encode(), mode=0o600)
    if planted is not None:
        sandbox.write(f"{WORKSPACE}/{planted.path}", planted.text.encode())
    try:
        command = f"exec /usr/bin/python3 -I -S {place}/supervisor.py {place}/spec"
        result = sandbox.run(command, timeout_s=suite.timeout_s if timeout_s is None else timeout_s)
        try:
            recorded = sandbox.read(f"{place}/results", max_bytes=2 * _LARGEST_RESULTS_BYTES)
        except FileNotFoundError:
            recorded = b""
    finally:
        leftovers = [place, *([f"{WORKSPACE}/{planted.path}"] if planted is not None else [])]
        sandbox.run(f"rm -rf {shlex.join(leftovers)}", timeout_s=_CLEANUP_S)
    results = read_results(recorded, planted)
    if not results.started and result.limit is None:
        raise SandboxError(
            f"the suite could not be supervised: {result.output.strip()[-500:]}",
            remedy="the base of the environment has to hold a python3 at /usr/bin, and /var/lib has to be root's",
        )
    return SuiteRun(
        results.tests,
        replace(result, command=suite.command),
        results.tampered(crashed=result.limit is not None or (result.exit_status or 0) >= _SIGNALLED),
        results.hooks,
        tuple(results.collected),
        results.lines,
    )


def _canaries_for(tests: Collection[str] | None) -> Canaries:
    if not tests:
        raise UsageError("canaries are mixed into chosen tests", remedy="give the ids of the tests to run")
    files = sorted({test.partition("::")[0] for test in tests})
    beside = secrets.choice([file for file in files if file.endswith(".py")] or files)
    return make_canaries(str(PurePosixPath(beside).parent), random.SystemRandom())


def _variables(env: Mapping[str, str], plugin: str, folder: str) -> dict[str, str]:
    path, options = env.get("PYTHONPATH"), env.get("PYTEST_ADDOPTS")
    return {
        **env,
        "PYTHONPATH": f"{folder}:{path}" if path else folder,
        "PYTEST_ADDOPTS": f"{options} -p {plugin}" if options else f"-p {plugin}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _with_plugin(command: str, plugin: str, folder: str) -> str:
    """The command, which may set the variables itself by which the plugin is found."""
    command = re.sub(r"(?<![\w$])PYTHONPATH=", f"PYTHONPATH={folder}:", command)
    return re.sub(r"(?<![\w$])PYTEST_ADDOPTS=", f"PYTEST_ADDOPTS='-p {plugin} '", command)


def _resource(name: str) -> bytes:
    return resources.files("ratchet.tasks").joinpath("resources", name).read_bytes()
