"""Command-line options as features that can be taken out: of argparse, and of click and what is built like it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ratchet.task_records import FileChange, TaskKind
from ratchet.tasks.candidates import Candidate, Definition, LineCoverage
from ratchet.tasks.exports import without_items
from ratchet.tasks.parts import judged
from ratchet.tasks.syntax import (
    Edit,
    Source,
    body_of,
    definition_nodes,
    edited,
    lines_edit,
    python_tree,
    walk,
    whole_node,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST = 50  # of one module, and uses of one


@dataclass(frozen=True)
class _Option:
    """An option as it is declared: the `call`, the variable that has its value, and the text of its default."""

    call: Node
    flag: str
    variable: str
    default: str
    documentation: str


def option_candidates(source: Source, coverage: LineCoverage) -> Iterator[Candidate]:
    """What declares an option goes, and its value is the default everywhere. The first 50 of a module are looked at."""
    if source.language.name != "python":
        return
    found: list[tuple[_Option, list[tuple[int, int]], list[Edit]]] = []
    if b".add_argument(" in source.data:
        found += islice(_of_argparse(source), _MOST)
    if b".option(" in source.data:
        found += islice(_of_decorators(source), _MOST)
    for option, uses, edits in found:
        candidate = _candidate(source, coverage, option, uses, edits) if len(uses) < _MOST else None
        if candidate is not None:
            yield candidate


def _of_argparse(source: Source) -> Iterator[tuple[_Option, list[tuple[int, int]], list[Edit]]]:
    """Options with where their values are used, and what takes their declarations out."""
    for statement in walk(source.root):
        if statement.type != "expression_statement" or statement.named_child_count != 1:
            continue
        option = _option(source, statement.named_children[0], "add_argument")
        if option is None:
            continue
        use = re.compile(rb"\b(?!self\b)\w+\.%b\b(?!\s*\()" % re.escape(option.variable.encode()))
        found = [match.span() for match in islice(use.finditer(source.data), _MOST)]
        uses = [span for span in found if not statement.start_byte <= span[0] < statement.end_byte]
        yield option, uses, [lines_edit(source, statement)]


def _of_decorators(source: Source) -> Iterator[tuple[_Option, list[tuple[int, int]], list[Edit]]]:
    """`@click.option("--name")` on a function that takes `name`."""
    for node, _ in definition_nodes(source):
        body, parameters = body_of(node), node.child_by_field_name("parameters")
        if body is None or parameters is None:
            continue
        for decorator in (each for each in whole_node(node).children if each.type == "decorator"):
            option = _option(source, decorator.named_children[0], "option")
            if option is None:
                continue
            items = parameters.named_children
            gone = [_parameter(source, item) == option.variable for item in items]
            named = [each for each in walk(body) if each.type == "identifier" and source.text(each) == option.variable]
            uses = [each for each in named[:_MOST] if not _is_keyword(each)]
            if any(gone) and not any(map(_is_assigned, uses)):
                edits = [lines_edit(source, decorator), *without_items(source, items, gone)]
                yield option, [(use.start_byte, use.end_byte) for use in uses], edits


def _option(source: Source, call: Node, method: str) -> _Option | None:
    function, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
    attribute = function.child_by_field_name("attribute") if function is not None else None
    if call.type != "call" or arguments is None or attribute is None or source.text(attribute) != method:
        return None
    given = [source.text(each)[1:-1] for each in arguments.named_children if each.type == "string"]
    flag = next((text for text in given if re.fullmatch(r"--[\w-]+", text)), "")
    keywords = {
        source.text(each.named_children[0]): source.text(each.named_children[1])
        for each in arguments.named_children
        if each.type == "keyword_argument" and each.named_child_count == 2
    }
    bare = next((text for text in given if not text.startswith("-")), "")
    variable = keywords.get("dest", "").strip("\"'") or bare or flag.lstrip("-").replace("-", "_")
    if not flag or not variable.isidentifier():
        return None
    switched = keywords.get("is_flag") == "True" or "store_true" in keywords.get("action", "")
    # What is stored by `store_false` is true where the option is not given.
    default = "True" if "store_false" in keywords.get("action", "") else "False" if switched else "None"
    return _Option(call, flag, variable, keywords.get("default", default), _text(keywords.get("help", "")))


def _text(literal: str) -> str:
    tree = python_tree(f"({literal})") if literal else None
    value = tree.body[0].value if tree is not None and tree.body and isinstance(tree.body[0], ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def _parameter(source: Source, item: Node) -> str:
    return next((source.text(node) for node in walk(item) if node.type == "identifier"), "")


def _is_keyword(use: Node) -> bool:
    """Whether it is the name of somebody else's parameter."""
    parent = use.parent
    return parent is not None and parent.type == "keyword_argument" and parent.child_by_field_name("name") == use


def _is_assigned(use: Node) -> bool:
    return use.parent is not None and use.parent.child_by_field_name("left") == use and "assignment" in use.parent.type


def _candidate(
    source: Source, coverage: LineCoverage, option: _Option, uses: Sequence[tuple[int, int]], edits: Sequence[Edit]
) -> Candidate | None:
    lines = {source.data.count(b"\n", 0, start) + 1 for start, _ in uses}
    covering = frozenset[str]().union(*(coverage.tests_of(source.path, n, n) for n in sorted(lines))) & coverage.passing
    if not judged(covering, coverage):
        return None
    after = edited(source, [*edits, *(Edit(start, end, option.default) for start, end in uses)])
    if after is None:
        return None
    first, last = source.lines_of(option.call)
    signature = " ".join(source.text(option.call).split())
    about = Definition(source.path, option.flag, "option", signature, option.documentation, first, last)
    before = source.data.decode("utf-8", "surrogateescape")
    change = FileChange(source.path, before, after)
    origin = {"mode": "option", "path": source.path, "names": option.flag}
    return Candidate(TaskKind.FEATURE, "python", (change,), (about,), covering, origin)
