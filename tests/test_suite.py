"""Running a suite test by test: what is reported, and what the tested code cannot do about it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from ratchet.autoinstall.workshop import Workshop
from ratchet.errors import SandboxError, UnsupportedSuiteError, UsageError
from ratchet.protocols import Sandbox
from ratchet.records import (
    Audit,
    Base,
    Checkout,
    Environment,
    Expectation,
    Goal,
    GoalKind,
    LimitHit,
    Outcome,
    Recipe,
    SandboxSpec,
)
from ratchet.sandbox.oci import OciBackend
from ratchet.tasks.canaries import make_canaries
from ratchet.tasks.suite import Suite, SuiteRun, run_suite, suite_of
from ratchet.tasks.suite_results import read_results
from sample_project import ENV, sample_environment

Project = Callable[[Mapping[str, str]], AbstractContextManager[Sandbox]]

SUITE = Suite("python -m pytest tests", ENV, 60.0)
TWO = {
    "tests/test_one.py": "from shop import price\ndef test_a(): assert price(2) == 4\ndef test_b(): assert price(3) == 6\n",
    "src/shop.py": "def price(n):\n    return 2 * n\n",
    "conftest.py": "import sys\nsys.path.insert(0, '/workspace/src')\n",
}
A, B = "tests/test_one.py::test_a", "tests/test_one.py::test_b"


@pytest.fixture(scope="module")
def project(home: Path, backend: OciBackend) -> Project:
    """Opens a sandbox with pytest and the given files of a project."""
    with Workshop.open(home) as workshop:
        environment = sample_environment(workshop)

    @contextmanager
    def opened(files: Mapping[str, str]) -> Iterator[Sandbox]:
        with backend.open(SandboxSpec((environment.base.id, environment.layer))) as sandbox:
            for path, text in files.items():
                sandbox.write(f"/workspace/{path}", text.encode())
            sandbox.run("chown -R dev:dev /workspace")
            yield sandbox

    return opened


def outcomes(run: SuiteRun) -> dict[str, Outcome]:
    return {case.id: case.outcome for case in run.tests.cases}


# --------------------------------------------------------------------------- which command


def environment(*commands: str, targets: tuple[int, ...] = ()) -> Environment:
    goals = tuple(
        Goal(command, "", GoalKind.TESTS, Expectation(report="/r", min_tests=number + 1))
        for number, command in enumerate(commands)
    )
    base, checkout = Base("b", "bookworm", "bookworm", "amd64", ""), Checkout("c", "shop", "shop", "/none")
    chosen = tuple(goals[place].id for place in targets)
    recipe = Recipe(env={"A": "b"})
    return Environment("e" * 64, "shop", base, checkout, recipe, "layer", goals, chosen, (), Audit())


@pytest.mark.parametrize(
    "command",
    [
        "python -m pytest --junitxml=/tmp/r.xml tests",
        "pytest",
        "cd sub && PYTHONPATH=src TZ=UTC python3.11 -W error -m pytest -q",
        "mkdir -p x; /opt/venv/bin/pytest a b",
        "xvfb-run -a py.test",
    ],
)
def test_a_command_that_starts_pytest_is_a_suite(command: str) -> None:
    assert suite_of(environment(command)).command == command


@pytest.mark.parametrize(
    "command",
    [
        "python -m unittest",
        "pip install pytest",
        "python -m pytest --collect-only -q",
        "pytest a && pytest b",
        "python pytest_like.py",
    ],
)
def test_any_other_is_refused_by_name(command: str) -> None:
    with pytest.raises(UnsupportedSuiteError, match="shop"):
        suite_of(environment(command))


def test_the_largest_target_is_the_suite() -> None:
    found = suite_of(environment("pytest a", "pytest b", "pytest c", targets=(0, 1)))
    assert (found.command, found.env) == ("pytest b", {"A": "b"})


# --------------------------------------------------------------------------- what is reported

KINDS = """
import unittest
import pytest

@pytest.fixture
def broken():
    raise ValueError("at the start")

@pytest.fixture
def late():
    yield
    raise ValueError("at the end")

