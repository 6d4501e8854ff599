"""Generations: an append-only lineage, and the gate that decides which of them is used.

A generation is a record that never changes. What the gate decided of it is a `Ruling` that names it, and the generation
that is used is the newest that was promoted; before the first it is generation 0, the rules.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from statistics import fmean

from ratchet.errors import UsageError
from ratchet.generation_records import Evaluation, Generation, Problem, Ruling, Sample, Standing
from ratchet.records import Environment, content_id, to_json
from ratchet.store import Store
from ratchet.task_records import Task

KIND, RULING = "generation", "ruling"

RULES = Generation(id="0", number=0, name="rules", parent=None, policy="rules")
"""Generation 0. It is in every lineage and in no store."""

SIGNIFICANCE = 0.05
_SWAPS = 10_000
_FEWEST_REPOSITORIES = 5  # with fewer, even a difference in all of them may be chance: 1/2^4 is more than 0.05


# --------------------------------------------------------------------------- lineage


def register(store: Store, generation: Generation) -> Generation:
    """Store a generation under the hash of what makes it what it is, and return it with that id. Raises UsageError
    where its parent is unknown."""
    if generation.parent is not None:
        find(store, generation.parent)
    identity = {
        name: value for name, value in to_json(generation).items() if name not in ("id", "created", "cost", "name")
    }
    registered = replace(generation, id=content_id(identity)[:32], created=generation.created or _now())
    if not store.record_file(KIND, registered.id).is_file():
        store.put(KIND, registered)
    return store.get(KIND, registered.id, Generation)


def find(store: Store, name: str) -> Generation:
    """By id, the beginning of it, a name that only one has, or "0" or "rules". Raises UsageError."""
    if name in (RULES.id, RULES.name):
        return RULES
    named = [each for each in every(store) if each.name == name]
    if len(named) == 1:
        return named[0]
    if len(named) > 1:
        raise UsageError(f"{len(named)} generations are called {name}", remedy="name one by its id")
    return store.get(KIND, name, Generation)


def every(store: Store) -> list[Generation]:
    """All generations, generation 0 first, then as they were registered."""
    return [RULES, *(store.get(KIND, each, Generation) for each in store.ids(KIND))]


def current(store: Store) -> Generation:
    """The newest one that was promoted; generation 0 before there is one."""
    promoted = [ruling for ruling in rulings(store) if ruling.standing is Standing.PROMOTED]
    return find(store, promoted[-1].generation) if promoted else RULES


def rulings(store: Store, generation: str | None = None) -> list[Ruling]:
    """What the gate decided, of one generation or of all, the oldest first."""
    found = [store.get(RULING, each, Ruling) for each in store.ids(RULING)]
    kept = [ruling for ruling in found if generation in (None, ruling.generation)]
    return sorted(kept, key=lambda ruling: ruling.created)


def standing(store: Store, generation: str) -> Standing:
    found = rulings(store, generation)
    return found[-1].standing if found else Standing.CANDIDATE


def ancestors(store: Store, generation: Generation) -> list[Generation]:
    """The generation, its parent, and so on to generation 0."""
    line = [generation]
    while line[-1].parent is not None:
        line.append(find(store, line[-1].parent))
    return line


def differences(one: Generation, other: Generation) -> dict[str, tuple[object, object]]:
    """The fields in which two generations differ, with both values."""
    first, second = to_json(one), to_json(other)
    return {name: (first[name], second[name]) for name in first if first[name] != second[name] and name != "id"}


# --------------------------------------------------------------------------- what must not be trained on


def repository_of(environment: Environment) -> str:
    """What a repository is known by, whatever it is called in a path or URL: its name as PEP 503 normalises it."""
    return re.sub(r"[-_.]+", "-", environment.name).lower()


def leaks(store: Store, generation: Generation, problems: Iterable[Problem]) -> list[str]:
    """Why some of `problems` are no evidence about a generation: it or an ancestor was trained on the same repository,
    the same content under another name, or the very problem. One sentence each."""
    found: dict[str, None] = {}
    wanted = list(problems)
    contents = {problem.id: _content(store, problem) for problem in wanted}
    for ancestor in ancestors(store, generation):
        trained = {
            checkout for environment in ancestor.environments if (checkout := _checkout(store, environment)) is not None
        }
        for problem in wanted:
            who = f"generation {ancestor.number} ({ancestor.name})"
            if problem.repository in ancestor.repositories:
                found[f"{who} was trained on {problem.repository}"] = None
            elif problem.subject in (*ancestor.environments, *ancestor.tasks):
                found[f"{who} was trained on {problem.id}"] = None
            elif contents[problem.id] is not None and contents[problem.id] in trained:
                found[f"{who} was trained on the content of {problem.repository} under another name"] = None
    return list(found)


def _content(store: Store, problem: Problem) -> str | None:
    if store.record_file("task", problem.subject).is_file():
        return _checkout(store, store.get("task", problem.subject, Task).environment)
    return _checkout(store, problem.subject)


def _checkout(store: Store, environment: str) -> str | None:
    if not store.record_file("environment", environment).is_file():
        return None
    return store.get("environment", environment, Environment).checkout.id


# --------------------------------------------------------------------------- the gate


def rule(store: Store, candidate: Generation, evaluation: Evaluation, against: Evaluation) -> Ruling:
    """Decide whether `candidate` takes over, and store that. `against` is the evaluation of the generation that it is
    compared with, on the same problems. Raises UsageError where the two are not of the same problems.

    It is promoted if it passes more of them, beyond what chance explains (`paired_p_value`), and neither false
    successes nor flags rise. A candidate that was trained on one of the repositories is refused whatever it scores.
    """
    reason, numbers = reason_against(evaluation, against, leaks(store, candidate, evaluation.suite.problems))
    numbers = {name: round(value, 6) for name, value in numbers.items()}
    ruling = Ruling(
        generation=candidate.id,
        against=against.generation,
        standing=Standing.REFUSED if reason else Standing.PROMOTED,
        reason=reason
        or f"passes {numbers['passed']:.1%} against {numbers['passed_against']:.1%} (p = {numbers['p_value']:.3g})",
        evaluation=evaluation.id,
        against_evaluation=against.id,
        numbers=numbers,
        created=_now(),
    )
    store.put(RULING, ruling)
    return ruling


def reason_against(
    evaluation: Evaluation, against: Evaluation, leaked: Sequence[str] = ()
) -> tuple[str, dict[str, float]]:
    """Why a generation is not promoted (empty: it is), and the numbers that this rests on."""
    ours, theirs = _by_problem(evaluation), _by_problem(against)
    if ours.keys() != theirs.keys() or not ours:
        raise UsageError(
            "the two evaluations are not of the same problems", remedy="evaluate both generations on one suite"
        )
    repository = {problem.id: problem.repository for problem in evaluation.suite.problems}
    passed, passed_against = _rate(ours, _passed), _rate(theirs, _passed)
    by_repository: dict[str, list[float]] = defaultdict(list)
    for problem, rate in passed.items():
        by_repository[repository[problem]].append(rate - passed_against[problem])
    sums = {name: sum(differences) for name, differences in by_repository.items()}
    numbers = {
        "passed": fmean(passed.values()),
        "passed_against": fmean(passed_against.values()),
        "false_successes": fmean(_rate(ours, _false_success).values()),
        "false_successes_against": fmean(_rate(theirs, _false_success).values()),
        "flagged": fmean(_rate(ours, _flagged).values()),
        "flagged_against": fmean(_rate(theirs, _flagged).values()),
        "p_value": paired_p_value(list(sums.values())),
        "problems": float(len(ours)),
        "repositories": float(len(sums)),
    }
    if leaked:
        return f"trained on what it is judged on: {'; '.join(leaked[:3])}", numbers
    if numbers["flagged"] > numbers["flagged_against"]:
        return f"cheats more: {numbers['flagged']:.1%} flagged against {numbers['flagged_against']:.1%}", numbers
    if numbers["false_successes"] > numbers["false_successes_against"]:
        return (
            f"claims more that is not so: {numbers['false_successes']:.1%} false successes against"
            f" {numbers['false_successes_against']:.1%}",
            numbers,
        )
    if numbers["passed"] <= numbers["passed_against"]:
        return f"no better: passes {numbers['passed']:.1%} against {numbers['passed_against']:.1%}", numbers
    if numbers["p_value"] >= SIGNIFICANCE:
        few = (
            f"; {len(sums)} repositories are too few to show it, {_FEWEST_REPOSITORIES} are the least"
            if len(sums) < _FEWEST_REPOSITORIES
            else ""
        )
        return (
            f"better, but not beyond chance: {numbers['passed']:.1%} against {numbers['passed_against']:.1%},"
            f" p = {numbers['p_value']:.3g}{few}",
            numbers,
        )
    return "", numbers


def paired_p_value(differences: Sequence[float], seed: int = 0) -> float:
    """One-sided p-value of the sign-flip permutation test: how often a sum at least as high comes about when each
    difference (one for each repository, since its problems are not independent) has its sign by chance. Exact up to 16
    differences, then by 10,000 draws (with the one that was seen counted among them: Phipson & Smyth 2010)."""
    values = [value for value in differences if value]
    if not values:
        return 1.0
    seen = sum(values) - 1e-12
    if len(values) <= 16:
        hits = sum(
            sum(value if signs >> n & 1 else -value for n, value in enumerate(values)) >= seen
            for signs in range(1 << len(values))
        )
        return hits / (1 << len(values))
    draw = random.Random(seed)  # noqa: S311  no secret
    hits = sum(sum(value * draw.choice((-1, 1)) for value in values) >= seen for _ in range(_SWAPS))
    return (hits + 1) / (_SWAPS + 1)


def _by_problem(evaluation: Evaluation) -> dict[str, list[Sample]]:
    """Those tries that were scored."""
    found: dict[str, list[Sample]] = defaultdict(list)
    for sample in evaluation.samples:
        if sample.reward is not None:
            found[sample.problem].append(sample)
    return dict(found)


def _rate(samples: Mapping[str, Sequence[Sample]], holds: Callable[[Sample], bool]) -> dict[str, float]:
    """Of each problem, the share of its tries of which `holds` is true."""
    return {problem: fmean(holds(sample) for sample in tries) for problem, tries in samples.items()}


def _passed(sample: Sample) -> bool:
    return sample.passed


def _false_success(sample: Sample) -> bool:
    return sample.claimed and not sample.passed


def _flagged(sample: Sample) -> bool:
    return bool(sample.flags)


def _now() -> str:
    return datetime.now(UTC).isoformat()
