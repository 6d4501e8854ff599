"""Live progress of long work: a compact panel on a terminal, plain lines elsewhere. All of it on standard error.

A `Board` holds what the events said so far and knows no screen; `PlainProgress` and `LiveProgress` show it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from ratchet.cli.screen import clean, command_line, complain, duration, one_line, plural

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

    from ratchet.events import Event


@dataclass
class Stage:
    name: str
    started: float
    ended: float | None = None
    failed: bool = False


@dataclass
class Board:
    """What the events of one piece of work have said."""

    clock: Callable[[], float] = time.monotonic
    title: str = ""
    started: float = 0.0
    stages: list[Stage] = field(default_factory=list)
    attempt: int = 0
    command: str = ""
    command_started: float = 0.0
    last_line: str = ""
    requests: int = 0
    refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.started = self.clock()

    @property
    def elapsed(self) -> float:
        return self.clock() - self.started

    def take(self, kind: str, data: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Take one event in; returns the lines worth keeping on the screen, each with its style."""
        take = getattr(self, "_" + kind.replace(".", "_").replace("-", "_"), None)
        lines: list[tuple[str, str]] = [] if take is None else take(data)
        return lines

    def _stage(self, data: Mapping[str, Any]) -> list[tuple[str, str]]:
        name = one_line(str(data.get("name", "")), 30)
        self._end_stage()
        self.attempt = int(data.get("attempt") or 0)
        self.stages.append(Stage(name, self.clock()))
        self.command = ""
        return [(f"{name} (attempt {self.attempt})" if self.attempt else name, "stage")]

    def _end_stage(self) -> None:
        if self.stages and self.stages[-1].ended is None:
            self.stages[-1].ended = self.clock()

    def _command(self, data: Mapping[str, Any]) -> list[tuple[str, str]]:
        command, note = str(data.get("command", "")), one_line(str(data.get("note") or ""), 60)
        lines = command.strip().splitlines()
        if note and len(lines) > 1:  # of a script, what it is for and its last line say most
            command = f"({note}) {lines[-1]}"
        self.command = command_line(command, 300)
        self.command_started, self.last_line = self.clock(), ""
        return [(f"$ {self.command}", "command")]

    def _command_end(self, data: Mapping[str, Any]) -> list[tuple[str, str]]:
        self.command = ""
        status, seconds = data.get("exit_status"), float(data.get("seconds") or 0.0)
        if status == 0:
            return [(f"  took {duration(seconds)}", "detail")] if seconds >= 10 else []
        how = "stopped by a limit" if status is None else f"exit status {status}"
        return [(f"  {how} after {duration(seconds)}", "detail")]

    def _output(self, data: Mapping[str, Any]) -> list[tuple[str, str]]:
        text = clean(str(data.get("text", ""))).rstrip("\n")
        self.last_line = one_line(text.rpartition("\n")[2], 300) or self.last_line
        return [(f"  | {line}", "output") for line in text.split("\n")] if text else []

    def _attempt(self, data: Mapping[str, Any]) -> list[tuple[str, str]]:
        number, reason = data.get("number"), data.get("reason")
        if reason is None:
            return []
        if self.stages:
            self.stages[-1].failed = True
        detail = one_line(str(data.get("detail") or ""), 240)
        return [(f"attempt {number} failed: {reason}" + (f": {detail}" if detail else ""), "failure")]

    def _repair(self, data: Mapping[str, Any]) -> list[tuple[str, str]]:
        key, note = one_line(str(data.get("key", ""))), one_line(str(data.get("note") or ""), 240)
        return [(f"repair: {note} [{key}]" if note else f"repair: {key}", "repair")]

    def _verdict(self, data: Mapping[str, Any]) -> list[tuple[str, str]]:
        passed = bool(data.get("passed"))
        goal, why = command_line(str(data.get("goal", "")), 100), one_line(str(data.get("why") or ""))
        mark, style = ("✓", "success") if passed else ("✗", "failure")
        return [(f"{mark} {goal}: {why}" if why else f"{mark} {goal}", style)]

    def _validation(self, data: Mapping[str, Any]) -> list[tuple[str, str]]:
        took, reason = duration(float(data.get("seconds") or 0.0)), data.get("rejection")
        if reason is None:
            return [(f"✓ {one_line(str(data.get('task', '')), 12)} passed the gate ({took})", "success")]
        return [(f"✗ {reason}: {one_line(str(data.get('detail') or ''), 200)} ({took})", "detail")]

    def _model(self, data: Mapping[str, Any]) -> list[tuple[str, str]]:
        tokens, seconds = int(data.get("completion_tokens") or 0), float(data.get("seconds") or 0.0)
        return [(f"  the model wrote {plural(tokens, 'token')} in {duration(seconds)}", "detail")]

    def _takeover(self, data: Mapping[str, Any]) -> list[tuple[str, str]]:
        return [(f"the rules gave up; {one_line(str(data.get('policy', '')), 80)} goes on from here", "repair")]

    def _goal_rejected(self, data: Mapping[str, Any]) -> list[tuple[str, str]]:
        goal, why = command_line(str(data.get("goal", "")), 100), one_line(str(data.get("why") or ""))
        return [(f"proposed and not taken: {goal}: {why}", "detail")]

    def _opinion(self, data: Mapping[str, Any]) -> list[tuple[str, str]]:
        holds = {True: "holds", False: "does not hold", None: "cannot tell"}[data.get("holds")]
        return [(f"judge: {command_line(str(data.get('goal', '')), 100)}: {holds}", "detail")]

    def _proxy(self, data: Mapping[str, Any]) -> list[tuple[str, str]]:
        self.requests += 1
        host = one_line(str(data.get("host", "")), 80)
        if data.get("allowed", True) or host in self.refused:
            return []
        self.refused.append(host)
        return [
            (f"network: refused {host} (not on the allowlist; --allow-host {host} would let it through)", "warning")
        ]

    def _install_end(self, _data: Mapping[str, Any]) -> list[tuple[str, str]]:
        self._end_stage()
        self.command = ""
        return []