def test_good(): pass
def test_bad(): assert "spam" == "eggs"
def test_setup(broken): pass
def test_teardown(late): pass
def test_skipped(): pytest.skip("no time")
@pytest.mark.xfail
def test_expected(): assert False
@pytest.mark.xfail(strict=True)
def test_unexpected(): pass
@pytest.mark.parametrize("n", [1, "a b", 0.5])
def test_many(n): assert n != 0.5

class TestThings(unittest.TestCase):
    def test_parts(self):
        for n in range(3):
            with self.subTest(n=n):
                self.assertNotEqual(n, 1)
"""


@pytest.mark.sandbox
def test_each_outcome_is_told_apart_and_ids_are_relative_to_the_workspace(project: Project) -> None:
    files = {
        "sub/tests/test_kinds.py": KINDS,
        "sub/tests/test_broken.py": "import nothing_of_this_name\n",
        "sub/pytest.ini": "[pytest]\naddopts = -x --maxfail=1 --doctest-modules\n",
        "sub/sums.py": '"""\n>>> 1 + 1\n2\n"""\n',
    }
    with project(files) as sandbox:
        run = run_suite(sandbox, Suite("cd sub && python -m pytest", SUITE.env, 60.0))
    kinds = "sub/tests/test_kinds.py::"
    assert outcomes(run) == {
        "sub/tests/test_broken.py::collection": Outcome.ERROR,
        "sub/sums.py::sums": Outcome.PASSED,
        f"{kinds}test_good": Outcome.PASSED,
        f"{kinds}test_bad": Outcome.FAILED,
        f"{kinds}test_setup": Outcome.ERROR,
        f"{kinds}test_teardown": Outcome.ERROR,
        f"{kinds}test_skipped": Outcome.SKIPPED,
        f"{kinds}test_expected": Outcome.SKIPPED,
        f"{kinds}test_unexpected": Outcome.FAILED,
        f"{kinds}test_many[1]": Outcome.PASSED,
        f"{kinds}test_many[a b]": Outcome.PASSED,
        f"{kinds}test_many[0.5]": Outcome.FAILED,
        f"{kinds}TestThings::test_parts": Outcome.FAILED,
    }
    messages = {case.id: case.message for case in run.tests.cases}
    assert "'spam' == 'eggs'" in messages[f"{kinds}test_bad"]
    assert messages[f"{kinds}test_skipped"].endswith("no time")
    assert run.tampered == (), run.result.output


@pytest.mark.sandbox
def test_tests_are_selected_whatever_the_project_sets_itself(project: Project) -> None:
    seen = "import os\nprint('VARIABLES', sorted(n for n in os.environ if 'PYTEST' in n or 'RATCHET' in n))\n"
    files = TWO | {
        "conftest.py": seen,
        "tests/test_two.py": "def test_c(): assert 0\ndef test_d(): pass\n",
        "setup.cfg": "[tool:pytest]\naddopts = -x --strict-markers --lf --sw\n",
    }
    suite = Suite("PYTHONPATH=src pytest -s", ENV | {"PYTEST_ADDOPTS": "--color=no"}, 60.0)
    chosen = [B, "tests/test_two.py::test_c", "tests/test_two.py::test_d", "tests/test_gone.py::test_e"]
    with project(files) as sandbox:
        run = run_suite(sandbox, suite, chosen, canaries=True)
        left = sandbox.run("find /workspace -name '*.pyc'; ls tests | wc -l; ls /var/lib/ratchet", cwd="/workspace")
    assert outcomes(run) == dict(zip(chosen[:3], (Outcome.PASSED, Outcome.FAILED, Outcome.PASSED), strict=True))
    assert run.tampered == (), run.result.output
    assert "VARIABLES ['PYTEST_ADDOPTS', 'PYTEST_VERSION']" in run.result.output
    assert left.output.split() == ["2"]


@pytest.mark.sandbox
def test_when_the_time_is_over_the_tests_before_have_results(project: Project) -> None:
    files = {"tests/test_slow.py": "import time\ndef test_quick(): pass\ndef test_slow(): time.sleep(60)\n"}
    with project(files) as sandbox:
        run = run_suite(sandbox, SUITE, timeout_s=8.0)
    assert run.result.limit is LimitHit.TIME
    assert outcomes(run) == {"tests/test_slow.py::test_quick": Outcome.PASSED}
    assert run.tampered == (), run.result.output


# --------------------------------------------------------------------------- what the tested code cannot do

EVERYTHING_PASSES = """
import _pytest.reports
_real = _pytest.reports.TestReport.from_item_and_call
def lie(item, call):
    report = _real(item, call)
    report.outcome, report.longrepr = "passed", None
    return report
