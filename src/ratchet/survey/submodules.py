"""Content that a checkout refers to and does not hold: git submodules and LFS objects."""

from __future__ import annotations

from collections.abc import Iterable

from ratchet.survey.findings import Findings
from ratchet.survey.formats import Lines, UnreadableError, parse_ini
from ratchet.survey.tree import Tree

MAX_POINTERS = 200
_POINTER = "version https://git-lfs.github.com/spec/"


def note(tree: Tree, found: Findings, missing: Iterable[str]) -> None:
    """Note what the source says is missing, submodules with empty folders, and LFS pointers of the kinds that
    .gitattributes tracks."""
    for path in missing:
        found.add("missing", path, path)
    text = tree.text(".gitmodules")
    try:
        sections = parse_ini("\n".join(line.strip() for line in text.splitlines())) if text else {}
    except UnreadableError as error:
        found.add("unreadable", str(error), ".gitmodules")
        sections = {}
    for settings in sections.values():
        path = settings.get("path", "").strip().strip("/")
        if path and path not in tree.directories:
            found.add("missing", path, ".gitmodules", Lines(text or "").find(path), "submodule")
    for number, line in enumerate((tree.text(".gitattributes") or "").splitlines(), 1):
        pattern, _, attributes = line.partition(" ")
        if "filter=lfs" in attributes:
            _note_pointers(tree, found, pattern.strip("/"), number)


def _note_pointers(tree: Tree, found: Findings, pattern: str, line: int) -> None:
    for path in tree.matching(pattern)[:MAX_POINTERS]:
        if (tree.text_once(path) or "").startswith(_POINTER):
            found.add("missing", path, ".gitattributes", line, "lfs")
