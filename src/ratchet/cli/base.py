"""`ratchet base …`: the root file systems that sandboxes start from."""

from __future__ import annotations

import typer

app = typer.Typer(help="The root file systems that sandboxes start from.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_() -> None:
    """List."""
