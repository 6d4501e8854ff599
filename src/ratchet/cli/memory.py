"""`ratchet memory …`: what earlier installs noted for later ones."""

from __future__ import annotations

from typing import Annotated

import typer

from ratchet.cli.options import AsJson
from ratchet.cli.screen import complain, say, say_json, say_table

app = typer.Typer(
    help="What helped in verified installs, and is offered to later ones.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the memories: after which error which commands helped, those that changed last first."""
    from ratchet.autoinstall.memory import every
    from ratchet.records import to_json
    from ratchet.store import Store, default_home

    memories = every(Store(default_home()))[::-1]
    if as_json:
        say_json([{"id": memory.id, **to_json(memory)} for memory in memories])
    elif not memories:
        complain("Nothing is remembered yet. Verified installs leave what repaired them.")
    else:
        columns = ("MEMORY", "ECOSYSTEM", "PROJECTS", "ERROR", "WHAT HELPED")
        say_table(
            columns,
            [(m.id[:12], m.ecosystem, str(m.worked), m.signature[:80], "; ".join(m.fix)) for m in memories],
        )


@app.command()
def clear(
    name: Annotated[
        str | None, typer.Argument(metavar="ID", help="Only this memory: its id, or the beginning of it.")
    ] = None,
) -> None:
    """Forget one memory, or all of them."""
    from ratchet.autoinstall.memory import KIND
    from ratchet.store import Store, default_home

    store = Store(default_home())
    # Without reading them: a damaged one can be cleared away, too.
    forgotten = store.ids(KIND) if name is None else [store.resolve(KIND, name)]
    for memory in forgotten:
        store.remove(KIND, memory)
    say("forgot 1 memory" if len(forgotten) == 1 else f"forgot {len(forgotten)} memories")
