"""`ratchet rollout …`: policies on tasks. `ratchet rollout TASK…` runs them, without another word."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from ratchet.cli.options import AsJson
from ratchet.cli.roles import MaxCost, MaxTokens
from ratchet.cli.rollout_text import head_lines, result_lines, row_of, say_rows, say_summary, told
from ratchet.cli.screen import ExitCode, complain, plural, say, say_json

if TYPE_CHECKING:
    from ratchet.rewards import RewardConfig
    from ratchet.store import Store
    from ratchet.task_records import Rollout, Task

KIND = "rollout"


class _RunsByDefault(typer.core.TyperGroup):
    """A group whose command `run` needs not be named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunsByDefault,
    help="Policies on tasks: run them (`ratchet rollout TASK…`), and look at what they did.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

RewardFile = Annotated[
    Path | None, typer.Option("--reward", metavar="FILE", help="A TOML file that says how the parts are combined.")
]


@app.command()
def run(
    names: Annotated[list[str], typer.Argument(metavar="TASK…", help="Tasks' ids, or the beginnings of them.")],
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            metavar="POLICY",
            help="openai:MODEL@BASE_URL, the name of a profile, script:FILE (a JSON list of actions), reference (the "
            "solution of each task), or nothing (submits at once).",
        ),
    ],
    samples: Annotated[int, typer.Option("--samples", "-k", min=1, metavar="K", help="Rollouts of each task.")] = 1,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=1, metavar="J", help="At once, as far as cores and memory go.")
    ] = 1,
    seed: Annotated[int, typer.Option(metavar="S", help="Another seed makes other samples.")] = 0,
    max_steps: Annotated[int, typer.Option(min=1, metavar="N", help="Actions in one rollout.")] = 50,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    time_limit: Annotated[str, typer.Option(metavar="TIME", help="Wall time of one rollout, like 90s or 1h.")] = "1h",
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory of one rollout at most.")] = "4G",
    reward: RewardFile = None,
    as_json: AsJson = False,
) -> None:
    """Let a policy try tasks, each time in a fresh, offline sandbox; grade what it leaves, and score it.

    What failed is told apart: by the policy, the task, a limit, or our infrastructure. The last is tried again, and
    never scored. Rollouts that have ended are not run again when the same command is given again; those that were
    interrupted are.

    Exit status 1 where the infrastructure failed, 3 where the budget was spent before all were run.
    """
    from contextlib import closing

    from ratchet.autoinstall.workshop import Workshop
    from ratchet.cli.contestants import contestant
    from ratchet.cli.quantities import parse_seconds, parse_size
    from ratchet.policies.budget import Budget, Meter
    from ratchet.rollout import RolloutLimits, run_rollouts
    from ratchet.store import Store, default_home
    from ratchet.task_records import FailureKind, Task

    store = Store(default_home())
    tasks = list({task.id: task for task in (store.get("task", name, Task) for name in names)}.values())
    config = _config(reward)
    chosen = contestant(policy, store, Meter(Budget(max_tokens, max_cost)))
    limits = RolloutLimits(steps=max_steps, seconds=parse_seconds(time_limit), memory_bytes=parse_size(memory))
    rows: list[dict[str, Any]] = []
    known = {task.id: task for task in tasks}
    projects = _projects(store)
    with Workshop.open(default_home()) as workshop:
        rollouts = run_rollouts(
            workshop,
            tasks,
            chosen.make,
            policy_name=chosen.name,
            samples=samples,
            jobs=jobs,
            seed=seed,
            limits=limits,
            checkpoints=chosen.rolls_back,
            reward=config,
        )
        with closing(rollouts):
            for rollout in rollouts:
                rows.append(row_of(rollout, known.get(rollout.task), projects))
                complain(f"{len(rows)}/{len(tasks) * samples}  {told(rows[-1])}")
    if as_json:
        say_json(rows)
    else:
        say_rows(rows)
        say_summary(rows)
    if left := len(tasks) * samples - len(rows):
        complain(f"ratchet: the budget was spent before {plural(left, 'rollout')}; the same command with more goes on")
        raise typer.Exit(ExitCode.DISCARDED)
    if any(row["failure"] == FailureKind.INFRASTRUCTURE for row in rows):
        raise typer.Exit(ExitCode.OUR_FAULT)


