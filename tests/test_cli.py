"""The command line: what it prints where, its exit codes, and that nothing from a repository steers the screen."""

from __future__ import annotations

import errno
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from ratchet.cli.main import main
from ratchet.cli.outcome import to_object
from ratchet.cli.progress import Board, LiveProgress, PlainProgress
from ratchet.cli.quantities import parse_seconds, parse_size
from ratchet.cli.screen import clean, one_line
from ratchet.cli.summary import print_summary
from ratchet.errors import UsageError
from ratchet.events import Events
from ratchet.records import (
    Attempt,
    Audit,
    Goal,
    GoalKind,
    Install,
    Outcome,
    Reason,
    Recipe,
    Sabotage,
    TestCase,
    TestRun,
    Verdict,
)

ROOT = Path(__file__).resolve().parent.parent
HOSTILE = "\x1b]0;title\x07\x1b[2J[red]x[/red]\x9b31m\u202e\x1b[1;1Hend\x00"


@pytest.fixture(autouse=True)
def scratch_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def goals() -> tuple[Goal, ...]:
    return tuple(Goal(f"python -m pytest tests/test_{n}.py", f"suite {n} passes", GoalKind.TESTS) for n in range(10))


def verified() -> Install:
    ten = goals()
    seven = tuple(Verdict(goal.id, goal is not ten[9], "42 of 42 tests passed") for goal in ten[3:])
    cases = [TestCase(f"t{n}", Outcome.PASSED) for n in range(42)] + [TestCase("s", Outcome.SKIPPED)]
    sabotages = (Sabotage("uninstall x", "…", ten[0].id), Sabotage("truncate y", "…", None))
    return Install(
        source="pypi:example",
        checkout="c" * 64,
        environment="e" * 32,
        reason=None,
        detail="",
        attempts=(Attempt(1, "bookworm", Reason.BUILD_FAILED, "no gcc", Recipe()), Attempt(2, "b", None, "", Recipe())),
        goals=ten,
        pristine=tuple(Verdict(goal.id, False, "exit status 127, not 0") for goal in ten),
        targets=tuple(goal.id for goal in ten[:3]),
        verdicts=tuple(Verdict(goal.id, True, "42 of 42 tests passed") for goal in ten[:3]),
        audit=Audit(seven, sabotages, TestRun(tuple(cases)), flaky=("t1",), need_network=("t2", "t3")),
        replayed=True,
        seconds={"goals": 1.234, "construction": 60.0},
    )


def discarded(detail: str = "no gcc") -> Install:
    attempt = Attempt(1, "bookworm", Reason.BUILD_FAILED, detail, Recipe())
    return Install(
        source="./broken",
        checkout="c" * 64,
        environment=None,
        reason=Reason.BUILD_FAILED,
        detail=detail,
        attempts=(attempt,) * 5,
        goals=goals(),
        pristine=(),
        targets=tuple(goal.id for goal in goals()[:3]),
        verdicts=(),
        audit=None,
        replayed=False,
        seconds={},
    )


# --------------------------------------------------------------------------- the JSON object of install


def test_the_object_of_a_verified_install() -> None:
    found = to_object(verified())
    assert found["status"] == "verified"
    assert found["environment"] == "e" * 32
    assert found["reason"] is None
    assert found["attempts"] == 2
    assert [len(found[key]) for key in ("goals", "targets", "held_out")] == [10, 3, 7]
    assert sum(goal["passed"] for goal in found["held_out"]) == 6
    assert found["targets"][0] == {
        "command": "python -m pytest tests/test_0.py",
        "description": "suite 0 passes",
        "passed": True,
        "why": "42 of 42 tests passed",
    }
    assert found["goals"][0]["pristine"] == {"passed": False, "why": "exit status 127, not 0"}
    assert found["tests"] == {"passed": 42, "failed": 0, "errors": 0, "skipped": 1, "flaky": 1, "need_network": 2}
    assert found["sabotage"] == {"tried": 2, "noticed": 1}
    assert found["seconds"] == {"goals": 1.23, "construction": 60.0}


def test_the_object_of_a_discarded_install_has_the_same_keys() -> None:
    found = to_object(discarded())
    assert found.keys() == to_object(verified()).keys()
    assert (found["status"], found["environment"], found["reason"]) == ("discarded", None, "build-failed")
    assert all(not goal["passed"] and goal["why"] == "not run" for goal in found["targets"])


# --------------------------------------------------------------------------- nothing steers the screen


