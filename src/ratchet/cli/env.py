"""`ratchet env …`: the environments in the store."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratchet.cli.options import AsJson, EnvironmentName, TimeLimit, Verbose
from ratchet.cli.screen import ExitCode, clean, complain, say, say_json, say_table
from ratchet.errors import UsageError

if TYPE_CHECKING:
    from ratchet.protocols import Sandbox
    from ratchet.records import Environment, Limits
    from ratchet.sandbox.oci import OciBackend

KIND = "environment"
_TIMED_OUT, _KILLED = 124, 137  # as timeout(1) and a shell have it

app = typer.Typer(help="The environments in the store.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the environments, the newest first."""
    from ratchet.cli.outcome import environment_row

    environments = sorted(_all(), key=lambda environment: environment.created, reverse=True)
    rows = [environment_row(environment) for environment in environments]
    if as_json:
        say_json(rows)
    elif not rows:
        complain("There are no environments yet. Make one: ratchet install SOURCE")
    else:
        columns = ("ENVIRONMENT", "PROJECT", "BASE", "TESTS", "HELD OUT", "SABOTAGE", "MADE")
        say_table(
            columns,
            [
                (
                    row["environment"][:12],
                    row["project"],
                    row["base"],
                    f"{row['tests']['passed']}/{row['tests']['ran']}",
                    f"{row['held_out']['passed']}/{row['held_out']['tried']}",
                    f"{row['sabotage']['noticed']}/{row['sabotage']['tried']}",
                    row["created"][:16].replace("T", " "),
                )
                for row in rows
            ],
        )


@app.command()
def show(
    name: EnvironmentName,
    recipe: Annotated[bool, typer.Option("--recipe", help="Print only the recipe, as a shell script.")] = False,
    packages: Annotated[bool, typer.Option("--packages", help="Print only the resolved versions.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one environment: what it is made of, its goals, and their verdicts."""
    from ratchet.exports.script import recipe_script
    from ratchet.records import to_json

    environment = _get(name)
    if as_json:
        say_json(to_json(environment))
    elif recipe:
        say(recipe_script(environment.recipe, name=environment.name).rstrip("\n"))
    elif packages:
        pinned = [(n, v, "python") for n, v in sorted(environment.python_packages.items())]
        say_table(
            ("PACKAGE", "VERSION", "KIND"),
            [*pinned, *((n, v, "debian") for n, v in sorted(environment.debian_packages.items()))],
        )
    else:
        from ratchet.cli.summary import print_environment

        print_environment(environment)


@app.command()
def verify(name: EnvironmentName, verbose: Verbose = False, as_json: AsJson = False) -> None:
    """Replay an environment from its base again, and judge all of its goals there.

    Exit status 3 when the replay or a target fails.
    """
    from ratchet.autoinstall.verify import verify as replay_and_judge
    from ratchet.autoinstall.workshop import Workshop
    from ratchet.cli.outcome import verification_object
    from ratchet.cli.progress import open_progress
    from ratchet.store import default_home

    environment = _get(name)
    with (
        open_progress(f"verify {environment.name}", verbose=verbose) as progress,
        Workshop.open(default_home(), on_event=progress, allow_hosts=environment.allowed_hosts) as workshop,
    ):
        replayed, verdicts = replay_and_judge(workshop, environment, environment.limits)
    result = verification_object(environment, replayed.layer is not None, replayed.detail, verdicts)
    if as_json:
        say_json(result)
    else:
        from ratchet.cli.summary import print_verification

        print_verification(environment, replayed.detail, verdicts)
    raise typer.Exit(ExitCode.VERIFIED if result["status"] == "verified" else ExitCode.DISCARDED)


@app.command()
def run(
    name: EnvironmentName,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="The command and its arguments, after --.")],
    time_limit: TimeLimit = "30m",
) -> None:
    """Run a command in a fresh fork of an environment: offline, as user dev in /workspace, the start script up.

    Its output, both streams in one, goes to standard output; its exit status is ours (124 where it took too long, 137
    where another limit ended it). What it changes is gone afterwards.
    """
    import shlex

    from ratchet.cli.quantities import parse_seconds
    from ratchet.records import LimitHit, Limits

    line = command[0] if len(command) == 1 else shlex.join(command)
    environment = _get(name)
    limits = Limits(time_s=parse_seconds(time_limit))
    with _fork(environment, limits) as (_, sandbox):
        result = sandbox.run(line, user="dev", cwd="/workspace", env=environment.recipe.env, on_output=_streamer())
    if result.limit is not None:
        complain(f"ratchet: the {result.limit.value} limit ended it after {result.seconds:.0f} s")
        raise typer.Exit(_TIMED_OUT if result.limit is LimitHit.TIME else _KILLED)
    raise typer.Exit(result.exit_status or 0)


@app.command()
def shell(name: EnvironmentName) -> None:
    """Open an interactive shell in a fresh fork of an environment. Nothing that is changed there stays."""
    from ratchet.cli.terminal import attach

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "A shell needs a terminal, and standard input or output is none.",
            remedy=f"ratchet env run {name} -- COMMAND runs one command",
        )
    environment = _get(name)
    with _fork(environment, environment.limits) as (backend, sandbox):
        complain(
            f"A fresh fork of {environment.name}: offline, user dev. What you change is gone when you leave (exit)."
        )
        program = "/bin/bash" if sandbox.run("test -x /bin/bash").ok else "/bin/sh"
        status = attach(backend, sandbox, [program], user="dev", cwd="/workspace", env=environment.recipe.env)
    raise typer.Exit(status)


