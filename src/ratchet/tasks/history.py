"""History: a real commit that changed code and tests is undone in the environment, and its tests judge.

Nothing of git runs in the environment's files: texts are read from the history's objects, and a commit is undone by a
three-way merge of texts (`git merge-file`), which either applies cleanly or is not used.
"""

from __future__ import annotations

import difflib
import os
import random
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ratchet.autoinstall.workshop import Workshop
from ratchet.patches import lines_of
from ratchet.records import Environment
from ratchet.sources import open_history
from ratchet.sources.repository import GitError, Repository
from ratchet.survey.tree import Tree
from ratchet.task_records import FileChange, TaskKind
from ratchet.tasks.candidates import Candidate, Definition, LineCoverage
from ratchet.tasks.languages import language_of
from ratchet.tasks.prepare import sources_of
from ratchet.tasks.project_files import CONFIGURATION, checkout_root, exact_text, test_files
from ratchet.tasks.syntax import definition_nodes, parse_source

MOST_COMMITS = 3000
_BLOCK = 40  # commits that are shuffled together: newer ones come first, since they can be undone more often
_MOST_FILES = 15
_MOST_LINES = 400
_LARGEST_BYTES = 1 << 20
_FORMAT = "%x01%H%x00%P%x00%aI%x00%s%x00%b%x02"
_MERGE_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class _Commit:
    """`paths` are what it changed, with the letter that git gives for how."""

    id: str
    parent: str
    date: str
    subject: str
    body: str
    paths: Mapping[str, str]


def history_candidates(
    workshop: Workshop, environment: Environment, coverage: LineCoverage, rng: random.Random
) -> Iterator[Candidate]:
    """Commits of the project's history, from the environment's own backwards, that can be undone on its files.

    Each changed sources and tests, not more than 15 files and 400 lines. Changes of tests are hidden from the policy
    where they can be undone too. Raises SourceError where the checkout did not come from a git repository.
    """
    sources = sources_of(workshop, environment)
    tree = Tree(checkout_root(workshop, environment))
    # What configures the runner stays as the environment has it.
    judging = [path for path in sorted(test_files(workshop, environment)) if Path(path).name not in CONFIGURATION]
    visible = {path: text for path in judging if path in tree and (text := exact_text(tree.root / path)) is not None}
    with workshop.store.scratch.temporary() as scratch:
        history = open_history(environment.checkout.source, scratch)
        commits = list(_commits(history, environment.checkout.commit, frozenset(sources), frozenset(visible)))
        for commit in _mixed(commits, rng):
            changes = _undone(history, commit, sources, scratch) if _is_all_here(commit, tree) else None
            if not changes:
                continue
            hidden = _undone(history, commit, visible, scratch) or ()
            yield _candidate(commit, changes, hidden, coverage)


def _is_all_here(commit: _Commit, tree: Tree) -> bool:
    """Whether every source that a commit changed is still where it was: else it would be undone by halves."""
    return all(path in tree for path in commit.paths if language_of(path) is not None)


def _mixed(commits: list[_Commit], rng: random.Random) -> Iterator[_Commit]:
    for start in range(0, len(commits), _BLOCK):
        block = commits[start : start + _BLOCK]
        rng.shuffle(block)
        yield from block


def _commits(
    history: Repository, start: str | None, sources: frozenset[str], tests: frozenset[str]
) -> Iterator[_Commit]:
    """Those that changed sources as well as tests, the newest first."""
    commit = (start or "HEAD").removesuffix("-dirty")
    output = history.run(
        "log", "--no-merges", "--no-renames", "--no-mailmap", "--no-show-signature", "--name-status", "-z",
        f"--max-count={MOST_COMMITS}", f"--format={_FORMAT}", commit,
    )  # fmt: skip
    for entry in os.fsdecode(output).split("\x01")[1:]:
        about, _, names = entry.partition("\x02")
        fields = about.split("\0")
        if len(fields) < 5:
            continue
        words = [word.strip("\n") for word in names.split("\0") if word.strip("\n")]
        paths = dict(zip(words[1::2], words[::2], strict=False))
        parents = fields[1].split()
        touches_both = not sources.isdisjoint(paths) and any(path in tests and language_of(path) for path in paths)
        if len(parents) == 1 and len(paths) <= _MOST_FILES and touches_both:
            yield _Commit(fields[0], parents[0], fields[2], fields[3], "\0".join(fields[4:]).strip(), paths)


