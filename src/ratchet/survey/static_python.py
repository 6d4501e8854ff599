"""What a Python script would compute, as far as its syntax tree tells without running it.

`evaluate` follows assignments, list and dict building, small functions, file reading inside the checkout and the
calls it is asked to record (`setup`, `Extension`). What cannot be known is `UNKNOWN`; of a condition that cannot
be known, both branches are followed. Steps and sizes are limited, so a hostile script ends like any other.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ratchet.survey.python_syntax import constants, is_dotted, last_name
from ratchet.survey.static_values import (
    MAX_ITEMS,
    MAX_TEXT,
    UNKNOWN,
    added,
    compared,
    dict_method,
    is_plain,
    joined_path,
    list_method,
    listed,
    percented,
    text_method,
)

MAX_STEPS = 60_000
MAX_DEPTH = 40


@dataclass(frozen=True)
class Call:
    """A call that was asked for: its name, positional and keyword arguments, and line."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    line: int


@dataclass
class _Function:
    node: ast.FunctionDef


class _Return(Exception):  # noqa: N818 - control flow, not an error
    def __init__(self, value: Any) -> None:
        self.value = value


class _OutOfSteps(Exception):  # noqa: N818
    pass


@dataclass
class Script:
    """A script being evaluated. `calls` are the recorded ones; `names` the values at module level.

    `record` are the last parts of the names of calls to keep; `read_file` gives the text of a file of the
    checkout, or None.
    """

    record: frozenset[str]
    read_file: Callable[[str], str | None]
    folder: str = ""
    calls: list[Call] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)
    _aliases: dict[str, str] = field(default_factory=dict)
    _steps: int = 0
    _depth: int = 0

    def run(self, tree: ast.Module, *, unreached: bool = True) -> None:
        """Follow the module. With `unreached`, calls to record in functions that nothing called are evaluated too."""
        self.names |= {"__file__": "setup.py", "__name__": "__main__", "__doc__": ast.get_docstring(tree) or ""}
        try:
            self._block(tree.body, self.names)
            wanted = {call.line for call in self.calls}
            for node in ast.walk(tree) if unreached else ():
                if isinstance(node, ast.Call) and last_name(node.func) in self.record and node.lineno not in wanted:
                    self._value(node, self.names)
        except (_OutOfSteps, _Return, RecursionError):
            return

    # ----------------------------------------------------------------------- statements

    def _block(self, body: Iterable[ast.stmt], scope: dict[str, Any]) -> None:
        for statement in body:
            self._statement(statement, scope)

    def _statement(self, node: ast.stmt, scope: dict[str, Any]) -> None:
        self._count()
        match node:
            case ast.Assign():
                value = self._value(node.value, scope)
                for target in node.targets:
                    self._assign(target, value, scope)
            case ast.AnnAssign() if node.value is not None:
                self._assign(node.target, self._value(node.value, scope), scope)
            case ast.AugAssign():
                self._assign(node.target, added(self._value(node.target, scope), self._value(node.value, scope)), scope)
            case ast.Expr():
                self._value(node.value, scope)
            case ast.Return():
                raise _Return(self._value(node.value, scope) if node.value else None)
            case ast.FunctionDef():
                scope[node.name] = _Function(node)
            case ast.ImportFrom():
                for alias in node.names:
                    if alias.asname and alias.name in self.record:
                        self._aliases[alias.asname] = alias.name
            case ast.If():
                self._if(node, scope)
            case ast.For():
                self._for(node, scope)
            case ast.With():
                for item in node.items:
                    value = self._value(item.context_expr, scope)
                    if item.optional_vars is not None:
                        self._assign(item.optional_vars, value, scope)
                self._block(node.body, scope)
            case ast.Try():
                self._block(node.body, scope)
                self._block([*node.orelse, *node.finalbody], scope)

    def _if(self, node: ast.If, scope: dict[str, Any]) -> None:
        test = self._value(node.test, scope)
        if test is UNKNOWN:
            # A `return` on one of the branches must not hide what the other one does.
            for branch in (node.body, node.orelse):
                try:
                    self._block(branch, scope)
                except _Return as end:
                    if end.value is not UNKNOWN and end.value is not None:
                        raise
        else:
            self._block(node.body if test else node.orelse, scope)

    def _for(self, node: ast.For, scope: dict[str, Any]) -> None:
        values = self._value(node.iter, scope)
        if isinstance(values, str):
            values = values.splitlines(keepends=True) if "\n" in values else list(values)
        for value in listed(values):
            self._assign(node.target, value, scope)
            self._block(node.body, scope)

    def _assign(self, target: ast.expr, value: Any, scope: dict[str, Any]) -> None:
        match target:
            case ast.Name():
                scope[target.id] = value
            case ast.Tuple() | ast.List():
                values = listed(value)
                for at, each in enumerate(target.elts):
                    self._assign(each, values[at] if at < len(values) else UNKNOWN, scope)
            case ast.Subscript():
                holder, key = self._value(target.value, scope), self._value(target.slice, scope)
                if isinstance(holder, dict) and isinstance(key, str | int):
                    holder[key] = value

    # ----------------------------------------------------------------------- expressions

    def _count(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise _OutOfSteps

    def _value(self, node: ast.expr, scope: dict[str, Any]) -> Any:
        self._count()
        self._depth += 1
        try:
            value = UNKNOWN if self._depth > MAX_DEPTH * 4 else self._expression(node, scope)
        finally:
            self._depth -= 1
        if isinstance(value, str | list | dict):  # large values cost more, so that a loop cannot fill the memory
            self._steps += len(value) // (1024 if isinstance(value, str) else 64)
        return UNKNOWN if isinstance(value, str) and len(value) > MAX_TEXT else value

    def _expression(self, node: ast.expr, scope: dict[str, Any]) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return scope.get(node.id, self.names.get(node.id, UNKNOWN))
            case ast.List() | ast.Tuple() | ast.Set():
                return self._display(node.elts, scope)
            case ast.Dict():
                return self._dict(node, scope)
            case ast.JoinedStr():
                parts = [self._value(part, scope) for part in node.values]
                return "".join(map(str, parts))[:MAX_TEXT] if all(is_plain(part) for part in parts) else UNKNOWN
            case ast.FormattedValue():
                return self._value(node.value, scope)
            case ast.BinOp():
                return self._operation(node, scope)
            case ast.BoolOp():
                return self._bool(node, scope)
            case ast.UnaryOp(op=ast.Not()):
                value = self._value(node.operand, scope)
                return UNKNOWN if value is UNKNOWN else not value
            case ast.Compare():
                return self._compare(node, scope)
            case ast.IfExp():
                test = self._value(node.test, scope)
                first, second = self._value(node.body, scope), self._value(node.orelse, scope)
                if test is UNKNOWN:
                    return first if first is not UNKNOWN and first else second
                return first if test else second
            case ast.Subscript():
                return self._subscript(node, scope)
            case ast.Attribute():
                value = _ATTRIBUTES.get(ast.unparse(node) if is_dotted(node) else "", UNKNOWN)
                return value.copy() if isinstance(value, list | dict) else value
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                return self._comprehension(node, scope)
            case ast.Starred():
                return self._value(node.value, scope)
            case ast.Call():
                return self._call(node, scope)
        return UNKNOWN

    def _display(self, elements: list[ast.expr], scope: dict[str, Any]) -> list[Any]:
        result: list[Any] = []
        for each in elements[:MAX_ITEMS]:
            value = self._value(each, scope)
            result.extend(listed(value) if isinstance(each, ast.Starred) else [value])
        return result[:MAX_ITEMS]

    def _dict(self, node: ast.Dict, scope: dict[str, Any]) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key_node, value_node in zip(node.keys, node.values, strict=True):
            value = self._value(value_node, scope)
            if key_node is None:
                result.update(value if isinstance(value, dict) else {})
                continue
            key = self._value(key_node, scope)
            if isinstance(key, str | int):
                result[key] = value
        return result

    def _operation(self, node: ast.BinOp, scope: dict[str, Any]) -> Any:
        left, right = self._value(node.left, scope), self._value(node.right, scope)
        if isinstance(node.op, ast.Add):
            return added(left, right)
        if isinstance(node.op, ast.Mod) and isinstance(left, str) and len(left) < MAX_TEXT:
            return percented(left, right)
        if isinstance(node.op, ast.Div) and isinstance(left, str) and isinstance(right, str):
            return f"{left}/{right}".removeprefix("./")  # pathlib
        return UNKNOWN

    def _bool(self, node: ast.BoolOp, scope: dict[str, Any]) -> Any:
        values = [self._value(each, scope) for each in node.values]
        stops = isinstance(node.op, ast.Or)
        for value in values:
            if value is not UNKNOWN and bool(value) is stops:
                return value
        return UNKNOWN if UNKNOWN in [v for v in values if v is UNKNOWN] else values[-1]

    def _compare(self, node: ast.Compare, scope: dict[str, Any]) -> Any:
        if len(node.ops) > 1:
            return UNKNOWN
        return compared(node.ops[0], self._value(node.left, scope), self._value(node.comparators[0], scope))

    def _subscript(self, node: ast.Subscript, scope: dict[str, Any]) -> Any:
        holder = self._value(node.value, scope)
        if isinstance(node.slice, ast.Slice):
            lower = self._value(node.slice.lower, scope) if node.slice.lower else None
            upper = self._value(node.slice.upper, scope) if node.slice.upper else None
            if isinstance(holder, list | str) and isinstance(lower, int | None) and isinstance(upper, int | None):
                return holder[lower:upper]
            return UNKNOWN
        key = self._value(node.slice, scope)
        try:
            return holder[key] if isinstance(holder, dict | list | str) else UNKNOWN
        except (KeyError, IndexError, TypeError):
            return UNKNOWN

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, scope: dict[str, Any]) -> Any:
        generator = node.generators[0]
        values = self._value(generator.iter, scope)
        if isinstance(values, str):
            values = values.splitlines()
        if not isinstance(values, list | dict) or len(node.generators) > 1:
            return UNKNOWN
        result = []
        inner = {} if scope is self.names else dict(scope)
        for value in listed(values):
            self._assign(generator.target, value, inner)
            tests = [self._value(test, inner) for test in generator.ifs]
            if all(test or test is UNKNOWN for test in tests):
                result.append(self._value(node.elt, inner))
        return result[:MAX_ITEMS]

    # ----------------------------------------------------------------------- calls

    def _call(self, node: ast.Call, scope: dict[str, Any]) -> Any:
        name = self._aliases.get(last_name(node.func), last_name(node.func))
        args = self._display(node.args, scope)
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self._value(keyword.value, scope)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
            elif isinstance(value, dict):
                kwargs.update({key: each for key, each in value.items() if isinstance(key, str)})
        if name in self.record:
            call = Call(name, tuple(args), kwargs, node.lineno)
            self.calls.append(call)
            return call
        if isinstance(node.func, ast.Name):
            function = scope.get(name, self.names.get(name))
            if isinstance(function, _Function):
                return self._apply(function.node, args, kwargs)
            return self._builtin(name, args, kwargs)
        if isinstance(node.func, ast.Attribute):
            known = _CALLS.get(ast.unparse(node.func)) if is_dotted(node.func) else None
            if known is not None:
                return known
            holder = self._value(node.func.value, scope)
            return self._method(holder, name, args, kwargs)
        return UNKNOWN

    def _apply(self, node: ast.FunctionDef, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if self._depth > MAX_DEPTH:
            return UNKNOWN
        parameters = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
        inner: dict[str, Any] = {}
        for parameter, default in zip(parameters[::-1], node.args.defaults[::-1], strict=False):
            inner[parameter] = self._value(default, self.names)
        inner |= dict(zip(parameters, args, strict=False)) | kwargs
        if node.args.vararg:
            inner[node.args.vararg.arg] = args[len(parameters) :]
        self._depth += 5
        try:
            self._block(node.body, inner)
        except _Return as end:
            return end.value
        finally:
            self._depth -= 5
        return None

    def _builtin(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        first = args[0] if args else None
        if name == "open" or name == "read_text":
            return self._file(first)
        if name in ("list", "sorted", "set", "tuple", "frozenset"):
            if isinstance(first, str):
                return UNKNOWN
            return [] if not args else listed(first) if isinstance(first, list | dict) else UNKNOWN
        if name == "dict":
            return {**(first if isinstance(first, dict) else {}), **kwargs}
        if name in ("str", "Path", "PurePath", "abspath", "realpath", "fspath"):
            return first if isinstance(first, str) else UNKNOWN
        if name == "join":
            return joined_path(args)
        if name == "cast" and len(args) == 2:
            return args[1]
        if name == "bool" and first is not UNKNOWN:
            return bool(first)
        if name == "getenv" and args:  # the environment is empty
            return args[1] if len(args) > 1 else None
        if name == "exec" and isinstance(first, str) and len(args) > 1 and isinstance(args[1], dict):
            args[1].update(constants(first))
            return None
        return "" if name in ("dirname", "getcwd") else UNKNOWN

    def _method(self, holder: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if holder is UNKNOWN:
            return self._library(name, args, kwargs)
        if isinstance(holder, str):
            return self._text_method(holder, name, args, kwargs)
        if isinstance(holder, list):
            return list_method(holder, name, args)
        if isinstance(holder, dict):
            return dict_method(holder, name, args, kwargs)
        return UNKNOWN

    def _library(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A function of a module (`os.path.join`), or a method of something unknown."""
        if name in ("chain", "from_iterable") and all(isinstance(each, list) for each in args):
            flat = (inner for each in args for item in each for inner in (item if isinstance(item, list) else [item]))
            return list(islice(flat, MAX_ITEMS))
        if name in ("join", "open", "dirname", "abspath", "realpath", "Path", "getcwd", "PurePath", "getenv"):
            return self._builtin(name, args, kwargs)
        return UNKNOWN

    def _file(self, name: Any) -> Any:
        if not isinstance(name, str):
            return UNKNOWN
        text = self.read_file(f"{self.folder}/{name}" if self.folder else name)
        return UNKNOWN if text is None else text

    def _text_method(self, holder: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name in ("read_text", "open"):
            return self._file(holder)
        if name in ("read", "__str__", "decode", "as_posix", "resolve", "absolute", "expanduser"):
            return holder
        return text_method(holder, name, args, kwargs)


# A setup script is read for CPython on Linux.
_ATTRIBUTES: dict[str, Any] = {
    "sys.platform": "linux", "os.name": "posix", "sys.version_info": [3, 11, 0, "final", 0], "sys.argv": ["setup.py"],
    "sys.version_info.major": 3, "sys.version_info.minor": 11, "sys.maxsize": 2**63 - 1, "os.sep": "/",
    "sys.implementation.name": "cpython", "os.environ": {}, "sys.byteorder": "little",
}  # fmt: skip
_CALLS = {
    "platform.python_implementation": "CPython", "platform.system": "Linux", "platform.machine": "x86_64",
    "sysconfig.get_platform": "linux-x86_64",
}  # fmt: skip
