"""Commits of a project's history, undone: which are proposed, and what of them a policy does not see."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.autoinstall.workshop import Workshop
from ratchet.errors import SourceError
from ratchet.records import Audit, Base, Environment, Recipe
from ratchet.sources import fetch
from ratchet.task_records import FileChange, TaskKind
from ratchet.tasks.candidates import Candidate
from ratchet.tasks.history import history_candidates
from sample_project import FILES, LIMITS, PRICES, STOCK

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="owners of a layer can only be set by root")

OLD_PRICES = PRICES.replace("    if count >= 100:\n        share = 80\n    elif", "    if")
PRICES_TEST = FILES["tests/test_prices.py"]
OLD_PRICES_TEST = PRICES_TEST.replace(", (100, 8000)", "")
DISCOUNT_TEST = "tests/test_prices.py::test_discount[100-8000]"
Files = Mapping[str, str | bytes | None]


class Project:
    """A git repository that grows by commits of files; None removes one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgSign=false"]
        done = subprocess.run(["git", *identity, *arguments], cwd=self.root, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, files: Files, message: str) -> str:
        for path, content in files.items():
            place = self.root / path
            if content is None:
                place.unlink()
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")


class Covered:
    """Every line of the prices is run by one test."""

    paths = ("inventory/prices.py",)
    passing = frozenset({DISCOUNT_TEST})

    def tests_of(self, path: str, first_line: int, last_line: int) -> frozenset[str]:
        return self.passing if path in self.paths else frozenset()

    def covered_lines(self, path: str) -> frozenset[int]:
        return frozenset()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Before the price of large orders."""
    project = Project(tmp_path / "project")
    project.commit({**FILES, "inventory/prices.py": OLD_PRICES, "tests/test_prices.py": OLD_PRICES_TEST}, "Start")
    return project


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with Workshop.open(tmp_path_factory.mktemp("home")) as opened:
        yield opened


@pytest.fixture
def candidates(project: Project, workshop: Workshop) -> Callable[[], list[Candidate]]:
    """What is proposed for an environment of the project as it is now."""
    return lambda: list(history_candidates(workshop, environment(workshop, project), Covered(), random.Random(1)))


def environment(workshop: Workshop, project: Project) -> Environment:
    checkout = fetch(str(project.root), workshop.store)
    base = Base("base", "base", None, "amd64", "none")
    return Environment(
        id=checkout.id, name="inventory", base=base, checkout=checkout, recipe=Recipe(), layer="none",
        goals=(), targets=(), verdicts=(), audit=Audit(), limits=LIMITS,
    )  # fmt: skip


def large_orders(project: Project) -> str:
    """The commit that most tests undo."""
    files = {"inventory/prices.py": PRICES, "tests/test_prices.py": PRICES_TEST}
    return project.commit(files, "Large orders cost a fifth less\n\nFrom 100 pieces on.")


def test_a_commit_is_undone_and_its_tests_are_hidden(
    project: Project, candidates: Callable[[], list[Candidate]]
) -> None:
    commit = large_orders(project)
    (found,) = candidates()
    assert found.kind is TaskKind.HISTORY
    assert found.language == "python"
    assert found.changes == (FileChange("inventory/prices.py", PRICES, OLD_PRICES),)
    assert found.hidden == (FileChange("tests/test_prices.py", OLD_PRICES_TEST, PRICES_TEST),)
    assert found.covering == {DISCOUNT_TEST}
    assert [definition.name for definition in found.about] == ["discount"]
    assert found.origin["commit"] == commit
    assert found.origin["subject"] == "Large orders cost a fifth less"
    assert found.origin["body"] == "From 100 pieces on."


def test_what_came_later_in_the_same_file_stays(project: Project, candidates: Callable[[], list[Candidate]]) -> None:
    large_orders(project)
    later = PRICES + "\n\ndef half(cents):\n    return cents // 2\n"
    project.commit({"inventory/prices.py": later}, "Half")
    (found,) = candidates()
    assert found.changes[0].before == later
    assert found.changes[0].after == OLD_PRICES + "\n\ndef half(cents):\n    return cents // 2\n"


def test_a_commit_whose_lines_changed_again_is_left_out(
    project: Project, candidates: Callable[[], list[Candidate]]
) -> None:
    large_orders(project)
    project.commit({"inventory/prices.py": PRICES.replace("share = 80", "share = 75")}, "A quarter")
    assert candidates() == []


def test_tests_that_cannot_be_undone_stay_visible(project: Project, candidates: Callable[[], list[Candidate]]) -> None:
    large_orders(project)
    project.commit({"tests/test_prices.py": PRICES_TEST.replace("(100, 8000)", "(100, 8000), (200, 16000)")}, "More")
    (found,) = candidates()
    assert found.changes
    assert found.hidden == ()


def test_a_commit_of_which_a_source_was_moved_is_left_out(
    project: Project, candidates: Callable[[], list[Candidate]]
) -> None:
    """What is left of it could be undone, but by halves."""
    files = {"inventory/prices.py": PRICES, "inventory/more.py": "x = 1\n", "tests/test_prices.py": PRICES_TEST}
    project.commit(files, "Large orders")
    project.commit({"inventory/more.py": None, "inventory/other.py": "x = 1\n"}, "Moved")
    assert candidates() == []


def test_configuration_is_not_hidden(project: Project, candidates: Callable[[], list[Candidate]]) -> None:
    project.commit({"inventory/prices.py": PRICES, "tests/test_prices.py": PRICES_TEST, "setup.cfg": "[x]\n"}, "Large")
    project.commit({"setup.cfg": "[y]\n"}, "Configured")
    (found,) = candidates()
    assert [change.path for change in found.hidden] == ["tests/test_prices.py"]


def test_files_that_a_commit_added_are_taken_away(project: Project, candidates: Callable[[], list[Candidate]]) -> None:
    module, test = "def twice(x):\n    return 2 * x\n", "def test_twice():\n    assert True\n"
    project.commit({"inventory/twice.py": module, "tests/test_twice.py": test}, "Twice")
    (found,) = candidates()
    assert found.changes == (FileChange("inventory/twice.py", module, None),)
    assert found.hidden == (FileChange("tests/test_twice.py", None, test),)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"inventory/prices.py": PRICES}, "no tests"),
        ({"tests/test_prices.py": PRICES_TEST}, "no sources"),
        ({"inventory/prices.py": PRICES, "setup.py": "x = 1\n", "tox.ini": "[tox]\n"}, "configuration is no test"),
        ({"docs/prices.py": PRICES, "tests/test_prices.py": PRICES_TEST}, "no sources but documentation"),
        ({"inventory/prices.py": None, "tests/test_prices.py": None}, "what it removed cannot be put back"),
        (
            {"inventory/prices.py": PRICES, "tests/test_prices.py": PRICES_TEST}
            | {f"inventory/m{n}.py": "x = 1\n" for n in range(20)},
            "too many files",
        ),
        (
            {
                "inventory/prices.py": PRICES + "".join(f"A{n} = {n}\n" for n in range(500)),
                "tests/test_prices.py": PRICES_TEST,
            },
            "too many lines",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_commits_are_left_out(
    project: Project, candidates: Callable[[], list[Candidate]], files: Files, why: str
) -> None:
    project.commit(files, why)
    assert candidates() == []


def test_a_commit_of_a_merged_branch_is_proposed_once(
    project: Project, candidates: Callable[[], list[Candidate]]
) -> None:
    project.git("checkout", "-q", "-b", "side")
    commit = large_orders(project)
    project.git("checkout", "-q", "main")
    project.commit({"README.md": "# inventory\n"}, "Words")
    project.git("merge", "-q", "--no-ff", "-m", "Merge", "side")
    assert [found.origin["commit"] for found in candidates()] == [commit]


def test_the_history_after_the_environment_is_not_looked_at(project: Project, workshop: Workshop) -> None:
    before = large_orders(project)
    present = environment(workshop, project)
    project.commit({"inventory/prices.py": OLD_PRICES, "tests/test_prices.py": OLD_PRICES_TEST}, "Not yet")
    large_orders(project)  # could be undone in the environment as well
    found = history_candidates(workshop, present, Covered(), random.Random(1))
    assert [candidate.origin["commit"] for candidate in found] == [before]


def test_line_ends_are_kept(project: Project, candidates: Callable[[], list[Candidate]]) -> None:
    old, new = (text.replace("\n", "\r\n").encode() for text in (OLD_PRICES, PRICES))
    project.commit({"inventory/prices.py": old}, "Line ends")
    project.commit({"inventory/prices.py": new, "tests/test_prices.py": PRICES_TEST}, "Large orders")
    (found,) = candidates()
    assert (found.changes[0].before or "").encode() == new
    assert (found.changes[0].after or "").encode() == old


def test_a_seed_gives_the_same_order(project: Project, workshop: Workshop) -> None:
    for number in range(6):
        files = {f"inventory/m{number}.py": f"x = {number}\n", f"tests/test_m{number}.py": "def test_m(): pass\n"}
        project.commit(files, f"Module {number}")
    present = environment(workshop, project)

    def subjects(seed: int) -> list[str]:
        found = history_candidates(workshop, present, Covered(), random.Random(seed))
        return [candidate.origin["subject"] for candidate in found]

    assert subjects(1) == subjects(1)
    assert subjects(1) != subjects(2)
    assert sorted(subjects(1)) == [f"Module {number}" for number in range(6)]


def test_nothing_that_the_repository_configures_runs(
    project: Project, candidates: Callable[[], list[Candidate]], tmp_path: Path
) -> None:
    large_orders(project)
    mark, script = tmp_path / "ran", tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    script.chmod(0o755)
    (project.root / ".git/info/attributes").write_text("*.py filter=f diff=f merge=f\n")
    for name in (
        "core.fsmonitor",
        "core.pager",
        "diff.external",
        "filter.f.smudge",
        "diff.f.textconv",
        "merge.f.driver",
    ):
        project.git("config", name, str(script))
    mark.unlink(missing_ok=True)
    assert len(candidates()) == 1
    assert not mark.exists()


def test_a_message_full_of_marks_is_only_text(project: Project, candidates: Callable[[], list[Candidate]]) -> None:
    large_orders(project)
    body = "\x01--output=x\x02\x01\x01a\x02M"
    project.commit(
        {"inventory/stock.py": STOCK + "# more\n", "tests/test_stock.py": FILES["tests/test_stock.py"] + "# more\n"},
        f"Stock\n\n{body}",
    )
    assert "Large orders cost a fifth less" in [found.origin["subject"] for found in candidates()]


@pytest.mark.parametrize("kind", ["folder", "index", "archive"])
def test_a_project_without_a_history_is_refused(
    workshop: Workshop, project: Project, tmp_path: Path, kind: str
) -> None:
    present = environment(workshop, project)
    (tmp_path / "bare").mkdir()
    (tmp_path / "inventory-1.0.tar.gz").write_bytes(b"")
    archive = str(tmp_path / "inventory-1.0.tar.gz")
    source = {"folder": str(tmp_path / "bare"), "index": "pypi:inventory==1.0", "archive": archive}[kind]
    without = replace(present, checkout=replace(present.checkout, source=source))
    with pytest.raises(SourceError, match="no history"):
        next(history_candidates(workshop, without, Covered(), random.Random(1)))
