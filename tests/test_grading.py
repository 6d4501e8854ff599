"""What a patch is worth, on a real project in real sandboxes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.autoinstall.workshop import Workshop
from ratchet.patches import inverse
from ratchet.records import Outcome, Recipe, content_id
from ratchet.rewards.tests import solved
from ratchet.sandbox.oci import OciBackend
from ratchet.task_records import FileChange, Flag, Grade, Task
from ratchet.tasks.grading import grade
from ratchet.tasks.prepare import task_layers
from sample_project import FILES, PRICES, WRONG_PRICES, sample_environment, sample_task

pytestmark = pytest.mark.sandbox

# A suite that writes beside its tests, as some do, and asks git, which minds whose a workspace is.
BESIDE = (
    "import pathlib\nimport shutil\nimport subprocess\n\nfrom inventory import Stock\n\nHERE = pathlib.Path(__file__).parent\n\n\n"
    "def test_files_beside():\n    (HERE / 'made').mkdir()\n    (HERE / 'made' / 'x').write_text('x')\n"
    "    (HERE.parent / 'made.txt').write_text('x')\n    (HERE.parent / 'made.txt').unlink()\n    shutil.rmtree(HERE / 'made')\n\n\n"
    "def test_git():\n    git = shutil.which('git')\n    assert not git or not subprocess.run([git, 'status'], check=False).returncode\n\n\n"
    "def test_itself():\n    try:\n        pathlib.Path(__file__).write_text('')\n    except PermissionError:\n        return\n"
    "    raise AssertionError('a test can be written')\n\n\ndef test_stock():\n    assert Stock().total() == 0\n"
)


@pytest.fixture(scope="module")
def workshop(home: Path, backend: OciBackend) -> Iterator[Workshop]:
    with Workshop.open(home) as workshop:
        yield workshop


@pytest.fixture(scope="module")
def task(workshop: Workshop) -> Iterator[Task]:
    environment = sample_environment(workshop)
    task = sample_task(environment)
    layers = task_layers(workshop, environment, task)
    yield task
    workshop.layers.remove(layers[-1])


Graded = Callable[..., Grade]


@pytest.fixture(scope="module")
def graded(workshop: Workshop, task: Task) -> Graded:
    environment = sample_environment(workshop)

    def run(*patch: FileChange, **settings: object) -> Grade:
        return grade(workshop, environment, task, patch, **settings)  # type: ignore[arg-type]

    return run


def test_the_reference_solves(graded: Graded, task: Task) -> None:
    given = graded(*inverse(task.changes))
    assert solved(given, task)
    assert {case.id for case in given.tests.cases} == {*task.fail_to_pass, *task.pass_to_pass}
    assert (given.compiles, given.imports, given.type_checks, given.flags, given.detail) == (True, True, None, (), "")
    assert given.seconds > 0


def test_nothing_done_does_not_solve(graded: Graded, task: Task) -> None:
    given = graded(flags=(Flag("changed-tests", "x"),), dropped=("x: a test",))
    outcomes = {case.id: case.outcome for case in given.tests.cases}
    assert not solved(given, task)
    assert {outcomes[test] for test in task.fail_to_pass} == {Outcome.FAILED}
    assert {outcomes[test] for test in task.pass_to_pass} == {Outcome.PASSED}
    assert (given.compiles, given.imports, given.detail) == (None, None, "")
    assert (given.flags, given.dropped) == ((Flag("changed-tests", "x"),), ("x: a test",))


def test_what_does_not_compile_is_a_grade(graded: Graded, task: Task) -> None:
    given = graded(FileChange("inventory/prices.py", WRONG_PRICES, "def discount(:\n"))
    assert (given.compiles, given.imports) == (False, None)
    assert "have no result" in given.detail
    assert not solved(given, task)


def test_what_cannot_be_imported_is_a_grade(graded: Graded) -> None:
    given = graded(
        FileChange("inventory/prices.py", WRONG_PRICES, PRICES),
        FileChange("inventory/more.py", None, "import inventory.nowhere\n"),
    )
    assert (given.compiles, given.imports) == (True, False)


def test_what_only_others_lack_says_nothing(graded: Graded) -> None:
    given = graded(FileChange("inventory/more.py", None, "import a_package_that_is_not_installed\n"))
    assert (given.compiles, given.imports) == (True, None)


def test_tests_in_a_patch_are_left_out(graded: Graded, task: Task) -> None:
    path = "tests/test_prices.py"
    given = graded(FileChange(path, FILES[path], FILES[path].replace("== expected", "is not None")))
    assert not solved(given, task)


def test_hidden_tests_are_put_back(workshop: Workshop) -> None:
    """The policy starts with tests that ask for something else."""
    environment = sample_environment(workshop)
    path = "tests/test_prices.py"
    before = FILES[path].replace("(100, 8000)", "(100, 9000)")
    plain = sample_task(environment)
    task = replace(plain, id=content_id([plain.id, "hidden"]), hidden=(FileChange(path, before, FILES[path]),))
    layers = task_layers(workshop, environment, task)
    try:
        assert solved(grade(workshop, environment, task, inverse(task.changes)), task)
        assert not solved(grade(workshop, environment, task, ()), task)
    finally:
        workshop.layers.remove(layers[-1])


def test_a_suite_may_write_beside_its_tests_but_not_the_tests(workshop: Workshop) -> None:
    environment = sample_environment(workshop, {**FILES, "tests/test_beside.py": BESIDE}, "beside")
    tests = tuple(f"tests/test_beside.py::test_{name}" for name in ("files_beside", "git", "itself", "stock"))
    plain = sample_task(environment)
    task = replace(plain, pass_to_pass=tests)
    layers = task_layers(workshop, environment, task)
    try:
        given = grade(workshop, environment, task, inverse(task.changes))
    finally:
        workshop.layers.remove(layers[-1])
    assert {case.id: case.message for case in given.tests.cases if case.outcome is not Outcome.PASSED} == {}
    assert solved(given, task)


def test_a_start_script_that_fails_is_a_grade(workshop: Workshop, task: Task) -> None:
    environment = replace(sample_environment(workshop), recipe=Recipe(start="exit 7"))
    given = grade(workshop, environment, task, ())
    assert (given.tests.cases, given.detail) == ((), "the start script failed with status 7")


def test_a_suite_that_hangs_is_a_grade(workshop: Workshop, task: Task) -> None:
    hangs = FileChange("inventory/prices.py", WRONG_PRICES, "while True:\n    pass\n")
    given = grade(workshop, sample_environment(workshop), replace(task, timeout_s=3.0), [hangs])
    assert given.detail == "the tests were ended by the time limit"
    assert not solved(given, task)
