"""`ratchet label …`: which of two rollouts is better, as people see it, and the reward model fitted on that."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratchet.cli.options import AsJson
from ratchet.cli.screen import complain, plural, say, say_json, say_table
from ratchet.errors import UsageError

if TYPE_CHECKING:
    from ratchet.rewards.preference import Preference
    from ratchet.store import Store
    from ratchet.task_records import Rollout, Task

_SHOWN_LINES = 120
_ANSWERS = {"a": "a", "b": "b", "tie": "tie", "t": "tie", "skip": "skip", "s": "skip", "quit": "quit", "q": "quit"}

app = typer.Typer(
    help="Say which of two rollouts is better, and fit a reward model on that.",
    invoke_without_command=True,
    rich_markup_mode=None,
)


@app.callback()
def label(
    context: typer.Context,
    task: Annotated[str | None, typer.Option(metavar="TASK", help="Only rollouts of this task.")] = None,
    policy: Annotated[str | None, typer.Option(metavar="NAME", help="Only rollouts of this policy.")] = None,
    seed: Annotated[int, typer.Option(metavar="S", help="Decides which pairs come first, and which side is a.")] = 0,
    answers: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='Ask nothing: take answers from lines like {"a": ROLLOUT, "b": ROLLOUT, "answer": "a"}.',
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show pairs of rollouts of one task, and store which is better.

    Who made them is not shown. Each answer is stored at once; pairs that have one are not shown again.
    """
    if context.invoked_subcommand is not None:
        return
    from ratchet.store import Store, default_home

    store = Store(default_home())
    stored = _from_file(store, answers) if answers is not None else _from_reader(store, task, policy, seed)
    if as_json:
        say_json({"stored": stored})
    else:
        say(f"{plural(stored, 'answer')} stored; {plural(len(_preferences(store)), 'pair')} labelled in all")


@app.command()
def fit(as_json: AsJson = False) -> None:
    """Fit the reward model on all answers, store it, and print how well it predicts answers that it has not seen."""
    from ratchet.records import to_json
    from ratchet.rewards.preference import fit as fit_model
    from ratchet.rewards.preference import store_model
    from ratchet.store import Store, default_home

    store = Store(default_home())
    tasks = _tasks(store)
    model = fit_model(_preferences(store), {rollout.id: rollout for rollout in _rollouts(store)}, tasks)
    name = store_model(store, model)
    if as_json:
        say_json({"id": name, **to_json(model)})
        return
    say(f"reward model {name[:12]}, fitted on {plural(model.pairs, 'pair')} of {plural(model.tasks, 'task')}")
    unseen = "of tasks that it has not seen" if model.tasks > 1 else "that it has not seen, of the same task"
    say(f"it predicts {model.accuracy:.0%} of {plural(model.pairs, 'answer')} {unseen}; ties left out: {model.ties}")
    rows = zip(model.features, model.coefficients, strict=True)
    say_table(("FEATURE", "WEIGHT"), [(name, f"{weight:+.3f}") for name, weight in rows])


# --------------------------------------------------------------------------- answers


def _from_reader(store: Store, task: str | None, policy: str | None, seed: int) -> int:
    """Ask whoever sits there, until there are no pairs left or they have had enough; returns how many were stored."""
    from ratchet.rewards.preference import Preference, pairs_to_label, store_preference

    tasks = _tasks(store)
    wanted = store.resolve("task", task) if task is not None else None
    rollouts = [
        rollout
        for rollout in _rollouts(store)
        if rollout.task in tasks and wanted in (None, rollout.task) and policy in (None, rollout.policy)
    ]
    stored, ended = 0, False
    for a, b in pairs_to_label(rollouts, _preferences(store), seed):
        for line in _shown(tasks[a.task], a, b):
            say(line)
        answer = _ask()
        if answer == "quit":
            ended = True
            break
        if answer != "skip":
            store_preference(store, Preference(a.task, a.id, b.id, answer, seed))
            stored += 1
    if not ended:
        complain("There is no pair left: it takes two graded rollouts of a task, with different patches.")
    return stored


def _ask() -> str:
    """One of the answers; the end of the input is "quit"."""
    while True:
        complain("Which is better? a, b, tie, skip or quit")
        line = sys.stdin.readline()
        if not line:
            return "quit"
        if answer := _ANSWERS.get(line.strip().lower()):
            return answer


def _from_file(store: Store, path: Path) -> int:
    """Store the answers of a file. UsageError at the first line that is none; those before it are stored."""
    from ratchet.rewards.preference import store_preference

    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}", remedy="give a file of JSON lines") from error
    stored = 0
    for number, line in enumerate(lines, 1):
        if line.strip():
            store_preference(store, _answer(store, line, f"line {number} of {path}"))
            stored += 1
    return stored


def _answer(store: Store, line: str, where: str) -> Preference:
    from ratchet.rewards.preference import Preference
    from ratchet.task_records import Rollout

    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, Mapping) or data.keys() != {"a", "b", "answer"} or data["answer"] not in ("a", "b", "tie"):
        raise UsageError(
            f"{where} is no answer", remedy='write {"a": ROLLOUT, "b": ROLLOUT, "answer": "a", "b" or "tie"}'
        )
    a, b = (store.get("rollout", str(data[side]), Rollout) for side in ("a", "b"))
    if a.task != b.task or a.id == b.id:
        raise UsageError(f"{where} does not name two rollouts of one task", remedy="ratchet rollout list shows them")
    return Preference(a.task, a.id, b.id, data["answer"], 0)


# --------------------------------------------------------------------------- what is shown


def _shown(task: Task, a: Rollout, b: Rollout) -> Iterator[str]:
    yield "=" * 100
    yield task.statement.rstrip()
    for name, rollout in (("a", a), ("b", b)):
        yield f"{'-' * 46} {name} {'-' * 52}"
        yield from _patch(rollout)
        yield _tests(task, rollout)


def _patch(rollout: Rollout) -> Iterator[str]:
    from ratchet.patches import unified

    lines = unified(rollout.patch).split("\n")
    yield from lines[:_SHOWN_LINES] if rollout.patch else ("It changes nothing.",)
    if len(lines) > _SHOWN_LINES:
        yield f"[… {len(lines) - _SHOWN_LINES} more lines]"


def _tests(task: Task, rollout: Rollout) -> str:
    from ratchet.records import TestRun
    from ratchet.rewards.tests import passed

    tests = rollout.grade.tests if rollout.grade else TestRun()
    mended, kept = (len(passed(tests, wanted)) for wanted in (task.fail_to_pass, task.pass_to_pass))
    told = f"tests: {mended} of {len(task.fail_to_pass)} mended, {kept} of {len(task.pass_to_pass)} kept"
    if task.probes and rollout.grade:
        told += f"; {sum(rollout.grade.probes)} of {len(task.probes)} held-out calls as in the reference"
    return told


# --------------------------------------------------------------------------- records


def _preferences(store: Store) -> list[Preference]:
    from ratchet.rewards.preference import PREFERENCE, Preference

    return [store.get(PREFERENCE, name, Preference) for name in sorted(store.ids(PREFERENCE))]


def _rollouts(store: Store) -> list[Rollout]:
    from ratchet.task_records import Rollout

    return [store.get("rollout", name, Rollout) for name in sorted(store.ids("rollout"))]


def _tasks(store: Store) -> dict[str, Task]:
    from ratchet.task_records import Task

    return {name: store.get("task", name, Task) for name in store.ids("task")}
