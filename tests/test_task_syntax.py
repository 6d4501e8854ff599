"""Definitions in sources of several languages, and the faults that can be planted in them."""

from __future__ import annotations

import pytest

from ratchet.tasks.languages import language_of
from ratchet.tasks.mutations import OPERATORS, mutations_in
from ratchet.tasks.syntax import Edit, Source, definition_nodes, edited, function_nodes, parse_source


def parsed(path: str, text: str) -> Source:
    language = language_of(path)
    assert language is not None
    source = parse_source(path, text, language)
    assert source is not None
    return source


def mutants(path: str, text: str) -> list[tuple[str, str]]:
    """Each operator with the text that it makes of a source."""
    source = parsed(path, text)
    made = [
        (m.operator, edited(source, [m.edit])) for node, _ in function_nodes(source) for m in mutations_in(source, node)
    ]
    return [(operator, after) for operator, after in made if after is not None]


# --------------------------------------------------------------------------- definitions

PYTHON = '''\
import functools


@functools.cache
def first(a: int, *, b=2) -> int:
    """Says what.

    And more."""
    def inner():
        return b
    return a + inner()


class Outer:
    """Holds."""

    class Inner:
        async def method(self): return 1

    @property
    def size(self):
        # no documentation
        return 3
'''
JAVASCRIPT = """\
// Adds.
export function add(a, b) { return a + b; }
const twice = (a) => {
  return a * 2;
};
(function () { function hidden() { return 1; } })();
class Box { get() { return this.x; } set = (x) => { this.x = x; }; }
"""
C = """\
#include <stdio.h>
/* The larger one. */
static int *larger(int a, char **b) { return a > 2 ? 0 : 0; }
"""
CPP = """\
int Foo::bar(int a) const { return a; }
struct P { int get() { return 1; } ~P() {} };
template <class T> T same(T a) { return a; }
"""


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (
            "m.py",
            PYTHON,
            [
                ("first", "function", 4, 11),
                ("Outer", "class", 14, 23),
                ("Outer.Inner", "class", 17, 18),
                ("Outer.Inner.method", "method", 18, 18),
                ("Outer.size", "method", 20, 23),
            ],
        ),
        (
            "m.js",
            JAVASCRIPT,
            [
                ("add", "function", 2, 2),
                ("twice", "function", 3, 5),
                ("hidden", "function", 6, 6),
                ("Box", "class", 7, 7),
                ("Box.get", "method", 7, 7),
                ("Box.set", "method", 7, 7),
            ],
        ),
        ("m.ts", "export function add(a: number): number { return a + 1; }", [("add", "function", 1, 1)]),
        ("m.c", C, [("larger", "function", 3, 3)]),
        (
            "m.cpp",
            CPP,
            [
                ("Foo::bar", "function", 1, 1),
                ("P", "class", 2, 2),
                ("P.get", "method", 2, 2),
                ("P.~P", "method", 2, 2),
                ("same", "function", 3, 3),
            ],
        ),
    ],
    ids=["python", "javascript", "typescript", "c", "c++"],
)
def test_definitions(path: str, text: str, expected: list[tuple[str, str, int, int]]) -> None:
    found = [definition for _, definition in definition_nodes(parsed(path, text))]
    assert [(d.name, d.kind, d.first_line, d.last_line) for d in found] == expected


def test_what_a_definition_says_of_itself() -> None:
    python = {d.name: d for _, d in definition_nodes(parsed("m.py", PYTHON))}
    assert python["first"].signature == "def first(a: int, *, b=2) -> int:"
    assert python["first"].docstring == "Says what.\n\n    And more."
    assert (python["Outer"].docstring, python["Outer.size"].docstring) == ("Holds.", "")
    script = {d.name: d for _, d in definition_nodes(parsed("m.js", JAVASCRIPT))}
    assert (script["add"].signature, script["add"].docstring) == ("function add(a, b)", "Adds.")
    assert script["twice"].signature == "twice = (a) =>"
    (larger,) = [d for _, d in definition_nodes(parsed("m.c", C))]
    assert (larger.signature, larger.docstring) == ("static int *larger(int a, char **b)", "The larger one.")


@pytest.mark.parametrize("text", ["def f(:\n", "x = 1\n" * 200_000, "def f(\udc80):\n    return (\n"])
def test_what_does_not_parse_is_no_source(text: str) -> None:
    language = language_of("m.py")
    assert language is not None
    assert parse_source("m.py", text, language) is None


