"""A small real project and an environment of it that is made without an install, for tests of tasks and rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ratchet.autoinstall.workshop import BASE_USER, WORKSPACE, Workshop
from ratchet.records import (
    Audit,
    Base,
    Checkout,
    Environment,
    Expectation,
    Goal,
    GoalKind,
    Limits,
    Recipe,
    content_id,
)
from ratchet.sandbox.bases import ensure_base, load
from ratchet.sandbox.clients import read_clients
from ratchet.task_records import FileChange, Task, TaskKind

STOCK = '''"""What is in stock."""

from __future__ import annotations


class OutOfStockError(ValueError):
    """More was taken than there is."""


class Stock:
    """Counts of things by name."""

    def __init__(self, counts=None):
        self._counts = dict(counts or {})

    def add(self, name, count=1):
        """Put `count` more of a thing into stock and return how many there are then."""
        if count < 1:
            raise ValueError("count has to be at least 1")
        self._counts[name] = self._counts.get(name, 0) + count
        return self._counts[name]

    def take(self, name, count=1):
        """Take `count` of a thing out of stock and return how many are left."""
        left = self._counts.get(name, 0) - count
        if left < 0:
            raise OutOfStockError(f"only {self._counts.get(name, 0)} of {name}")
        self._counts[name] = left
        return left

    def missing(self, wanted):
        """The names in `wanted` (name to count) of which there is too little, sorted."""
        return sorted(name for name, count in wanted.items() if self._counts.get(name, 0) < count)

    def total(self):
        """How many things there are in all."""
        return sum(self._counts.values())
'''
PRICES = '''"""Prices in cents."""

from __future__ import annotations


def with_tax(cents, rate):
    """The price with tax, rounded half up to whole cents."""
    return int(cents * (100 + rate) / 100 + 0.5)


def discount(cents, count):
    """The price of `count` pieces: from 10 pieces on each costs a tenth less, from 100 on a fifth less."""
    share = 100
    if count >= 100:
        share = 80
    elif count >= 10:
        share = 90
    return cents * count * share // 100


def as_text(cents, currency="EUR"):
    """A price for people: `12.50 EUR`, with a minus sign in front where it is negative."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100}.{abs(cents) % 100:02d} {currency}"
'''
TEXT = '''"""Lists as text."""

from __future__ import annotations


def parse_line(line):
    """`3 x bolt` as ("bolt", 3); a line without a number is one piece. Comments (`#`) and blanks are left out."""
    text = line.split("#", 1)[0].strip()
    if not text:
        return None
    count, mark, name = text.partition(" x ")
    if mark and count.isdigit():
        return name.strip(), int(count)
    return text, 1


def parse(text):
    """All lines of a list, as a dictionary of name to count; the same name twice counts together."""
    wanted = {}
    for line in text.splitlines():
        parsed = parse_line(line)
        if parsed is not None:
            name, count = parsed
            wanted[name] = wanted.get(name, 0) + count
    return wanted
'''
CLI = '''"""The command line."""

from __future__ import annotations

import argparse

from inventory.prices import as_text, discount
from inventory.text import parse


def main(arguments=None):
    """Print what a list costs, at one price for every piece."""
    parser = argparse.ArgumentParser(prog="inventory")
    parser.add_argument("list")
    parser.add_argument("--price", type=int, default=100)
    parser.add_argument("--upper", action="store_true")
    options = parser.parse_args(arguments)
    lines = [f"{name}: {as_text(discount(options.price, count))}" for name, count in sorted(parse(options.list).items())]
    text = "\\n".join(lines)
    print(text.upper() if options.upper else text)
    return 0
