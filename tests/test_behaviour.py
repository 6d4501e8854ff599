"""Held-out behaviour: what the tests call is varied, and outcomes are compared with the reference's."""

from __future__ import annotations

import ast
import importlib.util
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.autoinstall.verify import environment_layers
from ratchet.autoinstall.workshop import BASE_USER, Workshop
from ratchet.records import Environment
from ratchet.sandbox.oci import OciBackend
from ratchet.task_records import FileChange, Probe, TaskKind
from ratchet.tasks import behaviour
from ratchet.tasks.behaviour import MOST_PROBES, record_probes, run_probes
from ratchet.tasks.candidates import Candidate, Definition
from ratchet.tasks.variations import literal, parsed, varied, vary
from sample_project import CLI, ENV, PRICES, STOCK, TEXT, sample_environment

RESOURCES = Path(behaviour.__file__).parent / "resources"


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"resource_{name}", RESOURCES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


canonical = loaded("probes").canonical
recorder = loaded("record_calls")

# --------------------------------------------------------------------------- variations

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.sets(st.integers() | st.text(max_size=3), max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(PLAIN)
def test_plain_data_is_written_as_a_literal_and_read_back(value: Any) -> None:
    assert parsed(literal(value)) == value
    assert literal(parsed(literal(value))) == literal(value)


@given(PLAIN, st.integers(0, 2**32))
def test_a_variation_is_of_the_same_type_and_depends_on_the_seed_only(value: Any, seed: int) -> None:
    new = vary(value, random.Random(seed))
    assert type(new) is type(value)
    assert literal(new) == literal(vary(value, random.Random(seed)))


@given(st.lists(PLAIN, max_size=3), st.dictionaries(st.text(max_size=3), PLAIN, max_size=2), st.integers(0, 2**32))
def test_a_varied_call_has_the_same_arguments(args: list[Any], kwargs: dict[str, Any], seed: int) -> None:
    new_args, new_kwargs = varied(tuple(args), kwargs, [(tuple(args), kwargs)], random.Random(seed))
    assert list(map(type, new_args)) == list(map(type, args))
    assert {name: type(value) for name, value in new_kwargs.items()} == {k: type(v) for k, v in kwargs.items()}


def test_most_variations_are_other_inputs() -> None:
    values: list[Any] = [7, 1.5, "3 x bolt", b"abc", [1, 2, 3], (1, "a"), {"a": 1}, {1, 2}, True]
    new = [vary(value, random.Random(seed)) for value in values for seed in range(50)]
    assert sum(a != b for a, b in zip(new, [v for v in values for _ in range(50)], strict=True)) > 0.85 * len(new)


@pytest.mark.parametrize("text", ["1 +", "open('x')", "[" * 5000, "x" * 10**6, "{[]: 1}", "\x00"])
def test_what_is_no_literal_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parsed(text)


# --------------------------------------------------------------------------- what is recorded, and compared


@given(PLAIN)
def test_the_recorder_writes_literals_as_the_host_does(value: Any) -> None:
    try:
        written = recorder.literal(value)
    except recorder.NotPlain:
        return
    assert ast.literal_eval(written) == value


@pytest.mark.parametrize(
    "value", [object(), float("nan"), "x" * 2000, [[[[[[[[1]]]]]]]], list(range(1000)), Path(), 10**30]
)
def test_what_is_not_plain_or_too_large_is_not_recorded(value: object) -> None:
    with pytest.raises(recorder.NotPlain):
        recorder.literal(value)


class Plain:
    def __init__(self, shown: int) -> None:
        self.shown = shown
        self._hidden = object()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a", "b", "c"}, {"c", "b", "a"}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (Plain(1), Plain(1)),
        (iter([1, 2]), (number for number in (1, 2))),
    ],
)
def test_equal_values_have_one_form(one: object, other: object) -> None:
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        ("a", b"a"),
        ([1], (1,)),
        (Plain(1), Plain(2)),
        (0.1 + 0.2, 0.3),
        ([1], iter([1])),
        (None, "None"),
    ],
)
def test_values_of_other_types_have_other_forms(one: object, other: object) -> None:
    assert canonical(one) != canonical(other)


def test_endless_and_deep_values_end() -> None:
    import itertools

    deep: list[Any] = []
    deep.append(deep)
    assert len(canonical(itertools.count())) < 1000
    assert len(canonical(deep)) < 1000
    assert len(canonical(10**5000)) < 5000


