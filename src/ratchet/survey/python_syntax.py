"""Python's syntax trees, from text that may be anything."""

from __future__ import annotations

import ast
from typing import Any

from ratchet.python_trees import tree_of
from ratchet.survey.formats import UnreadableError


def parse(text: str) -> ast.Module:
    """The syntax tree of a script; `UnreadableError` where there is none."""
    try:
        return tree_of(text)
    except (SyntaxError, ValueError) as error:
        raise UnreadableError(f"not Python {_where(error)}: {str(error)[:200]}") from error
    except (RecursionError, MemoryError) as error:
        raise UnreadableError("nested too deeply to be parsed as Python") from error


def _where(error: Exception) -> str:
    return f"(line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else "(no line)"


def constants(text: str) -> dict[str, Any]:
    """The names that a module assigns plain constants to, at its top level."""
    try:
        body = parse(text).body
    except UnreadableError:
        return {}
    return {
        target.id: node.value.value
        for node in body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def last_name(node: ast.expr) -> str:
    """The last part of a dotted name; empty for anything else."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def is_dotted(node: ast.expr) -> bool:
    for _ in range(6):
        if isinstance(node, ast.Name):
            return True
        if not isinstance(node, ast.Attribute):
            return False
        node = node.value
    return False
