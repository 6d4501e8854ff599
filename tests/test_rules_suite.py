"""How a project's own suite is found and run, from the survey alone."""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from ratchet.junit import parse
from ratchet.policies.rules.goals import propose_goals
from ratchet.policies.rules.python_tests import REPORT, UNITTEST_SHIM, find_suite
from ratchet.records import Checkout, Expectation, Fact, GoalKind, Outcome, Survey

PYTEST = f"python -m pytest --junitxml={REPORT}"
OWN = f"python {UNITTEST_SHIM} {REPORT}"


def survey(files: dict[str, int], *facts: Fact) -> Survey:
    counts = tuple(Fact("test-count", str(count), path) for path, count in files.items())
    return Survey("c", counts + facts)


def script(path: str) -> Fact:
    return Fact("test-script", path, path)


SCRIPT = script("test.py")


def documented(command: str, group: str = "tox:testenv") -> Fact:
    return Fact("test-command", command, "tox.ini", 1, group)


@pytest.mark.parametrize(
    ("files", "facts", "command"),
    [
        ({"tests/test_a.py": 3}, (), f"{PYTEST} tests"),
        ({"src/pkg/tests/test_a.py": 3, "docs/test_doc.py": 1}, (), f"{PYTEST} src/pkg/tests"),
        ({"test_a.py": 3}, (), f"{PYTEST} test_a.py"),
        ({"tests/test_a.py": 3}, (Fact("pytest-setting", "testpaths=tests", "tox.ini"),), PYTEST),
        ({"t/a.py": 9, "c/b.py": 3}, (documented("pytest -v -n auto t/ c/ {posargs}"),), f"{PYTEST} t c"),
        ({"tests/test_a.py": 3}, (documented("coverage run --source x -m pytest tests"),), f"{PYTEST} tests"),
        ({"tests/test_a.py": 3}, (documented("pytest tests --ignore=tests/slow -k fast"),), f"{PYTEST} --ignore=tests/slow tests"),
        ({"tests/test_a.py": 3}, (documented("pytest ../outside /etc"),), f"{PYTEST} tests"),
        ({"test/test_a.py": 9}, (documented("python -m pkg.test.runtests {posargs:--quiet}"), Fact("import-name", "pkg", "pkg")), f"{PYTEST} test"),
        ({"pkg/test/a_test.py": 9}, (documented("python -m pkg.test.runtests"), Fact("import-name", "pkg", "pkg")), f"{OWN} -m pkg.test.runtests"),
        ({"t/a.py": 9}, (documented("$(PYTHON) test.py -p -v", "make:test"), SCRIPT), f"{OWN} test.py -p -v"),
        ({"t/a.py": 9}, (documented("python -W error ./test.py"),), f"{PYTEST} t"),  # there is no such file
        ({"t/a.py": 9}, (documented("python -Werror ./test.py"), SCRIPT), f"{OWN} test.py"),
        ({"t/a.py": 9}, (documented("cd t && python run_tests.py"), script("t/run_tests.py")), f"{OWN} t/run_tests.py"),
        ({"t/a.py": 9}, (documented("python all.tests.py"), script("a/all.tests.py"), script("b/all.tests.py")), f"{PYTEST} t"),
        ({"app/tests.py": 9}, (documented("DEBUG=1 python manage.py test app"), script("manage.py")), f"DEBUG=1 {OWN} manage.py test app"),
        ({"t/a.py": 9}, (documented("coverage run -m django test --settings=t.settings"),), f"{OWN} -m django test --settings=t.settings"),
        ({"test_a.py": 30, "tests/test_b.py": 30}, (), f"{PYTEST} test_a.py tests"),
        ({"test_a.py": 3, "tests/test_b.py": 30}, (), f"{PYTEST} tests"),
        ({}, (Fact("test-file", "pkg/a.py", "pkg/a.py", 1, "doctest"),), f"{PYTEST} pkg"),
        ({"tests/test_a.py": 3}, (Fact("pytest-option", "-x", "tox.ini"),), f"{PYTEST} --maxfail=0 tests"),
        ({"tests/a.py": 3}, (documented("pytest --numprocesses auto -m 'not slow' tests"),), f"{PYTEST} -m 'not slow' tests"),
        ({"tests/a.py": 9}, (documented("python -m unittest discover -s tests"),), f"{OWN} -m unittest discover -s tests"),
        ({"tests/a.py": 9}, (documented("python -m unittest"), documented("pytest tests", "ci:test")), f"{OWN} -m unittest"),
    ],
)  # fmt: skip
def test_the_command(files: dict[str, int], facts: tuple[Fact, ...], command: str) -> None:
    suite = find_suite(survey(files, *facts))
    assert suite is not None
    assert suite.command == command


def test_a_single_file_and_the_collection_are_run_with_the_options_of_the_whole_suite() -> None:
    goals = propose_goals(
        survey({"tests/test_a.py": 3}, documented("pytest -c tests/pytest.ini tests")), Checkout("", "", "", "")
    )
    commands = {goal.command for goal in goals}
    assert f"{PYTEST} -c tests/pytest.ini tests/test_a.py" in commands
    assert "python -m pytest --collect-only -q -c tests/pytest.ini tests" in commands


