"""The loop: a policy acts in a sandbox, within limits, and everything it does is a trajectory."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import dataclass

from ratchet.errors import UsageError
from ratchet.protocols import Policy, Sandbox
from ratchet.records import (
    Action,
    ActionKind,
    CommandResult,
    Observation,
    Recipe,
    RecipeStep,
    Step,
    Trajectory,
)

# Of the machine, and not of what is in a sandbox.
_OUR_OWN_ERRORS = frozenset(
    {errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
)


@dataclass(frozen=True)
class AgentLimits:
    """What one trajectory may take; a single command is further bounded by the sandbox's own time limit."""

    steps: int = 200
    seconds: float = 10_800.0


def run_agent(
    policy: Policy,
    sandbox: Sandbox,
    limits: AgentLimits,
    *,
    on_step: Callable[[Step], None] = lambda _: None,
    on_action: Callable[[Action], None] = lambda _: None,
    on_output: Callable[[bytes], None] | None = None,
) -> Trajectory:
    """Let `policy` act in `sandbox` until it submits or a limit ends it. A failed command is an observation."""
    initial = sandbox.snapshot()
    deadline = time.monotonic() + limits.seconds
    steps: list[Step] = []
    result: CommandResult | None = None
    while True:
        observation = Observation(result, limits.steps - len(steps), deadline - time.monotonic())
        if observation.steps_left <= 0 or observation.seconds_left <= 0:
            return Trajectory(tuple(steps), "out of steps" if observation.steps_left <= 0 else "out of time")
        action = policy.act(observation)
        on_action(action)
        result = _perform(action, sandbox, initial, observation.seconds_left, on_output)
        steps.append(Step(action, result))
        on_step(steps[-1])
        if action.kind is ActionKind.SUBMIT:
            return Trajectory(tuple(steps), "submitted")


def _perform(
    action: Action,
    sandbox: Sandbox,
    initial: str,
    seconds_left: float,
    on_output: Callable[[bytes], None] | None,
) -> CommandResult | None:
    match action.kind:
        case ActionKind.RUN:
            timeout_s = min(seconds_left, action.timeout_s) if action.timeout_s else seconds_left
            return sandbox.run(
                action.command,
                user=action.user,
                cwd=action.cwd,
                env=action.env,
                timeout_s=timeout_s,
                proxied=action.proxied,
                on_output=on_output,
            )
        case ActionKind.WRITE:
            return write_file(sandbox, action.path, action.content, mode=action.mode, user=action.user)
        case ActionKind.ROLLBACK:
            sandbox.rollback(initial)
        case ActionKind.SUBMIT:
            pass
    return None


def write_file(sandbox: Sandbox, path: str, content: str, *, mode: int, user: str) -> CommandResult | None:
    """Write a file; a failed command where what is in the sandbox is in the way: a pipe or a folder in its place, a
    link that leads nowhere, a user who is gone."""
    try:
        sandbox.write(path, content.encode(), mode=mode, user=user)
    except OSError as error:
        if error.errno in _OUR_OWN_ERRORS:
            raise
        problem = error.strerror or str(error)
    except UsageError as error:
        problem = error.what
    else:
        return None
    output = f"{path} cannot be written: {problem}\n"
    return CommandResult(f"write {path}", 1, output, len(output), 0.0)


def distill(trajectory: Trajectory) -> Recipe:
    """The recipe in a trajectory: the kept actions that succeeded since the last rollback, and what was submitted."""
    steps: list[RecipeStep] = []
    for step in trajectory.steps:
        action = step.action
        if action.kind is ActionKind.ROLLBACK:
            steps.clear()
        elif action.kind is ActionKind.WRITE and action.keep and step.result is None:
            write = RecipeStep(
                path=action.path, content=action.content, mode=action.mode, user=action.user, note=action.note
            )
            if write not in _since_last_command(steps):
                steps.append(write)
        elif action.kind is ActionKind.RUN and action.keep and step.result is not None and step.result.ok:
            steps.append(
                RecipeStep(
                    command=action.command,
                    user=action.user,
                    cwd=action.cwd,
                    env=dict(action.env),
                    timeout_s=action.timeout_s or RecipeStep.timeout_s,
                    note=action.note,
                )
            )
    last = trajectory.steps[-1].action if trajectory.steps else None
    if last is not None and last.kind is ActionKind.SUBMIT:
        return Recipe(tuple(steps), dict(last.env), last.start)
    return Recipe(tuple(steps))


def _since_last_command(steps: list[RecipeStep]) -> list[RecipeStep]:
    """What the files are that were written last; a command in between may have changed any of them."""
    latest: dict[str, RecipeStep] = {}
    for step in steps:
        if step.path:
            latest[step.path] = step
        else:
            latest.clear()
    return list(latest.values())
