"""Patches: the files that differ between two states of a workspace, as data."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace

from ratchet.task_records import FileChange

Patch = Sequence[FileChange]


def inverse(patch: Patch) -> tuple[FileChange, ...]:
    """The patch that leads back."""
    return tuple(replace(change, before=change.after, after=change.before) for change in patch)


def unified(patch: Patch, context_lines: int = 3) -> str:
    """As `git diff` prints it, so that `git apply` and `patch -p1` take it."""
    return "".join(_file_diff(change, context_lines) for change in patch if change.before != change.after)


def removed_lines(patch: Patch) -> tuple[str, ...]:
    """The lines that are only in `before`, without leading and trailing blanks, in their order, each once."""
    return tuple(dict.fromkeys(line for change in patch for line in _only_in(change.before, change.after)))


def added_lines(patch: Patch) -> tuple[str, ...]:
    """The lines that are only in `after`, in the same form."""
    return removed_lines(inverse(patch))


def lines_of(text: str | None) -> list[str]:
    """With their ends; only a newline ends a line, as for git and for syntax trees. (`str.splitlines` also counts form
    feeds and the like, so that its numbers are others.)"""
    *whole, rest = (text or "").split("\n")
    return [*(f"{line}\n" for line in whole), *filter(None, [rest])]


def _only_in(text: str | None, other: str | None) -> list[str]:
    left, right = (text or "").splitlines(), (other or "").splitlines()
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    kept = {i + offset for i, _, size in matcher.get_matching_blocks() for offset in range(size)}
    return [line.strip() for number, line in enumerate(left) if number not in kept and line.strip()]


def _file_diff(change: FileChange, context_lines: int) -> str:
    old = "/dev/null" if change.before is None else f"a/{change.path}"
    new = "/dev/null" if change.after is None else f"b/{change.path}"
    head = f"diff --git a/{change.path} b/{change.path}\n"
    if change.before is None:
        head += f"new file mode 100{change.mode:o}\n"
    elif change.after is None:
        head += f"deleted file mode 100{change.mode:o}\n"
    lines = difflib.unified_diff(lines_of(change.before), lines_of(change.after), old, new, n=context_lines)
    return head + "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
