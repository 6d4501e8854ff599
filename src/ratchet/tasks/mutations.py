"""Faults that people make, as small edits of a syntax tree.

Each operator is a function from a node to the edits that plant its fault there. They are of the kinds that mutation
testing knows (Jia and Harman, An Analysis and Survey of the Development of Mutation Testing, 2011), without those that
hardly anybody would write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from ratchet.tasks.syntax import Edit, Source, docstring_node
from ratchet.tasks.variables import Variable, variables_of

if TYPE_CHECKING:
    from tree_sitter import Node

LARGEST_FUNCTION_BYTES = 1 << 16
"""A longer function is a table."""

_LONGEST_OPERAND = 500  # bytes of what is moved


@dataclass(frozen=True)
class Mutation:
    """One fault in one place: the `operator`, the edits, and the first and last line that they touch."""

    operator: str
    edit: Edit
    first_line: int
    last_line: int


def mutations_in(source: Source, function: Node) -> Iterator[Mutation]:
    """All faults that can be planted in one function, in the order of its text."""
    if function.end_byte - function.start_byte > LARGEST_FUNCTION_BYTES:
        return
    places = list(_visible(source, function))
    variables = variables_of(source, function, places)
    docstring = docstring_node(source, function)
    for node, parent, _ in places:
        if docstring is not None and docstring.start_byte <= node.start_byte < docstring.end_byte:
            continue
        place = _Place(source, node, parent, variables)
        for operator, make in _OPERATORS.items():
            for edit in make(place):
                yield Mutation(operator, edit, *source.lines_of(node))


def _visible(source: Source, function: Node) -> Iterator[tuple[Node, Node, int]]:
    """The nodes of a function, less what nobody or everybody would see change, each with its parent and the end of the
    block that it is in. Parents are handed down, since a node would search the tree for its own."""
    language = source.language
    pending = [(function, function, function.end_byte)]
    while pending:
        node, parent, block_end = pending.pop()
        if node.type in language.opaque and node is not function:
            continue
        if node.type in ("expression_statement", *language.calls) and _is_quiet(source, node):
            continue
        if node.type == "if_statement" and _start(source, node).startswith(("if TYPE_CHECKING", "if typing.TYPE")):
            continue
        yield node, parent, block_end
        if node.type in language.strings:
            continue
        if node.type in language.blocks:
            block_end = node.end_byte
        pending.extend((child, node, block_end) for child in reversed(node.children))


def _is_quiet(source: Source, node: Node) -> bool:
    return re.match(source.language.quiet_calls, _start(source, node)) is not None


def _start(source: Source, node: Node) -> str:
    """Enough of the text of a node to see what it is about."""
    return source.data[node.start_byte : min(node.end_byte, node.start_byte + 200)].decode("utf-8", "replace")


# --------------------------------------------------------------------------- operators


@dataclass(frozen=True)
class _Place:
    """A node where a fault may be planted; `variables` are those of its function."""

    source: Source
    node: Node
    parent: Node
    variables: Sequence[Variable]

    def bound(self) -> list[str]:
        """The names that have a value here."""
        start = self.node.start_byte
        return list(dict.fromkeys(each.name for each in self.variables if each.start <= start < each.end))


_NAMES = frozenset({"identifier", "attribute", "member_expression", "field_expression", "subscript"})
_PLAIN = _NAMES | {"call", "call_expression", "subscript_expression"}
_PARENTHESES = frozenset({"parenthesized_expression", "condition_clause"})
_BLANKS = {"''": "' '", '""': '" "', "' '": "''", '" "': '""'}
_Operator = Callable[[_Place], Iterator[Edit]]


def _wrong_operator(place: _Place) -> Iterator[Edit]:
    """Another operator of its kind; `<` for `<=` is the off-by-one of comparisons."""
    source, node, parent = place.source, place.node, place.parent
    if node.is_named or not re.search(r"operator|expression|assignment", parent.type):
        return
    if parent.type.startswith("unary") or parent.child_count < 3:
        return
    for other in source.language.operators.get(" ".join(source.text(node).split()), ()):
        yield _in_place_of(node, other)


def _off_by_one(place: _Place) -> Iterator[Edit]:
    source, node = place.source, place.node
    if node.type in source.language.integers and re.fullmatch(r"\d{1,6}", text := source.text(node)):
        if place.parent.type in source.language.defaults:
            return
        for value in (int(text) + 1, int(text) - 1):
            if value >= 0:
                yield _in_place_of(node, str(value))


def _swapped_arguments(place: _Place) -> Iterator[Edit]:
    source, node, call = place.source, place.node, place.parent
    if node.type not in ("argument_list", "arguments") or call.type not in source.language.calls:
        return
    if re.match(source.language.symmetric_calls, _start(source, call)):
        return
    given = [child for child in node.named_children if child.type not in source.language.comments]
    plain = [child for child in given if not re.search(r"keyword|splat|spread|generator|for_in", child.type)]
    for left, right in pairwise(plain):
        # Nobody takes a literal for a name.
        if left.type != right.type and not {left.type, right.type} <= _NAMES:
            continue
        if right.end_byte - left.start_byte > _LONGEST_OPERAND:
            continue
        first, second = source.text(left), source.text(right)
        if first != second:
            between = source.data[left.end_byte : right.start_byte].decode("utf-8", "surrogateescape")
            yield Edit(left.start_byte, right.end_byte, f"{second}{between}{first}")


def _dropped_condition(place: _Place) -> Iterator[Edit]:
    """`a and b` becomes one of them; a negation goes."""
    source, node = place.source, place.node
    if node.end_byte - node.start_byte > _LONGEST_OPERAND:
        return
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


def _inverted_condition(place: _Place) -> Iterator[Edit]:
    """`if a` becomes `if not a`. Of comparisons there is another operator."""
    node = place.node
    if place.parent.child_by_field_name("condition") != node:
        return
    while node.type in _PARENTHESES and node.named_child_count == 1:
        node = node.named_children[0]
    if node.type in _PLAIN:
        yield Edit(node.start_byte, node.start_byte, place.source.language.negation)


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
    if value.type in source.language.integers and source.text(value).isdigit():
        yield _in_place_of(value, str(int(source.text(value)) + 1))
    elif value.type not in source.language.nothing:
        yield from _other_constant(source, value)


def _wrong_constant(place: _Place) -> Iterator[Edit]:
    source, node, parent = place.source, place.node, place.parent
    if not node.is_named or parent.type in source.language.defaults:
        return
    if node.type not in source.language.nothing or parent.type == "return_statement":
        yield from _other_constant(source, node)


def _other_constant(source: Source, node: Node) -> Iterator[Edit]:
    if node.type in source.language.constants:
        yield _in_place_of(node, source.language.constants[node.type])
    elif node.type in source.language.strings and (other := _BLANKS.get(_start(source, node))):
        yield _in_place_of(node, other)


def _missing_case(place: _Place) -> Iterator[Edit]:
    """A branch that was forgotten: elif, else, except (one of several), case, or an entry of a table."""
    source, node, parent = place.source, place.node, place.parent
    if node.type in source.language.clauses:
        alike = islice((child for child in parent.children if child.type == node.type), 2)
        if node.type not in ("except_clause", "case_clause") or len(list(alike)) > 1:
            yield _without(source, node.start_byte, node.end_byte)
    if node.type in source.language.pairs and parent.named_child_count > 1:
        comma = re.compile(rb"\s*,").match(source.data, node.end_byte)
        yield _without(source, node.start_byte, comma.end() if comma else node.end_byte)


def _dropped_statement(place: _Place) -> Iterator[Edit]:
    """An early exit that is not there, or an assignment to what has a value already."""
    source, node = place.source, place.node
    if node.type not in ("if_statement", "expression_statement"):
        return
    statements = (each for each in place.parent.children if each.is_named and each.type not in source.language.comments)
    if len(list(islice(statements, 2))) < 2:
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
        assigns = what.type in ("assignment", "assignment_expression") and left is not None
        if assigns and left is not None and left.type == "identifier" and source.text(left) in place.bound():
            yield _without(source, node.start_byte, node.end_byte)


def _wrong_variable(place: _Place) -> Iterator[Edit]:
    """Another parameter or variable of the same function: those that come before and after it."""
    source, node, parent = place.source, place.node, place.parent
    if node.type != "identifier":
        return
    if not re.search(r"argument|binary|comparison|boolean|return|subscript|not_operator", parent.type):
        return
    if parent.type == "keyword_argument" and node == parent.child_by_field_name("name"):
        return
    bound = place.bound()
    if (name := source.text(node)) in bound:
        at = bound.index(name)
        for other in dict.fromkeys((bound[(at + 1) % len(bound)], bound[at - 1])):
            if other != name:
                yield _in_place_of(node, other)


_OPERATORS: dict[str, _Operator] = {
    "wrong-operator": _wrong_operator,
    "off-by-one": _off_by_one,
    "swapped-arguments": _swapped_arguments,
    "dropped-condition": _dropped_condition,
    "inverted-condition": _inverted_condition,
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
