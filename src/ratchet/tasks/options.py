"""Command-line options as features that can be taken out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ratchet.task_records import FileChange, TaskKind
from ratchet.tasks.bugs import MOST_COVERING
from ratchet.tasks.candidates import Candidate, Definition, LineCoverage
from ratchet.tasks.exports import broken
from ratchet.tasks.syntax import Source


def option_candidates(source: Source, coverage: LineCoverage) -> Iterator[Candidate]:
    """Options of argparse: the call that declares one goes, and its value is the default everywhere."""
    if source.language.name != "python" or b".add_argument(" not in source.data:
        return
    text = source.data.decode("utf-8", "surrogateescape")
    try:
        statements = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    except (SyntaxError, ValueError, RecursionError):
        return
    for statement in statements:
        call = statement.value
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
            continue
        flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        long = next((flag for flag in flags if flag.startswith("--")), "")
        if call.func.attr != "add_argument" or not long:
            continue
        candidate = _option(source, text, statement, call, long, coverage)
        if candidate is not None:
            yield candidate


def _option(
    source: Source, text: str, statement: ast.Expr, call: ast.Call, flag: str, coverage: LineCoverage
) -> Candidate | None:
    keywords = {k.arg: k.value for k in call.keywords if k.arg}
    named = keywords.get("dest")
    name = named.value if isinstance(named, ast.Constant) else flag.lstrip("-").replace("-", "_")
    last = statement.end_lineno or statement.lineno
    lines = text.split("\n")
    use = re.compile(rf"\b(?!self\b)\w+\.{re.escape(str(name))}\b(?!\s*\()")
    users = [n for n, line in enumerate(lines, 1) if use.search(line) and not statement.lineno <= n <= last]
    if not users:
        return None
    action = keywords.get("action")
    switched = isinstance(action, ast.Constant) and action.value in ("store_true", "store_false")
    default = ast.unparse(keywords["default"]) if "default" in keywords else "False" if switched else "None"
    changed = [
        use.sub(default, line) if n in users else line
        for n, line in enumerate(lines, 1)
        if not statement.lineno <= n <= last
    ]
    after = "\n".join(changed)
    covering = frozenset().union(*(coverage.tests_of(source.path, n, n) for n in users)) & coverage.passing
    if broken(after) or not 1 <= len(covering) <= max(1.0, MOST_COVERING * len(coverage.passing)):
        return None
    helped = keywords.get("help")
    about = Definition(
        source.path,
        flag,
        "option",
        " ".join(ast.unparse(call).split()),
        helped.value if isinstance(helped, ast.Constant) and isinstance(helped.value, str) else "",
        statement.lineno,
        last,
    )
    origin = {"mode": "option", "path": source.path, "names": flag}
    change = FileChange(source.path, text, after)
    return Candidate(TaskKind.FEATURE, "python", (change,), (about,), covering, origin)
