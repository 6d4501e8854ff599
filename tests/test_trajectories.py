"""Trajectories as they happen: nothing that was complete is lost, whatever ends the writer; and they can be looked at."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ratchet.cli import trajectory as commands
from ratchet.cli.replay import View, around_blocks, diff, replay_lines
from ratchet.errors import StoreError, UsageError
from ratchet.records import (
    Action,
    ActionKind,
    Attempt,
    Checkout,
    CommandResult,
    Edit,
    Exchange,
    Install,
    Message,
    Reason,
    Recipe,
    Reply,
    Step,
    Trajectory,
)
from ratchet.store import Store
from ratchet.trajectories import Header, TrajectoryLog, read, runs, under_way

HEADER = Header("builder", "openai:m", "c" * 64, "widget", 2, "2026-01-02T03:04:05+00:00")
SURROGATES = "caf\udce9 \ud800 日本"


def exchange(text: str, problem: str = "") -> Exchange:
    reply = Reply(text, prompt_tokens=100, completion_tokens=7, seconds=1.5, token_ids=(1, 2), logprobs=(-0.5, -0.25))
    return Exchange("m", 0, (Message("user", f"prompt of {text}"),), reply, problem)


def step(command: str, *exchanges: Exchange, output: str = "out\n", status: int | None = 0) -> Step:
    result = CommandResult(command, status, output, len(output), 0.5)
    return Step(Action(ActionKind.RUN, command, exchanges=exchanges), result, True)


STEPS = (
    step("make", exchange("bad", "no block"), exchange("```sh\nmake\n```")),
    step(f"echo {SURROGATES}", output=SURROGATES),
    Step(Action(ActionKind.SUBMIT, reason=Reason.BAD_REPLIES, ok=False, env={"A": "b"}), None),
)


def write(path: Path, *steps: Step) -> None:
    with TrajectoryLog(path, HEADER) as log:
        for each in steps:
            log.step(each)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "r1" / "attempt-2.jsonl"


# --------------------------------------------------------------------------- writing and reading


def test_what_was_written_is_read_again(path: Path) -> None:
    with TrajectoryLog(path, HEADER) as log:
        for each in STEPS:
            for answer in each.action.exchanges:
                log.exchange(answer)
            log.step(each)
        log.finish("submitted")
    recorded = read(path)
    assert (recorded.header, recorded.steps, recorded.end, recorded.problem) == (HEADER, STEPS, "submitted", "")
    assert recorded.trajectory == Trajectory(STEPS, "submitted", "builder", "openai:m")
    assert path.read_bytes().count(b"prompt of bad") == 1


def test_exchanges_that_were_not_announced_are_kept_with_their_step(path: Path) -> None:
    write(path, *STEPS)
    assert read(path).steps == STEPS


def test_an_answer_whose_action_was_not_finished_is_there_after_a_restart(path: Path) -> None:
    with TrajectoryLog(path, HEADER) as log:
        log.step(STEPS[0])
        log.exchange(exchange("next"))
    with TrajectoryLog(path, HEADER) as log:
        assert log.recorded.steps == STEPS[:1]
        assert log.recorded.exchanges == (*STEPS[0].action.exchanges, exchange("next"))
        finished = step("next", exchange("next"))
        log.step(finished)
    assert read(path).steps == (STEPS[0], finished)
    assert not read(path).unfinished


def test_a_problem_that_was_found_later_is_kept(path: Path) -> None:
    with TrajectoryLog(path, HEADER) as log:
        log.exchange(exchange("what"))
        log.step(step("", exchange("what", "no block")))
    assert read(path).exchanges == (exchange("what", "no block"),)


def test_a_killed_writer_loses_nothing_complete(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_trajectories import *
log = TrajectoryLog(Path({str(path)!r}), HEADER)
log.step(STEPS[0]); log.exchange(exchange("asked"))
print("ready", flush=True)
import time; time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        assert under_way(path)
        writer.send_signal(signal.SIGKILL)
    assert not under_way(path)
    recorded = read(path)
    assert (recorded.steps, recorded.unfinished, recorded.end) == (STEPS[:1], (exchange("asked"),), None)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_file_that_ends_anywhere_is_gone_on_with(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "torn.jsonl"
    path.unlink(missing_ok=True)
    write(path, *STEPS)
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    with TrajectoryLog(path, HEADER) as log:
        done = len(log.recorded.steps)
        assert log.recorded.steps == STEPS[:done]
        for each in STEPS[done:]:
            log.step(each)
        log.finish("submitted")
    recorded = read(path)
    assert (recorded.steps, recorded.end, recorded.problem) == (STEPS, "submitted", "")


@pytest.mark.parametrize("damage", [b"\0" * 40, b"[" * 100_000, b'"step"', b'{"step": {}, "exchanges": 0}', b"7"])
def test_a_damaged_line_ends_the_reading_and_is_told(path: Path, damage: bytes) -> None:
    write(path, *STEPS)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[-2] = damage + b"\n"
    path.write_bytes(b"".join(lines))
    recorded = read(path)
    assert recorded.steps == STEPS[:1]
    assert f"line {len(lines) - 1} is damaged" in recorded.problem
    with TrajectoryLog(path, HEADER) as log:
        log.step(STEPS[1])
    assert read(path).steps == STEPS[:2]
    assert not read(path).problem


@pytest.mark.parametrize("first", [b"{}\n", b"garbage\n", b'{"header":{"role":"a","policy":"b","format":99}}\n'])
def test_a_file_that_is_none_of_ours_is_refused(path: Path, first: bytes) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(first)
    with pytest.raises(StoreError, match="does not begin as a trajectory does"):
        read(path)
    with pytest.raises(StoreError):
        TrajectoryLog(path, HEADER)
    assert path.read_bytes() == first


@pytest.mark.parametrize("change", [{"policy": "other"}, {"attempt": 3}, {"checkout": "d" * 64}, {"role": "goals"}])
def test_the_file_of_other_work_is_refused(path: Path, change: dict[str, str]) -> None:
    write(path, STEPS[0])
    with pytest.raises(UsageError, match="is the trajectory of builder by openai:m"):
        TrajectoryLog(path, replace(HEADER, **change))


def test_the_same_work_begun_later_keeps_its_first_header(path: Path) -> None:
    write(path, STEPS[0])
    with TrajectoryLog(path, replace(HEADER, started="2030-01-01")) as log:
        assert log.recorded.header == HEADER


def test_two_writers_do_not_mix(path: Path) -> None:
    with TrajectoryLog(path, HEADER), pytest.raises(UsageError, match="another process is writing"):
        TrajectoryLog(path, HEADER)


def test_another_course_replaces_what_was_recorded(path: Path) -> None:
    write(path, *STEPS)
    other = step("other", exchange("new"))
    with TrajectoryLog(path, HEADER) as log:
        log.exchange(exchange("new"))
        log.back_to(1)
        log.step(other)
        log.back_to(2)
    assert read(path).steps == (STEPS[0], other)


def test_calls_stay_known_whatever_came_of_them(path: Path) -> None:
    bad, made = STEPS[0].action.exchanges
    with TrajectoryLog(path, HEADER) as log:
        log.exchange(replace(bad, problem=""))
        log.exchange(made)
        log.step(STEPS[0])
        log.exchange(exchange("lost in a crash"))
    with TrajectoryLog(path, HEADER) as log:
        log.back_to(0)
        log.exchange(exchange("new"))
        log.step(step("other", exchange("new", "found later")))
        log.step(STEPS[0])  # done again in the other course, with the same answers
        log.finish("submitted")
    recorded = read(path)
    assert [call.reply.text for call in recorded.calls] == ["bad", "```sh\nmake\n```", "lost in a crash", "new"]
    assert recorded.steps == (step("other", exchange("new", "found later")), STEPS[0])
    assert (recorded.end, recorded.problem) == ("submitted", "")
    with TrajectoryLog(path, HEADER) as log:
        log.back_to(1)
    assert read(path).end is None
    assert read(path).calls == recorded.calls


@pytest.mark.parametrize("number", [-1, 3, "x", None])
def test_going_back_to_a_step_that_is_not_there_is_damage(path: Path, number: object) -> None:
    write(path, *STEPS[:2])
    with path.open("a") as file:
        file.write(json.dumps({"back": number}) + "\n")
    assert read(path).steps == STEPS[:2]
    assert "damaged" in read(path).problem


def test_a_finished_trajectory_takes_no_more(path: Path) -> None:
    with TrajectoryLog(path, HEADER) as log:
        log.finish("submitted")
        log.finish("submitted")
        with pytest.raises(UsageError, match="is finished"):
            log.step(STEPS[0])


def test_a_finished_run_that_goes_on_is_open_again(path: Path) -> None:
    with TrajectoryLog(path, HEADER) as log:
        log.step(STEPS[0])
        log.finish("out of time")
    with TrajectoryLog(path, HEADER) as log:
        log.exchange(exchange("more"))
    recorded = read(path)
    assert (recorded.steps, recorded.unfinished, recorded.end) == (STEPS[:1], (exchange("more"),), None)


def test_the_file_is_private(path: Path) -> None:
    write(path)
    assert path.stat().st_mode & 0o077 == 0


# --------------------------------------------------------------------------- looking at them


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    return Store(tmp_path)


def call(*arguments: str) -> str:
    result = CliRunner().invoke(commands.app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def keep(store: Store, trajectory: Trajectory) -> str:
    """A trajectory in the store, of an install of the project widget."""
    store.put("checkout", Checkout("c" * 64, "widget", "pypi:widget", "/nowhere"))
    name = store.put("trajectory", trajectory)
    attempt = Attempt(1, "base", None, "", Recipe(), trajectory=name)
    store.put("install", Install("s", "c" * 64, None, None, "", (attempt,), (), (), (), (), None, False, {}))
    return name


def test_list_has_the_finished_and_the_interrupted(store: Store, path: Path) -> None:
    name = keep(store, Trajectory(STEPS, "submitted", "builder", "rules"))
    write(path, *STEPS[:2])
    os.utime(path, (1, 1))
    rows = json.loads(call("list", "--json"))
    assert [(r["id"], r["project"], r["policy"], r["steps"], r["tokens"], r["end"]) for r in rows] == [
        ("r1/attempt-2", "widget", "openai:m", 2, 214, "interrupted"),
        (name, "widget", "rules", 3, 214, "submitted"),
    ]
    assert "r1/attempt-2" in call("list")
    with TrajectoryLog(path, HEADER):
        assert json.loads(call("list", "--json"))[0]["end"] == "under way"


def test_a_damaged_file_is_listed_and_does_no_harm(store: Store, path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff\xfe")
    assert [row["end"] for row in json.loads(call("list", "--json"))] == ["damaged"]
    assert "0 steps, damaged" in call("show", "latest")


def test_show_finds_by_beginning_and_latest(store: Store, path: Path) -> None:
    name = keep(store, Trajectory(STEPS[1:], "submitted"))
    write(path, STEPS[0])
    assert [called for called, _ in runs(store.home)] == ["r1/attempt-2"]
    assert call("show", name[:6]).startswith(f"trajectory {name[:12]}: builder by rules on widget")
    os.utime(path, (1, 1))
    assert call("show", "latest") == call("show", name)
    os.utime(store.record_file("trajectory", name), (0, 0))
    assert call("show", "latest") == call("show", "r1/attempt-2") == call("show", "r/attempt-2")


@pytest.mark.parametrize("name", ["../../etc/passwd", "r1/attempt-3", "x", "latest"])
def test_show_of_what_is_not_there(store: Store, name: str) -> None:
    with pytest.raises(UsageError):
        call("show", name)


def test_show_tells_what_was_thought_done_and_said(store: Store, path: Path) -> None:
    edit = Action(ActionKind.EDIT, path="/workspace/a.py", edits=(Edit("x\nold\ny", "x\nnew\ny"),))
    thought = exchange("It needs make.\n```sh\nmake\n```\nThen test.")
    with TrajectoryLog(path, HEADER) as log:
        log.step(step("make", exchange("gibberish", "there is no block"), thought, output="boom\n", status=2))
        log.step(Step(edit, None, True))
        log.exchange(exchange("asked and killed"))
    text = call("show", "latest")
    assert "malformed reply (stop): there is no block\n  ? gibberish" in text
    assert "  # It needs make.\n  # Then test.\n  $ make\n  | boom\n  = exit status 2 after 0.5 s" in text
    assert "edit /workspace/a.py\n    x\n  - old\n  + new\n    y" in text
    assert "no action followed on this answer yet" in text
    assert "3 steps, interrupted; 1 command, 1 failed, 0.5 s; 3 calls of models, 1 malformed, 300 + 21 tokens" in text
    assert "prompt of" not in text
    assert "> prompt of gibberish" in call("show", "latest", "--prompts")
    shown = json.loads(call("show", "latest", "--json"))
    assert shown["usage"]["calls"] == 3


def test_long_output_is_cut_in_the_middle_unless_full(store: Store) -> None:
    keep(store, Trajectory((step("x", output="\n".join(f"line {n}" for n in range(1000))),), "submitted"))
    assert "| line 7\n  | [… 984 lines left out …]\n  | line 992" in call("show", "latest")
    assert "| line 500\n" in call("show", "latest", "--full")


def test_nothing_steers_the_screen(store: Store) -> None:
    hostile = "\x1b]0;title\x07\x1b[2J\u202e\x9b31m\ud800\x00"
    reply = exchange(hostile, hostile)
    action = Action(ActionKind.RUN, hostile, user=hostile, cwd=hostile, note=hostile, exchanges=(reply,))
    keep(store, Trajectory((Step(action, CommandResult(hostile, 0, hostile, 1, 0.0)),), hostile, hostile, hostile))
    text = "".join((call("show", "latest", "--full", "--prompts"), call("list"), call("show", "latest", "--json")))
    assert not set("\x1b\x07\u202e\x9b\ud800\x00") & set(text)


@given(st.text(), st.text())
def test_the_two_sides_of_an_edit_can_be_read_off_its_diff(old: str, new: str) -> None:
    lines = diff(Edit(old, new))
    assert [line[2:] for line in lines if line[0] != "+"] == old.splitlines()
    assert [line[2:] for line in lines if line[0] != "-"] == new.splitlines()


@given(st.text(alphabet="`~ab\n \x1b[31m", max_size=200))
def test_any_reply_can_be_shown(text: str) -> None:
    around_blocks(text)
    action = Action(ActionKind.NONE, detail=text, exchanges=(exchange(text),))
    for view in (View(), View(full=True, prompts=True)):
        assert list(replay_lines(Trajectory((Step(action, None),), "x"), view))