def test_clean_leaves_only_what_can_be_read() -> None:
    assert clean(HOSTILE) == "[red]x[/red]end"
    assert clean("50%\r100%\r\nnext\tcolumn") == "50%\n100%\nnext\tcolumn"
    assert clean("Grüße ✓ 日本") == "Grüße ✓ 日本"
    assert one_line("a\nb" + "c" * 50, 10) == "a b" + "c" * 6 + "…"


def test_an_unfinished_escape_sequence_hides_nothing_after_it() -> None:
    assert "visible" in clean("\x1b]0;" + "x" * 10_000 + "\nvisible")


@pytest.mark.parametrize(
    "unit", ["\x9d", "\x90a", "\x1b]", "\x9b", "\x1b[", "\x1b", "\x9d" + "x" * 5000, "\x1b[0 ", "\r"]
)
def test_cleaning_takes_no_longer_than_the_text_is_long(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    began = time.process_time()
    left = clean(f"{text}\x07end")
    assert time.process_time() - began < 20.0, "where each beginning is followed to its limit it takes minutes"
    assert left.endswith("end")


@pytest.mark.parametrize("live", [False, True])
def test_progress_prints_nothing_hostile(live: bool, capsys: pytest.CaptureFixture[str]) -> None:
    events, screen = Events(), io.StringIO()
    console = Console(file=screen, width=100, force_terminal=False)
    progress = LiveProgress(HOSTILE, console, verbose=True) if live else PlainProgress(HOSTILE, verbose=True)
    with progress:
        events.subscribe(progress)
        events.emit("stage", name=HOSTILE, attempt=1)
        events.emit("command", sandbox="s", command=HOSTILE)
        events.emit("output", text=HOSTILE)
        events.emit("command.end", exit_status=1, seconds=3.0)
        events.emit("repair", key=HOSTILE, note=HOSTILE)
        events.emit("verdict", goal=HOSTILE, passed=False, why=HOSTILE)
        events.emit("proxy", host=HOSTILE, allowed=False)
        events.emit("attempt", number=1, reason="build-failed", detail=HOSTILE)
    shown = screen.getvalue() + capsys.readouterr().err
    assert "build-failed: [red]x[/red]end" in shown  # markup is shown, not obeyed
    assert not set(shown) & set("\x1b\x9b\x07\x00\u202e")


def test_the_summary_shows_hostile_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(discarded(detail=HOSTILE), 3.0)
    shown = capsys.readouterr().out
    assert "build-failed" in shown
    assert "[red]x[/red]end" in shown
    assert not set(shown) & set("\x1b\x9b\x07\x00\u202e")


def test_the_summary_names_the_environment_and_what_to_do_next(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(verified(), 83.0)
    shown = capsys.readouterr().out
    assert "targets: 3 of 3 passed" in shown
    assert "held out: 6 of 7 passed" in shown
    assert "1 of 2 noticed" in shown
    assert "ratchet env run eeeeeeeeeeee -- " in shown


# --------------------------------------------------------------------------- progress


def test_plain_progress_streams_output_only_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    for verbose, expected in ((False, False), (True, True)):
        events = Events()
        with PlainProgress("x", verbose=verbose) as progress:
            events.subscribe(progress)
            events.emit("command", sandbox="s", command="make")
            events.emit("output", text="cc -c a.c\n")
        shown = capsys.readouterr()
        assert "$ make" in shown.err
        assert ("cc -c a.c" in shown.err) is expected
        assert shown.out == ""


def test_a_refused_host_is_told_once() -> None:
    board = Board()
    lines = [board.take("proxy", {"host": "example.invalid", "allowed": False}) for _ in range(3)]
    assert [len(some) for some in lines] == [1, 0, 0]
    assert "--allow-host example.invalid" in lines[0][0][0]
    assert board.requests == 3


def test_the_panel_shows_stage_attempt_command_and_times() -> None:
    now = [0.0]
    screen = io.StringIO()
    progress = LiveProgress("pypi:x", Console(file=screen, width=80), verbose=False)
    board = progress.board
    board.clock = lambda: now[0]
    board.started = 0.0
    board.take("stage", {"name": "goals"})
    now[0] = 5.0
    board.take("stage", {"name": "construction", "attempt": 2})
    board.take("command", {"command": "pip install ."})
    now[0] = 75.0
    Console(file=screen, width=80).print(progress)
    shown = screen.getvalue()
    for part in (
        "pypi:x",
        "✓ goals 5.0 s",
        "▸ construction · attempt 2",
        "$ pip install .",
        "1 min 10 s",
        "1 min 15 s",
    ):
        assert part in shown


# --------------------------------------------------------------------------- exit codes and errors


def test_wrong_usage_is_2_and_with_json_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "--json"]) == 2
    shown = capsys.readouterr()
    assert json.loads(shown.out)["status"] == "error"
    assert "--help" in shown.err


