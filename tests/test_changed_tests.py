"""Which recipes change what a checkout's tests do, as their layers show it, and which start scripts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ratchet.autoinstall.changed_tests import changed_tests
from ratchet.autoinstall.verify import judge
from ratchet.autoinstall.workshop import Workshop
from ratchet.records import Checkout, Expectation, Fact, Goal, GoalKind, Limits, Recipe, Survey
from ratchet.sources import fetch

FILES = {
    "tests/unit/test_a.py": "assert x",
    "src/shop/__init__.py": "",
    "pyproject.toml": '[project]\nversion = "1"\n[tool.pytest.ini_options]\naddopts = "-ra"\n',
    "setup.cfg": "[tool:pytest]\naddopts = -x\n[metadata]\nname = shop\n",
    "examples/conftest.py": "# of examples",
}
SURVEY = Survey("id", (Fact("test-count", "3", "tests/unit/test_a.py"), Fact("import-name", "shop", "src/shop")))


def write(at: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (at / path).parent.mkdir(parents=True, exist_ok=True)
        (at / path).write_text(text)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    root = tmp_path / "checkout"
    write(root, FILES)
    (root / "conftest.py").symlink_to("../missing")
    return Checkout("id", "shop", "shop", str(root))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Where a layer has what it changes of the checkout."""
    path = tmp_path / "layer/workspace"
    path.mkdir(parents=True)
    return path


def found(workspace: Path, checkout: Checkout) -> tuple[str, ...]:
    return changed_tests(workspace.parent, checkout, SURVEY)


# --------------------------------------------------------------------------- files of the checkout


def test_a_layer_that_holds_nothing_of_the_checkout_changes_nothing(tmp_path: Path, checkout: Checkout) -> None:
    assert changed_tests(tmp_path / "other", checkout, SURVEY) == ()


def test_a_file_that_was_only_copied_up_is_the_same_and_one_with_other_content_is_not(
    workspace: Path, checkout: Checkout
) -> None:
    write(workspace, FILES)
    assert found(workspace, checkout) == ()
    write(workspace, {"tests/unit/test_a.py": "assert 1", "examples/conftest.py": "", "src/shop/__init__.py": "x = 1"})
    assert found(workspace, checkout) == ("examples/conftest.py", "tests/unit/test_a.py")


def test_a_file_in_the_place_of_a_link_is_changed_and_the_link_is_not_followed(
    workspace: Path, checkout: Checkout
) -> None:
    write(workspace, {"conftest.py": ""})
    assert found(workspace, checkout) == ("conftest.py",)


def test_a_link_in_the_place_of_a_folder_changes_all_that_was_in_it(workspace: Path, checkout: Checkout) -> None:
    (workspace / "tests").symlink_to(checkout.path)
    assert found(workspace, checkout) == ("tests/unit/test_a.py",)


@pytest.mark.sandbox  # what hides a folder's content is an attribute that root alone can set
def test_a_test_folder_that_was_made_anew_is_changed_unless_its_files_are_there_again(
    workspace: Path, checkout: Checkout
) -> None:
    folder = workspace / "tests/unit"
    folder.mkdir(parents=True)
    assert found(workspace, checkout) == ()
    os.setxattr(folder, "trusted.overlay.opaque", b"y")
    assert found(workspace, checkout) == ("tests/unit/test_a.py",)
    write(folder, {"test_a.py": FILES["tests/unit/test_a.py"]})
    assert found(workspace, checkout) == ()


# --------------------------------------------------------------------------- files that were added


@pytest.mark.parametrize(
    "path",
    [
        "tests/conftest.py",
        "tests/unit/conftest.py",
        "pytest.ini",
        ".pytest.ini",
        "tests/pytest.toml",
        "sitecustomize.py",
        "src/sitecustomize.py",
        "src/usercustomize.cpython-311-x86_64-linux-gnu.so",
        "sitecustomize/__init__.py",
    ],
)
def test_an_added_file_that_steers_tests_is_a_changed_test(workspace: Path, checkout: Checkout, path: str) -> None:
    write(workspace, {path: "x"})
    assert found(workspace, checkout) == (path.removesuffix("/__init__.py"),)


@pytest.mark.parametrize(
    "path",
    [
        "build/lib/tests/conftest.py",
        "build/lib/tests/unit/test_a.py",
        "build/lib/pytest.ini",
        "tests/unit/test_b.py",
        "tests/unit/__pycache__/conftest.cpython-311.pyc",
        "tests/unit/data/conftest.json",
        ".venv/lib/python3.11/site-packages/trace/sitecustomize.py",
        "src/shop/version.py",
        "docs/conftest.py",
    ],
)
def test_what_a_build_copies_or_makes_elsewhere_is_none(workspace: Path, checkout: Checkout, path: str) -> None:
    write(workspace, {path: "x"})
    assert found(workspace, checkout) == ()


# --------------------------------------------------------------------------- files that pytest shares with others


@pytest.mark.parametrize(
    ("path", "text", "changed"),
    [
        ("pyproject.toml", FILES["pyproject.toml"].replace("1", "2"), False),
        ("pyproject.toml", FILES["pyproject.toml"].replace("-ra", "-k easy"), True),
        ("pyproject.toml", "[project", True),
        ("setup.cfg", "[tool:pytest]\naddopts = -x\n", False),
        ("setup.cfg", "[metadata]\nname = shop\n", True),
        ("tox.ini", "[tox]\nenvlist = py\n", False),
        ("tox.ini", "[pytest]\naddopts = -k easy\n", True),
        ("tests/tox.ini", "[pytest]\n", True),
        ("tests/setup.cfg", "#" * 2_000_000, True),
        ("build/tox.ini", "[pytest]\n", False),
    ],
)
def test_of_a_shared_file_only_what_it_tells_pytest_counts(
    workspace: Path, checkout: Checkout, path: str, text: str, changed: bool
) -> None:
    write(workspace, {path: text})
    assert found(workspace, checkout) == ((path,) if changed else ())


# --------------------------------------------------------------------------- start scripts


@pytest.fixture(scope="module")
def workshop(home: Path, base: str) -> Iterator[Workshop]:
    with Workshop.open(home) as opened:
        yield opened


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("start", "passes"),
    [
        ("echo up >/workspace/state; mkdir -p build/tests; cp tests/unit/test_a.py build/tests", True),
        ("echo '' >tests/unit/test_a.py", False),
        ("echo 'collect_ignore = []' >tests/conftest.py", False),
        ("(sleep 1; rm tests/unit/test_a.py) >/dev/null 2>&1 &", False),
    ],
)
def test_a_start_script_that_changes_tests_proves_nothing(
    workshop: Workshop, base: str, tmp_path: Path, start: str, passes: bool
) -> None:
    write(tmp_path / "shop", FILES)
    checkout = fetch(str(tmp_path / "shop"), workshop.store)
    goal = Goal("sleep 2; echo fine", "fine", GoalKind.LAUNCH, Expectation(matches=("^fine$",)))
    layers = (base, workshop.checkout_layer(checkout))
    before = workshop.layers.ids()
    verdict = judge(
        workshop,
        layers,
        goal,
        Recipe(start=start),
        Limits(memory_bytes=1 << 30),
        lambda layer: changed_tests(layer, checkout, SURVEY),
    )
    assert verdict.passed == passes, verdict.why
    assert ("the start script changes tests: tests/" in verdict.why) == (not passes)
    assert workshop.layers.ids() == before
