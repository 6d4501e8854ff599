"""`ratchet trajectory …`: what policies did, those of installs under way too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from ratchet.cli.options import AsJson
from ratchet.cli.screen import complain, say, say_json, say_table
from ratchet.errors import StoreError, UsageError

if TYPE_CHECKING:
    from ratchet.records import Trajectory
    from ratchet.store import Store
    from ratchet.trajectories import Recorded

KIND = "trajectory"
_MAKE_SOME = "an install makes them: ratchet install SOURCE"

app = typer.Typer(help="What policies did, step by step.", no_args_is_help=True, rich_markup_mode=None)


@dataclass(frozen=True)
class _Found:
    """One trajectory. `id` is that of its record, or RUN/NAME of one whose install has not ended; `problem` says what
    is wrong with its file."""

    id: str
    project: str
    trajectory: Trajectory
    problem: str = ""

    @property
    def short_id(self) -> str:
        run, slash, name = self.id.partition("/")
        return f"{run[:12]}{slash}{name}"


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the trajectories, the newest first: those under way or interrupted, then those in the store."""
    from ratchet.cli.replay import usage_of
    from ratchet.store import Store, default_home

    store = Store(default_home())
    every = [*reversed(list(_in_runs(store))), *reversed(list(_in_store(store)))]
    rows = [
        {
            "id": found.id,
            "project": found.project,
            "role": found.trajectory.role,
            "policy": found.trajectory.policy,
            "steps": len(found.trajectory.steps),
            "tokens": usage_of(found.trajectory).tokens,
            "end": found.trajectory.end,
        }
        for found in every
    ]
    if as_json:
        say_json(rows)
    elif not rows:
        complain(f"There are no trajectories yet; {_MAKE_SOME}")
    else:
        columns = ("TRAJECTORY", "PROJECT", "ROLE", "POLICY", "STEPS", "TOKENS", "END")
        shown = [
            [found.short_id, *(str(cell or "-") for cell in list(row.values())[1:])]
            for found, row in zip(every, rows, strict=True)
        ]
        say_table(columns, shown)


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(metavar="ID", help="A trajectory's id as listed, the beginning of it, or `latest`.")
    ],
    full: Annotated[bool, typer.Option("--full", help="Cut nothing.")] = False,
    prompts: Annotated[bool, typer.Option("--prompts", help="Show what models were asked, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Replay a trajectory: what the policy thought, what it did, what came of it."""
    from ratchet.cli.replay import View, replay_lines, usage_of
    from ratchet.records import to_json
    from ratchet.store import Store, default_home

    found = _find(Store(default_home()), name)
    trajectory = found.trajectory
    if as_json:
        usage = to_json(usage_of(trajectory))
        say_json({"id": found.id, "project": found.project, **to_json(trajectory), "usage": usage})
    else:
        on = f" on {found.project}" if found.project else ""
        say(f"trajectory {found.short_id}: {trajectory.role} by {trajectory.policy}{on}")
        for line in replay_lines(trajectory, View(full, prompts)):
            say(line)
    if found.problem:
        complain(f"ratchet: {found.problem}")


# --------------------------------------------------------------------------- where they are


def _find(store: Store, name: str) -> _Found:
    if name == "latest":
        name = _latest(store)
    if "/" not in name:
        return _record(store, store.resolve(KIND, name), _projects(store))
    start, _, tail = name.partition("/")
    runs = [found for found in _in_runs(store) if found.id.startswith(start) and found.id.partition("/")[2] == tail]
    if len(runs) != 1:
        what = f"{len(runs)} trajectories are" if runs else "there is no trajectory"
        raise UsageError(f"{what} called {name}", remedy="ratchet trajectory list --json shows their whole ids")
    return runs[0]


def _latest(store: Store) -> str:
    from ratchet.trajectories import runs

    newest = [(store.record_file(KIND, name), name) for name in store.ids(KIND)[-1:]]
    newest += [(path, name) for name, path in list(runs(store.home))[-1:]]
    if not newest:
        raise UsageError("there are no trajectories yet", remedy=_MAKE_SOME)
    return max((path.stat().st_mtime_ns, name) for path, name in newest)[1]


def _in_runs(store: Store) -> Iterator[_Found]:
    """Those of installs that have not ended, the oldest first. A file that cannot be read is listed without steps."""
    from ratchet.records import Trajectory
    from ratchet.trajectories import read, runs, under_way

    for name, path in runs(store.home):
        writing = under_way(path)
        try:
            recorded = read(path)
        except FileNotFoundError:  # that install has just ended
            continue
        except StoreError as error:
            yield _Found(name, "", Trajectory((), "damaged", "", ""), str(error))
            continue
        # A line that is being written is no damage.
        problem = "" if writing else recorded.problem
        yield _Found(name, recorded.header.project, _so_far(recorded, writing), problem)


def _so_far(recorded: Recorded, writing: bool) -> Trajectory:
    """What a file holds; answers that led to no step yet are shown as a last one that did nothing."""
    from ratchet.records import Action, ActionKind, Step

    trajectory = recorded.trajectory
    if recorded.unfinished:
        asked = Action(ActionKind.NONE, note="no action followed on this answer yet", exchanges=recorded.unfinished)
        trajectory = replace(trajectory, steps=(*trajectory.steps, Step(asked, None)))
    return replace(trajectory, end="under way") if writing and recorded.end is None else trajectory


def _in_store(store: Store) -> Iterator[_Found]:
    projects = _projects(store)
    for record in store.ids(KIND):
        yield _record(store, record, projects)


def _record(store: Store, record: str, projects: dict[str, str]) -> _Found:
    from ratchet.records import Trajectory

    return _Found(record, projects.get(record, ""), store.get(KIND, record, Trajectory))


def _projects(store: Store) -> dict[str, str]:
    """The project of each trajectory that an install refers to: the checkout's name, or where it came from."""
    names = {checkout: str(store.read_json("checkout", checkout)["name"]) for checkout in store.ids("checkout")}
    found: dict[str, str] = {}
    for install in store.ids("install"):
        data = store.read_json("install", install)
        for attempt in data["attempts"]:
            found[attempt.get("trajectory", "")] = names.get(data["checkout"], data["source"])
    return found
