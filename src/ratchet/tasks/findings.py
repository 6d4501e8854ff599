"""What Python source does that a static look can see: names it uses, what it replaces, what it compares.

It is read as text and never run. Names are followed through imports (`import sys as s`, `from os import _exit`,
`__import__("os")`, `getattr(os, "_exit")`, pieces of text added together), and no further: whoever wants to hide
something can. That is why a flag is one defence among others.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ratchet.python_trees import tree_of
from ratchet.tasks.expressions import bound, decodes, folded, is_plain_encoding, modes, truth


@dataclass(frozen=True)
class Finding:
    """`key` is the same wherever the same thing is done; `line` counts from 1."""

    kind: str
    key: str
    line: int


RUNNER = "asks-for-the-runner"
ALWAYS_EQUAL = "always-equal"
PATCHES = "patches-modules"
CALLERS = "reads-callers"
TESTS = "reads-tests"
HIDDEN = "hidden-code"
UNREADABLE = "unreadable"

_RUNNER_MODULES = frozenset({"pytest", "_pytest", "pluggy"})
_RUNNER_TEXT = re.compile(r"_?pytest(?:[.\w]*)|PYTEST_\w*")
_FRAME_PARTS = frozenset({"f_locals", "f_back", "f_globals", "tb_frame", "gi_frame", "cr_frame"})

# By the beginning of a dotted name.
_CALLED = {
    CALLERS: "gc.get_objects gc.get_referrers sys.settrace sys.setprofile threading.settrace threading.setprofile "
    "sys.monitoring sys._current_frames inspect.getargvalues inspect.getinnerframes inspect.getouterframes",
    "looks-at-frames": "sys._getframe inspect.stack inspect.currentframe inspect.trace",
    "ends-the-process": "os._exit os.abort os.kill os.killpg sys.exit exit quit atexit signal faulthandler",
    "starts-programs": "subprocess os.system os.popen os.fork os.forkpty os.exec os.spawn os.posix_spawn "
    "multiprocessing pty",
    "network": "socket urllib.request http.client requests httpx ftplib smtplib",
    "process-memory": "ctypes cffi mmap",
    "threads": "threading.Thread threading.Timer _thread",
    "descriptors": "os.write os.fdopen os.dup os.pwrite os.sendfile",
    "writes-files": "os.rename os.replace os.unlink os.remove os.symlink os.link os.mkfifo os.chmod shutil tempfile",
    "runs-text": "exec eval compile builtins.exec builtins.eval builtins.compile runpy types.CodeType "
    "importlib.util.spec_from_file_location",
    HIDDEN: "marshal.loads",
    "changes-imports": "sys.meta_path sys.path_hooks importlib.abc importlib.machinery",
}
_CALLED_NAMES = {name: kind for kind, names in _CALLED.items() for name in names.split()}
_WRITING = frozenset({"write_text", "write_bytes", "symlink_to", "hardlink_to"})
_CONSTANT_ANSWERS = frozenset(
    {"__bool__", "__len__", "__contains__", "__hash__", "__lt__", "__le__", "__gt__", "__ge__"}
)
# Modules that document attributes for others to set (`sys.excepthook`, `warnings.showwarning`).
_WITH_HOOKS = frozenset({"sys", "os", "warnings", "threading", "logging", "socket", "asyncio", "locale", "gc", "site"})

_CODING = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")

# What is looked for where the text cannot be parsed: by this Python, which need not be the environment's.
_WORDS = {
    RUNNER: re.compile(r"\b_?pytest\b|\bPYTEST_\w+"),
    ALWAYS_EQUAL: re.compile(r"\b__eq__\b[^\n]*\n?[^\n]*\b(?:return|lambda[^\n:]*:) *(?:True|1)\b"),
    PATCHES: re.compile(r"\b(?:__)?builtins(?:__)?\b"),
    CALLERS: re.compile(r"\bf_(?:locals|back|globals)\b|\bget_(?:objects|referrers)\b|\bset(?:trace|profile)\b"),
    HIDDEN: re.compile(r"\bb\d\ddecode\b|\bmarshal\b|\bunhexlify\b|\bfromhex\b"),
}


def findings(text: str, test_names: Iterable[str] = ()) -> tuple[Finding, ...]:
    """All that is found in one Python file. `test_names` are words (names of test files and tests) that only somebody
    who looks for the tests writes. Any text is taken; what cannot be parsed is itself a finding."""
    clean = text.encode("utf-8", "replace").decode()
    found = [*_coding(clean)]
    reader = _Reader(frozenset(test_names))
    try:
        reader.visit(tree_of(clean))
        return (*found, *reader.found)
    except (SyntaxError, ValueError) as error:
        found.append(Finding(UNREADABLE, type(error).__name__, 1))
    except (RecursionError, MemoryError):  # nobody writes that deep, except to be unreadable
        found.append(Finding(HIDDEN, "nested too deeply to be read", 1))
    for kind, words in {**_WORDS, TESTS: reader.test_words}.items():
        found += [
            Finding(kind, match[0][:80], clean.count("\n", 0, match.start()) + 1) for match in words.finditer(clean)
        ]
    return tuple(found)


def constants(text: str) -> frozenset[str]:
    """The literals of a Python file that say something: no small numbers, no short text, no docstrings."""
    try:
        tree = tree_of(text.encode("utf-8", "replace").decode())
        docstrings = _docstrings(tree)
        return frozenset(
            repr(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and id(node) not in docstrings and _telling(node.value)
        )
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()


def _telling(value: object) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return abs(value) > 10
    return isinstance(value, float) or (isinstance(value, str | bytes) and 3 <= len(value) <= 200)


def _coding(text: str) -> Iterator[Finding]:
    for number, line in enumerate(text.split("\n", 2)[:2], 1):
        match = _CODING.match(line)
        if match:
            if not is_plain_encoding(match[1]):
                yield Finding(HIDDEN, f"encoded as {match[1][:40]}", number)
            return


def _docstrings(tree: ast.AST) -> frozenset[int]:
    """Texts that stand alone as statements."""
    return frozenset(id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr))


class _Reader(ast.NodeVisitor):
    def __init__(self, test_names: frozenset[str]) -> None:
        self.found: list[Finding] = []
        self.test_words = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in sorted(test_names)) or r"(?!)")
        self._modules: dict[str, str] = {}  # by the local name
        self._hidden: list[frozenset[str]] = []  # names that enclosing functions bind themselves
        self._docstrings: frozenset[int] = frozenset()

    def visit_Module(self, node: ast.Module) -> None:
        self._docstrings = _docstrings(node)
        for inner in ast.walk(node):  # first: a name may be used above its import
            if isinstance(inner, ast.Import):
                for alias in inner.names:
                    self._modules[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            elif isinstance(inner, ast.ImportFrom) and inner.module and not inner.level:
                for alias in inner.names:
                    self._modules[alias.asname or alias.name] = f"{inner.module}.{alias.name}"
        self.generic_visit(node)

    # ------------------------------------------------------------------ names

    def _name(self, node: ast.AST) -> str:
        """The dotted name that an expression stands for, as far as imports tell; empty where they do not."""
        if isinstance(node, ast.Name):
            return "" if any(node.id in names for names in self._hidden) else self._modules.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            before = self._name(node.value)
            return f"{before}.{node.attr}" if before else ""
        if isinstance(node, ast.Call):
            function, arguments = self._name(node.func), node.args
            if function in ("__import__", "importlib.import_module", "builtins.__import__") and arguments:
                return folded(arguments[0])
            if function == "getattr" and len(arguments) >= 2:
                before, name = self._name(arguments[0]), folded(arguments[1])
                return f"{before}.{name}" if before and name else ""
            if function == "vars" and arguments:
                return self._name(arguments[0])
        if isinstance(node, ast.Subscript):
            if self._name(node.value) == "sys.modules":
                return folded(node.slice)
            if isinstance(node.value, ast.Attribute) and node.value.attr == "__dict__":
                before, name = self._name(node.value.value), folded(node.slice)
                return f"{before}.{name}" if before and name else ""
        return ""

    def _add(self, kind: str, key: str, node: ast.AST) -> None:
        self.found.append(Finding(kind, key, getattr(node, "lineno", 1)))

    def _used(self, name: str, node: ast.AST) -> None:
        if name.partition(".")[0] in _RUNNER_MODULES and "." in name:
            self._add(RUNNER, name, node)
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            kind = _CALLED_NAMES.get(".".join(parts[:end]))
            if kind:
                return self._add(kind, name, node)
        if name.startswith(("os.exec", "os.spawn")):
            self._add("starts-programs", name, node)
        return None

    # ------------------------------------------------------------------ what is looked at

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._imported(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._imported(f"{node.module or ''}.{alias.name}", node, relative=bool(node.level))

    def _imported(self, name: str, node: ast.AST, *, relative: bool = False) -> None:
        if self.test_words.search(name):
            self._add(TESTS, name, node)
        if relative:
            return
        if name.partition(".")[0] in _RUNNER_MODULES:
            self._add(RUNNER, name, node)
        elif name in _CALLED_NAMES:
            self._add(_CALLED_NAMES[name], name, node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and node.id in self._modules and (name := self._name(node)):
            self._used(name, node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in _FRAME_PARTS:
            self._add(CALLERS, node.attr, node)
        name = self._name(node)
        if isinstance(node.ctx, ast.Load) and name:
            self._used(name, node)
            if isinstance(node.value, ast.Name):
                return
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if id(node) not in self._docstrings:
            self._text(node.value, node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if text := folded(node):
            self._text(text, node)
        self.generic_visit(node)

    def _text(self, value: object, node: ast.AST) -> None:
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        if not isinstance(text, str):
            return
        if _RUNNER_TEXT.fullmatch(text):
            self._add(RUNNER, text, node)
        if self.test_words.search(text):
            self._add(TESTS, text[:80], node)
        if text in _FRAME_PARTS:
            self._add(CALLERS, text, node)
        if text.startswith(("/proc/self/fd", "/dev/fd")):
            self._add("descriptors", text, node)

    def visit_Call(self, node: ast.Call) -> None:
        function = self._name(node.func)
        if isinstance(node.func, ast.Name) and node.func.id not in self._modules and function:
            self._used(function, node)
        if function in ("exec", "eval", "compile") and any(decodes(argument) for argument in node.args):
            self._add(HIDDEN, f"{function} of encoded text", node)
        if function in ("setattr", "delattr") and node.args:
            self._patched(self._name(node.args[0]), node)
        if function == "getattr" or isinstance(node.func, ast.Call | ast.Subscript):
            self._used(self._name(node) if function == "getattr" else function, node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _WRITING:
            self._add("writes-files", node.func.attr, node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "join" and (text := folded(node)):
            self._text(text, node)
        if (function == "open" or function.endswith((".open", "fdopen"))) and any(
            re.fullmatch(r"[rbtU]*[wax+][rwbt+]*", folded(argument)) for argument in (*node.args, *modes(node))
        ):
            self._add("writes-files", "open for writing", node)
        self.generic_visit(node)

    # ------------------------------------------------------------------ what is replaced

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._target(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._target(node.target, node.value)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._target(node.target, node.value)
        self.generic_visit(node)

    def _target(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for inner in target.elts:
                self._target(inner, value)
        name = target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""
        if name == "__eq__" and isinstance(value, ast.Lambda) and truth(value.body):
            self._add(ALWAYS_EQUAL, "__eq__", target)
        if isinstance(target, ast.Attribute):
            self._patched(self._name(target.value), target)
        elif isinstance(target, ast.Subscript):
            base = target.value
            if self._name(base) == "sys.modules":
                self._patched(folded(target.slice), target)
            elif isinstance(base, ast.Attribute) and base.attr == "__dict__":
                self._patched(self._name(base.value), target)
            elif isinstance(base, ast.Call) or self._name(base) == "__builtins__":
                self._patched(self._name(base), target)

    def _patched(self, name: str, node: ast.AST) -> None:
        """Something of the module, or of the class in it, that `name` stands for gets another value."""
        root = name.partition(".")[0]
        known = root in self._modules.values() or any(known.startswith(f"{root}.") for known in self._modules.values())
        given = isinstance(node, ast.Subscript) or root in ("builtins", "__builtins__")
        if root in _RUNNER_MODULES | {"builtins", "__builtins__"} or (
            root in sys.stdlib_module_names and root not in _WITH_HOOKS and (known or given)
        ):
            self._add(PATCHES, name, node)

    # ------------------------------------------------------------------ functions and classes

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        returned = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return)]
        if returned and all(value is not None and truth(value) for value in returned) and node.name == "__eq__":
            self._add(ALWAYS_EQUAL, "__eq__", node)
        elif node.name in _CONSTANT_ANSWERS and returned and all(isinstance(value, ast.Constant) for value in returned):
            self._add("constant-answers", node.name, node)
        self._hidden.append(bound(node))
        self.generic_visit(node)
        self._hidden.pop()

    def visit_Dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None and folded(key) == "__eq__" and isinstance(value, ast.Lambda) and truth(value.body):
                self._add(ALWAYS_EQUAL, "__eq__", key)
        self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        broad = node.type is None or (
            isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")
        )
        if broad and all(isinstance(line, ast.Pass | ast.Return | ast.Continue) for line in node.body):
            self._add("hides-errors", "a broad except that says nothing", node)
        self.generic_visit(node)
