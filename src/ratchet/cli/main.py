"""The entry point: the commands, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import errno
import io
import json
import signal
import sys
from types import FrameType
from typing import Annotated

import typer

from ratchet.cli import (
    audit,
    base,
    doctor,
    env,
    gc,
    install,
    label,
    memory,
    model,
    rollout,
    serve,
    survey,
    task,
    trajectory,
)
from ratchet.cli.screen import ExitCode, clean
from ratchet.errors import RatchetError

app = typer.Typer(
    name="ratchet",
    help="Turn code repositories into verified reinforcement-learning environments.",
    epilog="Exit status: 0 done or verified, 1 our own fault, 2 wrong usage, 3 discarded, 4 this machine cannot do it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command("install")(install.install)
app.command("survey")(survey.survey)
app.add_typer(env.app, name="env")
app.add_typer(task.app, name="task")
app.add_typer(rollout.app, name="rollout")
app.add_typer(label.app, name="label")
app.command("audit")(audit.audit)
app.add_typer(base.app, name="base")
app.add_typer(model.app, name="model")
app.command("serve")(serve.serve)
app.add_typer(trajectory.app, name="trajectory")
app.add_typer(memory.app, name="memory")
app.command("doctor")(doctor.doctor)
app.command("gc")(gc.gc)

# Typer is built on a Click that some releases carry inside themselves; these two names exist in all of them.
_ClickError = typer.BadParameter.__mro__[2]

_MACHINE_ERRORS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT})


def _version(wanted: bool) -> None:
    if wanted:
        _print_version()
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def _print_version() -> None:
    from ratchet import __version__

    sys.stdout.write(f"ratchet {__version__}\n")


class Terminated(BaseException):
    """SIGTERM or SIGHUP came: unwind, so that sandboxes are closed, and end with the customary status."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


def _terminate(number: int, _frame: FrameType | None) -> None:
    raise Terminated(number)


def _set_signals() -> None:
    """Ctrl-C must work, here and in what we start, also when a parent (`nohup … &`) had it ignored: suites that
    test signals fail otherwise. A kill or a lost terminal unwinds like Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _terminate)


def _report(what: str, remedy: str, arguments: list[str]) -> None:
    """The error on standard error; with --json also, as the one object, on standard output."""
    sys.stderr.write(clean(f"ratchet: {what}") + "\n")
    if remedy:
        sys.stderr.write(clean(f"  remedy: {remedy}") + "\n")
    before_command = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--json" in before_command:
        sys.stdout.write(json.dumps({"status": "error", "error": what, "remedy": remedy}, indent=2) + "\n")


def _report_usage(error: BaseException, arguments: list[str]) -> None:
    message = getattr(error, "format_message", lambda: str(error))()
    context = getattr(error, "ctx", None)
    if not message or type(error).__name__ == "NoArgsIsHelpError":  # a bare noun: the help is the answer
        sys.stderr.write((context.get_help() if context else message) + "\n")
        return
    command = context.command_path if context else "ratchet"
    _report(message, f"see {command} --help", arguments)


def _save_traceback(arguments: list[str]) -> str:
    """Write the traceback of the present exception to a file, and return the file's name."""
    import os
    import tempfile
    import traceback

    descriptor, name = tempfile.mkstemp(prefix="ratchet-traceback-", suffix=".txt")
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"arguments: {arguments!r}\n\n{traceback.format_exc()}")
    return name


def main(arguments: list[str]) -> int:
    """Run one command line; returns the exit status and never raises."""
    try:
        status = app(arguments, prog_name="ratchet", standalone_mode=False)
    except RatchetError as error:
        _report(error.what, error.remedy, arguments)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        status = ExitCode.INTERRUPTED
    except Terminated as end:
        status = end.exit_code
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away: nobody to tell
        return ExitCode.OUR_FAULT
    except Exception as error:  # noqa: BLE001  the boundary: whatever gets here is our own fault, and is told as such
        return _report_unexpected(error, arguments)
    if status == ExitCode.INTERRUPTED:  # some releases of Typer raise here, others return
        _report("interrupted; nothing was left behind", "", arguments)
    return status if isinstance(status, int) else 0


def _report_unexpected(error: Exception, arguments: list[str]) -> int:
    if isinstance(error, _ClickError):
        _report_usage(error, arguments)
        return ExitCode.USAGE
    if isinstance(error, OSError) and error.errno in _MACHINE_ERRORS:
        what = f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
        _report(what, "free some disk space, or set RATCHET_HOME to a directory that can be written", arguments)
        return ExitCode.MACHINE
    place = _save_traceback(arguments)
    what = f"internal error: {type(error).__name__}: {error}"
    _report(what, f"this is a bug in ratchet; the traceback is in {place}: please report it", arguments)
    return ExitCode.OUR_FAULT


def run() -> None:
    """The console script `ratchet`."""
    if sys.argv[1:] == ["--version"]:  # answered before Typer is needed
        _print_version()
        return
    _set_signals()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character shows "?"
    sys.exit(main(sys.argv[1:]))
