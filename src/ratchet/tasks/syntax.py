"""Syntax trees of sources, the definitions in them, and edits by byte ranges, which keep everything else as it is."""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratchet.errors import MachineError
from ratchet.survey import python_syntax
from ratchet.survey.formats import UnreadableError
from ratchet.tasks.candidates import Definition
from ratchet.tasks.languages import Language

if TYPE_CHECKING:
    from tree_sitter import Language as Grammar
    from tree_sitter import Node, Parser

# Beyond these a source is a table, or made to keep us busy.
LARGEST_SOURCE_BYTES = 1 << 19
MOST_NODES = 200_000

_C_NAMES = ("identifier", "field_identifier", "qualified_identifier", "destructor_name", "operator_name")
# What stands round a definition without being another one: decorators, `export`, `const name =`.
_WRAPPERS = frozenset(
    {"decorated_definition", "export_statement", "lexical_declaration", "variable_declaration", "variable_declarator"}
)
_NAMING = frozenset({"variable_declarator", "field_definition", "public_field_definition"})
_MOST_COMMENTS = 50  # lines of them, above a definition


@dataclass(frozen=True)
class Edit:
    """Replace the bytes from `start` to `end` (exclusive) by `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Source:
    """A source that parses without an error."""

    path: str
    language: Language
    data: bytes
    root: Node

    def text(self, node: Node) -> str:
        return self.data[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")

    def lines_of(self, node: Node) -> tuple[int, int]:
        """First and last line, counted from 1."""
        return node.start_point[0] + 1, node.end_point[0] + 1


def parse_source(path: str, text: str, language: Language) -> Source | None:
    """None where the text is too large, or does not parse. Takes time in proportion to the text, whatever it is."""
    data = text.encode("utf-8", "surrogateescape")
    if len(data) > LARGEST_SOURCE_BYTES:
        return None
    root = _parser(language.grammar).parse(data).root_node
    return None if root.has_error or root.descendant_count > MOST_NODES else Source(path, language, data, root)


def edited(source: Source, edits: Sequence[Edit]) -> str | None:
    """The text after edits, which may not overlap; None where they do, or where it does not parse any more."""
    data = source.data
    before = len(data)
    for edit in sorted(edits, key=lambda edit: -edit.start):
        if edit.end > before:
            return None
        data = data[: edit.start] + edit.text.encode("utf-8", "surrogateescape") + data[edit.end :]
        before = edit.start
    text = data.decode("utf-8", "surrogateescape")
    if data == source.data or _parser(source.language.grammar).parse(data).root_node.has_error:
        return None
    before_text = source.data.decode("utf-8", "surrogateescape")
    # What is written for a newer Python than this one is taken on the grammar's word.
    if source.language.name == "python" and python_tree(text) is None and python_tree(before_text) is not None:
        return None
    return text


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it, in the order of the text."""
    pending = [node]
    while pending:
        found = pending.pop()
        yield found
        pending.extend(reversed(found.children))


def function_nodes(source: Source) -> Iterator[tuple[Node, Definition]]:
    """The functions and methods of a source that are in no other function, with their definitions."""
    for node, definition in definition_nodes(source):
        if definition.kind != "class":
            yield node, definition


def definition_nodes(source: Source) -> Iterator[tuple[Node, Definition]]:
    """Functions, methods and classes that are in no function, in the order of the text."""
    pending = [_Place(source.root, None, source.root, (), "")]
    while pending:
        place = pending.pop()
        outer = place.outer
        is_class = place.node.type in source.language.classes
        # What has no name is looked into: a function that wraps a whole module, say.
        if (is_class or place.node.type in source.language.functions) and (name := _name(source, place)):
            outer = f"{outer}.{name}" if outer else name
            yield (
                place.node,
                _definition(source, place, outer, "class" if is_class else "method" if place.outer else "function"),
            )
            if not is_class:
                continue
        pending.extend(reversed(list(_inside(source, place, outer))))


@dataclass(frozen=True)
class _Place:
    """A node on the way down: `whole` is the node with what is wrapped round it, `above` the comments on that, `outer`
    the name of the class that it is in."""

    node: Node
    parent: Node | None
    whole: Node
    above: tuple[Node, ...]
    outer: str


def _inside(source: Source, place: _Place, outer: str) -> Iterator[_Place]:
    wrapped = place.node.type in _WRAPPERS
    comments: tuple[Node, ...] = ()
    for child in place.node.children:
        if comments and comments[-1].end_point[0] + 1 < child.start_point[0]:
            comments = ()
        if child.type in source.language.comments:
            comments = (*comments[1 - _MOST_COMMENTS :], child)
            continue
        yield _Place(child, place.node, place.whole if wrapped else child, place.above if wrapped else comments, outer)
        comments = ()


