"""The main job, whole and for real: a checkout with the usual traps becomes a verified environment."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.autoinstall.options import Options
from ratchet.autoinstall.pipeline import autoinstall
from ratchet.autoinstall.verify import environment_layers, judge_pristine, verify
from ratchet.autoinstall.workshop import Workshop
from ratchet.records import Environment, Expectation, Goal, GoalKind, Install, Limits, Outcome

pytestmark = pytest.mark.sandbox

LIMITS = Limits(memory_bytes=2 << 30, processes=400, disk_bytes=2 << 30, time_s=300.0)

# A C extension that needs a header of a Debian package, a version that comes from git tags, test requirements in a
# file of the tests' own, a plugin that only a fixture names, a test that wants a network, one that is flaky, and one
# that root would fail.
PROJECT = {
    "pyproject.toml": """\
[project]
name = "trapped"
dynamic = ["version"]
dependencies = ["idna"]
[build-system]
requires = ["setuptools", "setuptools-scm"]
build-backend = "setuptools.build_meta"
[tool.setuptools.packages.find]
where = ["src"]
[tool.setuptools_scm]
[tool.pytest.ini_options]
addopts = "--strict-markers --cov=trapped"
""",
    "setup.py": "from setuptools import Extension, setup\n"
    "setup(ext_modules=[Extension('trapped._zip', ['src/trapped/_zip.c'], libraries=['zip'])])\n",
    "src/trapped/__init__.py": "from trapped._zip import version\nimport idna\n\n"
    "def encode(text):\n    return idna.encode(text)\n",
    "src/trapped/_zip.c": """\
#include <Python.h>
#include <zip.h>
static PyObject *version(PyObject *self, PyObject *args) { return PyUnicode_FromString(zip_libzip_version()); }
static PyMethodDef methods[] = {{"version", version, METH_NOARGS, ""}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_zip", "", -1, methods};
PyMODINIT_FUNC PyInit__zip(void) { return PyModule_Create(&module); }
""",
    "tests/requirements.txt": "freezegun\n",
    "tests/test_trapped.py": """\
import os
import socket
from pathlib import Path

import freezegun
import pytest

import trapped


@pytest.mark.parametrize("number", range(60))
def test_encode(number):
    assert trapped.encode("a" * (number + 1))


def test_version_of_the_library():
    assert trapped.version()


def test_fixture_of_a_plugin(mocker):
    mocker.patch("os.getcwd", return_value="/elsewhere")
    assert os.getcwd() == "/elsewhere"


def test_time():
    with freezegun.freeze_time("2020-01-01"):
        import datetime
        assert datetime.date.today().year == 2020


def test_wants_a_network():
    socket.getaddrinfo("example.com", 443)


def test_flaky():
    assert os.stat(__file__).st_atime_ns >= 0 and os.urandom(1)[0] < 128


def test_an_ordinary_user_cannot_write(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        (tmp_path / "x").write_text("x")
""",
}


def git(*arguments: str, at: Path) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run(["git", *identity, *arguments], cwd=at, check=True, capture_output=True)


@pytest.fixture(scope="module")
def workshop(home: Path, base: str) -> Iterator[Workshop]:
    with Workshop.open(home) as opened:
        yield opened


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("trapped")
    for path, content in PROJECT.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    git("init", "-q", "-b", "main", at=root)
    git("add", ".", at=root)
    git("commit", "-q", "-m", "first", at=root)
    git("tag", "v1.4.2", at=root)
    return root


@pytest.fixture(scope="module")
def install(workshop: Workshop, source: Path) -> Install:
    return autoinstall(str(source), workshop, Options(limits=LIMITS, base="bookworm", fresh=True))


@pytest.fixture(scope="module")
def environment(workshop: Workshop, install: Install) -> Environment:
    assert install.environment is not None, (install.reason, install.detail, install.attempts)
    return workshop.store.get("environment", install.environment, Environment)


def test_it_is_verified_on_a_replay_with_ten_goals_and_three_targets(install: Install) -> None:
    assert install.environment is not None, (install.reason, install.detail)
    assert install.replayed
    assert len(install.goals) == 10
    assert len(install.targets) == 3
    passed_before = {verdict.goal for verdict in install.pristine if verdict.passed}
    assert not passed_before & set(install.targets)
    assert install.audit is not None
    assert len(install.audit.held_out) == 7
    assert sum(verdict.passed for verdict in install.audit.held_out) >= 6


def test_the_tests_are_counted_one_by_one(environment: Environment) -> None:
    outcomes = {case.id.rsplit("::", 1)[-1]: case.outcome for case in environment.audit.tests.cases}
    assert len(outcomes) == 66
    assert outcomes["test_an_ordinary_user_cannot_write"] is Outcome.PASSED
    assert [test.rsplit("::", 1)[-1] for test in environment.audit.need_network] == ["test_wants_a_network"]


def test_every_sabotage_is_noticed(environment: Environment) -> None:
    names = [sabotage.name for sabotage in environment.audit.sabotages]
    assert len(names) >= 5
    assert [s.name for s in environment.audit.sabotages if s.noticed_by is None] == []


def test_the_environment_records_what_was_resolved(environment: Environment) -> None:
    assert environment.python_packages["trapped"].startswith("1.4.2")
    assert "pytest-mock" in environment.python_packages
    assert "libzip-dev" in environment.debian_packages
    assert any("libzip-dev" in step.command for step in environment.recipe.steps)


def test_it_can_be_used_in_forks_that_do_not_see_each_other(workshop: Workshop, environment: Environment) -> None:
    layers = environment_layers(workshop, environment)
    for _ in range(2):
        with workshop.offline(layers, LIMITS) as sandbox:
            seen = sandbox.run("ls mark; touch mark", user="dev", cwd="/workspace", env=environment.recipe.env)
            assert "No such file" in seen.output
            used = sandbox.run("python -c 'import trapped; print(trapped.version())'", env=environment.recipe.env)
            assert used.ok, used.output


def test_it_verifies_again_from_the_base(workshop: Workshop, environment: Environment) -> None:
    replayed, verdicts = verify(workshop, environment, LIMITS)
    assert replayed.layer is not None, replayed.detail
    assert sum(verdict.passed for verdict in verdicts) >= 9


def test_the_same_checkout_is_not_built_twice(workshop: Workshop, install: Install, source: Path) -> None:
    again = autoinstall(str(source), workshop, Options(limits=LIMITS, base="bookworm"))
    assert again.reused
    assert again.environment == install.environment


@pytest.mark.parametrize(
    ("command", "passes"),
    [
        ("python -c 'import json, sys; print(\"ready\", sys.version)'", True),
        ("python -m pytest --version && echo ready", False),
    ],
)
def test_a_goal_that_needs_no_installation_passes_in_the_pristine_sandbox(
    workshop: Workshop, environment: Environment, command: str, passes: bool
) -> None:
    goal = Goal(command, "", GoalKind.SETUP, Expectation(matches=("^ready",)))
    layers = workshop.pristine_layers(environment.base, environment.checkout)
    assert judge_pristine(workshop, layers, goal, LIMITS).passed is passes
