"""The parameters and variables of a function, and where in it they surely have a value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ratchet.tasks.syntax import Source, body_of, walk

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST = 50
_OBJECTS = ("self", "cls", "this", "_")


@dataclass(frozen=True)
class Variable:
    """`start` and `end` are the bytes between which it has a value: its block, from its first assignment on."""

    name: str
    start: int
    end: int


def variables_of(source: Source, function: Node, places: Iterable[tuple[Node, Node, int]]) -> tuple[Variable, ...]:
    """At most 50, without the object that a method is called on. `places` are the nodes of the function, each with its
    parent and the end of its block."""
    found = [Variable(name, function.start_byte, function.end_byte) for name in _parameters(source, function)]
    for node, _, block_end in places:
        field = source.language.bindings.get(node.type)
        target = node.child_by_field_name(field) if field is not None else None
        if target is None:
            continue
        body = body_of(node)
        start, end = (node.end_byte, block_end) if body is None else (body.start_byte, body.end_byte)
        several = target.named_children if re.search(r"pattern|declarator", target.type) else [target]
        found += [Variable(source.text(each), start, end) for each in several if each.type == "identifier"]
    return tuple(each for each in found if each.name not in _OBJECTS)[:_MOST]


def _parameters(source: Source, function: Node) -> Iterator[str]:
    parameters, declarator = function.child_by_field_name("parameters"), function
    while parameters is None:  # C: they are inside of the declarator
        inner = declarator.child_by_field_name("declarator")
        if inner is None:
            return
        parameters, declarator = inner.child_by_field_name("parameters"), inner
    for child in parameters.named_children:
        first = next((node for node in walk(child) if node.type == "identifier"), None)
        if first is not None and child.type not in source.language.comments:
            yield source.text(first)
