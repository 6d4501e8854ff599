"""`ratchet task …` on tasks in a store: what is shown, and what only on demand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ratchet.cli.main import main
from ratchet.records import Audit, Base, Checkout, Environment, Outcome, Recipe, TestCase, TestRun
from ratchet.store import Store
from ratchet.task_records import FileChange, Grade, Probe, Rollout, Task, TaskKind

BUG = Task(
    "ab" * 32,
    "cd" * 32,
    TaskKind.BUG,
    "python",
    "# `half` is\x1b[31m wrong\n\nMend it.\n",
    (FileChange("calc.py", "def half(x):\n    return x / 2\n", "def half(x):\n    return x / 3\n"),),
    ("tests/test_calc.py::test_half",),
    ("tests/test_calc.py::test_add", "tests/test_calc.py::test_sub"),
    hidden=(FileChange("tests/test_calc.py", "old\n", "secret expectation\n"),),
    probes=(Probe('["half", 4]', "2.0"),),
    origin={"operator": "constant", "seed": "7"},
)
FEATURE = Task("ef" * 32, "01" * 32, TaskKind.FEATURE, "python", "# Implement `add`\n", (), ("t::a",), ("t::b",))


def environment(record_id: str, name: str) -> Environment:
    base = Base("base", "bookworm", None, "amd64", "test")
    return Environment(record_id, name, base, Checkout("c", name, "s", "p"), Recipe(), "layer", (), (), (), Audit())


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    store = Store(tmp_path)
    for task, name in ((BUG, "calc 1.0"), (FEATURE, "shapes 2.0")):
        store.put("environment", environment(task.environment, name))
        store.put("task", task)
    return store


def output(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    assert main(["task", *arguments]) == status
    return capsys.readouterr().out


@pytest.mark.usefixtures("store")
def test_tasks_are_listed_with_project_and_title(capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "list").splitlines()
    assert lines[0].split()[:3] == ["TASK", "KIND", "PROJECT"]
    assert sorted(line.split()[0] for line in lines[1:]) == [BUG.id[:12], FEATURE.id[:12]]
    assert any("calc 1.0" in line and "`half` is wrong" in line for line in lines)


@pytest.mark.usefixtures("store")
def test_tasks_of_one_environment(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(output(capsys, "list", "--env", "01" * 5, "--json"))
    assert [row["task"] for row in rows] == [FEATURE.id]
    assert rows[0]["project"] == "shapes 2.0"


def test_no_tasks_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    assert json.loads(output(capsys, "list", "--json")) == []


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_the_solution_is_shown_on_demand_only(capsys: pytest.CaptureFixture[str], form: tuple[str, ...]) -> None:
    without = output(capsys, "show", "ab", *form)
    assert "test_half" in without
    assert not [told for told in ("return x", "secret expectation", '"half", 4') if told in without]
    assert "+    return x / 2" in output(capsys, "show", "ab", "--solution", *form)


@pytest.mark.usefixtures("store")
def test_a_statement_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b" not in output(capsys, "show", "ab")


def test_a_removed_task_is_gone(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    output(capsys, "remove", "ab")
    assert store.ids("task") == [FEATURE.id]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    "arguments",
    [
        ("make", "cd" * 5, "--kind", "riddle"),
        ("make", "nobody", "--kind", "bug"),
        ("make", "cd" * 5, "--kind", "feature", "--combine", "2"),
        ("make", "cd" * 5, "--kind", "bug", "--combine", "1"),
        ("show", "77"),
        ("check", "77"),
    ],
)
def test_what_is_not_there_is_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    output(capsys, *arguments, status=2)


def test_the_tasks_that_a_policy_solves_sometimes_are_printed(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(8):
        task = BUG if number < 4 else FEATURE
        tests = (*task.fail_to_pass, *task.pass_to_pass)
        passed = [TestCase(test, Outcome.PASSED) for test in tests] if number in (0, 4, 5, 6, 7) else []
        grade = Grade(TestRun(tuple(passed)))
        rollout = Rollout(f"r{number}", task.id, task.environment, "someone", number, "t", "submitted", (), grade)
        store.put("rollout", rollout)
    found = json.loads(output(capsys, "filter", "--policy", "someone", "--json"))
    assert [(row["task"], row["solved"], row["samples"]) for row in found["tasks"]] == [(BUG.id, 1, 4)]
    assert found["left_out"] == {"too-easy": 1}
    assert output(capsys, "filter", "--policy", "nobody", status=3) == ""
