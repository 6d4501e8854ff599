"""`ratchet install SOURCE`: the main job, from a bare checkout to a verified environment."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from ratchet.cli.options import AllowHost, AsJson, Source, TimeLimit, Verbose
from ratchet.cli.roles import (
    RULES,
    BuilderPolicy,
    GoalPolicy,
    JudgePolicy,
    MaxCost,
    MaxSteps,
    MaxTokens,
    PolicyName,
    make_roles,
)
from ratchet.cli.screen import ExitCode, say_json


def install(
    source: Source,
    as_json: AsJson = False,
    verbose: Verbose = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over, also where nothing changed since.")] = False,
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="SUITE", help="Start from this base or Debian suite."),
    ] = None,
    allow_host: AllowHost = None,
    max_attempts: Annotated[int, typer.Option(min=1, metavar="N", help="Attempts before it is discarded.")] = 5,
    time_limit: TimeLimit = "30m",
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory of the sandbox, like 512M or 8G.")] = "8G",
    policy: PolicyName = RULES,
    goal_policy: GoalPolicy = None,
    builder: BuilderPolicy = None,
    judge: JudgePolicy = None,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    max_steps: MaxSteps = 200,
    no_memory: Annotated[
        bool, typer.Option("--no-memory", help="Offer models nothing of what worked in other projects.")
    ] = False,
) -> None:
    """Turn a repository into a verified environment, or say why that cannot be done.

    Ten goals are set, three of them are targets; a recipe is built, replayed from the base in a new sandbox, and the
    environment is audited: held-out goals, sabotage, offline tests, flaky tests.

    A model that is named takes part as goal setter, builder and judge; `docs/models.md` says how to serve one. An
    install with a model that was interrupted goes on after its last step when the same command is given again.

    Exit status: 0 verified, 3 discarded, 2 wrong usage, 4 this machine cannot do it, 1 our own fault.
    """
    from ratchet.autoinstall.options import Options
    from ratchet.autoinstall.pipeline import autoinstall
    from ratchet.autoinstall.workshop import Workshop
    from ratchet.cli.outcome import to_object
    from ratchet.cli.progress import open_progress
    from ratchet.cli.quantities import parse_seconds, parse_size
    from ratchet.policies.budget import Budget, Meter
    from ratchet.records import Limits
    from ratchet.store import default_home

    limits = Limits(time_s=parse_seconds(time_limit), memory_bytes=parse_size(memory))
    meter = Meter(Budget(max_tokens, max_cost))
    started = time.monotonic()
    with (
        open_progress(source, verbose=verbose) as progress,
        Workshop.open(default_home(), on_event=progress, allow_hosts=tuple(allow_host or ())) as workshop,
    ):
        options = Options(
            max_attempts=max_attempts,
            limits=limits,
            model_steps=max_steps,
            base=base,
            fresh=fresh,
            roles=make_roles(policy, goal_policy, builder, judge, meter, workshop.show),
            meter=meter,
            memory=not no_memory,
        )
        outcome = autoinstall(source, workshop, options)
    if as_json:
        say_json(to_object(outcome))
    else:
        from ratchet.cli.summary import print_summary

        print_summary(outcome, time.monotonic() - started)
    raise typer.Exit(ExitCode.VERIFIED if outcome.environment else ExitCode.DISCARDED)
