"""Held-out behaviour: calls of the code that a task is about, whose outputs are compared with the reference's.

A patch that knows the tests' inputs by heart passes the tests. So what the tests call is recorded, the inputs are
varied at random, and the reference says what should come of them. What is expected never enters a sandbox in which a
patch is judged: code under test can spoil its own outcomes, crash or forge lines of output, but to match it has to
compute the right values.

What this cannot catch: faults outside the functions whose calls could be recorded (arguments that are no plain data,
coroutines, effects on files and services), and a patch that is right on all inputs near those of the tests and wrong
elsewhere. And an honest patch may differ where nothing says what should happen, so few probes raise errors, and a
reward should take the share of those that match rather than all or nothing.
"""

from __future__ import annotations

import json
import math
import random
import re
import secrets
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ratchet.autoinstall.verify import environment_layers, start
from ratchet.autoinstall.workshop import BASE_USER, WORKSPACE, Workshop
from ratchet.protocols import Sandbox
from ratchet.records import Environment
from ratchet.task_records import Probe
from ratchet.tasks.candidates import Candidate
from ratchet.tasks.prepare import apply_patch
from ratchet.tasks.variations import literal, parsed, varied

MOST_PROBES = 24

_RESOURCES = Path(__file__).parent / "resources"
_PLACE = "/run/ratchet-probes"
_CALLS_FILE = "/tmp/ratchet-calls.json"  # noqa: S108 - in a sandbox of its own
_LARGEST_CALLS_BYTES = 8 << 20

_MOST_TESTS = 40
_RECORD_TIMEOUT_S = 30.0
_MOST_RECORDED = 30
_MOST_EVALUATED = 120
_SLOWEST_S = 0.2
# A probe that took less than `_SLOWEST_S` has this long to answer when it is judged.
_PROBE_TIMEOUT_S = 2.0
_MOST_OUTCOME_CHARACTERS = 4000

_MOST_AS_RECORDED = 4
_MOST_ERRORS = 3
_MOST_OF_ONE_OUTCOME = 2


def record_probes(
    workshop: Workshop, environment: Environment, candidate: Candidate, tests: Collection[str], rng: random.Random
) -> tuple[Probe, ...]:
    """Up to `MOST_PROBES` probes of the code that a candidate is about, found in the calls that `tests` make.

    Each gives the same outcome twice in processes with different hash seeds, in order and backwards. At least one whose
    input is not the tests' own gives another outcome where the candidate's changes were made; without that, and where
    nothing says what the candidate is about, or it is no Python, there are none.
    """
    if not candidate.about or not tests or candidate.language != "python":
        return ()
    env, layers = environment.recipe.env, environment_layers(workshop, environment)
    with workshop.offline(layers, environment.limits) as sandbox:
        start(sandbox, environment.recipe)
        recorded = _recorded(_record(sandbox, environment, candidate, tests, rng), rng)
    if not recorded:
        return ()
    known = {call.json for call in recorded}
    calls = [*recorded, *(call for call in _variations(recorded, rng) if call.json not in known)]
    with workshop.offline(layers, environment.limits) as sandbox:
        start(sandbox, environment.recipe)
        expected = _stable(sandbox, env, [call.json for call in calls])
        apply_patch(sandbox, candidate.changes)
        broken = _evaluate(sandbox, env, list(expected), seed="1")
    candidates = [
        _Found(Probe(call.json, expected[call.json]), call.json in known, broken.get(call.json) != expected[call.json])
        for call in calls
        if call.json in expected
    ]
    chosen = _choose(candidates)
    with workshop.offline(layers, environment.limits) as sandbox:
        start(sandbox, environment.recipe)
        holds = run_probes(sandbox, env, [found.probe for found in chosen])
    kept = [found for found, matched in zip(chosen, holds, strict=True) if matched]
    tells = any(found.differs and not found.as_recorded for found in kept)
    return tuple(found.probe for found in kept) if tells else ()


def run_probes(sandbox: Sandbox, env: Mapping[str, str], probes: Sequence[Probe]) -> tuple[bool, ...]:
    """Of each probe, whether its outcome in the sandbox is the expected one. A crash, a hang or garbage is a mismatch
    of that probe, and costs no other; an import that exits costs the probes of that module."""
    outcomes = _evaluate(sandbox, env, [probe.call for probe in probes])
    return tuple(outcomes.get(probe.call) == probe.expected for probe in probes)


