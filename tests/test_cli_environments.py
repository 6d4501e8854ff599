"""`ratchet env …` on a real environment: what runs where, with which status, and that nothing stays behind."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ratchet.autoinstall.verify import replay
from ratchet.autoinstall.workshop import Workshop
from ratchet.cli.main import main
from ratchet.records import (
    Audit,
    Base,
    Environment,
    Expectation,
    Goal,
    GoalKind,
    Limits,
    Recipe,
    RecipeStep,
    content_id,
)
from ratchet.sandbox.bases import list_bases
from ratchet.sources import fetch
from ratchet.store import Store

pytestmark = pytest.mark.sandbox

PROGRAM = [sys.executable, "-c", "from ratchet.cli.main import run; run()"]
ENV = {"PATH": "/opt/venv/bin:/usr/local/bin:/usr/bin:/bin", "GREETING": "hello"}
STEPS = (
    RecipeStep(command="install -d -o dev -g dev /opt/venv"),
    RecipeStep(command="python3 -m venv --without-pip /opt/venv", user="dev"),
    RecipeStep(command="echo 'by the recipe' >/opt/venv/made; exit 3", user="dev", may_fail=True),
    RecipeStep(path="/opt/venv/written", content="by the recipe\n", user="dev"),
)
GOALS = (
    Goal("python -c 'import small; print(small.ANSWER)'", "42", GoalKind.IMPORT, Expectation(matches=("^42$",))),
    Goal("python -m no_such_module", "runs", GoalKind.LAUNCH),
)


@dataclass(frozen=True)
class Ratchet:
    """The program, with the tests' home, and an environment in it."""

    home: Path
    environment: Environment

    @property
    def id(self) -> str:
        return self.environment.id[:12]

    @property
    def variables(self) -> dict[str, str]:
        return {**os.environ, "RATCHET_HOME": str(self.home)}

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, *arguments], env=self.variables, capture_output=True, text=True, timeout=120, check=False
        )

    def inside(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
        """Standard output of a command that is run in this process, which is quicker."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RATCHET_HOME", str(self.home))
            assert main(list(arguments)) == 0
        return capsys.readouterr().out

    def sandboxes(self) -> set[str]:
        return {path.name for path in (self.home / "sandboxes").glob("*")}


@pytest.fixture(scope="module")
def ratchet(home: Path, base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ratchet]:
    tree = tmp_path_factory.mktemp("small")
    (tree / "small.py").write_text("ANSWER = 42\n")
    record = next(known for known in list_bases(home) if known.id == base)
    environment = make_environment(home, record, tree)
    Store(home).put("environment", environment)
    yield Ratchet(home, environment)
    if environment.id in Store(home).ids("environment"):
        Store(home).remove("environment", environment.id)


def make_environment(home: Path, base: Base, tree: Path) -> Environment:
    recipe = Recipe(STEPS, ENV, "echo up >/tmp/started")
    with Workshop.open(home) as workshop, workshop.store.cache("test-cli-environments") as cache:
        checkout = fetch(str(tree), workshop.store)
        replayed = replay(workshop, base, checkout, recipe, Limits(), cache)
    assert replayed.layer is not None, replayed.detail
    return Environment(
        id=content_id([base.id, checkout.id, recipe, time.time()])[:32],
        name="small",
        base=base,
        checkout=checkout,
        recipe=recipe,
        layer=replayed.layer,
        goals=GOALS,
        targets=(GOALS[0].id,),
        verdicts=(),
        audit=Audit(),
    )


def test_run_is_offline_as_dev_in_the_workspace_with_the_start_script_up(ratchet: Ratchet) -> None:
    command = "id -un; pwd; echo $GREETING; cat /tmp/started /opt/venv/made; ls /sys/class/net; echo oops >&2; exit 7"
    done = ratchet("env", "run", ratchet.id, "--", "sh", "-c", command)
    assert done.returncode == 7
    assert done.stdout.split("\n") == ["dev", "/workspace", "hello", "up", "by the recipe", "lo", "oops", ""]
    assert done.stderr == ""


def test_arguments_arrive_as_they_were_given(ratchet: Ratchet) -> None:
    done = ratchet("env", "run", ratchet.id, "--", "printf", "%s|", "a b", "$HOME", "--json", "-h")
    assert done.stdout == "a b|$HOME|--json|-h|"


def test_what_a_run_changes_is_gone(ratchet: Ratchet) -> None:
    assert ratchet("env", "run", ratchet.id, "--", "sh -c 'echo x >small.py && rm -r /opt/venv/*'").returncode == 0
    assert ratchet("env", "run", ratchet.id, "--", "python -c 'import small; print(small.ANSWER)'").stdout == "42\n"


def test_a_start_script_that_fails_is_told_and_nothing_is_run(ratchet: Ratchet) -> None:
    broken = replace(
        ratchet.environment,
        id=content_id([ratchet.environment.id, "broken"])[:32],
        recipe=replace(ratchet.environment.recipe, start="echo no database here; exit 3"),
    )
    store = Store(ratchet.home)
    store.put("environment", broken)
    try:
        done = ratchet("env", "run", broken.id, "--", "echo", "ran")
    finally:
        store.remove("environment", broken.id)
    assert done.returncode == 1
    assert "no database here" in done.stderr
    assert "ran" not in done.stdout


def test_a_run_that_takes_too_long_is_ended(ratchet: Ratchet) -> None:
    done = ratchet("env", "run", ratchet.id, "--time-limit", "1s", "--", "sleep", "60")
    assert done.returncode == 124
    assert "time limit" in done.stderr


def test_ctrl_c_ends_a_run_and_leaves_nothing(ratchet: Ratchet) -> None:
    before = ratchet.sandboxes()
    command = [*PROGRAM, "env", "run", ratchet.id, "--", "sh", "-c", "echo running; sleep 1234"]
    with subprocess.Popen(command, env=ratchet.variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"running\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert b"interrupted" in process.stderr.read()
    assert ratchet.sandboxes() <= before


def test_verify_replays_and_judges_every_goal(ratchet: Ratchet) -> None:
    done = ratchet("env", "verify", ratchet.id, "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert (found["status"], found["replayed"]) == ("verified", True)
    assert [goal["passed"] for goal in found["targets"]] == [True]
    assert [goal["passed"] for goal in found["held_out"]] == [False]


def test_a_recipe_that_no_longer_works_is_not_verified(ratchet: Ratchet) -> None:
    steps = (*STEPS, RecipeStep(command="echo the mirror is gone; false"))
    broken = replace(
        ratchet.environment,
        id=content_id([ratchet.environment.id, "gone"])[:32],
        recipe=replace(ratchet.environment.recipe, steps=steps),
    )
    store = Store(ratchet.home)
    store.put("environment", broken)
    try:
        done = ratchet("env", "verify", broken.id)
    finally:
        store.remove("environment", broken.id)
    assert done.returncode == 3
    assert "the mirror is gone" in done.stdout


def test_list_and_show(ratchet: Ratchet, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(ratchet.inside(capsys, "env", "list", "--json"))
    assert ratchet.environment.id in [row["environment"] for row in rows]
    assert ratchet.id in ratchet.inside(capsys, "env", "list")
    assert json.loads(ratchet.inside(capsys, "env", "show", ratchet.id, "--json"))["id"] == ratchet.environment.id
    assert "python3 -m venv" in ratchet.inside(capsys, "env", "show", ratchet.id, "--recipe")
    assert "small.ANSWER" in ratchet.inside(capsys, "env", "show", ratchet.id)


def test_a_shell_needs_a_terminal(ratchet: Ratchet) -> None:
    done = ratchet("env", "shell", ratchet.id)
    assert done.returncode == 2
    assert "terminal" in done.stderr


def test_a_shell_on_a_terminal(ratchet: Ratchet) -> None:
    before = ratchet.sandboxes()
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe(PROGRAM[0], [*PROGRAM, "env", "shell", ratchet.id], ratchet.variables)
    shown = read_until(terminal, "/workspace$")
    os.write(terminal, b"echo $((40 + 2)) $(id -un) $(cat /tmp/started); tty; exit 5\n")
    shown += read_until(terminal, "/dev/pts/")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(terminal)
    assert "42 dev up" in shown
    assert status == 5
    assert ratchet.sandboxes() <= before


def read_until(terminal: int, text: str, timeout_s: float = 30.0) -> str:
    shown, deadline = "", time.monotonic() + timeout_s
    while text not in shown and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.5)[0]:
            shown += os.read(terminal, 4096).decode(errors="replace")
    assert text in shown, shown
    return shown


def test_export_writes_and_remove_removes(ratchet: Ratchet, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ratchet.inside(capsys, "env", "export", ratchet.id, "--format", "dockerfile", "-o", str(tmp_path / "out"))
    assert "FROM debian:bookworm" in (tmp_path / "out/Dockerfile").read_text()
    assert (tmp_path / "out/checkout/small.py").exists()
    copy = replace(ratchet.environment, id=content_id([ratchet.environment.id, "copy"])[:32])
    Store(ratchet.home).put("environment", copy)
    ratchet.inside(capsys, "env", "remove", copy.id)
    assert copy.id not in Store(ratchet.home).ids("environment")