def test_edits_keep_every_other_byte() -> None:
    text = "def f():\r\n    return 1  # \udce9\n"
    source = parsed("m.py", text)
    place = source.data.index(b"1")
    assert edited(source, [Edit(place, place + 1, "2")]) == text.replace("1", "2")
    assert edited(source, [Edit(place, place + 1, "(")]) is None
    assert edited(source, [Edit(place, place + 1, "1")]) is None
    assert edited(source, [Edit(0, place + 1, ""), Edit(place, place + 1, "2")]) is None


# --------------------------------------------------------------------------- faults


def body(*lines: str, signature: str = "def f(a, b):") -> str:
    return "\n".join([signature, *(f"    {line}" for line in lines), ""])


# The operator, the source, and what it makes of it, among others.
FAULTS = [
    ("wrong-operator", "m.py", body("return a <= b"), body("return a < b")),
    ("wrong-operator", "m.py", body("return a not in b"), body("return a in b")),
    ("wrong-operator", "m.py", body("a += b", "return a"), body("a -= b", "return a")),
    ("off-by-one", "m.py", body("return a[1:]"), body("return a[2:]")),
    ("swapped-arguments", "m.py", body("return g(a, b, c=1)"), body("return g(b, a, c=1)")),
    ("dropped-condition", "m.py", body("return a and b.c"), body("return b.c")),
    ("dropped-condition", "m.py", body("return not a"), body("return a")),
    ("inverted-condition", "m.py", body("while a.b: pass"), body("while not a.b: pass")),
    ("inverted-condition", "m.js", "function f(a) { return a ? 1 : 2; }", "function f(a) { return !a ? 1 : 2; }"),
    ("inverted-condition", "m.cpp", "void f(int a) { if (g(a)) h(); }", "void f(int a) { if (!g(a)) h(); }"),
    ("dropped-await", "m.py", "async def f(a):\n    return await a\n", "async def f(a):\n    return a\n"),
    (
        "wrong-default",
        "m.py",
        body("return a", signature="def f(a, b=True):"),
        body("return a", signature="def f(a, b=False):"),
    ),
    (
        "wrong-default",
        "m.py",
        body("return a", signature="def f(a: int = 3):"),
        body("return a", signature="def f(a: int = 4):"),
    ),
    (
        "wrong-default",
        "m.py",
        body("return a", signature="def f(a, b=''):"),
        body("return a", signature="def f(a, b=' '):"),
    ),
    ("wrong-constant", "m.py", body("return g(a, True)"), body("return g(a, False)")),
    ("wrong-constant", "m.py", body("return ''.join(a)"), body("return ' '.join(a)")),
    ("wrong-constant", "m.py", body("return None"), body("return False")),
    (
        "missing-case",
        "m.py",
        body("if a:", "    b = 1", "elif b:", "    b = 2", "return b"),
        body("if a:", "    b = 1", "return b"),
    ),
    (
        "missing-case",
        "m.py",
        body("return {", "    'x': a,", "    'y': b,", "}"),
        body("return {", "    'y': b,", "}"),
    ),
    ("missing-case", "m.py", body("return {'x': a, 'y': b}"), body("return {'y': b}")),
    (
        "dropped-statement",
        "m.py",
        body("if a is None:", "    return 0", "", "return b"),
        body("return b"),
    ),
    ("dropped-statement", "m.py", body("a = a.strip()", "return a"), body("return a")),
    ("dropped-statement", "m.py", body("c = a", "c = g(c)", "return c"), body("c = a", "return c")),
    ("wrong-variable", "m.py", body("return a"), body("return b")),
    (
        "wrong-variable",
        "m.py",
        body("c = g(a)", "return c", signature="def f(a):"),
        body("c = g(a)", "return a", signature="def f(a):"),
    ),
    (
        "wrong-variable",
        "m.js",
        "function f(a) { for (const b of a) { g(b); } }",
        "function f(a) { for (const b of a) { g(a); } }",
    ),
    ("wrong-operator", "m.js", "function f(a) { return a === 1; }", "function f(a) { return a !== 1; }"),
    ("swapped-arguments", "m.js", "const f = (a) => g(a, a.b);", "const f = (a) => g(a.b, a);"),
    ("dropped-await", "m.js", "async function f(a) { return await a; }", "async function f(a) { return a; }"),
    ("wrong-default", "m.js", "function f(a = true) { return a; }", "function f(a = false) { return a; }"),
    (
        "missing-case",
        "m.js",
        "function f(a) { switch (a) { case 1: return 2; case 2: return 3; } }",
        "function f(a) { switch (a) { case 2: return 3; } }",
    ),
    (
        "wrong-variable",
        "m.ts",
        "function f(a: string, b: string): string { return g(a); }",
        "function f(a: string, b: string): string { return g(b); }",
    ),
    (
        "dropped-condition",
        "m.ts",
        "function f(a: X): boolean { return !a; }",
        "function f(a: X): boolean { return a; }",
    ),
    ("off-by-one", "m.c", "int f(int a) { return a + 7; }", "int f(int a) { return a + 8; }"),
    (
        "dropped-statement",
        "m.c",
        "int f(int a) {\n  if (!a) {\n    return 0;\n  }\n  return a;\n}\n",
        "int f(int a) {\n  return a;\n}\n",
    ),
    ("wrong-variable", "m.c", "int f(int a, char *b) { return a < 1; }", "int f(int a, char *b) { return b < 1; }"),
    ("wrong-operator", "m.cpp", "int P::f(int a) { return a && x; }", "int P::f(int a) { return a || x; }"),
    ("wrong-constant", "m.cpp", "bool P::f() { return g(true); }", "bool P::f() { return g(false); }"),
]