class PlainProgress:
    """Each milestone as one line with the time since the start: for pipes, logs and CI."""

    def __init__(self, title: str, *, verbose: bool) -> None:
        self.board = Board(title=one_line(title, 60))
        self._lock = threading.Lock()  # the proxy's events come from threads of its own
        self._verbose = verbose

    def __call__(self, event: Event) -> None:
        with self._lock:
            lines = self.board.take(event.kind, event.data)
        for line, style in lines:
            if style != "output" or self._verbose:
                complain(f"{self.board.elapsed:7.1f}s  {line}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


_STYLES = {
    "stage": "bold cyan",
    "command": "",
    "detail": "dim",
    "output": "dim",
    "success": "green",
    "failure": "red",
    "repair": "yellow",
    "warning": "yellow",
}


class LiveProgress:
    """Milestones scroll by; below them a panel with stage, attempt, the command that runs, and the times."""

    def __init__(self, title: str, console: Console, *, verbose: bool) -> None:
        from rich.live import Live

        self.board = Board(title=one_line(title, 60))
        self._lock = threading.Lock()  # the proxy's events come from threads of its own
        self._verbose = verbose
        self._console = console
        self._quiet = ExitStack()
        self._live = Live(self, console=console, refresh_per_second=4, transient=True)

    def __call__(self, event: Event) -> None:
        from rich.text import Text

        with self._lock:
            lines = self.board.take(event.kind, event.data)
        for line, style in lines:
            # The panel shows the running command; only -v keeps each on the screen.
            if self._verbose or style not in ("output", "command", "detail"):
                indent = "" if style == "stage" else "  "
                whole = style in ("output", "failure", "warning")
                text = Text(indent + line, style=_STYLES[style], overflow="fold" if whole else "ellipsis")
                self._console.print(text, no_wrap=not whole)

    def __enter__(self) -> Self:
        self._quiet.enter_context(_no_control_echo(self._console))
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        self._quiet.close()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.panel import Panel
        from rich.text import Text

        board, width = self.board, max(20, options.max_width - 4)
        lines = [self._stages(width), *self._command(width)]
        body = Text("\n", no_wrap=True, overflow="ellipsis").join(lines)
        subtitle = [duration(board.elapsed)]
        if board.requests:
            refused = f", {len(board.refused)} refused" if board.refused else ""
            subtitle.append(plural(board.requests, "request") + refused)
        yield Panel(
            body,
            title=Text(board.title),
            title_align="left",
            subtitle=Text(" · ".join([*subtitle, "Ctrl-C stops"])),
            subtitle_align="right",
            height=5,
        )

    def _stages(self, width: int) -> Text:
        """The stage under way, after as many of the last finished ones as there is room for."""
        from rich.text import Text

        line = Text()
        for stage in reversed(self.board.stages):
            if stage.ended is None:
                attempt = f" · attempt {self.board.attempt}" if self.board.attempt else ""
                part = Text(f"▸ {stage.name}{attempt}", style="bold")
            else:
                mark = "✗" if stage.failed else "✓"
                part = Text(f"{mark} {stage.name} {duration(stage.ended - stage.started)}  ", style="dim")
            if line.cell_len + part.cell_len > width:
                break
            line = part + line
        return line

    def _command(self, width: int) -> list[Text]:
        """The command under way with its time, and the last line of its output."""
        from rich.text import Text

        board = self.board
        if not board.command:
            return [Text("…", "dim"), Text()]
        since = f"  {duration(board.clock() - board.command_started)}"
        command = one_line(f"$ {board.command}", width - len(since))
        return [Text.assemble(command, (since, "dim")), Text(one_line(board.last_line, width), "dim")]


@contextmanager
def _no_control_echo(console: Console) -> Iterator[None]:
    """A terminal that prints `^C` beside the panel moves the cursor, and the panel could not be wiped cleanly."""
    import termios

    descriptor = console.file.fileno() if console.is_terminal else -1
    if descriptor < 0 or not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    changed = list(before)
    changed[3] &= ~termios.ECHOCTL
    termios.tcsetattr(descriptor, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


Progress = PlainProgress | LiveProgress


def open_progress(title: str, *, verbose: bool = False) -> Progress:
    """The progress display that fits standard error. `title` is what the panel says it is about."""
    if not sys.stderr.isatty():
        return PlainProgress(title, verbose=verbose)
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if console.is_dumb_terminal:
        return PlainProgress(title, verbose=verbose)
    return LiveProgress(title, console, verbose=verbose)
