"""The lineage, and the gate: what is worse, cheats, or was trained on the exam is refused."""

from dataclasses import replace

import pytest

from ratchet.errors import UsageError
from ratchet.generation_records import Evaluation, Generation, Problem, ProblemKind, Sample, Standing, Suite
from ratchet.generations import (
    RULES,
    ancestors,
    current,
    differences,
    every,
    find,
    leaks,
    paired_p_value,
    reason_against,
    register,
    rule,
    rulings,
    standing,
)
from ratchet.store import Store

PROBLEMS = tuple(Problem(ProblemKind.TASK, f"task-{n}", f"repository-{n % 8}") for n in range(24))
SUITE = Suite("held-out", PROBLEMS)


def evaluation(generation, passes, *, claims=None, flagged=(), problems=PROBLEMS):
    """`passes` and `claims` say of the number of a problem whether it is passed, and whether success is claimed."""
    samples = tuple(
        Sample(
            problem.id,
            0,
            passed=bool(passes(n)),
            claimed=bool((claims or passes)(n)),
            reward=float(passes(n)),
            flags=("tests-changed",) if n in flagged else (),
        )
        for n, problem in enumerate(problems)
    )
    return Evaluation(f"of-{generation}", generation, replace(SUITE, problems=tuple(problems)), samples, {})


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def candidate(store, **fields):
    return register(store, Generation("", 1, "first", RULES.id, "local:x", weights="ab", **fields))


WORSE = evaluation("0", lambda n: n % 4 == 0)


def test_what_is_better_beyond_chance_takes_over(store):
    new = candidate(store)
    assert current(store) == RULES
    ruling = rule(store, new, evaluation(new.id, lambda n: n != 23), WORSE)
    assert ruling.standing is Standing.PROMOTED
    assert current(store) == new
    assert ruling.numbers["p_value"] < 0.05


def test_a_planted_regression_is_refused(store):
    new = candidate(store)
    ruling = rule(store, new, evaluation(new.id, lambda n: n % 8 == 0), WORSE)
    assert ruling.standing is Standing.REFUSED
    assert "no better" in ruling.reason
    assert current(store) == RULES
    assert standing(store, new.id) is Standing.REFUSED


def test_planted_cheating_is_refused_however_much_passes(store):
    new = candidate(store)
    ruling = rule(store, new, evaluation(new.id, lambda n: True, flagged={3}), WORSE)
    assert ruling.standing is Standing.REFUSED
    assert "cheats more" in ruling.reason


def test_more_false_successes_are_refused(store):
    new = candidate(store)
    ruling = rule(store, new, evaluation(new.id, lambda n: n != 5, claims=lambda n: True), WORSE)
    assert ruling.standing is Standing.REFUSED
    assert "false successes" in ruling.reason


@pytest.mark.parametrize("fields", [{"repositories": ("repository-3",)}, {"tasks": ("task-7",)}])
def test_one_trained_on_the_exam_is_refused(store, fields):
    new = candidate(store, **fields)
    ruling = rule(store, new, evaluation(new.id, lambda n: True), WORSE)
    assert ruling.standing is Standing.REFUSED
    assert "trained on what it is judged on" in ruling.reason


def test_what_an_ancestor_was_trained_on_counts(store):
    parent = candidate(store, repositories=("repository-3",))
    child = register(store, Generation("", 2, "second", parent.id, "local:y", weights="cd"))
    assert leaks(store, child, PROBLEMS[:3]) == []
    assert leaks(store, child, PROBLEMS) == ["generation 1 (first) was trained on repository-3"]


def test_better_by_chance_is_refused_and_too_few_repositories_are_said(store):
    new = candidate(store)
    one_more = evaluation(new.id, lambda n: n % 4 == 0 or n == 1)
    assert "not beyond chance" in rule(store, new, one_more, WORSE).reason
    few = PROBLEMS[:4]
    reason, _ = reason_against(
        evaluation("1", lambda n: True, problems=few), evaluation("0", lambda n: False, problems=few)
    )
    assert "4 repositories are too few" in reason


def test_different_exams_cannot_be_compared():
    with pytest.raises(UsageError, match="not of the same problems"):
        reason_against(evaluation("1", lambda n: True, problems=PROBLEMS[:3]), WORSE)


def test_a_try_that_the_machine_failed_is_not_counted():
    broken = evaluation("1", lambda n: n != 23)
    lost = replace(broken.samples[0], reward=None, passed=False)
    twice = replace(broken, samples=(*broken.samples, replace(lost, sample=1)))
    assert reason_against(twice, WORSE)[1]["passed"] == reason_against(broken, WORSE)[1]["passed"]


def test_problems_of_one_repository_are_one_piece_of_evidence():
    alone = tuple(replace(problem, repository="same") for problem in PROBLEMS)
    reason, numbers = reason_against(
        evaluation("1", lambda n: True, problems=alone), evaluation("0", lambda n: False, problems=alone)
    )
    assert numbers["p_value"] == 0.5
    assert "too few" in reason


@pytest.mark.parametrize(
    ("differences", "expected"),
    [([], 1.0), ([0, 0], 1.0), ([1], 0.5), ([1] * 5, 1 / 32), ([1, 1, -1], 0.5), ([-1, -1], 1.0)],
)
def test_the_p_value_by_hand(differences, expected):
    assert paired_p_value(differences) == expected


def test_the_p_value_of_many_is_that_of_few():
    few = [0.5, 0.25, 1, -0.5, 0.75, 0.1, -0.2, 0.3, 0.4, -0.1, 0.2, 0.6]
    padded = [*few, *[1e-9] * 6]
    assert paired_p_value(padded) == pytest.approx(paired_p_value(few), abs=0.01)


# --------------------------------------------------------------------------- lineage


def test_the_lineage_is_found_by_name_and_id(store):
    new = candidate(store)
    assert find(store, "first") == new == find(store, new.id[:8])
    assert find(store, "rules") == find(store, "0") == RULES
    assert [each.number for each in every(store)] == [0, 1]
    assert ancestors(store, new) == [new, RULES]
    with pytest.raises(UsageError):
        find(store, "nobody")


def test_the_same_generation_is_registered_once(store):
    one = candidate(store, seed=3)
    again = register(store, replace(one, id="", created="", cost={"train": 9.0}, name="other"))
    assert again == one
    assert register(store, replace(one, seed=4)).id != one.id


def test_a_generation_without_a_known_parent_is_refused(store):
    with pytest.raises(UsageError):
        register(store, Generation("", 2, "orphan", "f" * 32, "local:x"))


def test_differences_are_by_field(store):
    one = candidate(store, seed=3)
    other = register(store, replace(one, seed=4))
    assert differences(one, other)["seed"] == (3, 4)
    assert "policy" not in differences(one, other)


def test_the_last_ruling_holds(store):
    new = candidate(store)
    rule(store, new, evaluation(new.id, lambda n: n % 8 == 0), WORSE)
    rule(store, new, evaluation(new.id, lambda n: n != 23), WORSE)
    assert [each.standing for each in rulings(store, new.id)] == [Standing.REFUSED, Standing.PROMOTED]
    assert standing(store, new.id) is Standing.PROMOTED
