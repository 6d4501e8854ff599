"""`ratchet survey SOURCE`: the facts, each with the file and line that it came from."""

from __future__ import annotations

from typing import Annotated

import typer

from ratchet.cli.options import AsJson, Source
from ratchet.cli.screen import complain, plural, say, say_json, say_table


def survey(
    source: Source,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", metavar="KIND", help="Only facts of this kind; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look at a repository, read-only, and show what was found. Nothing of it is run."""
    from ratchet.records import to_json
    from ratchet.sources import fetch
    from ratchet.store import Store, default_home
    from ratchet.survey import survey as look

    checkout = fetch(source, Store(default_home()))
    facts = [fact for fact in look(checkout).facts if not kind or fact.kind in kind]
    if as_json:
        say_json({"checkout": to_json(checkout), "facts": [to_json(fact) for fact in facts]})
        return
    name = f"{checkout.name} {checkout.version}" if checkout.version else checkout.name
    say(f"{name}, checkout {checkout.id[:12]}: {plural(checkout.files, 'file')}, {plural(len(facts), 'fact')}")
    if checkout.missing:
        complain(f"missing from the checkout: {', '.join(checkout.missing)}")
    say_table(
        ("KIND", "VALUE", "GROUP", "WHERE"),
        [(fact.kind, fact.value, fact.group, f"{fact.file}:{fact.line}") for fact in facts],
    )