@app.command()
def export(
    name: EnvironmentName,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="A directory that is absent or empty.")],
    format_: Annotated[str, typer.Option("--format", metavar="FORMAT", help="The format: dockerfile.")] = "dockerfile",
    image: Annotated[
        str | None, typer.Option("--from", metavar="IMAGE", help="The image to start from; by default the suite's.")
    ] = None,
) -> None:
    """Write an environment in a format that other tools read. A Dockerfile rebuilds it elsewhere."""
    from ratchet.exports import dockerfile

    if format_ != "dockerfile":
        raise UsageError(f"There is no format {format_!r}.", remedy="the formats are: dockerfile")
    written = dockerfile.write(_get(name), output, image=image)
    say(f"wrote {written}")
    complain(f"build it where Docker or Buildah is: docker build -t {written.parent.name} {written.parent}")


@app.command()
def remove(
    names: Annotated[list[str], typer.Argument(metavar="ENV", help="Environments' ids, or their beginnings.")],
) -> None:
    """Remove environments. What only they used goes with the next `ratchet gc`."""
    from ratchet.store import Store, default_home

    store = Store(default_home())
    for environment in [_get(name) for name in names]:
        store.remove(KIND, environment.id)
        say(f"removed {environment.id[:12]} {environment.name}")


# --------------------------------------------------------------------------- shared


def _get(name: str) -> Environment:
    from ratchet.records import Environment
    from ratchet.store import Store, default_home

    store = Store(default_home())
    # A project's name stands for its latest environment, where no id starts like it.
    known = any(record.startswith(name) for record in store.ids(KIND))
    return store.get(KIND, name if known else store.linked(KIND, name) or name, Environment)


def _all() -> list[Environment]:
    from ratchet.records import Environment
    from ratchet.store import Store, default_home

    store = Store(default_home())
    return [store.get(KIND, name, Environment) for name in store.ids(KIND)]


@contextmanager
def _fork(environment: Environment, limits: Limits) -> Iterator[tuple[OciBackend, Sandbox]]:
    """A new offline sandbox of the environment, with its start script up."""
    from ratchet.autoinstall.verify import environment_layers, start
    from ratchet.autoinstall.workshop import Workshop
    from ratchet.errors import SandboxError
    from ratchet.store import default_home

    with (
        Workshop.open(default_home()) as workshop,
        workshop.offline(environment_layers(workshop, environment), limits) as sandbox,
    ):
        started = start(sandbox, environment.recipe)
        if started is not None and not started.ok:
            raise SandboxError(
                f"The start script failed with exit status {started.exit_status}:\n{started.output[-2000:]}",
                remedy=f"ratchet env verify {environment.id[:12]} says whether the environment still holds",
            )
        yield workshop.backend, sandbox


def _streamer() -> Callable[[bytes], None]:
    """What prints the output of the user's own command. It may not steer a terminal; in a pipe it goes as it is."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    steerable = sys.stdout.isatty()

    def stream(data: bytes) -> None:
        if steerable:
            sys.stdout.write(clean(decoder.decode(data)))
        else:
            sys.stdout.buffer.write(data)
        sys.stdout.flush()

    return stream
