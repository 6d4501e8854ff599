"""nox: the sessions of noxfile.py, read from its syntax tree."""

from __future__ import annotations

import ast
import re
from typing import Any

from ratchet.survey.findings import Findings
from ratchet.survey.formats import UnreadableError
from ratchet.survey.python_syntax import parse
from ratchet.survey.shell import note_command, note_variable
from ratchet.survey.static_python import Call, Script
from ratchet.survey.tree import Tree

FILE = "noxfile.py"


def read(tree: Tree, found: Findings) -> None:
    text = tree.text(FILE)
    if not text:
        return
    try:
        module = parse(text)
    except UnreadableError as error:
        found.add("unreadable", str(error), FILE)
        return
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            session = next((each for each in node.decorator_list if _is_session(each)), None)
            if session is not None:
                _read_session(tree, found, module, node, session)


def _is_session(decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(target, ast.Attribute | ast.Name) and ast.unparse(target).split(".")[-1] == "session"


def _read_session(tree: Tree, found: Findings, module: ast.Module, node: ast.FunctionDef, decorator: ast.expr) -> None:
    """Evaluate the module's assignments, then the session's body with its calls recorded."""
    script = Script(
        record=frozenset({"install", "run", "run_always", "run_install", "session", "conda_install"}),
        read_file=tree.text,
    )
    others = [each for each in module.body if not isinstance(each, ast.FunctionDef)]
    helpers = [each for each in module.body if isinstance(each, ast.FunctionDef) and each is not node]
    call = ast.Expr(value=decorator)
    script.run(ast.Module(body=[*others, *helpers, call, *node.body], type_ignores=[]), unreached=False)
    name = node.name
    for made in script.calls:
        if made.name == "session":
            name = made.kwargs["name"] if isinstance(made.kwargs.get("name"), str) else name
            for version in _versions(made.kwargs.get("python")):
                found.add("python-version", version, FILE, made.line, f"nox:{name}")
    for made in script.calls:
        if made.name != "session":
            _note_call(tree, found, made, f"nox:{name}")


def _versions(value: Any) -> list[str]:
    listed = value if isinstance(value, list) else [value]
    return [each for each in listed if isinstance(each, str) and re.fullmatch(r"3\.\d+", each)]


def _note_call(tree: Tree, found: Findings, call: Call, group: str) -> None:
    words = [each for each in call.args if isinstance(each, str)]
    if not words:
        return
    env = call.kwargs.get("env")
    for name, value in (env if isinstance(env, dict) else {}).items():
        note_variable(found, str(name), value, FILE, call.line, group)
    quoted = [each if re.fullmatch(r"[^\s'\"]+", each) else f"'{each}'" for each in words]
    if call.name in ("install", "conda_install"):
        quoted = ["pip", "install", *quoted]
    note_command(tree, found, " ".join(quoted), FILE, call.line, group)
