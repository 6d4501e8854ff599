"""Features as candidates: what is taken out, what goes with it, and what stays."""

from __future__ import annotations

import ast
import random
from collections.abc import Mapping

import pytest

from ratchet.task_records import TaskKind
from ratchet.tasks.candidates import Candidate
from ratchet.tasks.features import feature_candidates
from sample_project import CLI, FILES, PRICES, TEXT

TESTS = frozenset(f"t{number}" for number in range(10))


class Ran:
    """Which tests ran what: of each path, a word that a line holds, and the tests that ran such lines. Lines of `def`
    and `class` run with the import of the module, by no test."""

    def __init__(self, sources: Mapping[str, str], ran: Mapping[str, Mapping[str, str]]) -> None:
        self.passing = TESTS
        self._lines: dict[str, dict[int, frozenset[str]]] = {}
        for path, words in ran.items():
            for number, line in enumerate(sources[path].splitlines(), 1):
                by = frozenset(test for word, tests in words.items() if word in line for test in tests.split())
                if by and not line.strip().startswith(("def ", "class ", "@")):
                    self._lines.setdefault(path, {})[number] = by

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(sorted(self._lines))

    def tests_of(self, path: str, first_line: int, last_line: int) -> frozenset[str]:
        lines = self._lines.get(path, {})
        return frozenset().union(*(lines[line] for line in lines if first_line <= line <= last_line))

    def covered_lines(self, path: str) -> frozenset[int]:
        return frozenset(self._lines.get(path, {}))


def features(sources: Mapping[str, str], ran: Mapping[str, Mapping[str, str]], seed: int = 0) -> list[Candidate]:
    return list(feature_candidates(sources, Ran(sources, ran), random.Random(seed)))


def named(found: list[Candidate], names: str, mode: str) -> dict[str, str | None]:
    """What the files become by the candidate of that name and mode; empty where there is none."""
    changes = [each.changes for each in found if (each.origin["names"], each.origin["mode"]) == (names, mode)]
    assert len(changes) <= 1
    return {change.path: change.after for change in changes[0]} if changes else {}


SAMPLE = {path: text for path, text in FILES.items() if path.startswith("inventory/")}
SAMPLE_RAN = {
    "inventory/prices.py": {"share": "t1 t2", "abs(cents)": "t3", "rate": "t4"},
    "inventory/stock.py": {"left": "t5", "sorted": "t6"},
    "inventory/text.py": {"line": "t7", "wanted": "t7"},
    "inventory/cli.py": {"options": "t8"},
}


def test_a_stub_keeps_signature_and_documentation() -> None:
    after = named(features(SAMPLE, SAMPLE_RAN), "discount", "stub")
    body = PRICES[PRICES.index("    share = 100") : PRICES.index("def as_text")]
    assert after == {"inventory/prices.py": PRICES.replace(body, "    raise NotImplementedError\n\n\n")}


def test_what_a_candidate_says_of_itself() -> None:
    found = features(SAMPLE, SAMPLE_RAN)
    (stub,) = [each for each in found if (each.origin["names"], each.origin["mode"]) == ("Stock.take", "stub")]
    assert (stub.kind, stub.language, stub.covering) == (TaskKind.FEATURE, "python", frozenset({"t5"}))
    assert [(d.name, d.kind, d.signature) for d in stub.about] == [
        ("Stock.take", "method", "def take(self, name, count=1):")
    ]
    for candidate in found:
        for change in candidate.changes:
            assert change.before == SAMPLE[change.path]
            ast.parse(change.after or "")


def test_what_shares_its_tests_is_one_feature() -> None:
    after = named(features(SAMPLE, SAMPLE_RAN), "parse_line, parse", "stub")
    assert after["inventory/text.py"] is not None
    assert after["inventory/text.py"].count("raise NotImplementedError") == 2


def test_a_class_loses_its_methods() -> None:
    ran = {"inventory/stock.py": {"left": "t5", "sorted": "t5 t6", "dict(counts": "t5", "sum(": "t6"}}
    names = "Stock.__init__, Stock.take, Stock.missing, Stock.total"
    stub = named(features(SAMPLE, ran), names, "stub")["inventory/stock.py"]
    assert stub is not None
    assert stub.count("raise NotImplementedError") == 4
    assert "self._counts[name] = self._counts.get(name, 0) + count" in stub, "what no test runs stays"


def test_an_option_goes_and_its_value_is_the_default() -> None:
    after = named(features(SAMPLE, SAMPLE_RAN), "--upper", "option")
    assert after == {
        "inventory/cli.py": CLI.replace('    parser.add_argument("--upper", action="store_true")\n', "").replace(
            "options.upper", "False"
        )
    }
    assert "discount(100, count)" in str(named(features(SAMPLE, SAMPLE_RAN), "--price", "option"))


