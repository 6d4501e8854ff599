"""`ratchet task …`: problems in environments, and the gate that lets them in."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratchet.cli.options import AsJson
from ratchet.cli.screen import ExitCode, complain, duration, one_line, plural, say, say_json, say_table
from ratchet.errors import UsageError

if TYPE_CHECKING:
    from ratchet.records import Environment
    from ratchet.store import Store
    from ratchet.task_records import Task, TaskKind, TaskYield, Validation

KIND = "task"
_KINDS = "feature, bug or history"

app = typer.Typer(
    help="Problems in environments, each with the tests that judge it.", no_args_is_help=True, rich_markup_mode=None
)

Tasks = Annotated[list[str], typer.Argument(metavar="TASK…", help="Tasks' ids, or the beginnings of them.")]


@app.command()
def make(
    environments: Annotated[
        list[str], typer.Argument(metavar="ENV…", help="Environments: ids, the beginnings of them, or project names.")
    ],
    kinds: Annotated[
        list[str], typer.Option("--kind", metavar="KIND", help=f"What to make: {_KINDS}; may be repeated.")
    ],
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Tasks of each kind from each environment.")] = 10,
    seed: Annotated[int, typer.Option(metavar="S", help="The same seed makes the same tasks.")] = 0,
    mutations: Annotated[int, typer.Option(min=1, metavar="K", help="Faults that one bug combines.")] = 1,
    combine: Annotated[
        int,
        typer.Option(metavar="N", help="Make harder bugs, each of N of the environment's bug tasks (with --kind bug)."),
    ] = 0,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, metavar="J", help="Candidates validated at once.")] = 1,
    rewrite: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="A model that writes the statements anew: openai:MODEL@BASE_URL or a profile."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make tasks from the code and the tests of environments, and let in those that pass the gate.

    feature: something is removed, and is to be put back. bug: a fault is put in, and is to be found. history: a commit
    of a git source is undone. The tests that covered it judge. What the gate refuses is counted by reason. Making goes
    on where it was interrupted when the same command is given again.

    Exit status 3 where nothing passed the gate.
    """
    from ratchet.autoinstall.workshop import Workshop
    from ratchet.cli.progress import open_progress
    from ratchet.records import to_json
    from ratchet.store import Store, default_home
    from ratchet.tasks.make import Wanted, make_tasks

    store = Store(default_home())
    found = [_environment(store, name) for name in environments]
    wanted = [Wanted(_kind(name), count, seed, mutations, combine) for name in dict.fromkeys(kinds)]
    _refuse_combining(combine, [each.kind for each in wanted])
    made: list[tuple[Environment, tuple[Task, ...], TaskYield]] = []
    with (
        open_progress("task make") as progress,
        Workshop.open(default_home(), on_event=progress) as workshop,
    ):
        rewritten = _rewriter(rewrite, workshop.show)
        for environment, each in itertools.product(found, wanted):
            workshop.events.emit("stage", name=f"{each.kind.value} {environment.name}")
            made.append((environment, *make_tasks(workshop, environment, each, jobs=jobs, rewritten=rewritten)))
    if as_json:
        say_json([{"project": e.name, "tasks": [t.id for t in tasks], **to_json(done)} for e, tasks, done in made])
    else:
        _print_yields([(environment, done) for environment, _, done in made])
    raise typer.Exit(ExitCode.VERIFIED if any(tasks for _, tasks, _ in made) else ExitCode.DISCARDED)


