"""Fresh replay: the recipe is run again from the base, and goals are judged there, offline, each in a fork."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ratchet.actions import START_TIMEOUT_S as START_TIMEOUT_S
from ratchet.actions import start_services, write_file
from ratchet.autoinstall.workshop import BASE_USER, WORKSPACE, Workshop
from ratchet.policies.model.judge import needs_judge
from ratchet.protocols import Sandbox
from ratchet.records import (
    Base,
    Checkout,
    CommandResult,
    Environment,
    Goal,
    Limits,
    Recipe,
    RecipeStep,
    Verdict,
)
from ratchet.verdicts import decide

# Debian calls its interpreter python3. Without another name every goal would fail in the pristine sandbox for that.
_GIVE_PYTHON = 'command -v python || ln -s "$(command -v python3)" /usr/local/bin/python'

# Wheels that the builder's sandbox built are no downloads: what they were built with may not be in the recipe.
_FORGET_BUILT_WHEELS = (
    'find "$UV_CACHE_DIR"/sdists-v* -name "*.whl" -prune -exec rm -rf {} +; rm -rf "$PIP_CACHE_DIR"/wheels'
)

_LARGEST_REPORT_BYTES = 256 << 20


@dataclass(frozen=True)
class Replay:
    """What replaying a recipe gave: the layer that it left, or the step that failed."""

    layer: str | None
    failed_step: RecipeStep | None = None
    result: CommandResult | None = None

    @property
    def network_failed(self) -> bool:
        """Whether the step failed because something could not be fetched."""
        output = self.result.output if self.result else ""
        return bool(re.search(r"tunnel error|Failed to fetch|error sending request|timed out|Connection reset", output))

    @property
    def detail(self) -> str:
        if self.failed_step is None or self.result is None:
            return ""
        last = next((line for line in reversed(self.result.output.splitlines()) if line.strip()), "")
        ended = f"the {self.result.limit} limit" if self.result.limit else f"exit status {self.result.exit_status}"
        command = self.failed_step.command or self.result.command
        return f"`{command.splitlines()[0][:160]}` ended with {ended}: {last[:300]}"


def replay(workshop: Workshop, base: Base, checkout: Checkout, recipe: Recipe, limits: Limits, cache: Path) -> Replay:
    """Run `recipe` in a new sandbox of base and checkout; keep what it changed as one layer."""
    with workshop.online(workshop.pristine_layers(base, checkout), limits, cache) as sandbox:
        sandbox.run(_FORGET_BUILT_WHEELS)
        for step in recipe.steps:
            if step.path:
                failed = write_file(sandbox, step.path, step.content, mode=step.mode, user=step.user)
                if failed is not None:
                    return Replay(None, step, failed)
                continue
            workshop.events.emit("command", sandbox=sandbox.name, command=step.command, note=step.note)
            result = sandbox.run(
                step.command,
                user=step.user,
                cwd=step.cwd,
                env=step.env,
                timeout_s=step.timeout_s,
                on_output=workshop.show,
            )
            workshop.events.emit("command.end", exit_status=result.exit_status, seconds=round(result.seconds, 2))
            if not result.ok and not (step.may_fail and result.limit is None):
                return Replay(None, step, result)
        return Replay(sandbox.keep())


def judge(
    workshop: Workshop,
    layers: Sequence[str],
    goal: Goal,
    recipe: Recipe,
    limits: Limits,
    changed: Callable[[Path], Sequence[str]] = lambda _: (),
) -> Verdict:
    """Judge one goal in a new offline sandbox over `layers`, with the start script up. Where there is one, `changed`
    looks at what it and the goal left, in the directory of a layer: the tests that it names are changed by the script
    or by what it left running, and the goal has not passed. (Who changes tests and then changes them back in time is
    not found.)"""
    workshop.events.emit("command", command=goal.command, note="a goal")
    with workshop.offline(layers, limits) as sandbox:
        started = start(sandbox, recipe)
        if started is not None and not started.ok:
            verdict = decide(goal, started)
            return Verdict(goal.id, False, f"the start script failed: {verdict.why}", verdict.evidence)
        verdict = judge_in(workshop, sandbox, goal, recipe.env)
        if recipe.start and verdict.passed and (paths := _left(workshop, sandbox, changed)):
            verdict = replace(verdict, passed=False, why=f"the start script changes tests: {', '.join(paths[:5])}")
    workshop.events.emit("command.end", exit_status=verdict.exit_status, seconds=round(verdict.seconds, 2))
    workshop.events.emit("verdict", goal=goal.command, passed=verdict.passed, why=verdict.why)
    return verdict


def _left(workshop: Workshop, sandbox: Sandbox, changed: Callable[[Path], Sequence[str]]) -> Sequence[str]:
    layer = sandbox.keep()
    try:
        return changed(workshop.layers.path(layer))
    finally:
        workshop.layers.remove(layer)


def judge_pristine(workshop: Workshop, layers: Sequence[str], goal: Goal, limits: Limits) -> Verdict:
    """Judge one goal where nothing was installed: in base and checkout alone."""
    with workshop.offline(layers, limits) as sandbox:
        sandbox.run(_GIVE_PYTHON)
        return judge_in(workshop, sandbox, goal, {})


def judge_in(workshop: Workshop, sandbox: Sandbox, goal: Goal, env: Mapping[str, str]) -> Verdict:
    """Judge one goal in a sandbox that is open already: by what a machine can check, and only where that holds and
    nothing but prose is left, by the judge. Without one, or when it cannot tell, that is no pass."""
    report_path = goal.expectation.report
    if report_path is not None:
        sandbox.run(f"rm -rf {report_path}", user="root")
    result = sandbox.run(goal.command, user=BASE_USER, cwd=WORKSPACE, env=env, timeout_s=goal.timeout_s)
    report: bytes | None = None
    if report_path is not None:
        try:
            report = sandbox.read(report_path, max_bytes=_LARGEST_REPORT_BYTES)
        except FileNotFoundError:
            report = None
    verdict = decide(goal, result, report)
    if not verdict.passed or not needs_judge(goal):
        return verdict
    if workshop.judge is None:
        return replace(verdict, passed=False, why="only prose describes its output, and there is no judge")
    opinion = workshop.judge.compare(goal, result)
    workshop.on_opinion(goal, opinion)
    why = opinion.why if opinion.holds is not None else f"the judge cannot tell: {opinion.why}"
    return replace(verdict, passed=opinion.holds is True, why=why, evidence=opinion.quote or verdict.evidence)


def start(sandbox: Sandbox, recipe: Recipe) -> CommandResult | None:
    """Run the start script of an environment, if it has one."""
    return start_services(sandbox, recipe.start, recipe.env) if recipe.start else None


def environment_layers(workshop: Workshop, environment: Environment) -> tuple[str, ...]:
    """The layers of an environment, bottom first."""
    return (*workshop.pristine_layers(environment.base, environment.checkout), environment.layer)


def verify(workshop: Workshop, environment: Environment, limits: Limits) -> tuple[Replay, tuple[Verdict, ...]]:
    """Replay an environment's recipe from the base again, and judge all of its goals there. Nothing is kept."""
    with workshop.store.cache(environment.checkout.id) as cache:
        replayed = replay(workshop, environment.base, environment.checkout, environment.recipe, limits, cache)
    if replayed.layer is None:
        return replayed, ()
    try:
        layers = (*workshop.pristine_layers(environment.base, environment.checkout), replayed.layer)
        verdicts = tuple(judge(workshop, layers, goal, environment.recipe, limits) for goal in environment.goals)
    finally:
        workshop.layers.remove(replayed.layer)
    return replayed, verdicts
