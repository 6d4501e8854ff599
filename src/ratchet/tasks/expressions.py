"""What expressions of Python come to, as far as their text alone tells."""

from __future__ import annotations

import ast
import re

_DECODING = frozenset(
    {"b64decode", "b85decode", "a85decode", "b32decode", "b16decode", "urlsafe_b64decode", "decompress", "fromhex"}
    | {"unhexlify", "decode", "loads", "translate", "chr", "bytes", "bytearray"}
)

_PLAIN = frozenset({"utf8", "utf8sig", "ascii", "usascii", "latin1", "iso88591", "iso885915", "cp1252"})


def bound(function: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    """Parameters and assigned names, less those that are declared as of outside."""
    names: set[str] = set()
    outside: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            outside.update(node.names)
    return frozenset(names - outside)


def folded(node: ast.AST) -> str:
    """The text that an expression of text literals gives; empty where it is none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = folded(node.left), folded(node.right)
        return left + right if left and right else ""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "join"
        and isinstance(node.func.value, ast.Constant)
        and isinstance(node.func.value.value, str)
        and len(node.args) == 1
        and isinstance(node.args[0], ast.List | ast.Tuple)
    ):
        parts = [folded(part) for part in node.args[0].elts]
        return node.func.value.value.join(parts) if all(parts) else ""
    return ""


def modes(call: ast.Call) -> list[ast.expr]:
    """What is given as `mode=` in a call."""
    return [keyword.value for keyword in call.keywords if keyword.arg == "mode"]


def decodes(node: ast.AST) -> bool:
    """Whether something in an expression makes readable text of something else, or turns it round."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            function = inner.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name in _DECODING and not (name == "decode" and _reads_bytes(inner)):
                return True
        if isinstance(inner, ast.Slice) and isinstance(inner.step, ast.UnaryOp):
            return True
    return False


def _reads_bytes(call: ast.Call) -> bool:
    """Whether a call of `decode` only makes text of bytes that anybody could read."""
    given = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg in ("encoding", None))]
    return isinstance(call.func, ast.Attribute) and all(is_plain_encoding(folded(each)) for each in given)


def is_plain_encoding(name: str) -> bool:
    """Whether text in this encoding looks like what it says."""
    return re.sub(r"[-_.]", "", name).lower() in _PLAIN


def truth(node: ast.AST) -> bool:
    """Whether an expression is true whatever its names stand for, as far as is easy to see."""
    if isinstance(node, ast.Constant):
        return bool(node.value) and node.value is not ...
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return isinstance(node.operand, ast.Constant) and not node.operand.value
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Is | ast.Eq):
        return ast.dump(node.left) == ast.dump(node.comparators[0])
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        return any(truth(value) for value in node.values)
    return False