@app.command("list")
def list_(
    environment: Annotated[
        str | None, typer.Option("--env", metavar="ENV", help="Only those of this environment.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the tasks, the newest first."""
    from ratchet.store import Store, default_home
    from ratchet.task_records import Task

    store = Store(default_home())
    only = _environment(store, environment).id if environment is not None else None
    tasks = [store.get(KIND, name, Task) for name in reversed(store.ids(KIND))]
    projects = _projects(store)
    rows = [_row(task, projects) for task in tasks if only in (None, task.environment)]
    if as_json:
        say_json(rows)
    elif not rows:
        complain("There are no tasks yet. Make some: ratchet task make ENV --kind bug")
    else:
        columns = ("TASK", "KIND", "PROJECT", "TO MEND", "TO KEEP", "TITLE")
        say_table(
            columns,
            [
                (
                    row["task"][:12],
                    row["kind"],
                    row["project"],
                    str(row["fail_to_pass"]),
                    str(row["pass_to_pass"]),
                    one_line(row["title"], 80),
                )
                for row in rows
            ],
        )


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="TASK", help="A task's id, or the beginning of it.")],
    solution: Annotated[
        bool, typer.Option("--solution", help="Show the reference solution, too, as a unified diff.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one task: its statement, the tests that judge it, and how it was made."""
    from ratchet.patches import inverse, unified
    from ratchet.records import to_json
    from ratchet.store import Store, default_home
    from ratchet.task_records import Task

    store = Store(default_home())
    task = store.get(KIND, name, Task)
    diff = unified(inverse(task.changes))
    if as_json:
        data = to_json(task)
        for part in ("changes", "hidden", "probes"):  # they tell the solution
            data.pop(part)
        say_json({**data, **({"solution": diff} if solution else {})})
        return
    say(f"{task.id[:12]}  {task.kind.value}, {task.language}, in {_projects(store).get(task.environment, '?')}")
    say(f"made from: {', '.join(f'{key} {one_line(value, 100)}' for key, value in task.origin.items())}")
    say(f"\n{task.statement}")
    _say_tests("to mend", task.fail_to_pass)
    _say_tests("to keep", task.pass_to_pass)
    say(f"{plural(len(task.probes), 'held-out call')} of the code")
    if solution:
        say(f"\n{diff}")


@app.command()
def check(names: Tasks, as_json: AsJson = False) -> None:
    """Look at tasks again: the reference scores 1, doing nothing 0, and nothing tells the solution.

    Exit status 3 where one does not hold any more.
    """
    from ratchet.autoinstall.workshop import Workshop
    from ratchet.records import Environment, to_json
    from ratchet.store import Store, default_home
    from ratchet.task_records import Task
    from ratchet.tasks.validate import check as check_task

    store = Store(default_home())
    tasks = [store.get(KIND, name, Task) for name in names]
    results: list[Validation] = []
    with Workshop.open(default_home()) as workshop:
        for task in tasks:
            result = check_task(workshop, store.get("environment", task.environment, Environment), task)
            results.append(result)
            if not as_json:
                state = f"{result.rejection.value}: {result.detail}" if result.rejection else "holds"
                say(f"{task.id[:12]}  {state}  ({duration(result.seconds)})")
    if as_json:
        say_json([to_json(result) for result in results])
    failed = any(result.rejection is not None for result in results)
    raise typer.Exit(ExitCode.DISCARDED if failed else ExitCode.VERIFIED)


@app.command("filter")
def filter_(
    policy: Annotated[str, typer.Option("--policy", metavar="POLICY", help="Whose rollouts say how hard a task is.")],
    environment: Annotated[
        str | None, typer.Option("--env", metavar="ENV", help="Only tasks of this environment.")
    ] = None,
    min_rate: Annotated[float, typer.Option(min=0, max=1, metavar="RATE", help="Solved at least so often.")] = 0.0,
    max_rate: Annotated[float, typer.Option(min=0, max=1, metavar="RATE", help="Solved at most so often.")] = 1.0,
    min_samples: Annotated[int, typer.Option(min=1, metavar="N", help="Rollouts that a task needs to count.")] = 4,
    as_json: AsJson = False,
) -> None:
    """Print the tasks that a policy solves sometimes, neither never nor always: from those it can learn.

    Exit status 3 where there is none.
    """
    from ratchet.store import Store, default_home
    from ratchet.task_records import Rollout, Task
    from ratchet.tasks.curriculum import select

    store = Store(default_home())
    only = _environment(store, environment).id if environment is not None else None
    every = [store.get(KIND, name, Task) for name in store.ids(KIND)]
    tasks = [task for task in every if only in (None, task.environment)]
    rollouts = [store.get("rollout", name, Rollout) for name in store.ids("rollout")]
    chosen = select(tasks, rollouts, policy, min_rate=min_rate, max_rate=max_rate, min_samples=min_samples)
    rows = [
        {"task": task.id, "solved": how.solved, "samples": how.samples, "low": how.low, "high": how.high}
        for task in chosen.tasks
        if (how := chosen.measured[task.id])
    ]
    if as_json:
        say_json({"tasks": rows, "left_out": dict(chosen.counts)})
    else:
        for row in rows:
            say(f"{row['task']}  {row['solved']}/{row['samples']} ({row['low']:.0%} to {row['high']:.0%})")
        left_out = ", ".join(f"{reason} {number}" for reason, number in sorted(chosen.counts.items()))
        complain(f"{plural(len(rows), 'task')} of {len(tasks)}" + (f"; left out: {left_out}" if left_out else ""))
    raise typer.Exit(ExitCode.VERIFIED if rows else ExitCode.DISCARDED)


@app.command()
def remove(names: Tasks) -> None:
    """Remove tasks. The same seed makes them again."""
    from ratchet.store import Store, default_home

    store = Store(default_home())
    for task in [store.resolve(KIND, name) for name in names]:
        store.remove(KIND, task)
        say(f"removed {task[:12]}")


# --------------------------------------------------------------------------- shared


def _kind(name: str) -> TaskKind:
    from ratchet.task_records import TaskKind

    try:
        return TaskKind(name)
    except ValueError:
        raise UsageError(f"There is no kind of task {name!r}.", remedy=f"the kinds are: {_KINDS}") from None


def _refuse_combining(number: int, kinds: Iterable[TaskKind]) -> None:
    from ratchet.task_records import TaskKind

    if number == 1 or number < 0 or (number and set(kinds) != {TaskKind.BUG}):
        raise UsageError(
            "Only bugs can be combined, and two or more of them.", remedy="give --kind bug --combine 2, or leave it out"
        )


def _environment(store: Store, name: str) -> Environment:
    """By its id, the beginning of it, or a project's name, which stands for its latest one."""
    from ratchet.records import Environment

    known = any(record.startswith(name) for record in store.ids("environment"))
    return store.get("environment", name if known else store.linked("environment", name) or name, Environment)


def _projects(store: Store) -> dict[str, str]:
    """The name of each environment."""
    return {name: str(store.read_json("environment", name)["name"]) for name in store.ids("environment")}


def _row(task: Task, projects: dict[str, str]) -> dict[str, Any]:
    return {
        "task": task.id,
        "kind": task.kind.value,
        "language": task.language,
        "environment": task.environment,
        "project": projects.get(task.environment, ""),
        "fail_to_pass": len(task.fail_to_pass),
        "pass_to_pass": len(task.pass_to_pass),
        "title": task.statement.strip().partition("\n")[0].lstrip("# "),
        "origin": dict(task.origin),
    }


def _say_tests(title: str, tests: Iterable[str], most: int = 20) -> None:
    every = list(tests)
    say(f"{plural(len(every), 'test')} {title}:")
    for test in every[:most]:
        say(f"  {one_line(test, 200)}")
    if len(every) > most:
        say(f"  and {len(every) - most} more")


def _print_yields(made: list[tuple[Environment, TaskYield]]) -> None:
    rows = []
    for environment, done in made:
        passed = sum(validation.rejection is None for validation in done.validations)
        reasons = Counter(v.rejection.value for v in done.validations if v.rejection is not None)
        rows.append(
            (
                environment.name,
                done.kind.value,
                f"{passed}/{len(done.validations)}",
                f"{done.seconds / passed:.1f}" if passed else "-",
                ", ".join(f"{reason} {number}" for reason, number in sorted(reasons.items())) or "-",
            )
        )
    say_table(("PROJECT", "KIND", "PASSED", "SECONDS EACH", "KEPT OUT"), rows)


def _rewriter(text: str | None, on_text: Callable[[str], None]) -> Callable[[Task], Task]:
    """What gives a task the statement that a model wrote; without a model the task as it is."""
    from dataclasses import replace

    from ratchet.policies.budget import Meter
    from ratchet.policies.chat import ChatModel
    from ratchet.policies.profiles import parse_model
    from ratchet.tasks.statement import rewrite

    if text is None:
        return lambda task: task
    model = ChatModel(parse_model(text), Meter(), on_text=on_text)
    return lambda task: replace(task, statement=rewrite(model, task.statement, task))