@app.command("list")
def list_(
    task: Annotated[str | None, typer.Option("--task", metavar="TASK", help="Only those of this task.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the rollouts, the newest first."""
    from ratchet.store import Store, default_home

    store = Store(default_home())
    only = store.resolve("task", task) if task is not None else None
    projects, tasks = _projects(store), _tasks(store)
    rows = [row_of(each, tasks.get(each.task), projects) for each in _all(store) if only in (None, each.task)]
    if as_json:
        say_json(rows)
    elif not rows:
        complain("There are no rollouts yet. Run some: ratchet rollout TASK --policy POLICY")
    else:
        say_rows(rows)


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="ROLLOUT", help="A rollout's id, the beginning of it, or `latest`.")],
    full: Annotated[bool, typer.Option("--full", help="Cut nothing.")] = False,
    prompts: Annotated[bool, typer.Option("--prompts", help="Show what models were asked, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one rollout: the task, what the policy did, its patch, the tests, and the parts of its reward."""
    from ratchet.cli.replay import View, replay_lines
    from ratchet.records import Trajectory, to_json
    from ratchet.store import Store, default_home
    from ratchet.task_records import Rollout

    store = Store(default_home())
    if name == "latest":
        name = next(iter(store.ids(KIND)[-1:]), name)
    rollout = store.get(KIND, name, Rollout)
    trajectory = store.get("trajectory", rollout.trajectory, Trajectory) if rollout.trajectory else None
    task = _tasks(store, [rollout.task]).get(rollout.task)
    if as_json:
        say_json({**to_json(rollout), "trajectory": to_json(trajectory)})
        return
    view = View(full, prompts)
    for line in head_lines(rollout, task, row_of(rollout, task, _projects(store)), view):
        say(line)
    if trajectory is not None:
        say("\nWhat it did")
        for line in replay_lines(trajectory, view):
            say(line)
    for line in result_lines(rollout, task, view):
        say(line)


@app.command()
def score(
    reward: Annotated[
        Path, typer.Option("--reward", metavar="FILE", help="A TOML file that says how the parts are combined.")
    ],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="ROLLOUT…", help="Rollouts, by id; all where none is named.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Score recorded rollouts anew, with another reward. Nothing is run."""
    from dataclasses import replace

    from ratchet.rewards import score_stored
    from ratchet.store import Store, default_home
    from ratchet.task_records import FailureKind, Rollout

    store = Store(default_home())
    config = _config(reward)
    chosen = [store.get(KIND, name, Rollout) for name in names] if names else _all(store)
    tasks, projects = _tasks(store), _projects(store)
    rows = []
    for rollout in chosen:
        task = tasks.get(rollout.task)
        if task is None or rollout.failure is FailureKind.INFRASTRUCTURE:
            why = "its task is gone" if task is None else "it failed by the infrastructure"
            complain(f"ratchet: {rollout.id[:12]} is not scored: {why}")
            continue
        scored = replace(rollout, reward=score_stored(store, rollout, task, config))
        store.put(KIND, scored)
        before = rollout.reward.total if rollout.reward else None
        rows.append({**row_of(scored, task, projects), "before": before})
    if as_json:
        say_json(rows)
    else:
        say_rows(rows)


# --------------------------------------------------------------------------- what is read


def _config(path: Path | None) -> RewardConfig:
    from ratchet.rewards import DEFAULT, load_config

    return DEFAULT if path is None else load_config(path)


def _all(store: Store) -> list[Rollout]:
    from ratchet.task_records import Rollout

    return [store.get(KIND, name, Rollout) for name in reversed(store.ids(KIND))]


def _tasks(store: Store, names: Sequence[str] | None = None) -> dict[str, Task]:
    """Those that are still there."""
    from ratchet.task_records import Task

    there = set(store.ids("task"))
    return {name: store.get("task", name, Task) for name in (names or sorted(there)) if name in there}


def _projects(store: Store) -> dict[str, str]:
    return {name: str(store.read_json("environment", name)["name"]) for name in store.ids("environment")}
