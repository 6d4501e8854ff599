"""`ratchet doctor`: what this machine can and cannot do, and the remedy, in one screen."""

from __future__ import annotations

import dataclasses

import typer

from ratchet.cli.options import AsJson
from ratchet.cli.screen import ExitCode, one_line, say, say_json


def doctor(as_json: AsJson = False) -> None:
    """Say what this machine can and cannot do, with the remedy for each lack.

    Exit status 4 when it cannot run sandboxes; a lack that only some commands feel is marked with !.
    """
    from ratchet.sandbox.doctor import checks
    from ratchet.store import default_home

    found = checks(default_home())
    ready = all(check.ok for check in found if check.needed)
    if as_json:
        say_json({"ready": ready, "checks": [dataclasses.asdict(check) for check in found]})
    else:
        width = max(len(check.name) for check in found)
        for check in found:
            mark = "✓" if check.ok else "✗" if check.needed else "!"
            say(f"{mark} {check.name.ljust(width)}  {one_line(check.detail, 200)}")
            if not check.ok and check.remedy:
                say(f"  {' ' * width}  remedy: {one_line(check.remedy, 300)}")
        say("this machine can run sandboxes" if ready else "this machine cannot run sandboxes: mend what is marked ✗")
    raise typer.Exit(0 if ready else ExitCode.MACHINE)
