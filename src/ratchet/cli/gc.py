"""`ratchet gc`: remove what nothing refers to any more."""

from __future__ import annotations

from typing import Annotated

import typer

from ratchet.cli.options import AsJson


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove layers, checkouts and caches that no environment refers to, and what crashes left behind."""
    raise NotImplementedError