_pytest.reports.TestReport.from_item_and_call = staticmethod(lie)
"""
LIES = {
    "from_item_and_call was replaced": EVERYTHING_PASSES,
    "from_call was replaced": "import _pytest.runner\n"
    + "f = _pytest.runner.CallInfo.from_call.__func__\n"
    + "def quiet(cls, func, when, reraise=None):\n    return cls(result=[], excinfo=None, start=0, stop=0, duration=0,"
    + " when=when, _ispytest=True)\nf.__code__ = quiet.__code__\n",
    "builtins.all was replaced": "import builtins\nbuiltins.all = lambda values: True\n",
    "a canary that has to be failed was passed": "import gc, _pytest.config, pytest\n"
    "class Lies:\n    @pytest.hookimpl(hookwrapper=True)\n    def pytest_runtest_makereport(self, item, call):\n"
    "        outcome = yield\n        outcome.get_result().outcome = 'passed'\n"
    "next(o for o in gc.get_objects() if type(o) is _pytest.config.Config).pluginmanager.register(Lies())\n",
}


@pytest.mark.sandbox
@pytest.mark.parametrize("sign", LIES)
def test_a_patched_runner_is_seen(project: Project, sign: str) -> None:
    with project(TWO | {"src/shop.py": LIES[sign] + "\ndef price(n):\n    return 5\n"}) as sandbox:
        run = run_suite(sandbox, SUITE, [A, B], canaries=True)
    assert any(sign in found for found in run.tampered), run.tampered


@pytest.mark.sandbox
def test_who_leaves_the_process_has_no_results_and_is_named(project: Project) -> None:
    leaving = "import os\ndef price(n):\n    os._exit(0)\n"
    with project(TWO | {"src/shop.py": leaving}) as sandbox:
        run = run_suite(sandbox, SUITE, [A, B], canaries=True)
    assert not outcomes(run)
    assert any("ended without saying so" in sign for sign in run.tampered)
    assert run.result.exit_status == 0


FORGERY = """
import gc, json, os, subprocess, sys, glob, time
def price(n):
    name = next(n for n in sys.modules if n.startswith("pytest_") and hasattr(sys.modules[n], "channel"))
    channel = sys.modules[name].channel
    if os.fork() == 0:  # it has the descriptor and the nonce, and stays
        for test in ("test_a", "test_b"):
            for when in ("setup", "call", "teardown"):
                message = dict(t="result", id="tests/test_one.py::" + test, when=when, outcome="passed", seconds=0)
                os.write(channel.descriptor, channel.nonce + json.dumps(dict(message, message="", part=False)).encode())
        os.setsid()
        time.sleep(600)
    time.sleep(0.2)
    for path in glob.glob("/var/lib/ratchet/*/*"):
        for attempt in (lambda: open(path, "a"), lambda: os.rename(path, path + "x"), lambda: open(path + "/x", "w")):
            try:
                attempt()
                print("CHANGED", path)
            except OSError:
                pass
        if not path.endswith((".py", "plugin")):
            try:
                open(path)
                print("READ", path)
            except PermissionError:
                print("SECRET", os.path.basename(path))
    sys.stdout.flush()
    os._exit(0)
