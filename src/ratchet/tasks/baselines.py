"""Policies that need no model, to compare with: the reference solution, and doing nothing."""

from __future__ import annotations

from ratchet.autoinstall.workshop import BASE_USER, WORKSPACE
from ratchet.patches import inverse
from ratchet.records import Action, ActionKind
from ratchet.task_records import Task

NOTHING = (Action(ActionKind.SUBMIT),)


def reference_actions(task: Task) -> tuple[Action, ...]:
    """What leads to the reference solution, and submits."""
    done = []
    for change in inverse(task.changes):
        path = f"{WORKSPACE}/{change.path}"
        if change.after is None:
            done.append(Action(ActionKind.RUN, command='rm -f -- "$FILE"', user=BASE_USER, env={"FILE": path}))
        else:
            mode = change.mode & 0o777
            done.append(Action(ActionKind.WRITE, path=path, content=change.after, mode=mode, user=BASE_USER))
    return (*done, Action(ActionKind.SUBMIT))