def _undone(
    history: Repository, commit: _Commit, texts: Mapping[str, str], scratch: Path
) -> tuple[FileChange, ...] | None:
    """What leads from `texts` to what they would be without the commit; None where one of them cannot be undone."""
    changes = []
    for path, how in sorted(commit.paths.items()):
        if path not in texts:
            continue
        new = _text_at(history, commit.id, path)
        old = _text_at(history, commit.parent, path) if how != "A" else None
        if how == "A" and new == texts[path]:
            changes.append(FileChange(path, texts[path], None))
            continue
        if how not in "MA" or new is None or old is None:
            return None
        without = _merged(texts[path], new, old, scratch)
        if without is None or without == texts[path]:
            return None
        changes.append(FileChange(path, texts[path], without))
    return tuple(changes) if sum(map(_changed_lines, changes)) <= _MOST_LINES else None


def _merged(current: str, base: str, other: str, scratch: Path) -> str | None:
    """`current` with the change from `base` to `other`; None where that does not apply cleanly."""
    names = []
    for name, text in (("current", current), ("base", base), ("other", other)):
        file = scratch / f"merge-{name}"
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
        names.append(str(file))
    done = subprocess.run(
        ["git", "merge-file", "-p", "-q", *names],
        capture_output=True,
        check=False,
        timeout=_MERGE_TIMEOUT_S,
        cwd=scratch,
    )
    return done.stdout.decode("utf-8", "surrogateescape") if done.returncode == 0 else None


def _text_at(history: Repository, commit: str, path: str) -> str | None:
    try:
        data = history.run("cat-file", "blob", f"{commit}:{path}")
    except GitError:
        return None
    if len(data) > _LARGEST_BYTES or b"\0" in data:
        return None
    return data.decode("utf-8", "surrogateescape")


def _changed_lines(change: FileChange) -> int:
    return len(_lines_that_differ(change)) + abs((change.before or "").count("\n") - (change.after or "").count("\n"))


def _lines_that_differ(change: FileChange) -> list[int]:
    """The lines of the environment's text, counted from 1, that the start does not have."""
    before, after = lines_of(change.before), lines_of(change.after)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    kept = {line for start, _, size in matcher.get_matching_blocks() for line in range(start, start + size)}
    return [number + 1 for number in range(len(before)) if number not in kept]


def _candidate(
    commit: _Commit, changes: tuple[FileChange, ...], hidden: tuple[FileChange, ...], coverage: LineCoverage
) -> Candidate:
    covering: set[str] = set()
    about: dict[Definition, None] = {}
    for change in changes:
        lines = _lines_that_differ(change)
        for line in lines:
            covering |= coverage.tests_of(change.path, line, line) & coverage.passing
        about |= dict.fromkeys(_definitions(change, lines))
    return Candidate(
        TaskKind.HISTORY,
        next((language.name for change in changes if (language := language_of(change.path))), ""),
        changes,
        tuple(about),
        frozenset(covering),
        {
            "commit": commit.id,
            "date": commit.date,
            "subject": re.sub(r"[^\x20-\x7e\xa0-\U0010ffff]", " ", commit.subject)[:300],
            "body": commit.body[:4000],
        },
        tuple(FileChange(hide.path, hide.after, hide.before, hide.mode) for hide in hidden),
    )


def _definitions(change: FileChange, lines: list[int]) -> Iterator[Definition]:
    """The functions and methods that hold a changed line."""
    language = language_of(change.path)
    source = parse_source(change.path, change.before or "", language) if language is not None else None
    if source is None:
        return
    for _, definition in definition_nodes(source):
        if definition.kind != "class" and any(definition.first_line <= line <= definition.last_line for line in lines):
            yield definition
