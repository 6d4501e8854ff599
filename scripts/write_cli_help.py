#!/usr/bin/env python3
"""Write docs/cli.md: the help of every command, as the program prints it.

scripts/write_cli_help.py [FILE]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from ratchet.cli.main import app

PLACE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
HEAD = """\
# The command line

Written by `scripts/write_cli_help.py`; a test checks that it is current.

Every reading command has `--json`. Results go to standard output, progress and errors to standard error.

| exit status | means |
| --- | --- |
| 0 | done; for `install` and `env verify`: verified |
| 1 | our own fault: a bug, or broken machinery |
| 2 | wrong usage: an unknown option, environment, or source |
| 3 | discarded: the repository cannot be made into a verified environment; `reason` says why |
| 4 | this machine cannot do it; `ratchet doctor` says what is missing |
| 130 | interrupted with Ctrl-C; nothing is left behind |

`ratchet env run` ends with the exit status of the command that it ran.
"""


def commands(command: Any, context: Any) -> Iterator[tuple[str, str]]:
    """Each command's full name and help, depth first."""
    # Some releases of Typer add the type to a name (`N <int>`), or braces; without them the page stays the same.
    yield context.command_path, re.sub(r"(?<=\S) <[a-z\[\] ]+>|[{}]", "", context.get_help())
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        child = command.get_command(context, name)
        with child.make_context(name, [], parent=context, resilient_parsing=True) as inner:
            yield from commands(child, inner)


def text() -> str:
    """The whole page."""
    root = typer.main.get_command(app)
    with root.make_context("ratchet", [], resilient_parsing=True, terminal_width=100) as context:
        parts = [f"## {name}\n\n```text\n{help_text.strip()}\n```\n" for name, help_text in commands(root, context)]
    return HEAD + "\n" + "\n".join(parts)


if __name__ == "__main__":
    (Path(sys.argv[1]) if len(sys.argv) > 1 else PLACE).write_text(text(), encoding="utf-8")