'''
FILES: Mapping[str, str] = {
    "README.md": "# inventory\n\nCounts things.\n",
    "pyproject.toml": '[project]\nname = "inventory"\nversion = "1.0"\n\n[tool.pytest.ini_options]\n'
    'testpaths = ["tests"]\npythonpath = ["."]\n',
    "inventory/__init__.py": '"""Counts things."""\n\nfrom inventory.stock import OutOfStockError, Stock\n\n'
    '__all__ = ["OutOfStockError", "Stock"]\n',
    "inventory/stock.py": STOCK,
    "inventory/prices.py": PRICES,
    "inventory/text.py": TEXT,
    "inventory/cli.py": CLI,
    "tests/conftest.py": "import pytest\n\nfrom inventory import Stock\n\n\n@pytest.fixture\ndef stock():\n"
    '    return Stock({"bolt": 5, "nut": 2})\n',
    "tests/test_stock.py": "import pytest\n\nfrom inventory import OutOfStockError, Stock\n\n\n"
    'def test_add(stock):\n    assert stock.add("bolt", 3) == 8\n\n\n'
    'def test_add_something_new(stock):\n    assert stock.add("screw") == 1\n\n\n'
    "def test_add_nothing(stock):\n    with pytest.raises(ValueError, match='at least 1'):\n        stock.add('bolt', 0)\n\n\n"
    'def test_take(stock):\n    assert stock.take("bolt", 2) == 3\n\n\n'
    'def test_take_all(stock):\n    assert stock.take("nut", 2) == 0\n\n\n'
    'def test_take_too_many(stock):\n    with pytest.raises(OutOfStockError):\n        stock.take("nut", 3)\n\n\n'
    'def test_missing(stock):\n    assert stock.missing({"bolt": 6, "nut": 2, "cog": 1}) == ["bolt", "cog"]\n\n\n'
    "def test_total(stock):\n    assert stock.total() == 7\n    assert Stock().total() == 0\n",
    "tests/test_prices.py": "import pytest\n\nfrom inventory.prices import as_text, discount, with_tax\n\n\n"
    "@pytest.mark.parametrize(('cents', 'rate', 'expected'), [(100, 19, 119), (50, 7, 54), (0, 19, 0), (10, 5, 11)])\n"
    "def test_with_tax(cents, rate, expected):\n    assert with_tax(cents, rate) == expected\n\n\n"
    "@pytest.mark.parametrize(('count', 'expected'), [(1, 100), (9, 900), (10, 900), (99, 8910), (100, 8000)])\n"
    "def test_discount(count, expected):\n    assert discount(100, count) == expected\n\n\n"
    "@pytest.mark.parametrize(('cents', 'expected'), [(1250, '12.50 EUR'), (-5, '-0.05 EUR'), (0, '0.00 EUR')])\n"
    "def test_as_text(cents, expected):\n    assert as_text(cents) == expected\n",
    "tests/test_text.py": "import pytest\n\nfrom inventory.text import parse, parse_line\n\n\n"
    "@pytest.mark.parametrize(('line', 'expected'), [('3 x bolt', ('bolt', 3)), ('nut', ('nut', 1)), ('# no', None), "
    "('', None), ('2 x cog # two', ('cog', 2))])\n"
    "def test_parse_line(line, expected):\n    assert parse_line(line) == expected\n\n\n"
    "def test_parse():\n    assert parse('3 x bolt\\nnut\\nbolt\\n') == {'bolt': 4, 'nut': 1}\n",
    "tests/test_cli.py": "from inventory.cli import main\n\n\n"
    "def test_main(capsys):\n    assert main(['10 x bolt']) == 0\n"
    "    assert capsys.readouterr().out == 'bolt: 9.00 EUR\\n'\n\n\n"
    "def test_upper(capsys):\n    main(['nut', '--upper', '--price', '5'])\n"
    "    assert capsys.readouterr().out == 'NUT: 0.05 EUR\\n'\n",
}

# The bug of `sample_task`.
WRONG_PRICES = PRICES.replace("if count >= 100:", "if count > 100:")

_PATH = "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENV = {"PATH": _PATH, "VIRTUAL_ENV": "/opt/venv", "LANG": "C.UTF-8"}
LIMITS = Limits(memory_bytes=1 << 30, processes=200, disk_bytes=1 << 30, time_s=120.0)


def sample_environment(workshop: Workshop, files: Mapping[str, str] = FILES, name: str = "inventory") -> Environment:
    """An environment of a project of the given files. Its virtual environment is made once for a home and kept."""
    base = _base(workshop)
    checkout = _checkout(workshop, files, name)
    goal = Goal(
        "python -m pytest --junitxml=/tmp/ratchet/report.xml tests",
        "Runs the suite.",
        GoalKind.TESTS,
        Expectation(None, report="/tmp/ratchet/report.xml"),
    )
    return Environment(
        id=content_id([checkout.id, base.id, "sample"]),
        name=name,
        base=base,
        checkout=checkout,
        recipe=Recipe(env=ENV),
        layer=_venv_layer(workshop, base),
        goals=(goal,),
        targets=(goal.id,),
        verdicts=(),
        audit=Audit(),
        limits=LIMITS,
    )


def sample_task(environment: Environment) -> Task:
    """The price of exactly 100 pieces is wrong. `changes` lead to the bug."""
    changes = (FileChange("inventory/prices.py", PRICES, WRONG_PRICES),)
    failing = ("tests/test_prices.py::test_discount[100-8000]",)
    kept = (
        *tuple(f"tests/test_prices.py::test_discount[{count}]" for count in ("1-100", "9-900", "10-900", "99-8910")),
        "tests/test_cli.py::test_main",
    )
    return Task(
        id=content_id([environment.id, changes]),
        environment=environment.id,
        kind=TaskKind.BUG,
        language="python",
        statement="`inventory.prices.discount` takes too little off the price of exactly 100 pieces.",
        changes=changes,
        fail_to_pass=failing,
        pass_to_pass=kept,
        timeout_s=60.0,
    )


def _base(workshop: Workshop) -> Base:
    ensure_base(workshop.home, workshop.layers, "bookworm", read_clients())
    base = load(workshop.home, "bookworm")
    assert base is not None
    return base


def _checkout(workshop: Workshop, files: Mapping[str, str], name: str) -> Checkout:
    identity = content_id(dict(files))
    place = workshop.home / "samples" / identity
    for path, text in files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    return Checkout(identity, name, f"sample:{name}", str(place), files=len(files))


def _venv_layer(workshop: Workshop, base: Base) -> str:
    layer = f"sample-venv-{base.id[-24:]}"
    if not workshop.layers.exists(layer):
        cache = workshop.home / "caches" / "sample"
        cache.mkdir(parents=True, exist_ok=True)
        with workshop.online((base.id,), Limits(), Path(cache)) as sandbox:
            made = sandbox.run(
                f"id {BASE_USER} && install -d -o {BASE_USER} {WORKSPACE} && uv venv -q --seed /opt/venv"
                f" && uv pip install -q --python /opt/venv/bin/python pytest && chown -R {BASE_USER}: /opt/venv"
            )
            assert made.ok, made.output
            kept = sandbox.keep()
        workshop.layers.rename(kept, layer)
    return layer
