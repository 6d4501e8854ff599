"""Whole modules as features that can be taken out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from ratchet.task_records import FileChange, TaskKind
from ratchet.tasks.candidates import Candidate, Definition, LineCoverage
from ratchet.tasks.languages import PYTHON
from ratchet.tasks.parts import Words, judged, names, not_handed_on, parts_of, remaining_code
from ratchet.tasks.syntax import Source, definition_nodes, parse_source, python_tree

_LINES = range(8, 201)
_MOST_DEFINITIONS = 7  # as many as a statement describes, the module aside


def module_candidates(
    source: Source, sources: Mapping[str, str], coverage: LineCoverage, words: Words
) -> Iterator[Candidate]:
    """The module, where it is small and all that the other sources do with it is to hand on its names: the file goes,
    with these imports. What imports it only while a test runs is not among the sources, and fails then."""
    path = PurePosixPath(source.path)
    text = source.data.decode("utf-8", "surrogateescape")
    if source.language.name != "python" or path.stem.startswith("_") or text.count("\n") not in _LINES:
        return
    public = [each for _, each in definition_nodes(source) if not re.search(r"(^|\.)_", each.name)]
    tests = frozenset[str]().union(*(part.covering for part in parts_of(source, coverage)))
    if not 1 <= len(public) <= _MOST_DEFINITIONS or not judged(tests, coverage):
        return
    gone = [each.name for each in public if "." not in each.name]
    others = not_handed_on(source.path, gone, sources, words)
    if others is None or _needed(path, sources, others, words):
        return
    tree = python_tree(text)
    docstring = (ast.get_docstring(tree) if tree is not None else None) or ""
    about = Definition(source.path, path.stem, "module", "", docstring, 1, text.count("\n") + 1)
    yield Candidate(
        TaskKind.FEATURE,
        "python",
        (FileChange(source.path, text, None), *others),
        (about, *public),
        tests,
        {"mode": "module", "path": source.path, "names": path.stem},
    )


def _needed(module: PurePosixPath, sources: Mapping[str, str], changes: tuple[FileChange, ...], words: Words) -> bool:
    """Whether the code of another module still names it."""
    changed = {change.path: change.after for change in changes}
    for path in words.other_files(module.stem, str(module)):
        if path.endswith(".py"):
            text = changed.get(path) or sources[path]
            source = parse_source(path, text, PYTHON)
            if source is None or names(remaining_code(source, ()), module.stem):
                return True
    return False
