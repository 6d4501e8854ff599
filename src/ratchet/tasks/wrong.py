"""Solutions that are wrong, and that the gate wants to see fail."""

from __future__ import annotations

import difflib

from ratchet.autoinstall.workshop import WORKSPACE
from ratchet.patches import Patch, lines_of
from ratchet.protocols import Sandbox
from ratchet.task_records import FileChange, Task
from ratchet.tasks.languages import language_of
from ratchet.tasks.syntax import Edit, body_of, edited, function_nodes, parse_source

_CONTEXT_LINES = 3
_MOST_SKIPPED = 5

_SKIP = b"import pytest\npytestmark = pytest.mark.skip\n"
_IGNORE = b"collect_ignore_glob = ['*']\n"

# The body of a function that returns nothing, by language.
_NOTHING = {
    "python": "return None",
    "javascript": "{ return null; }",
    "typescript": "{ return null; }",
    "c": "{ return 0; }",
    "c++": "{ return {}; }",
}


def stub(changes: Patch) -> tuple[FileChange, ...]:
    """The reference solution, with nothing but a return in each function that it touches. Empty where it touches none:
    an option or a constant has no stub."""
    patch = [
        FileChange(change.path, change.after, _stubbed(change) or change.before, change.mode) for change in changes
    ]
    return tuple(patch) if any(done.after != known.before for done, known in zip(patch, changes, strict=True)) else ()


def _stubbed(change: FileChange) -> str | None:
    language = language_of(change.path)
    source = parse_source(change.path, change.before, language) if change.before and language else None
    if source is None:
        return None
    edits = []
    touched = _touched_lines(change)
    for node, definition in function_nodes(source):
        body = body_of(node)
        if body is not None and any(definition.first_line <= line <= definition.last_line for line in touched):
            edits.append(Edit(body.start_byte, body.end_byte, _NOTHING[source.language.name]))
    return edited(source, edits) if edits else None


def _touched_lines(change: FileChange) -> list[int]:
    """The lines of `before` that are gone or different, counted from 1; of what was put in, the line that follows."""
    before, after = lines_of(change.before), lines_of(change.after)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    ranges = [(i1, max(i2, i1 + 1)) for tag, i1, i2, _, _ in matcher.get_opcodes() if tag != "equal"]
    return [line + 1 for start, end in ranges for line in range(start, end)]


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
        text = _patched(lines_of(change.before), lines_of(change.after))
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
