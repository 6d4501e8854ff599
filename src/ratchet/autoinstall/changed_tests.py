"""Whether a recipe changes what a checkout's tests do: then a suite that passes says nothing of the project.

Found in the directories of layers, on the host; nothing there is run, and no link is followed. What a recipe adds is
its own, test files too, but for files that steer how the tests that were there are run. It cannot be told here what a
recipe does to the interpreter and to the packages outside the checkout, which are its to make.
"""

from __future__ import annotations

import filecmp
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from ratchet.autoinstall.workshop import WORKSPACE
from ratchet.records import Checkout, Survey
from ratchet.sandbox.merge import is_opaque
from ratchet.survey.formats import UnreadableError, at, parse_ini, parse_toml

# Files that pytest and the interpreter take up unasked, by where they lie.
_STEERING = re.compile(r"conftest\.py|\.?pytest\.(?:ini|toml)|(?:site|user)customize(?:\..+)?", re.DOTALL)

# Files that are for others too, and which part of them is pytest's.
_SHARED = {"pyproject.toml": ("tool", "pytest"), "tox.ini": ("pytest",), "setup.cfg": ("tool:pytest",)}

_LARGEST_BYTES = 1 << 20


def changed_tests(layer: Path, checkout: Checkout, survey: Survey) -> tuple[str, ...]:
    """The files, relative to the checkout, by which a layer over it changes its tests: test files and those that steer
    them that are other ones or gone, files that steer them which were added at the top, in a folder above a test or in
    one from which the project is imported, and shared ones there whose part for pytest is another."""
    upper, original = layer / WORKSPACE.lstrip("/"), Path(checkout.path)
    tests = {fact.file for kind in ("test-count", "test-file", "doctest") for fact in survey.of(kind)}
    homes = {fact.file for fact in survey.of("import-name")}
    folders = sorted({str(parent) for path in tests | homes for parent in PurePosixPath(path).parents} | {"."})
    found = {path for path in tests | set(_steering(original)) if _differs(upper, original, path)}
    for folder in folders:
        found.update(_added(upper, original, folder))
        shared = (str(PurePosixPath(folder, name)) for name in _SHARED)
        found.update(path for path in shared if _differs(upper, original, path) and _steers(upper, original, path))
    return tuple(sorted(found))


def _steering(original: Path) -> Iterator[str]:
    """The files of a checkout that steer its tests, wherever they lie."""
    for folder, _, files in os.walk(original):
        yield from (str((Path(folder) / name).relative_to(original)) for name in files if _STEERING.fullmatch(name))


def _added(upper: Path, original: Path, folder: str) -> Iterator[str]:
    """The files that steer tests which lie in a folder now, and not in the checkout."""
    place, _ = _find(upper, folder)
    if place is None or not stat.S_ISDIR(place.lstat().st_mode):
        return
    for entry in place.iterdir():
        if _STEERING.fullmatch(entry.name) and not _is_whiteout(entry):
            path = str(PurePosixPath(folder, entry.name))
            if not os.path.lexists(original / path):
                yield path


def _differs(upper: Path, original: Path, path: str) -> bool:
    """Whether the file at `path`, or its absence, is another than in the checkout. A file in the place of a link is."""
    place, hidden = _find(upper, path)
    source = original / path
    if place is None:
        return hidden and os.path.lexists(source)
    if not stat.S_ISREG(place.lstat().st_mode) or source.is_symlink() or not source.is_file():
        return True
    return not filecmp.cmp(place, source, shallow=False)


def _find(upper: Path, path: str) -> tuple[Path | None, bool]:
    """Where something lies in an overlay's upper directory, None where it does not; and whether what the layers below
    have in its place is hidden."""
    place, hidden = upper, False
    for part in PurePosixPath(path).parts:
        place = place / part
        try:
            mode = place.lstat().st_mode
        except FileNotFoundError:
            return None, hidden
        if not stat.S_ISDIR(mode):
            break
        hidden = hidden or is_opaque(place)
    if place != upper / path or _is_whiteout(place):
        return None, True
    return (place, True) if os.path.lexists(place) else (None, hidden)


def _is_whiteout(place: Path) -> bool:
    return stat.S_ISCHR(place.lstat().st_mode) if os.path.lexists(place) else False


def _steers(upper: Path, original: Path, path: str) -> bool:
    """Whether a shared file that differs tells pytest something else than that of the checkout."""
    place, _ = _find(upper, path)
    now, before = _told(place, path), _told(original / path, path)
    return bool(now != before)


def _told(place: Path | None, path: str) -> Any:
    """What a shared file tells pytest; None where it tells nothing. One that cannot be read is like no other."""
    if place is None or not os.path.lexists(place):
        return None
    info = place.lstat()
    if not stat.S_ISREG(info.st_mode) or info.st_size > _LARGEST_BYTES:
        return object()
    text = place.read_text("utf-8", errors="replace")
    section = _SHARED[PurePosixPath(path).name]
    try:
        return at(parse_toml(text) if path.endswith(".toml") else parse_ini(text), *section)
    except UnreadableError:
        return text
