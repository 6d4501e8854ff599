"""Syntax trees of sources, the definitions in them, and edits by byte ranges, which keep everything else as it is."""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratchet.errors import MachineError
from ratchet.tasks.candidates import Definition
from ratchet.tasks.languages import Language

if TYPE_CHECKING:
    from tree_sitter import Language as Grammar
    from tree_sitter import Node, Parser

LARGEST_SOURCE_BYTES = 1 << 20

_C_NAMES = ("identifier", "field_identifier", "qualified_identifier", "destructor_name", "operator_name")


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
    """None where the text is too large, or does not parse."""
    data = text.encode("utf-8", "surrogateescape")
    if len(data) > LARGEST_SOURCE_BYTES:
        return None
    root = _parser(language.grammar).parse(data).root_node
    return None if root.has_error else Source(path, language, data, root)


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
    if source.language.name == "python" and not _compiles(text) and _compiles(before_text):
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
    pending: list[tuple[Node, str]] = [(source.root, "")]
    while pending:
        node, outer = pending.pop()
        is_class = node.type in source.language.classes
        # What has no name is looked into: a function that wraps a whole module, say.
        if (node.type in source.language.functions or is_class) and (name := _name(source, node)):
            qualified = f"{outer}.{name}" if outer else name
            kind = "class" if is_class else "method" if outer else "function"
            yield node, _definition(source, node, qualified, kind)
            if is_class:
                pending.extend((child, qualified) for child in reversed(node.children))
            continue
        pending.extend((child, outer) for child in reversed(node.children))


def whole_node(node: Node) -> Node:
    """The node with its decorators, with what gives it a name, and with the `export` in front of it."""
    if (parent := node.parent) is not None and parent.type == "variable_declarator" and parent.parent is not None:
        node = parent.parent
    parent = node.parent
    return parent if parent is not None and parent.type in ("decorated_definition", "export_statement") else node


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


def _definition(source: Source, node: Node, name: str, kind: str) -> Definition:
    body = body_of(node)
    end = body.start_byte if body is not None else node.end_byte
    named = node.parent is not None and node.parent.type in ("variable_declarator", "field_definition")
    start = node.parent.start_byte if named and node.parent is not None else node.start_byte
    signature = source.data[start:end].decode("utf-8", "surrogateescape")
    first, last = source.lines_of(whole_node(node))
    return Definition(
        source.path, name, kind, signature.split("\n#")[0].strip().rstrip("{").strip(), _doc(source, node), first, last
    )


def _doc(source: Source, node: Node) -> str:
    docstring = docstring_node(source, node)
    if docstring is not None:
        text = source.text(docstring)
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return text.strip("\"'rRuUbB")
        return value if isinstance(value, str) else ""
    comment = whole_node(node).prev_sibling
    if source.language.name == "python" or comment is None or comment.type not in source.language.comments:
        return ""
    return "\n".join(line.strip().strip("/*").strip() for line in source.text(comment).splitlines()).strip()


def _name(source: Source, node: Node) -> str:
    named = node.child_by_field_name("name")
    if named is None and node.parent is not None and node.parent.type in ("variable_declarator", "field_definition"):
        named = node.parent.child_by_field_name("name") or node.parent.child_by_field_name("property")
    while named is None:  # C: the name is inside of the declarator
        inner = node.child_by_field_name("declarator")
        if inner is None:
            return ""
        named, node = (inner if inner.type in _C_NAMES else None), inner
    return source.text(named)


def _compiles(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


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
