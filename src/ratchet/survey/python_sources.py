"""What one Python file imports and which tests it holds, from its syntax tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ratchet.survey.formats import UnreadableError, names
from ratchet.survey.python_syntax import parse

# Top-level packages that many distributions share: an import of one is known by its first two parts.
NAMESPACES = names(
    """
    google zope backports sphinxcontrib jaraco ruamel azure plone collective repoze paste flufl mpl_toolkits
    opentelemetry airflow pdm poetry tempest oslo logilab keystoneauth1 hdmf nvidia
    """
)
_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException", "AttributeError"})


@dataclass(frozen=True)
class Import:
    """An import of a module that is no part of the importing package.

    `optional`: failure is provided for (try/except, importorskip, a condition on the platform or version);
    `nested`: inside a function; `typing`: only for the type checker.
    """

    name: str
    line: int
    optional: bool = False
    nested: bool = False
    typing: bool = False


@dataclass(frozen=True)
class Source:
    """A summary of one file: imports, test counts by style, and the plugins that it asks pytest for."""

    imports: tuple[Import, ...] = ()
    pytest_tests: int = 0
    unittest_tests: int = 0
    plugins: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Naming:
    """pytest's patterns for what is a test inside a file."""

    functions: tuple[str, ...] = ("test",)
    classes: tuple[str, ...] = ("Test",)

    def is_function(self, name: str) -> bool:
        return _matches(name, self.functions)

    def is_class(self, name: str) -> bool:
        return _matches(name, self.classes)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    """pytest's rule: a prefix, or a shell pattern when it holds one of *?[."""
    return any(
        fnmatchcase(name, pattern) if any(sign in pattern for sign in "*?[") else name.startswith(pattern)
        for pattern in patterns
    )


def summarise(text: str, naming: Naming) -> Source:
    """The summary of a file's text. One that this interpreter cannot parse (older or newer syntax, or none) is
    read line by line."""
    try:
        module = parse(text)
    except UnreadableError:
        return summarise_lines(text, naming)
    imports = tuple(dict.fromkeys(_imports(module)))
    plain, unit = _count_tests(module, naming)
    return Source(imports, plain, unit, tuple(_plugins(module)))