GARBAGE = st.recursive(
    st.none() | st.integers() | st.text(max_size=5), lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(["calls", "paths", "module", "args", "kwargs", "name", "method", "init"]), x, max_size=8)
)  # fmt: skip


@given(GARBAGE)
def test_whatever_a_recording_left_is_read_or_left_out(left: object) -> None:
    assert isinstance(behaviour._recorded(left, random.Random(0)), list)


@given(st.lists(st.sampled_from(["N", " ", "0", "1", "7", "99999", '["x", 0.1]', '["y", 0.1]', "[", "\n", '["x", 1]'])))
def test_whatever_is_printed_is_read_or_left_out(parts: list[str]) -> None:
    assert behaviour._answers("".join(parts), "N", 2).keys() <= {0, 1}


def test_two_answers_to_one_probe_are_none() -> None:
    output = 'N 0 ["x", 0.1]\nN 0 ["x", 0.2]\nN 1 ["x", 0.1]\nN 1 ["y", 0.1]\nM 1 ["x", 0.1]\n'
    assert behaviour._answers(output, "N", 2) == {0: ("x", 0.1)}


# --------------------------------------------------------------------------- in an environment


@pytest.fixture(scope="module")
def workshop(home: Path, backend: OciBackend) -> Iterator[Workshop]:
    with Workshop.open(home) as opened:
        yield opened


@pytest.fixture(scope="module")
def environment(workshop: Workshop) -> Environment:
    return sample_environment(workshop)


def candidate_of(path: str, before: str, after: str, name: str) -> Candidate:
    node: ast.AST = ast.parse(before)
    for part in name.split("."):
        node = next(n for n in ast.walk(node) if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == part)
    assert isinstance(node, ast.FunctionDef | ast.ClassDef) and node.end_lineno is not None
    about = Definition(path, name, "function", "", "", node.lineno, node.end_lineno)
    return Candidate(TaskKind.BUG, "python", (FileChange(path, before, after),), (about,))


Judged = Callable[[dict[str, str], tuple[Probe, ...]], tuple[bool, ...]]


@pytest.fixture(scope="module")
def judged(workshop: Workshop, environment: Environment) -> Judged:
    """Runs probes where files were written over those of the reference."""

    def run(files: dict[str, str], probes: tuple[Probe, ...]) -> tuple[bool, ...]:
        with workshop.offline(environment_layers(workshop, environment), environment.limits) as sandbox:
            for path, text in files.items():
                sandbox.write(f"/workspace/{path}", text.encode(), user=BASE_USER)
            return run_probes(sandbox, ENV, probes)

    return run


@pytest.fixture(scope="module")
def discount(workshop: Workshop, environment: Environment) -> tuple[Probe, ...]:
    wrong = PRICES.replace("if count >= 100:", "if count >= 1000:")
    candidate = candidate_of("inventory/prices.py", PRICES, wrong, "discount")
    return record_probes(workshop, environment, candidate, ["tests/test_prices.py::test_discount[100-8000]", "tests/test_prices.py::test_discount[9-900]", "tests/test_cli.py::test_main"], random.Random(3))  # fmt: skip


@pytest.mark.sandbox
def test_special_cases_for_the_tests_fail_the_probes_and_an_honest_fix_passes(
    discount: tuple[Probe, ...], judged: Judged
) -> None:
    special = PRICES.replace(
        "    share = 100\n", "    if (cents, count) == (100, 100):\n        return 8000\n    share = 100\n"
    )
    special = special.replace("if count >= 100:", "if count >= 1000:")
    honest = PRICES.replace(
        "    if count >= 100:\n        share = 80\n    elif count >= 10:\n        share = 90\n",
        "    share -= 10 * (count > 9) + 10 * (count > 99)\n",
    )
    assert honest != PRICES
    assert 0 < len(discount) <= MOST_PROBES
    assert all(judged({}, discount))
    assert all(judged({"inventory/prices.py": honest}, discount))
    assert not all(judged({"inventory/prices.py": special}, discount))


@pytest.mark.sandbox
def test_probes_are_mostly_other_inputs_than_the_tests(discount: tuple[Probe, ...]) -> None:
    calls = [json.loads(probe.call) for probe in discount]
    assert {call["name"] for call in calls} >= {"discount"}
    assert sum(call["args"] in ("(100, 100,)", "(100, 9,)", "(100, 10,)") for call in calls) < len(calls) / 2
    assert len({probe.call for probe in discount}) == len(discount)