CLICK = """\
import click


@click.command()
@click.option("--loud/--quiet")
@click.option("--shout", "-s", is_flag=True, help="In capitals.")
@click.option("--times", "count", default=1)
def main(loud, shout, count=1):
    text = say(shout=shout)
    return text * count
"""


def test_an_option_of_a_decorator_goes_with_its_parameter() -> None:
    found = features({"cli.py": CLICK}, {"cli.py": {"say": "t1", "count": "t2"}})
    after = named(found, "--shout", "option")["cli.py"]
    assert after == CLICK.replace('@click.option("--shout", "-s", is_flag=True, help="In capitals.")\n', "").replace(
        "loud, shout, ", "loud, "
    ).replace("shout=shout", "shout=False")
    after = named(found, "--times", "option")["cli.py"]
    assert after is not None
    assert "main(loud, shout):" in after
    assert "return text * 1" in after
    (shout,) = [each for each in found if each.origin["names"] == "--shout"]
    assert [(d.kind, d.docstring) for d in shout.about] == [("option", "In capitals.")]
    assert shout.covering == {"t1"}


def test_a_whole_module_goes_with_the_imports_that_hand_it_on() -> None:
    ran = {"inventory/text.py": {"line": "t7", "wanted": "t7"}}
    package = {**SAMPLE, "inventory/__init__.py": "from .prices import discount\nfrom .text import parse\n"}
    package.pop("inventory/cli.py")
    found = features(package, ran)
    assert named(found, "text", "module") == {
        "inventory/text.py": None,
        "inventory/__init__.py": "from .prices import discount\n",
    }
    (module,) = [each for each in found if each.origin["mode"] == "module"]
    assert [d.kind for d in module.about][:2] == ["module", "function"]
    needed = {**package, "inventory/other.py": "from inventory import text\n"}
    assert named(features(needed, ran), "text", "module") == {}


def test_what_more_than_two_fifths_of_the_tests_run_is_left_alone() -> None:
    everybody = " ".join(TESTS)
    found = features(SAMPLE, {"inventory/text.py": {"line": everybody}, "inventory/cli.py": {"options": everybody}})
    assert found == []


def test_lines_of_definitions_run_for_nobody() -> None:
    """Only what runs when a function is called tells who tests it."""
    assert features({"p.py": PRICES}, {"p.py": {'"""': "t1"}}) == []


def test_a_seed_gives_the_same_and_documented_ones_come_first() -> None:
    found = features(SAMPLE, SAMPLE_RAN, 1)
    assert found == features(SAMPLE, SAMPLE_RAN, 1)
    plain = {"a.py": "def plain(x):\n    y = x\n    return y\n", "b.py": PRICES}
    ran = {"a.py": {"y": "t1"}, "b.py": {"share": "t2"}}
    for seed in range(5):
        assert next(each.origin["names"] for each in features(plain, ran, seed)) == "discount"


# --------------------------------------------------------------------------- whole

MODULE = '''\
"""Words."""

__all__ = ["loud", "quiet"]


# Only for the loud.
def _mark(word):
    return _twice(word) + "!"


def _twice(word):
    return word + word


def _shared(word):
    return word


# It is loud.
@decorated
def loud(word):
    """Says it loudly."""
    word = _shared(word)
    return _mark(word)


def quiet(word):
    """Says it quietly, and not as `loud` does."""
    return _shared(word).lower()
'''
WITHOUT_LOUD = '''\
"""Words."""

__all__ = ["quiet"]


def _shared(word):
    return word


def quiet(word):
    """Says it quietly, and not as `loud` does."""
    return _shared(word).lower()
'''
RAN = {"words.py": {"_mark(word)": "t1", "_shared(word)": "t1"}}


@pytest.mark.parametrize(
    ("package", "without"),
    [
        ("from words import loud, quiet\n", "from words import quiet\n"),
        ("from words import loud as loud\nx = 1\n", "x = 1\n"),
        ("from words import (\n    loud,\n    quiet,\n)\n", "from words import (\n    quiet,\n)\n"),
        (
            'from words import quiet, loud  # all\n\n__all__ = ["quiet", "loud"]\n',
            'from words import quiet  # all\n\n__all__ = ["quiet"]\n',
        ),
        (
            'from words import loud\n\n__all__ = (\n    "quiet",\n    "loud",\n)\n',
            '__all__ = (\n    "quiet",\n)\n',
        ),
    ],
)
def test_a_whole_function_goes_with_its_exports_and_what_only_it_used(package: str, without: str) -> None:
    found = features({"words.py": MODULE, "__init__.py": package}, RAN)
    assert named(found, "loud", "whole") == {"words.py": WITHOUT_LOUD, "__init__.py": without}