@pytest.mark.parametrize(
    ("operator", "path", "text", "expected"), FAULTS, ids=[f"{f[0]}-{f[1]}-{n}" for n, f in enumerate(FAULTS)]
)
def test_a_fault_is_planted(operator: str, path: str, text: str, expected: str) -> None:
    assert (operator, expected) in mutants(path, text)


def test_every_operator_has_its_row() -> None:
    assert {operator for operator, *_ in FAULTS} == set(OPERATORS)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("m.py", body('"""1 < 2 and True."""')),
        ("m.py", body("pass", signature="def f(a: 'X[1]' | int, b: Literal[1, True]) -> Y[2]:")),
        ("m.py", "@cache(maxsize=1, typed=True)\ndef f():\n    pass\n"),
        ("m.py", "if TYPE_CHECKING:\n    x = 1 < 2\n"),
        ("m.py", body("if TYPE_CHECKING:", "    from x import y", "pass")),
        (
            "m.py",
            body("self._log.debug('x', 1, True)", "logger.info('%d', 1)", "print(1, 2)", "warnings.warn('x', X, 2)"),
        ),
        ("m.py", body("raise ValueError(1, 2)", "assert a == 1, 'x'")),
        ("m.py", body("return g(a.x, 'y')")),
        ("m.py", body("return min(a.x, b.x)")),
        ("m.py", body("g(x=None)", signature="def f(b=None):")),
        # What has its value only in a block of its own is no other variable.
        ("m.py", body("for b in g():", "    h()", "return a", signature="def f(a):")),
        ("m.py", body("return isinstance(a.x, b.x)")),
        ("m.js", "function f(x) { console.log(1, 2); throw new Error('x' + 1); }"),
        ("m.ts", "function f(x: 1 | 2): Array<3> { }"),
        ("m.c", '#include "x.h"\n#define X 1\nint x[3];\nvoid f(void) { printf("%d", 1); }'),
    ],
)
def test_nothing_is_planted_where_nobody_or_everybody_would_see_it(path: str, text: str) -> None:
    assert mutants(path, text) == []


def test_a_logarithm_is_no_logging() -> None:
    assert ("wrong-operator", body("return math.log(a - 1.5)")) in mutants("m.py", body("return math.log(a + 1.5)"))


LARGE = {
    "entries": ("m.py", "def f(a):\n    return {" + "1: a, " * 3000 + "}\n"),
    "operands": ("m.py", "def f(a):\n    return " + "a and " * 4000 + "a\n"),
    "sums": ("m.js", "function f(a) { return " + "a + " * 5000 + "a; }"),
    "arguments": ("m.py", "def f(a, b):\n    return g(" + "a, b, " * 3000 + ")\n"),
    "branches": ("m.py", "def f(a):\n    if a: return 1\n" + "    elif a: return 1\n" * 1500),
    "statements": ("m.c", "void f(int a) {" + "if (a) return;" * 2000 + "}"),
    "parameters": ("m.py", "def f(" + ", ".join(f"a{n}" for n in range(4000)) + "):\n    return a1\n"),
    "nested": ("m.js", "function f(a) { return " + "(" * 8000 + "a" + ")" * 8000 + "; }"),
    "functions": ("m.py", "def f(a):\n    return a\n" * 3000),
    "comments": ("m.c", "// x\n" * 20000 + "int f(int a) { return a; }\n"),
    "lines": ("m.py", "x = 1\n" * 15000 + "def f(a):\n    return a\n" * 300),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("shape", LARGE)
def test_what_nobody_writes_takes_no_longer_than_its_size(shape: str) -> None:
    path, text = LARGE[shape]
    language = language_of(path)
    assert language is not None
    source = parse_source(path, text, language)
    found = [m for node, _ in function_nodes(source) for m in mutations_in(source, node)] if source is not None else []
    assert len(found) < len(text)
