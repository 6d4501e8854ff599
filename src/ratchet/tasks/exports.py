"""Where modules hand names on, and what they name while they are imported: what taking a definition out has to mind."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from ratchet.tasks.syntax import Edit, Source, lines_edit, python_tree, walk

if TYPE_CHECKING:
    from tree_sitter import Node


def export_edits(source: Source, names: Collection[str]) -> list[Edit]:
    """What takes names out of the `__all__` of a Python module, and out of what it imports under their own names."""
    edits: list[Edit] = []
    for statement in source.root.named_children:
        inner = statement.named_children[0] if statement.type == "expression_statement" else statement
        left = inner.child_by_field_name("left")
        listed = inner.child_by_field_name("right")
        if left is not None and listed is not None and source.text(left) == "__all__":
            items = [each for each in listed.named_children if each.type == "string"]
            gone = [source.text(each)[1:-1] in names for each in items]
            edits += without_items(source, items, gone)
    # Imports may also be in a `try`.
    for statement in _imports(source.root):
        items = statement.children_by_field_name("name")
        gone = [_handed_on(source, each) in names for each in items]
        edits += [lines_edit(source, statement)] if all(gone) and gone else without_items(source, items, gone)
    return edits


def _imports(root: Node) -> Iterator[Node]:
    for statement in root.named_children:
        if statement.type in ("import_from_statement", "try_statement", "if_statement"):
            yield from (node for node in walk(statement) if node.type == "import_from_statement")


def _handed_on(source: Source, item: Node) -> str:
    """The name under which an import hands on something of the same name; else nothing."""
    if item.type != "aliased_import":
        return source.text(item)
    name, alias = item.child_by_field_name("name"), item.child_by_field_name("alias")
    same = name is not None and alias is not None and source.text(name) == source.text(alias)
    return source.text(name) if same and name is not None else ""


def without_items(source: Source, items: Sequence[Node], gone: Sequence[bool]) -> list[Edit]:
    """What takes some of the items of a list with commas out of it, and the line of each that has one for itself."""
    edits: list[Edit] = []
    kept_end = None  # of the last item before a run that goes
    run_start = None
    for item, goes in zip(items, gone, strict=True):
        if goes and (line := _own_line(source, item)) is not None:
            edits.append(line)
        elif goes:
            run_start = item.start_byte if run_start is None else run_start
        else:
            if run_start is not None:
                edits.append(Edit(run_start, item.start_byte, ""))
            kept_end, run_start = item.end_byte, None
    if run_start is not None:
        edits.append(Edit(run_start if kept_end is None else kept_end, items[-1].end_byte, ""))
    return edits


def _own_line(source: Source, item: Node) -> Edit | None:
    start = source.data.rfind(b"\n", 0, item.start_byte) + 1
    end = source.data.find(b"\n", item.end_byte) + 1
    rest = source.data[item.end_byte : end].strip()
    alone = end and not source.data[start : item.start_byte].strip() and (rest in (b"", b",") or rest[:2] == b",#")
    return Edit(start, end, "") if alone else None


def named_in_class(text: str, name: str) -> bool:
    """Whether the body of a class names one of its methods, in a decorator (`@name.setter`) or an assignment: without
    it the module could not be imported."""
    tree = python_tree(text)
    if tree is None:
        return True
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for statement in (each for node in classes for each in node.body):
        run: list[ast.AST] = [statement]
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            run = [*statement.decorator_list, *statement.args.defaults, *filter(None, statement.args.kw_defaults)]
        elif isinstance(statement, ast.ClassDef):
            continue
        if any(isinstance(node, ast.Name) and node.id == name for each in run for node in ast.walk(each)):
            return True
    return False
