"""What a Python script would compute, as far as its syntax tree tells without running it.

`evaluate` follows assignments, list and dict building, small functions, file reading inside the checkout and the
calls it is asked to record (`setup`, `Extension`). What cannot be known is `UNKNOWN`; of a condition that cannot
be known, both branches are followed. Steps and sizes are limited, so a hostile script ends like any other.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ratchet.survey.formats import UnreadableError, names

MAX_STEPS = 60_000
MAX_DEPTH = 40
MAX_TEXT = 1 << 18
MAX_ITEMS = 1_000


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        return False


UNKNOWN = _Unknown()


def parse(text: str) -> ast.Module:
    """The syntax tree of a script; `UnreadableError` where there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise UnreadableError(f"not Python {_where(error)}: {str(error)[:200]}") from error
    except (RecursionError, MemoryError) as error:
        raise UnreadableError("nested too deeply to be parsed as Python") from error


def _where(error: Exception) -> str:
    return f"(line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else "(no line)"


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
    _steps: int = 0
    _depth: int = 0

    def run(self, tree: ast.Module, *, unreached: bool = True) -> None:
        """Follow the module. With `unreached`, calls to record in functions that nothing called are evaluated too."""
        self.names |= {"__file__": "setup.py", "__name__": "__main__", "__doc__": ast.get_docstring(tree) or ""}
        try:
            self._block(tree.body, self.names)
            wanted = {call.line for call in self.calls}
            for node in ast.walk(tree) if unreached else ():
                if isinstance(node, ast.Call) and _last(node.func) in self.record and node.lineno not in wanted:
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
                self._assign(node.target, _add(self._value(node.target, scope), self._value(node.value, scope)), scope)
            case ast.Expr():
                self._value(node.value, scope)
            case ast.Return():
                raise _Return(self._value(node.value, scope) if node.value else None)
            case ast.FunctionDef():
                scope[node.name] = _Function(node)
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
        for value in _listed(values):
            self._assign(node.target, value, scope)
            self._block(node.body, scope)

    def _assign(self, target: ast.expr, value: Any, scope: dict[str, Any]) -> None:
        match target:
            case ast.Name():
                scope[target.id] = value
            case ast.Tuple() | ast.List():
                values = _listed(value)
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
        if isinstance(value, str | list):  # large values cost more, so that a loop cannot fill the memory
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
                return "".join(map(str, parts))[:MAX_TEXT] if all(_plain(part) for part in parts) else UNKNOWN
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
                return _ATTRIBUTES.get(ast.unparse(node) if _is_dotted(node) else "", UNKNOWN)
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
            result.extend(_listed(value) if isinstance(each, ast.Starred) else [value])
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
            return _add(left, right)
        if isinstance(node.op, ast.Mod) and isinstance(left, str) and len(left) < MAX_TEXT:
            return _percent(left, right)
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
        left, right = self._value(node.left, scope), self._value(node.comparators[0], scope)
        if left is UNKNOWN or right is UNKNOWN or len(node.ops) > 1:
            return UNKNOWN
        try:
            match node.ops[0]:
                case ast.Eq() | ast.Is():
                    return left == right
                case ast.NotEq() | ast.IsNot():
                    return left != right
                case ast.Lt():
                    return left < right
                case ast.LtE():
                    return left <= right
                case ast.Gt():
                    return left > right
                case ast.GtE():
                    return left >= right
                case ast.In():
                    return left in right
                case ast.NotIn():
                    return left not in right
        except TypeError:
            return UNKNOWN
        return UNKNOWN

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
        for value in _listed(values):
            inner = dict(scope)
            self._assign(generator.target, value, inner)
            tests = [self._value(test, inner) for test in generator.ifs]
            if all(test or test is UNKNOWN for test in tests):
                result.append(self._value(node.elt, inner))
        return result[:MAX_ITEMS]

    # ----------------------------------------------------------------------- calls

    def _call(self, node: ast.Call, scope: dict[str, Any]) -> Any:
        name = _last(node.func)
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
            return [] if not args else _listed(first) if isinstance(first, list | dict) else UNKNOWN
        if name == "dict":
            return {**(first if isinstance(first, dict) else {}), **kwargs}
        if name in ("str", "Path", "PurePath", "abspath", "realpath", "fspath"):
            return first if isinstance(first, str) else UNKNOWN
        if name == "join":
            return self._join(args)
        if name == "exec" and isinstance(first, str) and len(args) > 1 and isinstance(args[1], dict):
            args[1].update(constants(first))
            return None
        return "" if name in ("dirname", "getcwd") else UNKNOWN

    def _method(self, holder: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        first = args[0] if args else None
        if holder is UNKNOWN:
            return self._library(name, args, kwargs)
        if isinstance(holder, str):
            return self._text_method(holder, name, args, kwargs)
        if isinstance(holder, list):
            if name == "append" and len(holder) < MAX_ITEMS:
                holder.append(first)
            elif name == "insert" and len(args) == 2 and len(holder) < MAX_ITEMS:
                holder.append(args[1])
            elif name in ("extend", "update", "union") and isinstance(first, list | dict):
                holder.extend(_listed(first)[: MAX_ITEMS - len(holder)])
            return holder if name in ("copy", "union") else None
        if isinstance(holder, dict):
            return _dict_method(holder, name, args, kwargs)
        return UNKNOWN

    def _library(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A function of a module (`os.path.join`), or a method of something unknown."""
        if name in ("chain", "from_iterable") and all(isinstance(each, list) for each in args):
            return [item for each in args for item in each if not isinstance(item, list)] + [
                inner for each in args for item in each if isinstance(item, list) for inner in item
            ]
        if name in ("join", "open", "dirname", "abspath", "realpath", "Path", "getcwd", "PurePath"):
            return self._builtin(name, args, kwargs)
        return UNKNOWN

    def _join(self, args: list[Any]) -> Any:
        parts = [part for part in args if isinstance(part, str)]
        return "/".join(part for part in parts if part) if parts else UNKNOWN

    def _file(self, name: Any) -> Any:
        if not isinstance(name, str):
            return UNKNOWN
        text = self.read_file(f"{self.folder}/{name}" if self.folder else name)
        return UNKNOWN if text is None else text

    def _text_method(self, holder: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        first = args[0] if args else None
        if name in ("read_text", "open"):
            return self._file(holder)
        if name in ("read", "__str__", "decode", "as_posix", "resolve", "absolute", "expanduser"):
            return holder
        if name in ("readlines", "splitlines"):
            return holder.splitlines()[:MAX_ITEMS]
        if name == "joinpath":
            return self._join([holder, *args])
        if name == "format" and len(holder) < 10_000:
            return _formatted(holder, args, kwargs)
        if name == "join" and isinstance(first, list):
            texts = [each for each in first if isinstance(each, str)]
            return holder.join(texts) if sum(map(len, texts)) + len(holder) * len(texts) < MAX_TEXT else UNKNOWN
        if name == "replace" and (
            len(args) != 2 or not all(isinstance(each, str) and len(each) < 100 for each in args)
        ):
            return UNKNOWN
        if name in _TEXT_METHODS and all(isinstance(each, str | int | tuple | None) for each in args):
            try:
                result = getattr(holder, name)(*args)
            except (TypeError, ValueError, OverflowError):
                return UNKNOWN
            return result[:MAX_ITEMS] if isinstance(result, list) else result
        return UNKNOWN


_TEXT_METHODS = names(
    """
    strip lstrip rstrip lower upper split rsplit replace startswith endswith title partition removeprefix
    removesuffix find count isspace isdigit
    """
)
# A setup script is read for CPython on Linux.
_ATTRIBUTES: dict[str, Any] = {
    "sys.platform": "linux", "os.name": "posix", "sys.version_info": [3, 11, 0, "final", 0], "sys.argv": ["setup.py"],
    "sys.version_info.major": 3, "sys.version_info.minor": 11, "sys.maxsize": 2**63 - 1, "os.sep": "/",
    "sys.implementation.name": "cpython",
}  # fmt: skip


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


def _dict_method(holder: dict[Any, Any], name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    first = args[0] if args else None
    if name == "update":
        holder.update({**(first if isinstance(first, dict) else {}), **kwargs})
        return None
    if name in ("values", "keys", "items"):
        return [list(each) if isinstance(each, tuple) else each for each in getattr(holder, name)()]
    if name in ("get", "setdefault", "pop") and isinstance(first, str | int):
        value = holder.get(first, args[1] if len(args) > 1 else None)
        if name == "setdefault":
            holder[first] = value
        return value
    return holder if name == "copy" else UNKNOWN


def _add(left: Any, right: Any) -> Any:
    """Concatenation; of a list with something unknown the known part is what is worth keeping."""
    if isinstance(left, list | tuple) or isinstance(right, list | tuple):
        return [*_listed(left), *_listed(right)][:MAX_ITEMS]
    if isinstance(left, str) and isinstance(right, str):
        return left + right if len(left) + len(right) < MAX_TEXT else UNKNOWN
    return UNKNOWN


def _percent(left: str, right: Any) -> Any:
    values = tuple(right) if isinstance(right, list) else right
    if not all(_plain(each) for each in (values if isinstance(values, tuple) else [values])):
        return UNKNOWN
    if len(left) > 10_000 or any(digit in left for digit in "*123456789"):  # widths can ask for gigabytes
        return (
            left.replace("%s", "{}").format(*(values if isinstance(values, tuple) else [values]))
            if _simple(left, values)
            else UNKNOWN
        )
    try:
        return left % values
    except (TypeError, ValueError):
        return UNKNOWN


def _simple(left: str, values: Any) -> bool:
    count = len(values) if isinstance(values, tuple) else 1
    return left.count("%") == left.count("%s") == count and "{" not in left and "}" not in left


def _formatted(template: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`str.format` for plain fields only: attributes, indexes and widths are left alone."""
    result, remaining, automatic = "", template, 0
    while "{" in remaining:
        before, _, rest = remaining.partition("{")
        name, _, remaining = rest.partition("}")
        result += before
        if not name:
            name, automatic = str(automatic), automatic + 1
        value = (
            args[int(name)]
            if name.isdecimal() and len(name) < 4 and int(name) < len(args)
            else kwargs.get(name, UNKNOWN)
        )
        if not _plain(value) or len(result) > MAX_TEXT:
            return UNKNOWN
        result += str(value)
    return result + remaining


def _plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and (not isinstance(value, int) or abs(value) < 10**18)


def _listed(value: Any) -> list[Any]:
    return list(value)[:MAX_ITEMS] if isinstance(value, list | tuple | dict) else []


def _last(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_dotted(node: ast.expr) -> bool:
    for _ in range(6):
        if isinstance(node, ast.Name):
            return True
        if not isinstance(node, ast.Attribute):
            return False
        node = node.value
    return False
