"""The loop: a policy acts in a sandbox, within limits, and everything it does is a trajectory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ratchet.actions import perform, resolve_edit
from ratchet.protocols import Policy, Sandbox
from ratchet.records import Action, ActionKind, CommandResult, Observation, Recipe, RecipeStep, Step, Trajectory

_CHANGING = (ActionKind.RUN, ActionKind.WRITE, ActionKind.EDIT)
_UNCHANGING = (ActionKind.READ, ActionKind.SEARCH, ActionKind.LINT, ActionKind.NONE, ActionKind.SUBMIT)

# An overlay takes about a hundred layers in one mount, and each checkpoint is one.
_MOST_CHECKPOINTS = 80


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
    checkpoints: bool = False,
    recorded: Sequence[Step] = (),
    on_step: Callable[[int, Step], None] = lambda _number, _step: None,
    on_action: Callable[[Action], None] = lambda _: None,
    on_output: Callable[[bytes], None] | None = None,
) -> Trajectory:
    """Let `policy` act in `sandbox` until it submits or a limit ends it. A failed command is an observation.

    With `checkpoints` there is one before everything that changes a file: a ROLLBACK can go back to each, and steps
    say whether they changed anything. Processes left in the background end with their command then.
    `recorded` are the steps of an earlier run that was ended from outside. The policy, which has to decide the same
    again, gets their results; only what changed files is done again. `on_step` is told of the others, each with its
    number, counted from 0.
    """
    tracks = _Tracks(sandbox, checkpoints)
    deadline = time.monotonic() + limits.seconds
    steps: list[Step] = []
    observation = Observation(None, limits.steps, limits.seconds)
    while True:
        action = policy.act(observation)
        known = _same_step(recorded, len(steps), action)
        result: CommandResult | None
        changed: bool | None
        if known is not None and known.changed is False:
            result, changed = known.result, known.changed
        else:
            on_action(action)
            action, result = _perform(action, sandbox, tracks, deadline - time.monotonic(), on_output)
            changed = tracks.after(action)
        if known is not None and known.changed == changed and _like(known.result, result):
            steps.append(known)
        else:
            recorded = ()  # what follows in the record belongs to another course of things
            steps.append(Step(action, result, changed))
            on_step(len(steps) - 1, steps[-1])
        if action.kind is ActionKind.SUBMIT:
            return Trajectory(tuple(steps), "submitted")
        left = Observation(steps[-1].result, limits.steps - len(steps), deadline - time.monotonic(), steps[-1].changed)
        if left.steps_left <= 0 or left.seconds_left <= 0:
            return Trajectory(tuple(steps), "out of steps" if left.steps_left <= 0 else "out of time")
        observation = left


def _perform(
    action: Action,
    sandbox: Sandbox,
    tracks: _Tracks,
    seconds_left: float,
    on_output: Callable[[bytes], None] | None,
) -> tuple[Action, CommandResult | None]:
    if action.kind is ActionKind.ROLLBACK:
        tracks.back(action.undo)
        return action, None
    if action.kind is ActionKind.EDIT:
        action, problem = resolve_edit(action, sandbox)
        if problem is not None:
            return action, problem
    return action, perform(action, sandbox, max(seconds_left, 1.0), on_output)


class _Tracks:
    """The snapshots of one run: the initial state, and the one before each action that changed something."""

    def __init__(self, sandbox: Sandbox, checkpoints: bool) -> None:
        self._sandbox = sandbox
        self._checkpoints = checkpoints
        self._initial = self._current = sandbox.snapshot()
        self._before: list[str] = []

    def after(self, action: Action) -> bool | None:
        """Whether `action`, which was just done, changed a file."""
        if action.kind not in _CHANGING:
            return False if action.kind in _UNCHANGING else None
        if not self._checkpoints or len(self._before) >= _MOST_CHECKPOINTS:
            return None
        snapshot = self._sandbox.snapshot()
        if snapshot == self._current:
            return False
        self._before.append(self._current)
        self._current = snapshot
        return True

    def back(self, undo: int) -> None:
        if undo and self._before:
            place = max(0, len(self._before) - undo)
            self._current = self._before[place]
            del self._before[place:]
        elif not undo:
            self._current = self._initial
            self._before.clear()
        self._sandbox.rollback(self._current)


def _same_step(recorded: Sequence[Step], index: int, action: Action) -> Step | None:
    """The recorded step that `action` repeats, if there is one and it does."""
    if index >= len(recorded):
        return None
    known = recorded[index]
    return known if _decision(known.action) == _decision(action) else None


def _decision(action: Action) -> Action:
    """The action less what the loop fills in, and how it came about."""
    bare = replace(action, exchanges=())
    return replace(bare, content="", mode=0) if action.kind is ActionKind.EDIT else bare


def _like(recorded: CommandResult | None, now: CommandResult | None) -> bool:
    if recorded is None or now is None:
        return recorded is now
    return (recorded.exit_status, recorded.limit) == (now.exit_status, now.limit)


def distill(trajectory: Trajectory) -> Recipe:
    """The recipe in a trajectory: the kept actions since the last rollback to the start that succeeded, or that failed
    and yet changed something (they were part of what the policy built on); and what was submitted."""
    done: list[tuple[RecipeStep | None, bool]] = []  # with whether it counts for a rollback
    for step in trajectory.steps:
        action = step.action
        if action.kind is ActionKind.ROLLBACK:
            _undo(done, action.undo)
        elif action.kind in (ActionKind.WRITE, ActionKind.EDIT) and action.keep and step.result is None:
            write = RecipeStep(
                path=action.path, content=action.content, mode=action.mode, user=action.user, note=action.note
            )
            kept = write if write not in _since_last_command([known for known, _ in done if known]) else None
            done.append((kept, step.changed is True))
        elif action.kind is ActionKind.RUN and step.result is not None and step.changed is not False:
            done.append((_recipe_step(action, step.result, step.changed), step.changed is True))
    steps = tuple(known for known, _ in done if known is not None)
    last = trajectory.steps[-1].action if trajectory.steps else None
    if last is not None and last.kind is ActionKind.SUBMIT:
        return Recipe(steps, dict(last.env), last.start)
    return Recipe(steps)


def _recipe_step(action: Action, result: CommandResult, changed: bool | None) -> RecipeStep | None:
    if not action.keep or not (result.ok or (changed and result.limit is None)):
        return None
    return RecipeStep(
        command=action.command,
        user=action.user,
        cwd=action.cwd,
        env=dict(action.env),
        timeout_s=action.timeout_s or RecipeStep.timeout_s,
        note=action.note,
        may_fail=not result.ok,
    )


def without_model(trajectory: Trajectory) -> tuple[RecipeStep, ...]:
    """The steps of a recipe that were done before a model had its first word."""
    steps = trajectory.steps
    end = next((number for number, step in enumerate(steps) if step.action.exchanges), len(steps))
    return distill(replace(trajectory, steps=steps[:end])).steps


def _undo(done: list[tuple[RecipeStep | None, bool]], undo: int) -> None:
    """Forget everything (0), or back to before the last `undo` actions that changed something."""
    if not undo:
        done.clear()
        return
    while undo and done:
        _, counts = done.pop()
        undo -= counts


def _since_last_command(steps: list[RecipeStep]) -> list[RecipeStep]:
    """What the files are that were written last; a command in between may have changed any of them."""
    latest: dict[str, RecipeStep] = {}
    for step in steps:
        if step.path:
            latest[step.path] = step
        else:
            latest.clear()
    return list(latest.values())
