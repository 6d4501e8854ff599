"""Features: what is documented and tested is taken out, so that it can be put back."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ratchet.task_records import FileChange, TaskKind
from ratchet.tasks.bugs import MOST_COVERING
from ratchet.tasks.candidates import Candidate, Definition, LineCoverage
from ratchet.tasks.exports import broken, export_edits, named_in_class, without_exports
from ratchet.tasks.languages import language_of
from ratchet.tasks.options import option_candidates
from ratchet.tasks.syntax import (
    Edit,
    Source,
    body_of,
    definition_nodes,
    docstring_node,
    edited,
    parse_source,
    whole_node,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST_TOGETHER = 5
_SHARED = 0.6  # of the tests of two definitions that are one feature
_FEWEST_LINES, _MOST_LINES = 2, 150
_GOOD_LINES = range(4, 61)
_SPECIAL = re.compile(r"__\w+__$")


@dataclass(frozen=True)
class _Part:
    """A definition that can be taken out. `lines` are those of its body."""

    source: Source
    node: Node
    definition: Definition
    lines: tuple[int, int]
    covering: frozenset[str]

    @property
    def size(self) -> int:
        return self.lines[1] - self.lines[0] + 1


def feature_candidates(sources: Mapping[str, str], coverage: LineCoverage, rng: random.Random) -> Iterator[Candidate]:
    """Features that tests cover, and that not more than two fifths of all tests run into: single functions and methods,
    groups that share their tests, classes, command-line options.

    Of each there are up to two ways to take it out: as a "stub" (signature and documentation stay, the body says that
    it is not there) and "whole" (the definition goes, with `__all__` and re-exports, where nothing else names it).
    Private functions that only it used go too. Documented ones of middling size come first, in random order.
    """
    parsed = [source for path in sorted(sources) if (source := _parsed(path, sources[path], coverage)) is not None]
    features = [feature for source in parsed for feature in _features(source, coverage)]
    rng.shuffle(features)
    features.sort(key=_rank)
    for feature in features:
        for candidate in (_stubbed(feature, sources), _whole(feature, sources)):
            if candidate is not None:
                yield candidate
    options = [candidate for source in parsed for candidate in option_candidates(source, coverage)]
    rng.shuffle(options)
    yield from options


def _parsed(path: str, text: str, coverage: LineCoverage) -> Source | None:
    language = language_of(path)
    return parse_source(path, text, language) if language is not None and coverage.covered_lines(path) else None


def _rank(feature: Sequence[_Part]) -> int:
    documented = all(part.definition.docstring for part in feature)
    middling = sum(part.size for part in feature) in _GOOD_LINES
    return 2 - documented - middling


# --------------------------------------------------------------------------- which


def _features(source: Source, coverage: LineCoverage) -> list[tuple[_Part, ...]]:
    parts = list(_parts(source, coverage))
    functions = [part for part in parts if part.definition.kind != "class"]
    public = [part for part in functions if not _short(part.definition).startswith("_")]
    features: list[tuple[_Part, ...]] = [(part,) for part in public]
    features += [group for part in public if len(group := _group(part, public)) > 1]
    classes = [part for part in parts if part.definition.kind == "class"]
    features += [group for part in classes if len(group := _methods(part, functions)) > 1]
    distinct = {tuple(part.definition.name for part in feature): feature for feature in features}
    return [feature for feature in distinct.values() if _FEWEST_LINES <= sum(p.size for p in feature) <= _MOST_LINES]


def _short(definition: Definition) -> str:
    return definition.name.rpartition(".")[2]


def _parts(source: Source, coverage: LineCoverage) -> Iterator[_Part]:
    most = max(1.0, MOST_COVERING * len(coverage.passing))
    for node, definition in definition_nodes(source):
        body = body_of(node)
        if body is None:
            continue
        lines = _body_lines(source, node, body)
        tests = coverage.tests_of(source.path, *lines) & coverage.passing
        if 1 <= len(tests) <= most:
            yield _Part(source, node, definition, lines, tests)


def _body_lines(source: Source, node: Node, body: Node) -> tuple[int, int]:
    """Without the docstring: what runs when it is called."""
    first, last = source.lines_of(body)
    docstring = docstring_node(source, node)
    if docstring is not None:
        first = source.lines_of(docstring)[1] + 1
    return min(first, last), last


def _group(first: _Part, parts: Sequence[_Part]) -> tuple[_Part, ...]:
    """The definition with those near it that share most of its tests: one feature in several functions."""
    near = [
        part
        for part in parts
        if part is first
        or (
            len(part.covering & first.covering) >= _SHARED * len(part.covering | first.covering)
            and part.definition.name.rpartition(".")[0] == first.definition.name.rpartition(".")[0]
        )
    ]
    return tuple(near[:_MOST_TOGETHER]) if first in near[:_MOST_TOGETHER] else (first,)


def _methods(part: _Part, functions: Sequence[_Part]) -> tuple[_Part, ...]:
    """The methods of a class that tests run, `__init__` too: without them it is a shell."""
    inside = f"{part.definition.name}."
    return tuple(each for each in functions if each.definition.name.startswith(inside))


# --------------------------------------------------------------------------- how


def _stubbed(feature: Sequence[_Part], sources: Mapping[str, str]) -> Candidate | None:
    edits = [_stub_edit(part) for part in feature]
    edits += _helpers(feature, sources)
    return _candidate(feature, edits, {}, "stub")


def _stub_edit(part: _Part) -> Edit:
    """The body, but for its docstring, becomes what the language says where something is not there."""
    source, body = part.source, body_of(part.node)
    assert body is not None
    stub = source.language.stub
    if source.language.name != "python":
        return Edit(body.start_byte, body.end_byte, "{ " + stub + " }")
    docstring = docstring_node(source, part.node)
    if docstring is None:
        # Comments in front of the first statement are no part of the body, and may tell how it went.
        comments = [child for child in part.node.children if child.type in source.language.comments]
        start = min([body.start_byte, *(child.start_byte for child in comments)])
        return Edit(start, body.end_byte, stub)
    indent = " " * docstring.start_point[1]
    return Edit(docstring.end_byte, body.end_byte, f"\n{indent}{stub}")


def _whole(feature: Sequence[_Part], sources: Mapping[str, str]) -> Candidate | None:
    """None where something but re-exports still names what goes, so that the rest could not even be imported."""
    source = feature[0].source
    if source.language.name != "python":
        return None
    edits = [_lines_edit(source, whole_node(part.node)) for part in feature]
    others: dict[str, str] = {}
    for part in feature:
        name = _short(part.definition)
        if part.definition.kind == "method":
            if named_in_class(_remaining(source, edits), name):
                return None
            continue  # elsewhere it is looked up when it is called
        for path, text in sources.items():
            if path == source.path or not path.endswith(".py"):
                continue
            others[path] = without_exports(others.get(path, text), name)
            if re.search(rf"\b{re.escape(name)}\b", others[path]):
                return None
        edits += export_edits(source, name)
        rest = _remaining(source, edits)
        if re.search(rf"\b{re.escape(name)}\b", rest):
            return None
    edits += _helpers(feature, sources)
    changed = {path: text for path, text in others.items() if text != sources[path]}
    if any(broken(text) for text in changed.values()):
        return None
    before = {path: sources[path] for path in changed}
    return _candidate(feature, edits, {path: (before[path], changed[path]) for path in changed}, "whole")


def _lines_edit(source: Source, node: Node) -> Edit:
    """All lines of a node, with the comments on it and blank lines in front of it."""
    first = node
    while (above := first.prev_sibling) is not None and above.type in source.language.comments:
        if above.end_point[0] + 1 != first.start_point[0] or above.start_point[1] != node.start_point[1]:
            break
        first = above
    start = source.data.rfind(b"\n", 0, first.start_byte) + 1
    end = source.data.find(b"\n", node.end_byte)
    end = len(source.data) if end < 0 else end + 1
    while start and not (above_it := source.data[source.data.rfind(b"\n", 0, start - 1) + 1 : start]).strip():
        start -= len(above_it)
    # The first of a class: the blank lines are behind it.
    while source.data[:start].endswith(b":\n") and source.data[end : end + 1] == b"\n":
        end += 1
    return Edit(start, end, "")


def _remaining(source: Source, edits: Sequence[Edit]) -> str:
    """The code of a module after edits, comments and docstrings aside (they may go on naming what is gone)."""
    text = edited(source, edits)
    if text is None:
        return ""
    try:
        return ast.unparse(_bare(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return text


def _bare(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            body[0].value.value = ""
    return tree


def _helpers(feature: Sequence[_Part], sources: Mapping[str, str]) -> list[Edit]:
    """Private functions and methods of the same module that nothing but the feature names, and those that only these
    name: they are a part of the solution."""
    source = feature[0].source
    if source.language.name != "python":
        return []
    taken = [source.lines_of(whole_node(part.node)) for part in feature]
    lines = source.data.decode("utf-8", "surrogateescape").split("\n")
    elsewhere = "\n".join(text for path, text in sources.items() if path != source.path)
    private = [(node, definition) for node, definition in definition_nodes(source) if _is_private(definition)]
    edits: list[Edit] = []
    found = True
    while found:
        found = False
        for node, definition in tuple(private):
            own = source.lines_of(whole_node(node))
            word = re.compile(rf"\b{re.escape(_short(definition))}\b")
            users = [n for n, line in enumerate(lines, 1) if word.search(line) and not own[0] <= n <= own[1]]
            if own in taken or not users or word.search(elsewhere):
                private.remove((node, definition))
            elif all(any(first <= n <= last for first, last in taken) for n in users):
                private.remove((node, definition))
                taken.append(own)
                edits.append(_lines_edit(source, whole_node(node)))
                found = True
    return edits


def _is_private(definition: Definition) -> bool:
    name = _short(definition)
    return definition.kind != "class" and name.startswith("_") and not _SPECIAL.search(name)


def _candidate(
    feature: Sequence[_Part], edits: Sequence[Edit], others: Mapping[str, tuple[str, str]], mode: str
) -> Candidate | None:
    source = feature[0].source
    text = edited(source, list(dict.fromkeys(edits)))
    if text is None:
        return None
    before = source.data.decode("utf-8", "surrogateescape")
    changes = [FileChange(source.path, before, text)]
    changes += [FileChange(path, old, new) for path, (old, new) in sorted(others.items())]
    names = ", ".join(part.definition.name for part in feature)
    return Candidate(
        TaskKind.FEATURE,
        source.language.name,
        tuple(changes),
        tuple(part.definition for part in feature),
        frozenset().union(*(part.covering for part in feature)),
        {"mode": mode, "path": source.path, "names": names},
    )
