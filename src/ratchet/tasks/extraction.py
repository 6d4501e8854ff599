"""What may leave the sandbox of a rollout: changes of the project's own sources, as text, and nothing else.

Reads the layer that `Sandbox.keep` left, on the host. Everything that does not leave is listed, and flagged where an
honest solution has no reason to touch it. No flag made here is decisive: what did not leave has no effect.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from ratchet.autoinstall.workshop import WORKSPACE, Workshop
from ratchet.records import Environment
from ratchet.task_records import FileChange, Flag, Task
from ratchet.tasks.defences import DEFENCES, Defence, Defences
from ratchet.tasks.layer_changes import Changes, EntryKind, Stack, changes
from ratchet.tasks.prepare import sources_of, test_files

LARGEST_FILE_BYTES = 1 << 20
LARGEST_PATCH_BYTES = 4 << 20
MOST_FILES = 200

_MOST_LISTED = 200
_MOST_IN_FLAG = 5
_MOST_COMPARED = 1000
_ROOT = WORKSPACE.lstrip("/") + "/"

# Configure a runner, a build, or Python itself, wherever they lie.
_CONFIGURATION = re.compile(
    r"(?:^|/)(?:conftest\.py|pytest\.ini|\.pytest\.ini|pytest\.toml|tox\.(?:ini|toml)|setup\.(?:cfg|py)|pyproject\.toml"
    r"|\.coveragerc|noxfile\.py|package\.json|Makefile|CMakeLists\.txt)$"
)
_STARTUP = re.compile(
    r"\.pth$|(?:^|/)(?:sitecustomize|usercustomize)(?:\.py|/)|\.(?:dist|egg)-info(?:/|$)|\.egg-link$"
    r"|(?:^|/)pyvenv\.cfg$"
)
# Sources of a project that its tests compare with: to change them is to change the tests.
_SUPPORT = re.compile(r"(?:^|/)_?(?:testing|test_?utils?|test_?support|test_?helpers?)(?:/|\.py$)")
_TEST = re.compile(r"(?:^|/)(?:tests?|testing)/|(?:^|/)test_[^/]*$|_test\.\w+$|\.(?:test|spec)\.\w+$")
_RUNNER = re.compile(
    r"(?:^|/)bin/(?:python|pytest|py\.test|coverage|node)[^/]*$|(?:^|/)lib/python3[^/]*/unittest/"
    r"|(?:^|/)(?:site|dist)-packages/(?:pytest|_pytest|py|pluggy|iniconfig|xdist|coverage)(?:\.py$|/)"
)
_SHADOWS_RUNNER = frozenset({"pytest", "_pytest", "pluggy", "unittest"})
_CACHES = re.compile(
    r"(?:^|/)(?:__pycache__|\.pytest_cache|\.mypy_cache|\.ruff_cache|\.hypothesis|\.cache|\.tox|\.nox)(?:/|$)"
    r"|(?:^|/)\.coverage[^/]*$"
)
# What committing, stashing and the like change; not settings, hooks, and objects from elsewhere.
_HISTORY = re.compile(r"\.git(?=/)")
_WORK_OF_GIT = re.compile(
    r"\.git/(?:objects/(?!info/alternates)|index|refs/|logs/|HEAD|ORIG_HEAD|FETCH_HEAD|COMMIT_EDITMSG|packed-refs|gc\.)"
)
# Where a program may leave things without meaning anything by it.
_OUTSIDE = re.compile(r"(?:workspace|home|root|tmp|run|var|dev|proc|sys|mnt|media)(?:/|$)")


@dataclass(frozen=True)
class Extracted:
    """`patch` leads from the task's start to what the policy left; `dropped` are "path: why", sorted by path."""

    patch: tuple[FileChange, ...]
    dropped: tuple[str, ...]
    flags: tuple[Flag, ...]


def extract(
    workshop: Workshop,
    layers: Sequence[str],
    layer: str,
    environment: Environment,
    task: Task,
    *,
    defences: Defences = DEFENCES,
) -> Extracted:
    """What of the kept layer of a rollout, which ran over `layers`, may leave.

    Allowed are: changed and deleted sources of the project (`prepare.sources_of`; not its own test support, unless the
    reference solution changes it), paths of the reference solution, and new files with the suffix of the project's
    sources inside one of its packages. Links, pipes and devices, files of more than 1 MiB, files with NUL bytes, tests
    and everything that configures them never leave. Where it would be more than 200 files or 4 MiB, nothing does.
    """
    below = [workshop.layers.path(name) for name in layers]
    upper = workshop.layers.path(layer)
    reading = _Reading(
        changes(upper),
        Stack(below),
        Stack([*below, upper]),
        frozenset(sources_of(workshop, environment)),
        frozenset(change.path for change in task.changes),
        test_files(workshop, environment) | {change.path for change in task.hidden},
        defences,
    )
    reading.read_workspace()
    reading.read_rest()
    return reading.extracted()