def lines_edit(source: Source, node: Node) -> Edit:
    """What removes all lines of a node, with the comments on it and blank lines in front of it; only the node itself
    where other code is on its lines."""
    data, first = source.data, node
    for _ in range(_MOST_COMMENTS):
        above = first.prev_sibling
        if above is None or above.type not in source.language.comments:
            break
        if above.end_point[0] + 1 != first.start_point[0] or above.start_point[1] != node.start_point[1]:
            break
        first = above
    start = data.rfind(b"\n", 0, first.start_byte) + 1
    end = data.find(b"\n", node.end_byte)
    end = len(data) if end < 0 else end + 1
    rest = data[node.end_byte : end].strip()
    if data[start : first.start_byte].strip() or (rest and not rest.startswith((b"#", b"//")) and rest != b";"):
        return Edit(node.start_byte, node.end_byte, "")
    while start and not (above_it := data[data.rfind(b"\n", 0, start - 1) + 1 : start]).strip():
        start -= len(above_it)
    # The first of a class or file: the blank lines are behind it.
    while data[max(start - 2, 0) : start] in (b"", b":\n") and data[end : end + 1] == b"\n":
        end += 1
    return Edit(start, end, "")


def whole_node(node: Node) -> Node:
    """The node with its decorators, with what gives it a name, and with the `export` in front of it."""
    while (parent := node.parent) is not None and parent.type in _WRAPPERS:
        node = parent
    return node


def body_of(node: Node) -> Node | None:
    return node.child_by_field_name("body")


def docstring_node(source: Source, node: Node) -> Node | None:
    """The statement that is the docstring of a Python definition."""
    body = body_of(node)
    if source.language.name != "python" or body is None or not body.named_children:
        return None
    first = next((child for child in body.named_children if child.type not in source.language.comments), None)
    if first is None or first.type != "expression_statement" or not first.named_children:
        return None
    return first if first.named_children[0].type in ("string", "concatenated_string") else None


def _definition(source: Source, place: _Place, name: str, kind: str) -> Definition:
    body = body_of(place.node)
    end = body.start_byte if body is not None else place.node.end_byte
    named = place.parent if place.parent is not None and place.parent.type in _NAMING else place.node
    signature = source.data[named.start_byte : end].decode("utf-8", "surrogateescape")
    first, last = source.lines_of(place.whole)
    return Definition(
        source.path, name, kind, signature.split("\n#")[0].strip().rstrip("{").strip(), _doc(source, place), first, last
    )


def _doc(source: Source, place: _Place) -> str:
    """The docstring; in other languages than Python the comments right above."""
    if source.language.name != "python":
        lines = [line for comment in place.above for line in source.text(comment).splitlines()]
        return "\n".join(line.strip().strip("/*").strip() for line in lines).strip()
    docstring = docstring_node(source, place.node)
    if docstring is None:
        return ""
    text = source.text(docstring)
    tree = python_tree(text.strip())
    value = tree.body[0].value if tree is not None and tree.body and isinstance(tree.body[0], ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else text.strip("\"'rRuUbB")


def _name(source: Source, place: _Place) -> str:
    node, parent = place.node, place.parent
    named = node.child_by_field_name("name")
    if named is None and parent is not None and parent.type in _NAMING:
        named = parent.child_by_field_name("name") or parent.child_by_field_name("property")
    while named is None:  # C: the name is inside of the declarator
        inner = node.child_by_field_name("declarator")
        if inner is None:
            return ""
        named, node = (inner if inner.type in _C_NAMES else None), inner
    return source.text(named)


def python_tree(text: str) -> ast.Module | None:
    """Python's own tree; None where this Python reads none."""
    try:
        return python_syntax.parse(text)
    except UnreadableError:
        return None


def _parser(grammar: str) -> Parser:
    """A new one: a parser serves one thread only."""
    parser: Parser = _tree_sitter().Parser(_grammar(grammar))
    return parser


@functools.cache
def _grammar(grammar: str) -> Grammar:
    module, _, function = grammar.partition(":")
    language: Grammar = _tree_sitter().Language(getattr(_imported(module), function)())
    return language


def _tree_sitter() -> Any:
    return _imported("tree_sitter")


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MachineError(
            f"making tasks needs the package {error.name}", remedy="pip install 'ratchet-rl[tasks]'"
        ) from error
