"""Solutions that are wrong, and that the gate wants to see fail."""

from __future__ import annotations

import difflib

from ratchet.autoinstall.workshop import WORKSPACE
from ratchet.patches import Patch
from ratchet.protocols import Sandbox
from ratchet.task_records import FileChange, Task
from ratchet.tasks.candidates import Candidate

_CONTEXT_LINES = 3
_MOST_SKIPPED = 5

_SKIP = b"import pytest\npytestmark = pytest.mark.skip\n"
_IGNORE = b"collect_ignore_glob = ['*']\n"


def skipped(sandbox: Sandbox, task: Task) -> list[tuple[str, bytes]]:
    """Files, relative to the workspace, that skip the tests of a task: the tests themselves, and a conftest.py."""
    files = dict.fromkeys(test.partition("::")[0] for test in task.fail_to_pass)
    written = [("conftest.py", _IGNORE)]
    for path in list(files)[:_MOST_SKIPPED]:
        try:
            written.append((path, _SKIP + sandbox.read(f"{WORKSPACE}/{path}")))
        except FileNotFoundError:  # comes with the grading only
            written.append((path, _SKIP))
    return written


def inverse_applied(changes: Patch) -> tuple[FileChange, ...]:
    """What comes of applying the changes of a task once more to its start, as `patch` would: each hunk where its
    lines are found with their context. Empty where one is found nowhere, which is the usual case."""
    again = []
    for change in changes:
        if change.before is None or change.after is None:
            return ()
        text = _patched(change.before.splitlines(True), change.after.splitlines(True))
        if text is None:
            return ()
        again.append(FileChange(change.path, change.after, text, change.mode))
    return tuple(again)


def _patched(before: list[str], after: list[str]) -> str | None:
    """`after` with the hunks that lead from `before` to it applied again."""
    lines = list(after)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for group in matcher.get_grouped_opcodes(_CONTEXT_LINES):
        old = before[group[0][1] : group[-1][2]]
        new = after[group[0][3] : group[-1][4]]
        place = next((i for i in range(len(lines) - len(old) + 1) if lines[i : i + len(old)] == old), None)
        if place is None:
            return None
        lines[place : place + len(old)] = new
    return "".join(lines)
