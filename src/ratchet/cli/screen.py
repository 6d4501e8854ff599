"""What every command prints with: cleaned text, tables, JSON, and the exit codes' names.

Whatever comes from a repository is untrusted: it must not move the cursor, colour the screen, set the title or
turn the reading direction round. Everything printed goes through `clean`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    VERIFIED = 0
    OUR_FAULT = 1
    USAGE = 2
    DISCARDED = 3
    MACHINE = 4
    INTERRUPTED = 130


# ECMA-48: control sequences, and strings (title, hyperlink) up to their terminator; then any other escape. No string
# holds what begins one, so that of a million beginnings none is looked at for more than its own few characters.
_ESCAPES = re.compile(
    r"""
      (?: \x1b\[ | \x9b ) [0-?]* [ -/]* [@-~]
    | (?: \x1b[\]PX^_] | [\x9d\x90\x98\x9e\x9f] ) [^\x07\x1b\x90\x98\x9c-\x9f]{0,4096} (?: \x07 | \x1b\\ | \x9c )
    | \x1b [ -/]* [0-~]?
    """,
    re.VERBOSE,
)
# C0 and C1 but tab and newline, DEL, zero-width and bidirectional marks, line separators, lone surrogates.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def clean(text: str) -> str:
    """`text` without escape sequences and control characters; only newlines and tabs stay. A carriage return that
    redraws a line (a progress bar) becomes a newline."""
    text = _ESCAPES.sub("", text)
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def one_line(text: str, width: int = 160) -> str:
    """`text` cleaned and on one line of at most `width` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def command_line(command: str, width: int = 160) -> str:
    """A command, which may be a script, on one line."""
    return one_line("; ".join(line.strip() for line in clean(command).splitlines() if line.strip()), width)


def duration(seconds: float) -> str:
    """ "0.4 s", "12 s", "3 min 5 s", "1 h 2 min"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def size(count: int) -> str:
    """Bytes for people: "512 B", "1.5 KB", "220 MB"."""
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if value >= 100 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def say(text: str = "") -> None:
    """One result line (or several) on standard output."""
    sys.stdout.write(clean(text) + "\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """One line for the reader, not the result: on standard error."""
    sys.stderr.write(clean(text) + "\n")
    sys.stderr.flush()


def say_json(data: Any) -> None:
    """Exactly one JSON value on standard output. ASCII only, so no terminal can be steered by it."""
    sys.stdout.write(json.dumps(data, indent=2) + "\n")
    sys.stdout.flush()


def say_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Aligned columns, as plain text: the same on a terminal and in a pipe."""
    cells = [[one_line(cell) for cell in row] for row in [columns, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    for row in cells:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