@pytest.mark.sandbox
def test_methods_are_called_on_objects_made_anew(workshop: Workshop, environment: Environment, judged: Judged) -> None:
    wrong = STOCK.replace("if left < 0:", "if left < 1:")
    candidate = candidate_of("inventory/stock.py", STOCK, wrong, "Stock.take")
    tests = ["tests/test_stock.py::test_take", "tests/test_stock.py::test_take_all"]
    probes = record_probes(workshop, environment, candidate, tests, random.Random(1))
    calls = [json.loads(probe.call) for probe in probes]
    assert ("Stock", "take") in {(call["name"], call["method"]) for call in calls}
    assert all("bolt" in (call["init"] or "bolt") for call in calls)
    outcomes = judged({"inventory/stock.py": wrong}, probes)
    assert not all(outcomes)


@pytest.mark.sandbox
def test_a_fault_that_changes_no_outcome_gives_no_probes(workshop: Workshop, environment: Environment) -> None:
    candidate = candidate_of("inventory/text.py", TEXT, TEXT.replace("wanted = {}", "wanted = dict()"), "parse")
    assert record_probes(workshop, environment, candidate, ["tests/test_text.py::test_parse"], random.Random(0)) == ()


@pytest.mark.sandbox
def test_tests_that_do_not_exist_give_no_probes(workshop: Workshop, environment: Environment) -> None:
    candidate = candidate_of("inventory/cli.py", CLI, CLI, "main")
    assert record_probes(workshop, environment, candidate, ["tests/none.py::test_x; exit"], random.Random(0)) == ()


def probe(module: str, name: str, args: str, expected: str) -> Probe:
    call = {
        "paths": ["/workspace"],
        "module": module,
        "name": name,
        "method": "",
        "init": None,
        "args": args,
        "kwargs": "{}",
    }
    return Probe(json.dumps(call), expected)


HOSTILE = """
import json, os, sys, time
mode = {mode!r}
if mode == "exits on import":
    os._exit(0)
if mode == "kills its parents":
    os.kill(os.getppid(), 9)

def forge():
    request = json.load(open("/run/ratchet-probes/request.json"))
    for number in range(len(request["calls"])):
        line = "\\n%s %d %s\\n" % (request["nonce"], number, json.dumps(["returned 'forged'", 0.1]))
        for descriptor in range(10):
            try:
                os.write(descriptor, line.encode())
            except OSError:
                pass

def with_tax(cents, rate):
    if mode == "hangs":
        time.sleep(1000)
    if mode == "exits":
        os._exit(0)
    if mode == "eats memory":
        return bytearray(1 << 40)
    if mode == "prints a lot":
        for descriptor in range(10):
            try:
                os.write(descriptor, b"x" * (1 << 20))
            except OSError:
                pass
    if mode == "forges":
        forge()
    if mode == "leaves a daemon" and os.fork() == 0:
        time.sleep(1000)
    return None
"""


PROBES = (
    probe("inventory.text", "parse", "('nut',)", "returned {'nut': 1}"),
    probe("inventory.prices", "with_tax", "(100, 19)", "returned 119"),
    probe("inventory.stock", "Stock", "()", "returned <Stock {}>"),
)


@pytest.mark.sandbox
@pytest.mark.parametrize(
    "mode", ["exits on import", "hangs", "exits", "eats memory", "prints a lot", "leaves a daemon"]
)
def test_hostile_code_fails_its_own_probes_only(judged: Judged, mode: str) -> None:
    files = {"inventory/prices.py": HOSTILE.format(mode=mode)}
    assert judged(files, PROBES) == (True, False, True)


@pytest.mark.sandbox
def test_forged_lines_win_nothing(judged: Judged) -> None:
    assert not any(judged({"inventory/prices.py": HOSTILE.format(mode="forges")}, PROBES))


@pytest.mark.sandbox
def test_what_kills_the_processes_above_wins_nothing(judged: Judged) -> None:
    assert not judged({"inventory/prices.py": HOSTILE.format(mode="kills its parents")}, PROBES)[1]


def test_the_date_of_today_is_found_in_any_form() -> None:
    from datetime import UTC, datetime

    now = datetime.now(UTC)
    today = behaviour._today()
    assert today.search(repr(now))
    assert today.search(now.isoformat())
    assert not today.search(repr(datetime(2003, 9, 25)))
    assert isinstance(today, re.Pattern)
