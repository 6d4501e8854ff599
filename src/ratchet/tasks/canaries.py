"""Tests that are mixed into a run to see whether it tells the truth: of each it is known how it has to end.

They catch a runner, an assertion or a comparison that was patched so as to let everything pass (or that reports what it
did not run). They look like tests of the project: names and values are drawn anew for each run. Code that is tested
runs in the same process and can tell them apart if it goes to the trouble of looking, and what spares all tests but a
few does not meet them: canaries are one defence of several.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from ratchet.records import Outcome

_SUBJECTS = ("header", "token", "stream", "index", "option", "value", "entry", "record", "buffer", "field", "window")
_MATTERS = ("default", "empty", "nested", "order", "limit", "offset", "repeat", "copy", "merge", "missing", "bounds")

# Bodies with {a} < {b}, numbers, and {s}, {t}, different words.
_PASS = (
    "assert {a} + {b} == {c}",
    "assert object() != object()\n    assert not ({a} == {b})",
    "assert not all([{a}, 0])\n    assert not isinstance({a}, str)\n    assert len([{a}, {b}]) == 2",
    "assert sorted([{b}, {a}]) == [{a}, {b}]\n    assert {s!r} != {t!r}",
    "with pytest.raises(KeyError):\n        dict({s}={a})[{t!r}]",
)
_FAIL = (
    "assert {a} == {b}",
    "assert object() == object()",
    "assert {s!r} == {t!r}",
    "assert [{a}, {b}] == [{b}, {a}]",
    "assert {{{s!r}: {a}}} == {{{s!r}: {b}}}",
    "assert isinstance({a}, str)",
    "assert all([{a}, 0, {b}])",
    "assert len({s!r}) == {b}",
    "assert {b} < {a}",
    "assert {s!r} in [{t!r}, {a}]",
    "assert float({a}) == pytest.approx({b})",
    "raise ValueError({s!r})",
    "with pytest.raises(KeyError):\n        dict({s}={a})",
    "pytest.fail({s!r})",
)
_UNITTEST = (
    (Outcome.PASSED, "self.assertEqual({a} + {b}, {c})"),
    (Outcome.FAILED, "self.assertEqual({a}, {b})"),
    (Outcome.FAILED, "self.assertTrue({a} > {b})"),
    (Outcome.FAILED, "with self.assertRaises(KeyError):\n            dict({s}={a})"),
)


@dataclass(frozen=True)
class Canaries:
    """One file of tests: where it goes (relative to the workspace), its text, how each test in it has to end (by its id
    within the file), and the seed by which they are mixed among the others."""

    path: str
    text: str
    expected: Mapping[str, Outcome]
    seed: int

    def outcome_of(self, test_id: str) -> Outcome | None:
        path, _, name = test_id.partition("::")
        return self.expected.get(name) if path == self.path else None


def make_canaries(folder: str, rng: random.Random) -> Canaries:
    """Canaries for a folder of tests."""
    names = _names(rng)
    parts: list[tuple[str, Outcome, str]] = []
    for outcome, bodies in ((Outcome.PASSED, _PASS), (Outcome.FAILED, _FAIL)):
        for body in bodies:
            name = f"test_{next(names)}"
            parts.append((name, outcome, f"def {name}():\n    {_filled(body, rng)}\n"))
    name, fixture = f"test_{next(names)}", next(names)
    broken = f"@pytest.fixture\ndef {fixture}():\n    raise ValueError({fixture!r})\n\n\n"
    parts.append((name, Outcome.ERROR, f"{broken}def {name}({fixture}):\n    assert {fixture}\n"))
    name = f"test_{next(names)}"
    parts.append((name, Outcome.SKIPPED, f"def {name}():\n    pytest.skip({name!r})\n"))
    case = f"Test{next(names).title().replace('_', '')}"
    methods = []
    expected = {}
    for outcome, body in rng.sample(_UNITTEST, len(_UNITTEST)):
        name = f"test_{next(names)}"
        expected[f"{case}::{name}"] = outcome
        methods.append(f"    def {name}(self):\n        {_filled(body, rng)}\n")
    rng.shuffle(parts)
    expected |= {name: outcome for name, outcome, _ in parts}
    text = "\n\n".join(["import unittest\n\nimport pytest\n", *(code for _, _, code in parts)])
    text += f"\n\nclass {case}(unittest.TestCase):\n" + "\n".join(methods)
    path = str(PurePosixPath(folder) / f"test_{next(names)}.py")
    return Canaries(path, text, expected, rng.getrandbits(32))


def _names(rng: random.Random) -> Iterator[str]:
    pairs = [f"{subject}_{matter}" for subject in _SUBJECTS for matter in _MATTERS]
    for name in rng.sample(pairs, len(pairs)):
        yield f"{name}_{rng.randrange(100, 1000)}"


def _filled(body: str, rng: random.Random) -> str:
    a = rng.randrange(20, 1000)
    b = a + rng.randrange(1, 1000)
    s, t = rng.sample(_SUBJECTS, 2)
    return body.format(a=a, b=b, c=a + b, s=s, t=t)