@dataclass
class _Reading:
    changes: Changes
    start: Stack
    now: Stack
    sources: frozenset[str]
    reference: frozenset[str]
    tests: frozenset[str]
    defences: Defences
    patch: list[FileChange] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)
    flagged: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    places: dict[tuple[PurePosixPath, str], bool] = field(default_factory=dict)
    size_bytes: int = 0
    too_much: bool = False

    @functools.cached_property
    def suffixes(self) -> frozenset[str]:
        return frozenset(PurePosixPath(source).suffix for source in self.sources)

    # ------------------------------------------------------------------ in the workspace

    def read_workspace(self) -> None:
        inside = {path[len(_ROOT) :]: kind for path, kind in self.changes.entries.items() if path.startswith(_ROOT)}
        known = self.sources | self.reference | self.tests
        for path in sorted(known):
            kind = self.changes.of(_ROOT + path)
            if kind is not None:
                self._known(path, kind)
        for path, kind in sorted(inside.items()):
            if path not in known and not (
                kind is EntryKind.REMOVED and any(each.startswith(f"{path}/") for each in known)
            ):
                self._unknown(path, kind)

    def _known(self, path: str, kind: EntryKind) -> None:
        """A source or a test that may have changed."""
        if path in self.tests or configures(path) or (_SUPPORT.search(path) and path not in self.reference):
            if not self._same(_ROOT + path, kind):
                self._drop(path, "a test, or what tests rely on", "changed-tests")
                if Defence.TESTS_RESTORED not in self.defences:
                    self._take(path, kind)
        else:
            self._take(path, kind)

    def _unknown(self, path: str, kind: EntryKind) -> None:
        """What is neither a source nor a test, and may be new."""
        if kind in (EntryKind.FOLDER, EntryKind.NEW_FOLDER):
            return None
        if _CACHES.search(path):
            return self._drop(_up_to(path, _CACHES), "a cache")
        why, flag = self._refusal(path)
        if Defence.SOURCES_ONLY not in self.defences and path.isprintable():
            why = ""
        if not why:
            self._take(path, kind)
        elif len(self.dropped) >= _MOST_COMPARED or not self._same(_ROOT + path, kind):
            self._drop(_up_to(path, _HISTORY), why, flag)
        return None

    def _refusal(self, path: str) -> tuple[str, str]:
        """Why a file that is no source of the project does not leave; empty where it may. And a flag, or nothing."""
        if _HISTORY.match(path):
            return "history", "" if _WORK_OF_GIT.match(path) else "changed-git"
        if not path.isprintable():
            return "a name that is no plain text", ""
        if _STARTUP.search(path):
            return "read when Python starts", "changed-interpreter"
        if _RUNNER.search(path):
            return "the runner", "changed-runner"
        if _CONFIGURATION.search(path):
            return "configures tests or builds", "changed-tests"
        if PurePosixPath(path).parts[0].removesuffix(".py") in _SHADOWS_RUNNER:
            return "takes the name of the runner", "changed-runner"
        if _TEST.search(path):
            return "a test", ""
        if not self._has_place(path):
            return "no source of the project, and in none of its packages", ""
        return "", ""

    def _has_place(self, path: str) -> bool:
        """Whether a new file lies where a new source may: it has the suffix of one, and the nearest folder that was
        there at the start is a Python package or, for other languages, holds sources."""
        suffix = PurePosixPath(path).suffix
        if any(part.startswith(".") for part in PurePosixPath(path).parts):
            return False
        compiled = suffix == ".pyc" and Defence.TEXT_ONLY not in self.defences
        if not suffix or (suffix not in self.suffixes and not compiled):
            return False
        return self._takes_new(PurePosixPath(path).parent, "" if suffix in (".py", ".pyi", ".pyc") else suffix)

    def _takes_new(self, folder: PurePosixPath, suffix: str) -> bool:
        """Whether a folder, or the nearest above it that was there at the start, is a Python package (no suffix), or
        holds sources with that suffix."""
        known = self.places.get((folder, suffix))
        if known is None:
            if folder == PurePosixPath():
                known = False
            elif not self.start.exists(_ROOT + str(folder)):
                known = self._takes_new(folder.parent, suffix)
            elif suffix:
                known = any(PurePosixPath(source).match(f"{folder}/*{suffix}") for source in self.sources)
            else:
                known = self.start.exists(f"{_ROOT}{folder}/__init__.py")
            self.places[folder, suffix] = known
        return known

    def _take(self, path: str, kind: EntryKind) -> None:
        """Into the patch, unless what is there now is no readable text, or nothing leaves any more."""
        if self.too_much:
            return None
        before = self.start.read(_ROOT + path, LARGEST_FILE_BYTES + 1)
        if kind is EntryKind.REMOVED:
            if before is not None:
                self._add(path, before, None)
            return None
        follow = Defence.NO_LINKS not in self.defences and kind is EntryKind.LINK
        if kind is not EntryKind.FILE and not follow:
            return self._drop(path, f"a {kind} in the place of a file", "no-file")
        after = self.now.read(_ROOT + path, LARGEST_FILE_BYTES + 1, follow=follow)
        if after is not None and after != before:
            self._add(path, before, after)
        return None

    def _add(self, path: str, before: bytes | None, after: bytes | None) -> None:
        if max(len(before or b""), len(after or b"")) > LARGEST_FILE_BYTES:
            return self._drop(path, "larger than 1 MiB", "too-large")
        if Defence.TEXT_ONLY in self.defences and b"\0" in (after or b""):
            return self._drop(path, "no text", "binary")
        self.size_bytes += len(after or b"")
        self.too_much = self.too_much or len(self.patch) >= MOST_FILES or self.size_bytes > LARGEST_PATCH_BYTES
        self.patch.append(FileChange(path, _text(before), _text(after)))
        return None

    # ------------------------------------------------------------------ outside of it, and the end

    def read_rest(self) -> None:
        """Nothing of it leaves. What an honest solution has no reason to touch is flagged."""
        for path, kind in self.changes.entries.items():
            if kind in (EntryKind.FOLDER, EntryKind.NEW_FOLDER) or path.startswith(_ROOT) or _CACHES.search(path):
                continue
            flag = _flag_outside(path)
            if flag and len(self.flagged[flag]) < _MOST_COMPARED and not self._same(path, kind):
                self._drop(f"/{path}", "outside of the workspace", flag)
        if not self.changes.complete:
            self._drop("/", "more files or deeper folders than are looked at", "too-large")

    def extracted(self) -> Extracted:
        if self.too_much:
            self._drop("/workspace", "more changes than one patch may hold", "too-large")
            self.patch.clear()
        listed = [f"{_shown(path)}: {why}" for path, why in sorted(self.dropped.items())]
        if len(listed) > _MOST_LISTED:
            listed[_MOST_LISTED:] = [f"and {len(listed) - _MOST_LISTED} more"]
        flags = [Flag(kind, _some(paths)) for kind, paths in sorted(self.flagged.items()) if paths]
        return Extracted(tuple(sorted(self.patch, key=lambda change: change.path)), tuple(listed), tuple(flags))

    def _same(self, path: str, kind: EntryKind) -> bool:
        """Whether what is there is what was there: an overlay also copies up what was only touched."""
        if kind is EntryKind.REMOVED:
            return not self.start.exists(path)
        if kind is not EntryKind.FILE:
            return False
        most = 4 * LARGEST_FILE_BYTES
        before = self.start.read(path, most)
        return before is not None and before == self.now.read(path, most)

    def _drop(self, path: str, why: str, flag: str = "") -> None:
        self.dropped[path] = why
        if flag and path not in self.flagged[flag]:
            self.flagged[flag].append(path)


def configures(path: str) -> bool:
    """Whether a file steers tests, builds or Python's start by its name alone: such a file never leaves."""
    return bool(_CONFIGURATION.search(path) or _STARTUP.search(path))


def _flag_outside(path: str) -> str:
    if _RUNNER.search(path):
        return "changed-runner"
    if _STARTUP.search(path) or re.search(r"(?:^|/)lib/python3[^/]*/(?!(?:site|dist)-packages/)", path):
        return "changed-interpreter"
    if re.search(r"(?:^|/)(?:site|dist)-packages/", path):
        return "changed-packages"
    return "" if _OUTSIDE.match(path) else "changed-system"


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "surrogateescape")


def _up_to(path: str, pattern: re.Pattern[str]) -> str:
    match = pattern.search(path)
    return path[: match.end()].rstrip("/") if match else path


def _shown(path: str) -> str:
    """A name as it may be recorded: file names can hold anything."""
    return path if path.isprintable() else repr(path)


def _some(paths: Sequence[str]) -> str:
    shown = ", ".join(_shown(path) for path in paths[:_MOST_IN_FLAG])
    return shown if len(paths) <= _MOST_IN_FLAG else f"{shown} and {len(paths) - _MOST_IN_FLAG} more"