def test_a_portion_of_a_namespace_package_is_imported_by_its_dotted_name() -> None:
    goals = propose_goals(
        survey({"tests/test_a.py": 3}, Fact("import-name", "ns.part", "src/ns/part")), Checkout("", "", "", "")
    )
    assert [g for g in goals if g.expectation.matches == (r"^imported ns\.part$",)]


def test_a_package_around_a_compiled_module_of_its_name_counts_as_compiled(tmp_path: Path) -> None:
    files = (str(importlib.import_module(name).__file__) for name in ("_json", "_csv", "_lsprof"))
    shared = Path(next(file for file in files if file.endswith(".so")))
    package = tmp_path / shared.name.partition(".")[0]
    package.mkdir()
    (package / "__init__.py").write_text(f"from .{package.name} import *\n")
    shutil.copy(shared, package / shared.name)
    facts = [Fact("extension-module", package.name, "Cargo.toml"), Fact("project-name", "p", "Cargo.toml")]
    goals = propose_goals(survey({"tests/test_a.py": 1}, *facts), Checkout("", "", "", ""))
    goal = next(goal for goal in goals if "compiled extension modules" in goal.description)
    result = subprocess.run(
        ["sh", "-c", goal.command.replace("python ", f"{sys.executable} ")],
        env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert re.search(goal.expectation.matches[0], result.stdout, re.MULTILINE), result


def test_there_is_no_suite_where_no_file_holds_a_test() -> None:
    assert find_suite(survey({"tests/__init__.py": 0})) is None


def test_a_project_has_more_than_ten_candidates_and_the_suite_comes_first() -> None:
    facts = [
        Fact(*pair, "pyproject.toml")
        for pair in [
            ("project-name", "pkg"), ("project-version", "1.0"), ("import-name", "pkg"), ("build-backend", "hatchling.build"),
            ("module", "pkg"), ("module", "pkg.a"), ("requirement", "attrs>=20"), ("console-script", "pkg=pkg:main"),
        ]
    ]  # fmt: skip
    goals = propose_goals(survey({"tests/test_a.py": 10}, *facts), Checkout("", "", "", ""))
    assert len(goals) > 10
    assert goals[0].kind is GoalKind.TESTS
    assert goals[0].expectation == Expectation(exit_status=None, report=REPORT, min_tests=5)
    assert {g.kind for g in goals} >= {GoalKind.SETUP, GoalKind.BUILD, GoalKind.IMPORT, GoalKind.LAUNCH, GoalKind.LINT}


def test_names_from_a_hostile_checkout_never_reach_a_shell() -> None:
    bad = "x'; touch /pwned; '"
    facts = [
        Fact(kind, bad, "f") for kind in ("project-name", "import-name", "module", "extension-module", "main-module")
    ]
    facts += [Fact("console-script", f"{bad}=a:b", "f"), documented(f"pytest {bad}")]
    for goal in propose_goals(survey({"tests/test_a.py": 1, f"tests/{bad}.py": 5}, *facts), Checkout("", "", "", "")):
        words = shlex.shlex(goal.command, posix=True, punctuation_chars=True)
        assert "touch" not in list(words), goal.command


SUITE = """
import unittest

class Cases(unittest.TestCase):
    def test_passes(self): pass
    def test_fails(self): self.fail("because")
    def test_breaks(self): raise ValueError("broken")
    def test_parts(self):
        for i in range(3):
            with self.subTest(i=i):
                self.assertNotEqual(i, 1)
    @unittest.skip("not here")
    def test_skipped(self): pass
    @unittest.expectedFailure
    def test_expected(self): self.fail()

if __name__ == "__main__":
    unittest.main()
"""


@pytest.mark.parametrize("arguments", [["-m", "unittest", "own_suite"], ["own_suite.py"]])
def test_an_own_runner_is_read_test_by_test_whatever_it_exits_with(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "own_suite.py").write_text(SUITE)
    shim = resources.files("ratchet.policies.rules").joinpath("resources/unittest_junit.py")
    report = tmp_path / "out" / "report.xml"
    subprocess.run([sys.executable, str(shim), str(report), *arguments], cwd=tmp_path, capture_output=True, check=False)
    outcomes = {case.id.rsplit("::", 1)[-1]: case.outcome for case in parse(report.read_bytes()).cases}
    assert outcomes == {
        "test_passes": Outcome.PASSED,
        "test_fails": Outcome.FAILED,
        "test_breaks": Outcome.ERROR,
        "test_parts": Outcome.FAILED,
        "test_skipped": Outcome.SKIPPED,
        "test_expected": Outcome.SKIPPED,
    }


def test_a_test_that_hangs_fails_after_its_time_and_the_others_still_run(tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text(
        "import time, unittest\nclass Cases(unittest.TestCase):\n"
        "    def test_a(self): time.sleep(100)\n    def test_b(self): pass\n"
    )
    shim = resources.files("ratchet.policies.rules").joinpath("resources/unittest_junit.py")
    report = tmp_path / "report.xml"
    subprocess.run(
        [sys.executable, str(shim), str(report), "-m", "unittest", "hanging"],
        cwd=tmp_path, env={"UNITTEST_JUNIT_TIMEOUT_S": "1"}, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    outcomes = {case.id.rsplit("::", 1)[-1]: case.outcome for case in parse(report.read_bytes()).cases}
    assert outcomes == {"test_a": Outcome.FAILED, "test_b": Outcome.PASSED}
