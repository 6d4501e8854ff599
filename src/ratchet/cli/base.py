"""`ratchet base …`: the root file systems that sandboxes start from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from ratchet.cli.options import AsJson, Verbose
from ratchet.cli.screen import complain, say, say_json, say_table, size
from ratchet.errors import UsageError

app = typer.Typer(help="The root file systems that sandboxes start from.", no_args_is_help=True, rich_markup_mode=None)

BaseName = Annotated[str, typer.Argument(metavar="NAME", help="The base's name.")]


@app.command()
def build(
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="A Debian or Ubuntu suite: bookworm, trixie, …")],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="What to call it; the suite by default.")
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option("--include", metavar="PACKAGE", help="One more package in it; may be repeated."),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Build it again, with the packages of today.")] = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Build a base with mmdebstrap; nothing is done where it is there already. Takes a minute or two."""
    from ratchet.records import to_json
    from ratchet.sandbox.bases import build_base, ensure_base
    from ratchet.sandbox.clients import read_clients
    from ratchet.sandbox.layers import Layers
    from ratchet.store import default_home

    home, clients = default_home(), read_clients()
    with _shown(f"base {name or suite}", f"mmdebstrap {suite}", verbose) as on_output:
        if fresh or name or include:
            base = build_base(
                home, Layers(home), suite, clients, name=name, include=tuple(include or ()), on_output=on_output
            )
        else:
            base = ensure_base(home, Layers(home), suite, clients, on_output=on_output)
    if as_json:
        say_json(to_json(base))
    else:
        say(f"base {base.name}: Python {', '.join(base.pythons) or 'none'}, {size(base.size_bytes)}, {base.id}")


@app.command("import")
def import_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A root file system archive, an OCI layout or archive, or an image reference like docker://NAME.",
        ),
    ],
    name: BaseName,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Make a base of a root file system archive or an OCI image. Nothing of it is run."""
    from ratchet.records import to_json
    from ratchet.sandbox.bases import import_base
    from ratchet.sandbox.layers import Layers
    from ratchet.store import default_home

    home = default_home()
    with _shown(f"base {name}", f"import {source}", verbose) as on_output:
        base = import_base(home, Layers(home), source, name, on_output=on_output)
    if as_json:
        say_json(to_json(base))
    else:
        say(f"base {base.name}: Python {', '.join(base.pythons) or 'none'}, {size(base.size_bytes)}, {base.id}")


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the bases."""
    from ratchet.records import to_json
    from ratchet.sandbox.bases import list_bases
    from ratchet.store import default_home

    bases = list_bases(default_home())
    if as_json:
        say_json([to_json(base) for base in bases])
    elif not bases:
        complain("There are no bases yet. An install builds the one that it needs; ratchet base build SUITE does, too.")
    else:
        say_table(
            ("NAME", "PYTHON", "ARCHITECTURE", "SIZE", "MADE", "FROM"),
            [
                (
                    base.name,
                    ", ".join(base.pythons) or "-",
                    base.architecture,
                    size(base.size_bytes),
                    base.created[:16].replace("T", " "),
                    base.origin,
                )
                for base in bases
            ],
        )


@app.command()
def remove(name: BaseName) -> None:
    """Remove a base. Environments that stand on it go on working; what nothing uses goes with `ratchet gc`."""
    from ratchet.sandbox.bases import load
    from ratchet.store import default_home

    home = default_home()
    if load(home, name) is None:
        raise UsageError(f"There is no base {name!r}.", remedy="ratchet base list shows the bases")
    (home / "bases" / f"{name}.json").unlink()
    say(f"removed {name}")


@contextmanager
def _shown(title: str, command: str, verbose: bool) -> Iterator[Callable[[str], None]]:
    """Live progress of one program; gives what takes its lines."""
    from ratchet.cli.progress import open_progress
    from ratchet.events import Events

    events = Events()

    def on_output(line: str) -> None:
        events.emit("output", text=line + "\n")

    with open_progress(title, verbose=verbose) as progress:
        events.subscribe(progress)
        events.emit("stage", name=title)
        events.emit("command", command=command)
        yield on_output
