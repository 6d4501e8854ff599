"""Append-only JSONL of everything that happened.

One line per event: `{"time": ISO 8601 in UTC, "pid": …, "sequence": …, "kind": …, "data": {…}}`. Lines of several
processes may mix in one file: each event is a single O_APPEND write, so they never mix within a line. `sequence`
counts from 0 within one `Events` object, and orders the events of one process.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

from ratchet.errors import StoreError
from ratchet.records import to_json

Subscriber = Callable[["Event"], None]

UNREADABLE = "unreadable"
"""The kind that `read` gives to a line inside the file that holds no event (a writer died in the middle of it)."""

# It begins with its rarest part: a log may be one line of a hundred megabytes.
_USERINFO = re.compile(r"://(?P<userinfo>[^\s/?#\"'<>]{1,2000})@")
_SCHEME_END = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*$")
_SECRET_PARAMETER = re.compile(
    r"(?P<name>[?&;](?:[\w.-]{0,40}(?:token|secret|password|passwd|signature|api[_-]?key)|sig|auth)=)[^\s&;#\"'<>]+",
    re.IGNORECASE,
)
_AUTHORIZATION = re.compile(
    r"(?P<name>\bauthorization\s*[:=]\s*[\"']?(?:basic|bearer|token)\s+)[^\s\"']+", re.IGNORECASE
)


def redact(text: str) -> str:
    """`text` without the credentials that URLs and authorization headers in it carry, each replaced by `***`."""
    text = _USERINFO.sub(_hide_userinfo, text)
    text = _SECRET_PARAMETER.sub(r"\g<name>***", text)
    return _AUTHORIZATION.sub(r"\g<name>***", text)


def _hide_userinfo(match: re.Match[str]) -> str:
    scheme = _SCHEME_END.search(match.string[max(0, match.start() - 32) : match.start()])
    if scheme is None:
        return match[0]
    if scheme[0].lower().endswith("ssh") and ":" not in match["userinfo"]:
        return match[0]  # the login name of an SSH URL is no secret, and `git@` says what the URL is
    return "://***@"


@dataclass(frozen=True)
class Event:
    time: str
    pid: int
    sequence: int
    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)


class Events:
    """Writes events to `path`, and hands them to subscribers; with `path` None only the latter.

    Safe to use from several threads. The file and its folder are made at the first event. Strings are redacted
    before anybody sees them, subscribers included.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._sequence = 0
        self._descriptor: int | None = None
        self._subscribers: list[Subscriber] = []

    def emit(self, kind: str, /, **data: Any) -> Event:
        """Record one event. Values may be records, paths, enums, bytes, and containers of them.

        Subscribers run in this thread, after the line is on its way to the disk. One that raises stops this call
        with its error: the event is already written, and a display that is broken should be noticed.
        """
        return self._tell(kind, data, keep=True)

    def publish(self, kind: str, /, **data: Any) -> Event:
        """Like `emit`, for subscribers only: what is shown as it comes and is too much to keep."""
        return self._tell(kind, data, keep=False)

    def _tell(self, kind: str, data: Mapping[str, Any], *, keep: bool) -> Event:
        plain = {_plain(key): _plain(value) for key, value in data.items()}
        with self._lock:
            event = Event(datetime.now(UTC).isoformat(), os.getpid(), self._sequence, kind, plain)
            self._sequence += 1
            if keep and self.path is not None:
                self._append(self.path, event)
            subscribers = tuple(self._subscribers)
        for subscriber in subscribers:
            subscriber(event)
        return event

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call `callback` with every event from now on. Returns a function that ends it (once or more often)."""
        with self._lock:
            self._subscribers.append(callback)

        def unsubscribe() -> None:
            with self._lock:
                self._subscribers[:] = [known for known in self._subscribers if known is not callback]

        return unsubscribe

    def close(self) -> None:
        """Close the file; a later event opens it again."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, path: Path, event: Event) -> None:
        # ASCII only: file names and outputs may hold lone surrogates, which UTF-8 cannot.
        line = json.dumps(to_json(event), separators=(",", ":"), ensure_ascii=True).encode() + b"\n"
        if self._descriptor is None:
            self._descriptor = _open(path)
        written = os.write(self._descriptor, line)
        if written != len(line):
            raise StoreError(
                f"only {written} of {len(line)} bytes of an event could be written to {path}",
                remedy="the disk is probably full: free some space, for example with `ratchet gc`",
            )


def read(path: Path) -> Iterator[Event]:
    """The events of a file, in the order written; none where there is no file.

    A last line without its newline is one that is being written, or whose writer died: it is left out. Any other
    line that holds no event is given as an event of kind `unreadable`, with its line number.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            if line.strip():
                yield _parse(line, number)


def _parse(line: bytes, number: int) -> Event:
    try:
        data = json.loads(line)
        return Event(
            str(data["time"]), int(data["pid"]), int(data["sequence"]), str(data["kind"]), dict(data.get("data") or {})
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return Event("", 0, -1, UNREADABLE, {"line": number, "bytes": len(line)})


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        os.write(descriptor, b"\n")  # a writer died inside its line: keep ours apart from it
    return descriptor


def _plain(value: Any) -> Any:
    """JSON data without secrets."""
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, str):
        return redact(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, bytes):
        return redact(value.decode("utf-8", "replace"))
    if isinstance(value, os.PathLike):
        return redact(os.fsdecode(value))
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(to_json(value))
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    raise TypeError(
        f"an event cannot carry a {type(value).__name__}: give text, numbers, records or containers of them"
    )
