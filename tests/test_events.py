"""The event log: what was written can be read, by whomever and after whatever, and holds no secrets."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ratchet.events import UNREADABLE, Event, Events, read, redact
from ratchet.records import CommandResult, LimitHit


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log" / "events.jsonl"


def test_events_come_back_in_order_with_time_process_and_sequence(path: Path) -> None:
    with Events(path) as events:
        events.emit("first", number=1)
        events.emit("second", names=("a", "b"))
    first, second = read(path)
    assert (first.kind, first.data, second.data) == ("first", {"number": 1}, {"names": ["a", "b"]})
    assert (first.sequence, second.sequence, first.pid) == (0, 1, os.getpid())
    assert first.time <= second.time and first.time.endswith("+00:00")


def test_records_paths_enums_bytes_and_undecodable_names_can_be_emitted(path: Path) -> None:
    result = CommandResult("make", None, "out", 3, 1.5, LimitHit.TIME)
    Events(path).emit("command", result=result, path=Path("/a"), limit=LimitHit.DISK, raw=b"\xff", name="caf\udce9")
    (event,) = read(path)
    assert event.data["result"]["limit"] == "time"
    assert (event.data["path"], event.data["limit"], event.data["name"]) == ("/a", "disk", "caf\udce9")


def test_something_that_is_no_data_is_refused_and_nothing_is_written(path: Path) -> None:
    with pytest.raises(TypeError, match="cannot carry"):
        Events(path).emit("bad", value=object())
    assert list(read(path)) == []


def test_a_half_written_last_line_is_left_out(path: Path) -> None:
    Events(path).emit("whole")
    with path.open("ab") as file:
        file.write(b'{"time":"2026')
    assert [event.kind for event in read(path)] == ["whole"]


def test_a_writer_after_a_crash_does_not_lose_its_own_event_and_the_damage_shows(path: Path) -> None:
    Events(path).emit("before")
    with path.open("ab") as file:
        file.write(b'{"time":"2026')
    Events(path).emit("after")
    assert [event.kind for event in read(path)] == ["before", UNREADABLE, "after"]


def test_no_file_means_no_events_and_none_is_made_before_the_first(path: Path) -> None:
    events = Events(path)
    assert list(read(path)) == []
    assert not path.parent.exists()
    events.emit("now")
    assert path.exists()


WRITER = """
import sys
from pathlib import Path
from ratchet.events import Events
events = Events(Path(sys.argv[1]))
for number in range(50):
    events.emit("process", filler="x" * 5000)
"""


def test_threads_and_processes_never_mix_within_a_line(path: Path) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", WRITER, str(path)]) for _ in range(2)]
    shared = Events(path)
    threads = [threading.Thread(target=lambda: [shared.emit("thread") for _ in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.wait() for process in processes] == [0, 0]
    found = list(read(path))
    assert sorted(event.sequence for event in found if event.kind == "thread") == list(range(400))
    assert sum(event.kind == "process" for event in found) == 100


def test_subscribers_get_events_until_they_leave() -> None:
    events, seen = Events(), []
    leave = events.subscribe(seen.append)
    events.emit("one")
    leave()
    leave()
    events.emit("two")
    assert [event.kind for event in seen] == ["one"]


def test_a_subscriber_that_raises_is_noticed_after_the_event_is_written(path: Path) -> None:
    def broken(_: Event) -> None:
        raise ZeroDivisionError

    events = Events(path)
    events.subscribe(broken)
    with pytest.raises(ZeroDivisionError):
        events.emit("kept")
    assert [event.kind for event in read(path)] == ["kept"]


def test_a_subscriber_may_emit() -> None:
    events, seen = Events(), []
    events.subscribe(lambda event: seen.append(event.kind))
    events.subscribe(lambda event: event.kind == "outer" and events.emit("inner"))
    events.emit("outer")
    assert seen == ["outer", "inner"]


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("https://user:pass@host/simple", "https://***@host/simple"),
        ("git+https://ghp_token@host/x.git@v1", "git+https://***@host/x.git@v1"),
        ("https://us:p@ss@host/", "https://***@host/"),
        ("ssh://git@host/x.git", "ssh://git@host/x.git"),
        ("ssh://git:secret@host/x.git", "ssh://***@host/x.git"),
        ("https://host/x@1.0", "https://host/x@1.0"),
        ("https://host/?access_token=abc&x=1", "https://host/?access_token=***&x=1"),
        ("https://host/f?X-Amz-Signature=abc", "https://host/f?X-Amz-Signature=***"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("mail me@example.org about https://example.org", "mail me@example.org about https://example.org"),
    ],
)
def test_credentials_are_redacted_and_other_text_is_not(text: str, clean: str) -> None:
    assert redact(text) == clean


def test_no_secret_reaches_the_file_or_a_subscriber_however_deep(path: Path) -> None:
    events, seen = Events(path), []
    events.subscribe(seen.append)
    events.emit(
        "deep", data={"https://a:hunter2@b": [{"env": ("PIP_INDEX_URL=https://a:hunter2@b/",)}]}, raw=b"x://a:hunter2@b"
    )
    assert "hunter2" not in path.read_text()
    assert "hunter2" not in json.dumps(seen[0].data)


def test_redacting_a_hostile_text_takes_no_long_time() -> None:
    text = "a" * 1_000_000 + "://" * 100_000 + "&" + "x" * 1_000_000
    started = time.monotonic()
    redact(text)
    assert time.monotonic() - started < 5  # a tenth of a second, when the machine is idle
