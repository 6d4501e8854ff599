"""Options and arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value on standard output.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Stream the output of every command.")]
Source = Annotated[
    str, typer.Argument(metavar="SOURCE", help="A directory, a git URL or path (with @REF), or pypi:NAME[==VERSION].")
]
EnvironmentName = Annotated[
    str, typer.Argument(metavar="ENV", help="An environment's id, the beginning of it, or a project's name.")
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        metavar="HOST",
        help="Let the install phase reach this host, beside the package indexes; may be repeated.",
    ),
]
TimeLimit = Annotated[
    str,
    typer.Option("--time-limit", metavar="TIME", help="Wall time of one command: seconds, or like 30m or 2h."),
]