def summarise_lines(text: str, naming: Naming) -> Source:
    """A cheaper, coarser summary: functions at the top or one level in, imports at the top."""
    tests = 0
    imports: dict[Import, None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        function = re.match(r"(?:    |\t)?(?:async\s+)?def\s+(\w+)", line)
        tests += bool(function and naming.is_function(function.group(1)))
        module = re.match(r"(?:from|import)\s+([A-Za-z_]\w*(?:\.\w+)*)", line)
        if module:
            imports[_import(module.group(1), number, _Place())] = None
    unit = "TestCase" in text
    return Source(tuple(imports), 0 if unit else tests, tests if unit else 0)


# --------------------------------------------------------------------------- imports


@dataclass(frozen=True)
class _Place:
    optional: bool = False
    nested: bool = False
    typing: bool = False


def _imports(module: ast.Module) -> Iterator[Import]:
    waiting: list[tuple[list[ast.stmt], _Place]] = [(module.body, _Place())]
    while waiting:
        body, place = waiting.pop()
        for node in body:
            match node:
                case ast.Import():
                    for alias in node.names:
                        yield _import(alias.name, node.lineno, place)
                case ast.ImportFrom(level=0) if node.module:
                    namespace = node.module in NAMESPACES
                    for name in [f"{node.module}.{each.name}" for each in node.names] if namespace else [node.module]:
                        yield _import(name, node.lineno, place)
                case ast.If():
                    waiting.append((node.body, _in_condition(node.test, place)))
                    waiting.append((node.orelse, _in_condition(node.test, place, other=True)))
                case ast.Try():
                    provided = any(_catches_imports(handler) for handler in node.handlers)
                    inner = _Place(place.optional or provided, place.nested, place.typing)
                    waiting += [(node.body, inner), (node.orelse, inner), (node.finalbody, place)]
                    waiting += [(handler.body, inner) for handler in node.handlers]
                case ast.With() | ast.For() | ast.While() | ast.ClassDef():
                    suppresses = isinstance(node, ast.With) and "suppress" in ast.dump(node.items[0].context_expr)[:200]
                    waiting.append((node.body, _Place(place.optional or suppresses, place.nested, place.typing)))
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    waiting.append((node.body, _Place(place.optional, True, place.typing)))
                case ast.Assign() | ast.Expr() | ast.AnnAssign():
                    yield from _skipped(node.value, node.lineno, place)


def _import(name: str, line: int, place: _Place) -> Import:
    parts = name.split(".")
    top = ".".join(parts[:2]) if parts[0] in NAMESPACES and len(parts) > 1 else parts[0]
    return Import(top, line, place.optional, place.nested, place.typing)


def _skipped(value: ast.expr | None, line: int, place: _Place) -> Iterator[Import]:
    """`pytest.importorskip("name")`."""
    if isinstance(value, ast.Attribute):
        value = value.value
    if isinstance(value, ast.Call) and value.args:
        function, first = value.func, value.args[0]
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name == "importorskip" and isinstance(first, ast.Constant) and isinstance(first.value, str):
            if not re.fullmatch(r"[A-Za-z_][\w.]*", first.value):
                return
            yield _import(first.value, line, _Place(True, place.nested, place.typing))


def _in_condition(test: ast.expr, place: _Place, *, other: bool = False) -> _Place:
    """Under `if TYPE_CHECKING` an import is the type checker's; under any other condition it is optional."""
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    if name == "TYPE_CHECKING":
        return _Place(place.optional, place.nested, place.typing or not other)
    return _Place(True, place.nested, place.typing)


def _catches_imports(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(ast.unparse(each).split(".")[-1] in _IMPORT_ERRORS for each in caught)


def _plugins(module: ast.Module) -> Iterator[tuple[str, int]]:
    for node in module.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytest_plugins" for target in node.targets
        ):
            elements = node.value.elts if isinstance(node.value, ast.List | ast.Tuple | ast.Set) else [node.value]
            for each in elements:
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield each.value, each.lineno


# --------------------------------------------------------------------------- tests


def _count_tests(module: ast.Module, naming: Naming) -> tuple[int, int]:
    """Test functions that pytest would collect by name, and methods of unittest-like classes."""
    classes = {node.name: node for node in _classes(module)}
    plain = sum(naming.is_function(node.name) for node in _functions(module.body))
    unit = 0
    for node in classes.values():
        methods = _methods(node, classes, 0)
        if _is_test_case(node, classes, 0):
            unit += sum(name.startswith("test") or naming.is_function(name) for name in methods)
        elif naming.is_class(node.name) and "__init__" not in methods:
            plain += sum(naming.is_function(name) for name in methods)
    return plain, unit


def _blocks(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements at module or class level, those under `if`, `try` and `with` included."""
    waiting = list(reversed(body))
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If | ast.Try):
            waiting += [*node.orelse, *node.body]
        elif isinstance(node, ast.With):
            waiting += node.body


def _functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in _blocks(body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_fixture(node):
            yield node


def _is_fixture(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if (target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")) == "fixture":
            return True
    return False


def _classes(module: ast.Module) -> Iterator[ast.ClassDef]:
    """Classes at module level and, for Test classes, one level inside."""
    for node in _blocks(module.body):
        if isinstance(node, ast.ClassDef):
            yield node
            yield from (each for each in node.body if isinstance(each, ast.ClassDef) and each.name.startswith("Test"))


def _methods(node: ast.ClassDef, classes: dict[str, ast.ClassDef], depth: int) -> set[str]:
    """Names of the methods, also of those that bases in the same file give."""
    names = {each.name for each in _functions(node.body)}
    for base in node.bases if depth < 8 else ():
        parent = classes.get(base.id) if isinstance(base, ast.Name) else None
        if parent is not None and parent is not node:
            names |= _methods(parent, classes, depth + 1)
    return names


def _is_test_case(node: ast.ClassDef, classes: dict[str, ast.ClassDef], depth: int) -> bool:
    """Derived from something called …TestCase, TestBase or …Test, directly or through a class of the same file."""
    for base in node.bases if depth < 8 else ():
        name = base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else ""
        parent = classes.get(name)
        if parent is not None and parent is not node:
            if _is_test_case(parent, classes, depth + 1):
                return True
        elif "TestCase" in name or "TestBase" in name or name.endswith(("Test", "Tests")):
            return True
    return False
