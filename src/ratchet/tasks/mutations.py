"""Faults that people make, as small edits of a syntax tree.

Each operator is a function from a node to the edits that plant its fault there. They are of the kinds that mutation
testing knows (Jia and Harman, An Analysis and Survey of the Development of Mutation Testing, 2011), without those that
hardly anybody would write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ratchet.tasks.syntax import Edit, Source, docstring_node, walk

if TYPE_CHECKING:
    from tree_sitter import Node


@dataclass(frozen=True)
class Mutation:
    """One fault in one place: the `operator`, the edits, and the first and last line that they touch."""

    operator: str
    edit: Edit
    first_line: int
    last_line: int


def mutations_in(source: Source, function: Node) -> Iterator[Mutation]:
    """All faults that can be planted in one function, in the order of its text."""
    docstring = docstring_node(source, function)
    names = _local_names(source, function)
    for node in _visible(source, function):
        if docstring is not None and docstring.start_byte <= node.start_byte < docstring.end_byte:
            continue
        for operator, make in _OPERATORS.items():
            for edit in make(_Place(source, node, names)):
                yield Mutation(operator, edit, *source.lines_of(node))


def _visible(source: Source, function: Node) -> Iterator[Node]:
    """The nodes of a function, less what nobody or everybody would see change."""
    pending = [function]
    while pending:
        node = pending.pop()
        if node.type in source.language.opaque and node is not function:
            continue
        if node.type in ("expression_statement", *source.language.calls) and _is_quiet(source, node):
            continue
        if node.type == "if_statement" and "TYPE_CHECKING" in source.text(node).split(":", 1)[0]:
            continue
        yield node
        pending.extend(reversed(node.children))


def _is_quiet(source: Source, node: Node) -> bool:
    return re.match(source.language.quiet_calls, source.text(node)[:200]) is not None


# --------------------------------------------------------------------------- operators


@dataclass(frozen=True)
class _Place:
    """A node where a fault may be planted; `names` are the parameters of its function."""

    source: Source
    node: Node
    names: tuple[str, ...]


_NAMES = frozenset({"identifier", "attribute", "member_expression", "field_expression", "subscript"})
_Operator = Callable[[_Place], Iterator[Edit]]


def _wrong_operator(place: _Place) -> Iterator[Edit]:
    """Another operator of its kind; `<` for `<=` is the off-by-one of comparisons."""
    source, node = place.source, place.node
    if node.is_named or node.parent is None or not re.search(r"operator|expression|assignment", node.parent.type):
        return
    if node.parent.type.startswith("unary") or node.parent.child_count < 3:
        return
    for other in source.language.operators.get(" ".join(source.text(node).split()), ()):
        yield _in_place_of(node, other)


def _off_by_one(place: _Place) -> Iterator[Edit]:
    source, node = place.source, place.node
    if node.type in source.language.integers and re.fullmatch(r"\d{1,6}", text := source.text(node)):
        if node.parent is not None and node.parent.type in source.language.defaults:
            return
        for value in (int(text) + 1, int(text) - 1):
            if value >= 0:
                yield _in_place_of(node, str(value))


def _swapped_arguments(place: _Place) -> Iterator[Edit]:
    source, node = place.source, place.node
    call = node.parent
    if node.type not in ("argument_list", "arguments") or call is None or call.type not in source.language.calls:
        return
    if re.match(source.language.symmetric_calls, source.text(call)[:200]):
        return
    given = [child for child in node.named_children if child.type not in source.language.comments]
    plain = [child for child in given if not re.search(r"keyword|splat|spread|generator|for_in", child.type)]
    for left, right in pairwise(plain):
        first, second = source.text(left), source.text(right)
        # Nobody takes a literal for a name.
        if left.type != right.type and not {left.type, right.type} <= _NAMES:
            continue
        if first != second and len(first) + len(second) < 200:
            between = source.data[left.end_byte : right.start_byte].decode("utf-8", "surrogateescape")
            yield Edit(left.start_byte, right.end_byte, f"{second}{between}{first}")


def _dropped_condition(place: _Place) -> Iterator[Edit]:
    """`a and b` becomes one of them; a negation goes."""
    source, node = place.source, place.node
    operator = node.child_by_field_name("operator")
    if operator is not None and source.text(operator) in source.language.conjunctions:
        for field in ("left", "right"):
            side = node.child_by_field_name(field)
            if side is not None:
                yield _in_place_of(node, source.text(side))
    if node.type in source.language.negations:
        argument = node.child_by_field_name("argument")
        if argument is not None and source.text(node).startswith(("not", "!")):
            yield _in_place_of(node, source.text(argument))


def _dropped_await(place: _Place) -> Iterator[Edit]:
    source, node = place.source, place.node
    if node.type in source.language.awaits and node.named_children:
        yield _in_place_of(node, source.text(node.named_children[0]))


def _wrong_default(place: _Place) -> Iterator[Edit]:
    source, node = place.source, place.node
    if node.type not in source.language.defaults:
        return
    value = node.child_by_field_name("value") or node.child_by_field_name("right")
    if value is None:
        return
    if value.type in source.language.constants:
        yield _in_place_of(value, source.language.constants[value.type])
    elif value.type in source.language.integers and source.text(value).isdigit():
        yield _in_place_of(value, str(int(source.text(value)) + 1))


def _wrong_constant(place: _Place) -> Iterator[Edit]:
    source, node = place.source, place.node
    if node.type in source.language.constants and node.is_named:
        if node.parent is not None and node.parent.type in source.language.defaults:
            return
        yield _in_place_of(node, source.language.constants[node.type])


def _missing_case(place: _Place) -> Iterator[Edit]:
    """A branch that was forgotten: elif, else, except (one of several), case, or an entry of a table."""
    source, node = place.source, place.node
    if node.type in source.language.clauses and node.parent is not None:
        siblings = [child for child in node.parent.children if child.type == node.type]
        if node.type not in ("except_clause", "case_clause") or len(siblings) > 1:
            yield _without(source, node.start_byte, node.end_byte)
    if node.type in source.language.pairs and node.parent is not None and len(node.parent.named_children) > 1:
        after = node.next_sibling
        end = after.end_byte if after is not None and source.text(after) == "," else node.end_byte
        yield _without(source, node.start_byte, end)


def _dropped_statement(place: _Place) -> Iterator[Edit]:
    """An early exit that is not there, or an assignment to what has a value already."""
    source, node, names = place.source, place.node, place.names
    block = node.parent
    if block is None or len([c for c in block.named_children if c.type not in source.language.comments]) < 2:
        return
    if node.type == "if_statement" and node.child_by_field_name("alternative") is None:
        inner = node.child_by_field_name("consequence")
        last = inner.named_children[-1] if inner is not None and inner.named_children else None
        if last is not None and last.type in source.language.early_exits:
            yield _without(source, node.start_byte, node.end_byte)
    if node.type == "expression_statement" and node.named_children:
        what = node.named_children[0]
        if what.type in ("augmented_assignment", "augmented_assignment_expression", "update_expression"):
            yield _without(source, node.start_byte, node.end_byte)
        left = what.child_by_field_name("left")
        if what.type in ("assignment", "assignment_expression") and left is not None and source.text(left) in names:
            yield _without(source, node.start_byte, node.end_byte)


def _wrong_variable(place: _Place) -> Iterator[Edit]:
    """Another parameter of the same function."""
    source, node, names = place.source, place.node, place.names
    if node.type != "identifier" or (name := source.text(node)) not in names or node.parent is None:
        return
    if not re.search(r"argument|binary|comparison|boolean|return|subscript|not_operator", node.parent.type):
        return
    if node.parent.type == "keyword_argument" and node == node.parent.child_by_field_name("name"):
        return
    others = [other for other in names if other != name]
    if others:
        yield _in_place_of(node, others[(names.index(name)) % len(others)])


_OPERATORS: dict[str, _Operator] = {
    "wrong-operator": _wrong_operator,
    "off-by-one": _off_by_one,
    "swapped-arguments": _swapped_arguments,
    "dropped-condition": _dropped_condition,
    "dropped-await": _dropped_await,
    "wrong-default": _wrong_default,
    "wrong-constant": _wrong_constant,
    "missing-case": _missing_case,
    "dropped-statement": _dropped_statement,
    "wrong-variable": _wrong_variable,
}
OPERATORS = tuple(_OPERATORS)


# --------------------------------------------------------------------------- edits


def _in_place_of(node: Node, text: str) -> Edit:
    return Edit(node.start_byte, node.end_byte, text)


def _without(source: Source, start: int, end: int) -> Edit:
    """What lies there goes, with the gap that would show its place: its lines where nothing else is on them, a blank
    line that would be left over, or the blanks behind it."""
    data = source.data
    line_start = data.rfind(b"\n", 0, start) + 1
    line_end = _after_line(data, end)
    if data[line_start:start].strip() or data[end:line_end].strip():
        while data[end : end + 1] in (b" ", b"\t"):
            end += 1
        return Edit(start, end, "")
    above = data[data.rfind(b"\n", 0, max(line_start - 1, 0)) + 1 : line_start].strip()
    below = data[line_end : _after_line(data, line_end)]
    if below and not below.strip() and (not above or above.endswith((b":", b"{"))):
        line_end += len(below)
    return Edit(line_start, line_end, "")


def _after_line(data: bytes, place: int) -> int:
    end = data.find(b"\n", place)
    return len(data) if end < 0 else end + 1


def _local_names(source: Source, function: Node) -> tuple[str, ...]:
    """The parameters of a function, but the object that a method is called on."""
    parameters, declarator = function.child_by_field_name("parameters"), function
    while parameters is None:  # C: they are inside of the declarator
        inner = declarator.child_by_field_name("declarator")
        if inner is None:
            return ()
        parameters, declarator = inner.child_by_field_name("parameters"), inner
    names = []
    for child in parameters.named_children:
        first = next((node for node in walk(child) if node.type == "identifier"), None)
        if first is not None and child.type not in source.language.comments:
            names.append(source.text(first))
    return tuple(name for name in dict.fromkeys(names) if name not in ("self", "cls", "this"))
