"""Where modules hand names on, and what they name while they are imported: what taking a definition out has to mind."""

from __future__ import annotations

import ast
import re

from ratchet.tasks.syntax import Edit, Source


def export_edits(source: Source, name: str) -> list[Edit]:
    """What takes a name out of the `__all__` of its own module."""
    text = source.data.decode("utf-8", "surrogateescape")
    found = _exported(text, name)
    if found is None:
        return []
    start, end = (len(text[:place].encode("utf-8", "surrogateescape")) for place in found)
    return [Edit(start, end, "")]


def _exported(text: str, name: str) -> tuple[int, int] | None:
    """Where `__all__` holds the name, with its comma, and its line where it has one for itself."""
    for listed in re.finditer(r"^__all__\b[^=\n]*=\s*[\[(]([^\])]*)[\])]", text, flags=re.MULTILINE):
        quoted = rf"""(['"]){re.escape(name)}\1"""
        for form in (rf"(?<=\n)[ \t]*{quoted}[ \t]*,?[ \t]*\n", rf"{quoted}\s*,\s*", rf",?\s*{quoted}"):
            found = re.compile(form).search(text, listed.start(1), listed.end(1))
            if found is not None:
                return found.span()
    return None


def without_exports(text: str, name: str) -> str:
    """A module that does not hand the name on: neither imported nor in `__all__`."""
    word = rf"{re.escape(name)}(?: as {re.escape(name)})?"
    text = re.sub(rf"^[ \t]+{word},[ \t]*(?:#.*)?\n", "", text, flags=re.MULTILINE)

    def without(found: re.Match[str]) -> str:
        kept = [each for each in re.split(r"\s*,\s*", found[2].strip()) if not re.fullmatch(word, each)]
        return f"{found[1]}{', '.join(kept)}{found[3]}\n" if kept else ""

    text = re.sub(r"^(from [\w.]+ import )([\w ,]+?)([ \t]*(?:#.*)?)\n", without, text, flags=re.MULTILINE)
    place = _exported(text, name)
    return text if place is None else text[: place[0]] + text[place[1] :]


def named_in_class(text: str, name: str) -> bool:
    """Whether the body of a class names one of its methods, in a decorator (`@name.setter`) or an assignment: without
    it the module could not be imported."""
    try:
        classes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
    except (SyntaxError, ValueError, RecursionError):
        return True
    for statement in (each for node in classes for each in node.body):
        run: list[ast.AST] = [statement]
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            run = [*statement.decorator_list, *statement.args.defaults, *filter(None, statement.args.kw_defaults)]
        elif isinstance(statement, ast.ClassDef):
            continue
        if any(isinstance(node, ast.Name) and node.id == name for each in run for node in ast.walk(each)):
            return True
    return False


def broken(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return True
    return False
