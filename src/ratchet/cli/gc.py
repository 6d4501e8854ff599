"""`ratchet gc`: remove what nothing refers to any more."""

from __future__ import annotations

from typing import Annotated

import typer

from ratchet.cli.options import AsJson
from ratchet.cli.screen import plural, say, say_json, say_table, size


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove what no environment refers to any more, and what killed processes left behind.

    What changed in the last ten minutes stays. Refused while an install or a shell is running.
    """
    from ratchet.garbage import collect_garbage, find_garbage
    from ratchet.sandbox.oci import OciBackend
    from ratchet.store import Store, default_home

    home = default_home()
    store = Store(home)
    swept = () if dry_run else OciBackend(home).sweep()
    garbage = find_garbage(store) if dry_run else collect_garbage(store)
    total = sum(each.size_bytes for each in garbage)
    if as_json:
        rows = [{"kind": each.kind, "id": each.id, "size_bytes": each.size_bytes} for each in garbage]
        say_json({"removed": not dry_run, "garbage": rows, "swept": list(swept), "size_bytes": total})
        return
    for remains in swept:
        say(f"swept {remains}")
    if garbage:
        say_table(("KIND", "ID", "SIZE"), [(each.kind, each.id[:40], size(each.size_bytes)) for each in garbage])
    say(f"{'would remove' if dry_run else 'removed'} {plural(len(garbage), 'thing')}, {size(total)}")