"""


@pytest.mark.sandbox
def test_results_of_another_process_are_refused_and_it_does_not_outlive_the_run(project: Project) -> None:
    with project(TWO | {"src/shop.py": FORGERY}) as sandbox:
        run = run_suite(sandbox, Suite(SUITE.command + " -s", SUITE.env, 60.0), [A, B])
        alive = sandbox.run("pgrep -u dev || echo nobody").output
    assert not outcomes(run)
    assert any("another process" in sign for sign in run.tampered)
    assert "CHANGED" not in run.result.output
    assert "READ" not in run.result.output
    assert "SECRET results" in run.result.output
    assert alive.strip().endswith("nobody")


@pytest.mark.sandbox
def test_a_place_that_others_can_change_is_not_used(project: Project) -> None:
    with project(TWO) as sandbox:
        sandbox.run("mkdir /var/lib/ratchet && chown dev /var/lib/ratchet")
        with pytest.raises(SandboxError, match="others than root"):
            run_suite(sandbox, SUITE)


# --------------------------------------------------------------------------- reading results


def recorded(*messages: Mapping[str, object]) -> bytes:
    return b"".join(b"P " + json.dumps(message).encode() + b"\n" for message in messages)


def result(when: str, outcome: str = "passed", **others: object) -> dict[str, object]:
    return {
        "t": "result",
        "id": "t",
        "when": when,
        "outcome": outcome,
        "seconds": 1,
        "message": "",
        "part": False,
    } | others


COLLECTED = {"t": "collected", "ids": ["t"]}
WHOLE = (result("setup"), result("call"), result("teardown"))


def test_a_test_that_did_not_finish_has_no_result() -> None:
    assert read_results(recorded(COLLECTED, *WHOLE[:2]), None).tests.cases == ()


def test_a_result_that_comes_twice_is_tampering_and_the_worst_counts() -> None:
    found = read_results(recorded(COLLECTED, *WHOLE, WHOLE[0], result("call", "failed"), WHOLE[2]), None)
    assert [case.outcome for case in found.tests.cases] == [Outcome.FAILED]
    assert any("came 2 times" in sign for sign in found.tampered(crashed=False))


def test_a_test_that_a_plugin_tries_again_has_its_last_result() -> None:
    found = read_results(recorded(COLLECTED, WHOLE[0], result("call", "rerun"), WHOLE[2], *WHOLE), None)
    assert [case.outcome for case in found.tests.cases] == [Outcome.PASSED]
    assert found.tampered(crashed=False) == ()


def test_a_test_that_was_not_collected_is_tampering() -> None:
    found = read_results(recorded(*WHOLE), None)
    assert any("not collected" in sign for sign in found.tampered(crashed=False))


@pytest.mark.parametrize(
    "line",
    [
        b"P ",
        b"P 1\n",
        b'P {"t": "result"}\n',
        b"P [[[\n",
        b'P {"t": "lines", "path": "a", "lines": [3]}\n',
        b"\xff\n\n",
    ],
)
def test_garbage_is_counted_and_not_believed(line: bytes) -> None:
    found = read_results(recorded(COLLECTED) + line + b"\n" + recorded(*WHOLE), None)
    assert [case.id for case in found.tests.cases] == ["t"]
    assert any("cannot be read" in sign for sign in found.tampered(crashed=False))


# --------------------------------------------------------------------------- canaries


def test_canaries_need_tests_to_be_mixed_into(project: Project) -> None:
    with project(TWO) as sandbox, pytest.raises(UsageError):
        run_suite(sandbox, SUITE, canaries=True)


def test_canaries_are_other_ones_for_another_seed_and_the_same_for_the_same() -> None:
    first, again, other = (make_canaries("tests", random.Random(seed)) for seed in (1, 1, 2))
    assert first == again
    assert not set(first.expected) & set(other.expected)
    assert first.path.startswith("tests/test_")
    assert first.path != other.path


def test_a_canary_that_passes_and_must_not_is_seen() -> None:
    canaries = make_canaries("tests", random.Random(0))
    names = [f"{canaries.path}::{name}" for name in canaries.expected]
    results = [result(when, id=name) for name in names for when in ("setup", "call", "teardown")]
    found = read_results(recorded({"t": "collected", "ids": names}, *results), canaries)
    assert found.tests.cases == ()
    assert any("has to be failed was passed" in sign for sign in found.tampered(crashed=False))
