"""The summary that ends an install: a screenful for people, on standard output."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ratchet.cli.outcome import NOT_RUN, final_verdicts, held_out
from ratchet.cli.screen import clean, command_line, duration, one_line, plural
from ratchet.records import Audit, Environment, Goal, Install, Outcome, Usage, Verdict

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PLAIN_WIDTH = 120


def print_summary(install: Install, seconds: float) -> None:
    """What became of the install, in one screen, and what to try next. `seconds` is the time it took this time."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    source = one_line(install.source, 200)
    console.print()
    if install.environment:
        console.print(Text.assemble(("verified", "bold green"), "  ", (source, "bold")))
    else:
        reason = install.reason.value if install.reason else "unknown"
        console.print(Text.assemble(("discarded", "bold red"), "  ", (source, "bold"), "  ", (reason, "red")))
        for line in clean(install.detail).strip().splitlines()[:12]:
            console.print(Text(f"  {line}"), soft_wrap=True)
    final = final_verdicts(install)
    targets = [goal for goal in install.goals if goal.id in install.targets]
    print_goals(console, "targets", targets, final)
    print_goals(console, "held out", held_out(install) if install.environment else [], final)
    console.print()
    console.print(_figures(install, seconds))
    _print_next(console, install)


def print_goals(console: Console, title: str, goals: Sequence[Goal], verdicts: Mapping[str, Verdict]) -> None:
    """A table of goals and their verdicts; nothing when there are no goals."""
    from rich.table import Table
    from rich.text import Text

    if not goals:
        return
    passed = sum(goal.id in verdicts and verdicts[goal.id].passed for goal in goals)
    whys = [one_line(verdicts[goal.id].why, 200) if goal.id in verdicts else NOT_RUN for goal in goals]
    # The reason gets what it needs, up to two fifths of the line; the command is cut to what is left.
    room = console.width - 14
    why_width = min(max(map(len, whys)), max(20, room * 2 // 5))
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
    table.add_column(width=1)
    table.add_column(width=6, no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=max(10, room - why_width))
    table.add_column(overflow="fold", width=why_width)
    for goal, why in zip(goals, whys, strict=True):
        verdict = verdicts.get(goal.id)
        mark = Text("✓", "green") if verdict and verdict.passed else Text("✗" if verdict else "-", "red")
        table.add_row(mark, Text(goal.kind.value, "dim"), Text(command_line(goal.command, 300)), Text(why))
    console.print()
    console.print(Text(f"{title}: {passed} of {len(goals)} passed", "bold"))
    console.print(table)


def _figures(install: Install, seconds: float) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    if install.audit:
        grid.add_row("tests", Text(tests_line(install.audit)))
        grid.add_row("sabotage", Text(sabotage_line(install.audit)))
    if install.usage:
        grid.add_row("models", Text(usage_line(install.usage)))
    attempts = plural(len(install.attempts), "attempt")
    grid.add_row("attempts", Text(f"{attempts}; {'replayed from the base' if install.replayed else 'not replayed'}"))
    if install.reused:
        grid.add_row("time", Text(f"{duration(seconds)}: this checkout was verified before, and is unchanged"))
    else:
        stages = ", ".join(f"{one_line(name, 30)} {duration(spent)}" for name, spent in install.seconds.items())
        grid.add_row("time", Text(duration(seconds) + (f" ({stages})" if stages else "")))
    if install.environment:
        grid.add_row("environment", Text(install.environment[:12], "bold"))
    return grid


def usage_line(usage: Mapping[str, Usage]) -> str:
    """ "goals 12 calls, 9,100 tokens, 2 min 3 s; construction …"."""
    parts = []
    for stage, used in usage.items():
        cost = f", cost {used.cost:.4f}" if used.cost else ""
        parts.append(f"{stage} {plural(used.calls, 'call')}, {used.tokens:,} tokens{cost}, {duration(used.seconds)}")
    return "; ".join(parts)


def tests_line(audit: Audit) -> str:
    tests = audit.tests
    parts = [f"{tests.count(Outcome.PASSED)} passed", f"{tests.count(Outcome.FAILED)} failed"]
    parts += [f"{tests.count(Outcome.ERROR)} errors"] if tests.count(Outcome.ERROR) else []
    parts += [f"{tests.count(Outcome.SKIPPED)} skipped", f"{len(audit.flaky)} flaky"]
    parts += [f"{len(audit.need_network)} need the network"] if audit.need_network else []
    return ", ".join(parts) + " (offline)"


def sabotage_line(audit: Audit) -> str:
    noticed = sum(sabotage.noticed_by is not None for sabotage in audit.sabotages)
    line = f"{noticed} of {len(audit.sabotages)} noticed"
    return line + (f"; {plural(len(audit.weak_targets), 'weak target')}" if audit.weak_targets else "")


def _print_next(console: Console, install: Install) -> None:
    from rich.text import Text

    if install.environment:
        name = install.environment[:12]
        lines = [
            (f"ratchet env shell {name}", "look around in it"),
            (f"ratchet env run {name} -- python -m pytest -q", "run a command in a fresh fork"),
            (f"ratchet env show {name}", "recipe, versions, verdicts"),
            (f"ratchet env export {name} --format dockerfile -o DIR", "rebuild it elsewhere"),
        ]
    else:
        lines = [
            (f"ratchet install {one_line(install.source, 100)} -v", "see the output of every command"),
            (f"ratchet survey {one_line(install.source, 100)}", "what was found in the repository"),
        ]
    console.print()
    console.print(Text("next", "bold"))
    width = max(len(command) for command, _ in lines)
    room = console.width - width - 4 > max(len(what) for _, what in lines) + 2
    for command, what in lines:
        comment = (f"  # {what}", "dim") if room else ""
        console.print(Text.assemble(f"  {command.ljust(width) if room else command}", comment), soft_wrap=True)


def print_environment(environment: Environment) -> None:
    """`env show`: everything about one environment that fits a screen or two."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    checkout, base = environment.checkout, environment.base
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    version = f" {checkout.version}" if checkout.version else ""
    rows = [
        ("environment", environment.id),
        ("project", f"{checkout.name}{version} from {checkout.source}"),
        (
            "checkout",
            f"{checkout.id[:12]}, {plural(checkout.files, 'file')}"
            + (f", {checkout.date[:10]}" if checkout.date else ""),
        ),
        ("base", f"{base.name} ({base.architecture}), {base.id[:12]}"),
        ("made", f"{environment.created} by generation {environment.generation}"),
        ("packages", f"{len(environment.python_packages)} Python, {len(environment.debian_packages)} Debian"),
        ("variables", " ".join(f"{name}={value}" for name, value in environment.recipe.env.items()) or "none"),
        ("tests", tests_line(environment.audit)),
        ("sabotage", sabotage_line(environment.audit)),
    ]
    for name, value in rows:
        grid.add_row(name, Text(one_line(value, 400)))
    console.print(grid)
    verdicts = {verdict.goal: verdict for verdict in (*environment.audit.held_out, *environment.verdicts)}
    print_goals(console, "targets", [g for g in environment.goals if g.id in environment.targets], verdicts)
    print_goals(console, "held out", [g for g in environment.goals if g.id not in environment.targets], verdicts)


def print_verification(environment: Environment, detail: str, verdicts: Sequence[Verdict]) -> None:
    """`env verify`: whether the replay went through, and each goal's verdict in it."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    by_goal = {verdict.goal: verdict for verdict in verdicts}
    targets = [goal for goal in environment.goals if goal.id in environment.targets]
    if not verdicts:
        console.print(Text.assemble(("the replay failed", "bold red"), "  ", one_line(detail, 400)), soft_wrap=True)
        return
    holds = all(goal.id in by_goal and by_goal[goal.id].passed for goal in targets)
    result = ("verified again", "bold green") if holds else ("a target failed", "bold red")
    console.print(Text.assemble(result, "  ", (f"{environment.name} {environment.id[:12]}", "bold")))
    print_goals(console, "targets", targets, by_goal)
    print_goals(console, "held out", [g for g in environment.goals if g.id not in environment.targets], by_goal)
