"""Watching one command until it ends: its output, and the time it may take."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

OUTPUT_BYTES = 1 << 20
_DRAIN_S = 0.05
_CHUNK_BYTES = 1 << 16


class Transcript:
    """The start and the end of a long output, and how much there was."""

    def __init__(self, max_bytes: int = OUTPUT_BYTES) -> None:
        self._half = max_bytes // 2
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self.total_bytes = 0

    def add(self, chunk: bytes) -> None:
        self.total_bytes += len(chunk)
        room = self._half - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if chunk:
            self._tail.append(chunk)
            self._tail_bytes += len(chunk)
            while self._tail_bytes - len(self._tail[0]) >= self._half:
                self._tail_bytes -= len(self._tail.popleft())

    def text(self) -> str:
        tail = b"".join(self._tail)[-self._half :]
        cut = self.total_bytes - len(self._head) - len(tail)
        if cut:
            mark = f"\n[... {cut} bytes cut ...]\n".encode()
            return bytes(self._head + mark + tail).decode(errors="replace")
        return bytes(self._head + tail).decode(errors="replace")


class Channels:
    """Two pipes between us and a command: one for its output, one on which its status comes."""

    def __init__(self) -> None:
        self.output, self._their_output = os.pipe()
        self.status, self._their_status = os.pipe()
        os.set_blocking(self.output, False)

    @property
    def theirs(self) -> tuple[int, int]:
        """Standard input and output of the command."""
        return self._their_status, self._their_output

    def close_theirs(self) -> None:
        """Once the command has them: only then do they end when it does."""
        for descriptor in self.theirs:
            if descriptor >= 0:
                os.close(descriptor)
        self._their_status = self._their_output = -1

    def hand_over_output(self) -> int:
        """The output belongs to the caller from now on."""
        output, self.output = self.output, -1
        return output

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_theirs()
        for descriptor in (self.output, self.status):
            if descriptor >= 0:
                os.close(descriptor)


@dataclass(frozen=True)
class Ending:
    """How a command ended. `exit_status` None: it was killed. `timed_out`: by us, when its time was over."""

    exit_status: int | None
    timed_out: bool = False


def follow(
    channels: Channels, *, deadline: float, kill: Callable[[], None], receive: Callable[[bytes], None]
) -> Ending:
    """Read the output until the status comes, and then what is in the pipe already. `kill` is called when the time is
    over, and where waiting is broken off by an exception.

    A process left in the background may hold the output open for ever: it is not waited for, but read on by a
    thread, so that it does not die of a broken pipe.
    """
    timed_out = False
    try:
        poll = select.poll()
        poll.register(channels.output, select.POLLIN)
        poll.register(channels.status, select.POLLIN)
        open_, ended = True, False
        while not ended:
            left_ms = (deadline - time.monotonic()) * 1000
            if left_ms <= 0 and not timed_out:
                timed_out = True
                kill()
            ready = {descriptor for descriptor, _ in poll.poll(None if timed_out else max(1, left_ms))}
            if channels.output in ready and not _read_some(channels.output, receive):
                poll.unregister(channels.output)
                open_ = False
            ended = channels.status in ready
    except BaseException:  # Ctrl-C, or a receiver that failed: the command may not go on unwatched
        kill()
        raise
    if open_ and _drain(channels.output, receive):
        output = channels.hand_over_output()
        threading.Thread(target=_discard, args=(output,), daemon=True, name="ratchet-discard").start()
    status = os.read(channels.status, 16).strip()
    return Ending(int(status) if status.isdigit() else None, timed_out)


def _read_some(output_fd: int, receive: Callable[[bytes], None]) -> bool:
    """False at the end of the output."""
    try:
        chunk = os.read(output_fd, _CHUNK_BYTES)
    except BlockingIOError:
        return True
    if chunk:
        receive(chunk)
    return bool(chunk)


def _drain(output_fd: int, receive: Callable[[bytes], None]) -> bool:
    """Read what is there already. True where somebody still holds the other end."""
    until = time.monotonic() + _DRAIN_S
    poll = select.poll()
    poll.register(output_fd, select.POLLIN)
    while (left_s := until - time.monotonic()) > 0:
        if not poll.poll(left_s * 1000):
            return True
        if not _read_some(output_fd, receive):
            return False
    return True


def _discard(output_fd: int) -> None:
    """Swallow output until nobody can write any more, slowly enough that a chatty process costs little."""
    os.set_blocking(output_fd, True)
    try:
        while os.read(output_fd, _CHUNK_BYTES):
            time.sleep(0.01)
    finally:
        os.close(output_fd)
