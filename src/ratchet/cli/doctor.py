"""`ratchet doctor`: what this machine can and cannot do, and the remedy, in one screen."""

from __future__ import annotations

import typer

from ratchet.cli.options import AsJson
from ratchet.cli.screen import ExitCode, say, say_json


def doctor(as_json: AsJson = False) -> None:
    """Say what this machine can and cannot do, with the remedy. Exit status 4 when it cannot run sandboxes."""
    from ratchet.sandbox.doctor import checks
    from ratchet.store import default_home

    found = checks(default_home())
    ready = all(check.ok for check in found if check.needed)
    if as_json:
        say_json({"ready": ready, "checks": []})
    else:
        width = max(len(check.name) for check in found)
        for check in found:
            say(f"{'✓' if check.ok else '✗'} {check.name.ljust(width)}  {check.detail}")
    raise typer.Exit(0 if ready else ExitCode.MACHINE)