@pytest.mark.parametrize(
    "other",
    ["import words\nwords.loud('x')\n", "from words import loud as cry\n", "from words import loud\nloud('x')\n"],
)
def test_a_function_that_others_need_stays_as_a_stub(other: str) -> None:
    found = features({"words.py": MODULE, "other.py": other}, RAN)
    assert named(found, "loud", "whole") == {}
    stub = named(found, "loud", "stub")["words.py"]
    assert stub == MODULE.replace(
        "    word = _shared(word)\n    return _mark(word)\n", "    raise NotImplementedError\n"
    ).replace(MODULE[MODULE.index("# Only") : MODULE.index("def _shared")], "")


def test_a_string_that_is_no_export_stays() -> None:
    module = MODULE.replace('__all__ = ["loud", "quiet"]', 'NAMES = {"loud": 1}')
    assert named(features({"words.py": module}, RAN), "loud", "whole") == {}


METHODS = """\
class Box:
    def _grown(self):
        return self.size + 1

    @property
    def size(self):
        found = self._size
        return found

    @size.setter
    def size(self, value):
        self._size = value

    async def grow(self):
        new = self._grown()
        return new

    def shrink(self): return 1
    smaller = shrink
"""


def test_methods() -> None:
    ran = {"box.py": {"found": "t1", "new": "t2", "return 1": "t3"}}
    found = features({"box.py": METHODS}, ran)
    assert named(found, "Box.grow", "stub")["box.py"] == METHODS.replace(
        "        new = self._grown()\n        return new\n", "        raise NotImplementedError\n"
    ).replace("    def _grown(self):\n        return self.size + 1\n\n", "")
    whole = named(found, "Box.grow", "whole")["box.py"]
    assert whole is not None
    assert "grow" not in whole
    # A class that names them in its body could not be made without them.
    assert named(found, "Box.size", "whole") == named(found, "Box.shrink", "whole") == {}


def test_comments_in_front_of_a_body_go_with_it() -> None:
    text = "def f(x):\n    # First the half.\n    y = x / 2\n    return y\n"
    stub = named(features({"m.py": text}, {"m.py": {"y": "t1"}}), "f", "stub")
    assert stub == {"m.py": "def f(x):\n    raise NotImplementedError\n"}


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("m.js", "export function f(a) {\n  a += 1;\n  return a;\n}\n", 'throw new Error("not implemented")'),
        ("m.js", "const f = (a) => {\n  a += 1;\n  return a;\n};\n", 'throw new Error("not implemented")'),
        (
            "m.ts",
            "class C { f(a: number): number {\n  a += 1;\n  return a;\n} }\n",
            'throw new Error("not implemented")',
        ),
        ("m.c", "int f(int a) {\n  a += 1;\n  return a;\n}\n", "__builtin_trap();"),
        ("m.cpp", "int C::f(int a) const {\n  a += 1;\n  return a;\n}\n", "__builtin_trap();"),
    ],
)
def test_stubs_of_other_languages(path: str, text: str, expected: str) -> None:
    (stub,) = features({path: text}, {path: {"a += 1": "t1"}})
    assert stub.changes[0].after == text.replace("{\n  a += 1;\n  return a;\n}", "{ " + expected + " }")


@pytest.mark.parametrize(
    ("path", "text", "without"),
    [
        (
            "m.c",
            "static int half(int a) { return a / 2; }\n\nint f(int a) {\n  a += 1;\n  return half(a);\n}\n",
            "int f(int a) { __builtin_trap(); }\n",
        ),
        (
            "m.js",
            "function half(a) { return a / 2; } export function other(a) { return 1; }\n"
            "export function f(a) {\n  a += 1;\n  return half(a) + other(a);\n}\n",
            ' export function other(a) { return 1; }\nexport function f(a) { throw new Error("not implemented") }\n',
        ),
    ],
)
def test_private_functions_of_other_languages_go_too(path: str, text: str, without: str) -> None:
    assert named(features({path: text}, {path: {"a += 1": "t1"}}), "f", "stub") == {path: without}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text",
    [
        "__all__ = [" + '"a", ' * 8000 + '"f"]\n' + "def f(a):\n    x = a\n    return x\n",
        "".join(f"def _f{n}(a):\n    return a\n" for n in range(1500)) + "def f(a):\n    x = a\n    return x\n",
        "# x\n" * 20000 + "def f(a):\n    x = a\n    return x\n",
        "\n" * 100000 + "def f(a):\n    x = a\n    return x\n",
        "p.add_argument('--x')\no.x\n" * 1000 + "def f(a):\n    x = a\n    return x\n",
    ],
    ids=["exports", "helpers", "comments", "blank lines", "options"],
)
def test_what_nobody_writes_takes_no_longer_than_its_size(text: str) -> None:
    found = features({"m.py": text}, {"m.py": {"x = a": "t1"}})
    assert {each.origin["mode"] for each in found} == {"stub", "whole"}


def test_garbage_is_left_out() -> None:
    assert features({"a.py": "def f(:\n    x\n", "b.txt": TEXT}, {"a.py": {"x": "t1"}, "b.txt": {"line": "t1"}}) == []