# --------------------------------------------------------------------------- recording


@dataclass(frozen=True)
class _Call:
    """One call. `data` is as `resources/record_calls.py` gives it, with the folders to import from; `distance` is how
    many frames lay between it and the code that the task is about."""

    data: Mapping[str, Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    distance: int

    @property
    def json(self) -> str:
        return json.dumps(self.data, sort_keys=True)

    @property
    def function(self) -> tuple[str, str, str]:
        return self.data["module"], self.data["name"], self.data["method"]


@dataclass(frozen=True)
class _Found:
    """`as_recorded`: the tests make this very call. `differs`: its outcome is another where the task starts."""

    probe: Probe
    as_recorded: bool
    differs: bool


def _record(
    sandbox: Sandbox, environment: Environment, candidate: Candidate, tests: Collection[str], rng: random.Random
) -> object:
    """What the plugin left, whatever that is."""
    targets = [[definition.path, definition.first_line, definition.last_line] for definition in candidate.about]
    request = {"root": WORKSPACE, "targets": targets, "out": _CALLS_FILE}
    sandbox.write(f"{_PLACE}/record_calls.py", (_RESOURCES / "record_calls.py").read_bytes())
    sandbox.write(f"{_PLACE}/record.json", json.dumps(request).encode())
    ids = sorted(tests)
    ids = sorted(rng.sample(ids, _MOST_TESTS)) if len(ids) > _MOST_TESTS else ids
    in_one_process = "-n0 " if "pytest-xdist" in environment.python_packages else ""
    env = environment.recipe.env
    sandbox.run(
        f"python -m pytest -q -p record_calls {in_one_process}{shlex.join(ids)}",
        user=BASE_USER,
        cwd=WORKSPACE,
        env={
            **env,
            "PYTHONPATH": ":".join(filter(None, [_PLACE, env.get("PYTHONPATH", "")])),
            "PYTHONHASHSEED": "0",
            "RATCHET_RECORD": f"{_PLACE}/record.json",
        },
        timeout_s=_RECORD_TIMEOUT_S,
    )
    try:
        return json.loads(sandbox.read(_CALLS_FILE, max_bytes=_LARGEST_CALLS_BYTES))
    except (FileNotFoundError, ValueError, RecursionError):
        return None


def _recorded(left: object, rng: random.Random) -> list[_Call]:
    """The calls that a plugin left: those nearest to the code first, and of each function some."""
    if not isinstance(left, dict):
        return []
    calls, paths = left.get("calls"), left.get("paths")
    if not isinstance(calls, list) or not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        return []
    read = [call for data in calls if (call := _read_call(data, paths)) is not None]
    rng.shuffle(read)
    seen: Counter[tuple[str, str, str]] = Counter()
    ranked: list[tuple[int, int, int, _Call]] = []
    for call in read:
        ranked.append((call.distance, seen[call.function], len(ranked), call))
        seen[call.function] += 1
    return [call for *_, call in sorted(ranked, key=lambda entry: entry[:3])][:_MOST_RECORDED]


def _read_call(data: object, paths: list[str]) -> _Call | None:
    if not isinstance(data, dict):
        return None
    texts = {key: data.get(key) for key in ("module", "name", "method", "args", "kwargs")}
    init, distance = data.get("init"), data.get("distance")
    if not all(isinstance(text, str) for text in texts.values()) or not isinstance(init, str | None):
        return None
    try:
        args, kwargs = parsed(str(texts["args"])), parsed(str(texts["kwargs"]))
    except ValueError:
        return None
    if not isinstance(args, tuple) or not isinstance(kwargs, dict) or not all(isinstance(key, str) for key in kwargs):
        return None
    return _Call({**texts, "init": init, "paths": paths}, args, kwargs, distance if isinstance(distance, int) else 0)


def _variations(recorded: Sequence[_Call], rng: random.Random) -> Iterator[_Call]:
    """Other calls of the same functions, each once."""
    pools: dict[tuple[str, str, str], list[tuple[tuple[Any, ...], dict[str, Any]]]] = {}
    for call in recorded:
        pools.setdefault(call.function, []).append((call.args, call.kwargs))
    seen = set()
    for number in range(2 * _MOST_EVALUATED):
        call = recorded[number % len(recorded)]
        try:
            args, kwargs = varied(call.args, call.kwargs, pools[call.function], rng)
            data = {**call.data, "args": literal(args), "kwargs": literal(kwargs)}
        except (OverflowError, ValueError):  # infinite, or of thousands of digits: not from our recorder
            continue
        new = replace(call, data=data, args=args, kwargs=kwargs)
        if new.json in seen:
            continue
        seen.add(new.json)
        yield new
        if len(seen) == _MOST_EVALUATED:
            return


# --------------------------------------------------------------------------- evaluating


def _stable(sandbox: Sandbox, env: Mapping[str, str], calls: Sequence[str]) -> dict[str, str]:
    """The outcomes that are the same twice, and do not hold the date of today."""
    first = _evaluate(sandbox, env, calls, seed="1", slowest_s=_SLOWEST_S)
    today = _today()
    first = {call: text for call, text in first.items() if not text.startswith("cannot") and not today.search(text)}
    second = _evaluate(sandbox, env, list(reversed(first)), seed="2", slowest_s=_SLOWEST_S)
    return {call: text for call, text in first.items() if second.get(call) == text}


def _today() -> re.Pattern[str]:
    """Today's date as outcomes may write it, in any time zone: such an outcome is another one tomorrow."""
    now = datetime.now(UTC)
    days = [now + timedelta(days=offset) for offset in (-1, 0, 1)]
    return re.compile("|".join(rf"{day.year}\D{{1,3}}0?{day.month}\D{{1,3}}0?{day.day}(?!\d)" for day in days))


def _evaluate(
    sandbox: Sandbox,
    env: Mapping[str, str],
    calls: Sequence[str],
    *,
    seed: str = "random",
    slowest_s: float = math.inf,
) -> dict[str, str]:
    """The outcome of each call that gave one, and took no longer than `slowest_s`."""
    if not calls:
        return {}
    nonce = secrets.token_hex(16)
    timeout_s = min(_PROBE_TIMEOUT_S, 2 * slowest_s)
    request = {"nonce": nonce, "timeout_s": timeout_s, "calls": [json.loads(call) for call in calls]}
    sandbox.write(f"{_PLACE}/probes.py", (_RESOURCES / "probes.py").read_bytes())
    sandbox.write(f"{_PLACE}/request.json", json.dumps(request).encode())
    result = sandbox.run(
        f"python {_PLACE}/probes.py {_PLACE}/request.json",
        user=BASE_USER,
        cwd=WORKSPACE,
        env={**env, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"},
        timeout_s=30 + timeout_s * len(calls),
    )
    answers = _answers(result.output, nonce, len(calls))
    return {calls[number]: text for number, (text, seconds) in answers.items() if seconds <= slowest_s}


def _answers(output: str, nonce: str, count: int) -> dict[int, tuple[str, float]]:
    """By the number of the call; two different answers to one are none."""
    found: dict[int, tuple[str, float]] = {}
    doubtful = set()
    for line in output.split("\n"):
        mark, _, rest = line.partition(" ")
        number, _, answer = rest.partition(" ")
        if mark != nonce or not re.fullmatch(r"[0-9]{1,4}", number) or int(number) >= count:
            continue
        try:
            data = json.loads(answer)
        except (ValueError, RecursionError):
            continue
        match data:
            case [str(text), float(seconds)] if len(text) <= _MOST_OUTCOME_CHARACTERS:
                if found.setdefault(int(number), (text, seconds))[0] != text:
                    doubtful.add(int(number))
    return {number: answer for number, answer in found.items() if number not in doubtful}


# --------------------------------------------------------------------------- choosing


def _choose(candidates: Sequence[_Found]) -> list[_Found]:
    """Varied inputs that tell the task's start from the reference first, then other varied inputs, then some of the
    tests' own; few of one outcome, and few errors."""
    ranked = sorted(candidates, key=lambda found: (found.as_recorded, not found.differs))
    chosen: list[_Found] = []
    outcomes: Counter[str] = Counter()
    as_recorded = errors = 0
    for found in ranked:
        outcome, raised = found.probe.expected, found.probe.expected.startswith("raised")
        if len(chosen) == MOST_PROBES - (0 if found.as_recorded else _MOST_AS_RECORDED):
            continue
        if outcomes[outcome] == _MOST_OF_ONE_OUTCOME or (raised and errors == _MOST_ERRORS):
            continue
        if found.as_recorded and as_recorded == _MOST_AS_RECORDED:
            continue
        chosen.append(found)
        outcomes[outcome] += 1
        errors += raised
        as_recorded += found.as_recorded
    return chosen
