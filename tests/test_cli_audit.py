"""`ratchet audit` lists what an honest solution does not do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from ratchet.cli.audit import audit
from ratchet.records import TestRun
from ratchet.store import Store
from ratchet.task_records import FailureKind, Flag, Grade, Rollout

ODD = Flag("odd-file", "it wrote \x1b[31mconftest.py")
CHEAT = Flag("exits-on-import", "os._exit", decisive=True)


def rollout_of(name: str, *flags: Flag) -> Rollout:
    return Rollout(name, "task", "env", "someone", 0, "", "submitted", (), Grade(TestRun(), flags=flags))


def run(home: Path, *arguments: str) -> Result:
    app = typer.Typer()
    app.command()(audit)
    return CliRunner(env={"RATCHET_HOME": str(home)}).invoke(app, list(arguments))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    store = Store(tmp_path)
    failed = Rollout("r0", "task", "env", "someone", 0, "", "limits", (), None, failure=FailureKind.LIMITS)
    for rollout in (failed, rollout_of("r1", ODD), rollout_of("r2", ODD, CHEAT), rollout_of("r3")):
        store.put("rollout", rollout)
    return tmp_path


def test_flags_are_listed_the_decisive_ones_first(home: Path) -> None:
    result = run(home, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert [(flag["rollout"], flag["kind"], flag["decisive"]) for flag in found["flags"]] == [
        ("r2", "exits-on-import", True),
        ("r1", "odd-file", False),
        ("r2", "odd-file", False),
    ]
    assert found["rollouts"] == 4
    assert found["kinds"] == {
        "exits-on-import": {"rollouts": 1, "flags": 1, "decisive": 1},
        "odd-file": {"rollouts": 2, "flags": 2, "decisive": 0},
    }


def test_what_a_rollout_wrote_cannot_steer_the_terminal(home: Path) -> None:
    result = run(home)
    assert result.exit_code == 0
    assert "2 of 4 rollouts are suspicious" in result.stdout
    assert "it wrote conftest.py" in result.stdout
    assert "\x1b" not in result.stdout


def test_nothing_suspicious_is_no_error(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert (result.exit_code, result.stdout) == (0, "0 of 0 rollouts are suspicious\n")
