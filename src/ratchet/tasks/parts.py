"""Definitions that tests run, which features are made of, and what goes when they go."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ratchet.task_records import FileChange
from ratchet.tasks.bugs import MOST_COVERING
from ratchet.tasks.candidates import Definition, LineCoverage
from ratchet.tasks.exports import export_edits
from ratchet.tasks.languages import PYTHON
from ratchet.tasks.syntax import (
    Edit,
    Source,
    body_of,
    definition_nodes,
    docstring_node,
    edited,
    lines_edit,
    parse_source,
    python_tree,
    whole_node,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_SPECIAL = re.compile(r"__\w+__$")


@dataclass(frozen=True)
class Part:
    """A definition that can be taken out. `lines` are those of its body, `covering` the tests that run them."""

    source: Source
    node: Node
    definition: Definition
    lines: tuple[int, int]
    covering: frozenset[str]

    @property
    def name(self) -> str:
        return short(self.definition)

    @property
    def owner(self) -> str:
        """The qualified name of its class; empty for a function."""
        return self.definition.name.rpartition(".")[0]

    @property
    def size(self) -> int:
        return self.lines[1] - self.lines[0] + 1


def parts_of(source: Source, coverage: LineCoverage) -> Iterator[Part]:
    """The definitions that at least one test runs, and not too many of them."""
    for node, definition in definition_nodes(source):
        body = body_of(node)
        if body is None:
            continue
        lines = _body_lines(source, node, body)
        tests = coverage.tests_of(source.path, *lines) & coverage.passing
        if judged(tests, coverage):
            yield Part(source, node, definition, lines, tests)


def judged(tests: frozenset[str], coverage: LineCoverage) -> bool:
    """Whether these are enough tests to judge a feature, and not nearly all that there are."""
    return 1 <= len(tests) <= max(1.0, MOST_COVERING * len(coverage.passing))


def short(definition: Definition) -> str:
    return definition.name.rpartition(".")[2]


def _body_lines(source: Source, node: Node, body: Node) -> tuple[int, int]:
    """Without the docstring: what runs when it is called."""
    first, last = source.lines_of(body)
    docstring = docstring_node(source, node)
    if docstring is not None:
        first = source.lines_of(docstring)[1] + 1
    return min(first, last), last


# --------------------------------------------------------------------------- what goes with them


class Words:
    """Where the words of a project's sources stand: built once, asked for each feature."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._lines: dict[str, dict[str, list[int]]] = {}
        for path in sorted(sources):
            for number, line in enumerate(sources[path].split("\n"), 1):
                for word in set(re.findall(r"\w+", line)):
                    self._lines.setdefault(word, {}).setdefault(path, []).append(number)

    def lines(self, word: str, path: str) -> Sequence[int]:
        return self._lines.get(word, {}).get(path, ())

    def other_files(self, word: str, path: str) -> list[str]:
        return [other for other in self._lines.get(word, ()) if other != path]


def helper_edits(feature: Sequence[Part], words: Words) -> list[Edit]:
    """What removes the private functions and methods of the same module that nothing but the feature names, and those
    that only these name: they are a part of the solution. Private is what starts with an underscore, is `static`, or is
    not exported."""
    source = feature[0].source
    taken = [source.lines_of(whole_node(part.node)) for part in feature]
    private = [
        (node, definition) for node, definition in definition_nodes(source) if _is_private(source, node, definition)
    ]
    edits: list[Edit] = []
    found = True
    while found:
        found = False
        for node, definition in tuple(private):
            own, name = (definition.first_line, definition.last_line), short(definition)
            users = [line for line in words.lines(name, source.path) if not own[0] <= line <= own[1]]
            if own in taken or not users or words.other_files(name, source.path):
                private.remove((node, definition))
            elif all(any(first <= line <= last for first, last in taken) for line in users):
                private.remove((node, definition))
                taken.append(own)
                edits.append(lines_edit(source, whole_node(node)))
                found = True
    return edits


def _is_private(source: Source, node: Node, definition: Definition) -> bool:
    if source.language.name == "python":
        return definition.kind != "class" and name_is_private(definition)
    if source.language.name in ("c", "c++"):
        return definition.kind == "function" and definition.signature.startswith("static ")
    return definition.kind == "function" and whole_node(node).type != "export_statement"


def name_is_private(definition: Definition) -> bool:
    name = short(definition)
    return name.startswith("_") and not _SPECIAL.search(name)


def remaining_code(source: Source, edits: Sequence[Edit]) -> str:
    """The code of a Python module after edits, comments and docstrings aside: they may go on naming what is gone."""
    text = edited(source, edits) if edits else source.data.decode("utf-8", "surrogateescape")
    tree = python_tree(text) if text is not None else None
    if text is None or tree is None:
        return text or ""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            first.value.value = ""
    try:
        return ast.unparse(tree)
    except RecursionError:
        return text


def not_handed_on(
    path: str, gone: Sequence[str], sources: Mapping[str, str], words: Words
) -> tuple[FileChange, ...] | None:
    """The changes of other modules that stop handing on names of the module `path`. None where one of them needs them
    for more than that."""
    changes = []
    for other in sorted({other for name in gone for other in words.other_files(name, path) if other.endswith(".py")}):
        source = parse_source(other, sources[other], PYTHON)
        text = edited(source, export_edits(source, gone)) if source is not None else None
        if text is None or any(names(text, name) for name in gone):
            return None
        changes.append(FileChange(other, sources[other], text))
    return tuple(changes)


def names(text: str, word: str) -> bool:
    """Whether a text has that word."""
    return re.search(rf"\b{re.escape(word)}\b", text) is not None
