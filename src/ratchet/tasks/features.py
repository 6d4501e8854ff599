"""Features: what is documented and tested is taken out, so that it can be put back."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from ratchet.task_records import FileChange, TaskKind
from ratchet.tasks.candidates import Candidate, LineCoverage
from ratchet.tasks.exports import export_edits, named_in_class
from ratchet.tasks.languages import language_of
from ratchet.tasks.modules import module_candidates
from ratchet.tasks.options import option_candidates
from ratchet.tasks.parts import Part, Words, helper_edits, names, not_handed_on, parts_of, remaining_code
from ratchet.tasks.syntax import Edit, Source, body_of, docstring_node, edited, lines_edit, parse_source, whole_node

_MOST_TOGETHER = 5
_NEAR = 12  # definitions before and after
_SHARED = 0.6  # of the tests of two definitions that are one feature
_FEWEST_LINES, _MOST_LINES = 2, 150
_GOOD_LINES = range(4, 61)


def feature_candidates(sources: Mapping[str, str], coverage: LineCoverage, rng: random.Random) -> Iterator[Candidate]:
    """Features that tests cover, and that not more than two fifths of all tests run into: single functions and methods,
    groups that share their tests, classes; then whole modules and command-line options.

    Of each there are up to two ways to take it out: as a "stub" (signature and documentation stay, the body says that
    it is not there) and "whole" (the definition goes, with `__all__` and re-exports, where nothing else names it).
    Private functions that only it used go too. Documented ones of middling size come first, in random order.
    """
    parsed = [source for path in sorted(sources) if (source := _parsed(path, sources[path], coverage)) is not None]
    features = [feature for source in parsed for feature in _features(source, coverage)]
    rng.shuffle(features)
    features.sort(key=_rank)
    words = Words(sources)
    for feature in features:
        for candidate in (_stubbed(feature, words), _whole(feature, sources, words)):
            if candidate is not None:
                yield candidate
    others = [candidate for source in parsed for candidate in module_candidates(source, sources, coverage, words)]
    others += [candidate for source in parsed for candidate in option_candidates(source, coverage)]
    rng.shuffle(others)
    yield from others


def _parsed(path: str, text: str, coverage: LineCoverage) -> Source | None:
    language = language_of(path)
    return parse_source(path, text, language) if language is not None and coverage.covered_lines(path) else None


def _rank(feature: Sequence[Part]) -> int:
    documented = all(part.definition.docstring for part in feature)
    middling = sum(part.size for part in feature) in _GOOD_LINES
    return 2 - documented - middling


# --------------------------------------------------------------------------- which


def _features(source: Source, coverage: LineCoverage) -> list[tuple[Part, ...]]:
    parts = list(parts_of(source, coverage))
    functions = [part for part in parts if part.definition.kind != "class"]
    public = [part for part in functions if not part.name.startswith("_")]
    features: list[tuple[Part, ...]] = [(part,) for part in public]
    features += [group for at in range(len(public)) if len(group := _group(at, public)) > 1]
    features += [group for group in _classes(parts, functions) if len(group) > 1]
    distinct = {tuple(part.definition.name for part in feature): feature for feature in features}
    return [feature for feature in distinct.values() if _FEWEST_LINES <= sum(p.size for p in feature) <= _MOST_LINES]


def _group(at: int, parts: Sequence[Part]) -> tuple[Part, ...]:
    """A definition with those near it that share most of its tests: one feature in several functions."""
    first, group = parts[at], [parts[at]]
    around = sorted(range(max(0, at - _NEAR), min(len(parts), at + _NEAR + 1)), key=lambda other: abs(other - at))
    for part in (parts[other] for other in around[1:]):
        shared = len(part.covering & first.covering) >= _SHARED * len(part.covering | first.covering)
        if shared and part.owner == first.owner and len(group) < _MOST_TOGETHER:
            group.append(part)
    return tuple(sorted(group, key=lambda part: part.lines))


def _classes(parts: Sequence[Part], functions: Sequence[Part]) -> list[tuple[Part, ...]]:
    """The methods of each class that tests run, `__init__` too: without them it is a shell."""
    inside: dict[str, list[Part]] = {part.definition.name: [] for part in parts if part.definition.kind == "class"}
    for part in functions:
        outer = part.owner
        while outer:
            if outer in inside:
                inside[outer].append(part)
            outer = outer.rpartition(".")[0]
    return [tuple(methods) for methods in inside.values()]


# --------------------------------------------------------------------------- how


def _stubbed(feature: Sequence[Part], words: Words) -> Candidate | None:
    return _candidate(feature, [*map(_stub_edit, feature), *helper_edits(feature, words)], (), "stub")


def _stub_edit(part: Part) -> Edit:
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


def _whole(feature: Sequence[Part], sources: Mapping[str, str], words: Words) -> Candidate | None:
    """None where something but re-exports still names what goes, so that the rest could not even be imported. In other
    languages than Python it cannot be told what is looked up when."""
    source = feature[0].source
    if source.language.name != "python":
        return None
    # Methods are looked up when they are called.
    gone = list(dict.fromkeys(part.name for part in feature if part.definition.kind != "method"))
    others = not_handed_on(source.path, gone, sources, words)
    if others is None:
        return None
    edits = [lines_edit(source, whole_node(part.node)) for part in feature] + export_edits(source, gone)
    rest = remaining_code(source, edits)
    if any(names(rest, name) for name in gone):
        return None
    if any(named_in_class(rest, part.name) for part in feature if part.definition.kind == "method"):
        return None
    return _candidate(feature, [*edits, *helper_edits(feature, words)], others, "whole")


def _candidate(
    feature: Sequence[Part], edits: Sequence[Edit], others: Sequence[FileChange], mode: str
) -> Candidate | None:
    source = feature[0].source
    text = edited(source, list(dict.fromkeys(edits)))
    if text is None:
        return None
    before = source.data.decode("utf-8", "surrogateescape")
    together = ", ".join(part.definition.name for part in feature)
    return Candidate(
        TaskKind.FEATURE,
        source.language.name,
        (FileChange(source.path, before, text), *others),
        tuple(part.definition for part in feature),
        frozenset().union(*(part.covering for part in feature)),
        {"mode": mode, "path": source.path, "names": together},
    )