def test_an_unknown_environment_is_2_with_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "show", "abcdef"]) == 2
    shown = capsys.readouterr()
    assert "abcdef" in shown.err
    assert "remedy: " in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


def test_an_unknown_source_is_2_with_the_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["survey", "./no/such/directory", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)
    assert error["status"] == "error"
    assert "no/such/directory" in error["error"]


def test_our_own_fault_is_1_and_the_traceback_is_in_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("ratchet.store.Store.ids", lambda *_: 1 / 0)
    assert main(["env", "list"]) == 1
    shown = capsys.readouterr()
    assert "ZeroDivisionError" in shown.err
    assert "Traceback" not in shown.err
    written = list(tmp_path.glob("ratchet-traceback-*"))
    assert len(written) == 1
    assert str(written[0]) in shown.err
    assert "Traceback" in written[0].read_text()


def test_a_home_that_cannot_be_written_is_4(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/some/home")

    monkeypatch.setattr("ratchet.store.Store.ids", full)
    assert main(["env", "list", "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["error"] == "No space left on device: /some/home"


def test_ctrl_c_is_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ratchet.store.Store.ids", interrupted)
    assert main(["env", "list"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_sigint_works_although_it_was_inherited_as_ignored() -> None:
    code = (
        "import atexit, os, signal, sys; from ratchet.cli.main import run; sys.argv = ['ratchet', '--help'];"
        "atexit.register(lambda: os._exit(signal.getsignal(signal.SIGINT) is not signal.default_int_handler)); run()"
    )
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-c", code]
    assert subprocess.run(ignoring, stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_sigterm_unwinds() -> None:
    code = """
import contextlib, os, signal, sys
from ratchet.cli.main import run
from ratchet.store import Store
def killed(*_):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    finally:
        print("closed")
Store.ids = killed
sys.argv = ["ratchet", "env", "list"]
run()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "closed\n")


def test_importing_the_program_loads_nothing_heavy() -> None:
    code = "import sys, ratchet.cli.main; print([m for m in ('rich', 'cattrs', 'torch', 'ruamel') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_version_without_a_home(scratch_home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from ratchet.cli.main import run; run()", "--version"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "RATCHET_HOME": str(scratch_home)},
    )
    assert done.stdout.startswith("ratchet ")
    assert not scratch_home.exists()


# --------------------------------------------------------------------------- an empty home


def test_reading_commands_on_an_empty_home_print_json_and_make_nothing(
    scratch_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, expected in (
        (["env", "list", "--json"], []),
        (["base", "list", "--json"], []),
        (["gc", "--dry-run", "--json"], {"removed": False, "garbage": [], "swept": [], "size_bytes": 0}),
    ):
        assert main(arguments) == 0
        assert json.loads(capsys.readouterr().out) == expected
    assert not scratch_home.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["base", "remove", "nothing"],
        ["base", "remove", "../nothing"],
        ["env", "remove", "nothing"],
        ["env", "show", "../../etc/passwd"],
        ["install", ".", "--memory", "much"],
        ["env", "export", "nothing", "-o", "somewhere", "--format", "floppy"],
    ],
)
def test_names_and_values_that_make_no_sense_are_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "remedy: " in capsys.readouterr().err


@pytest.mark.sandbox
def test_doctor_tells_a_machine_that_can_from_one_that_cannot(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("RATCHET_HOME", str(home))
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ready"] is True
    monkeypatch.setenv("PATH", "/nonexistent")
    assert main(["doctor"]) == 4
    shown = capsys.readouterr().out
    assert "✗ runc" in shown
    assert "remedy: apt-get install runc" in shown


# --------------------------------------------------------------------------- quantities, documentation


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("30m", 1800), ("1.5h", 5400)])
def test_times(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(("text", "count"), [("512M", 512 << 20), ("8G", 8 << 30), ("1.5GiB", 3 << 29), ("4096", 4096)])
def test_sizes(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "0", "x", "-1", "5 days", "1e9"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_seconds(text)
    with pytest.raises(UsageError):
        parse_size(text)


def test_the_documented_help_is_current() -> None:
    spec = importlib.util.spec_from_file_location("write_cli_help", ROOT / "scripts" / "write_cli_help.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    # Words, not columns: where lines break depends on the release of Typer.
    assert (ROOT / "docs" / "cli.md").read_text().split() == script.text().split(), "run scripts/write_cli_help.py"
