"""Labelled pairs of rollouts, and the reward model that is fitted on them."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ratchet.cli.label import app
from ratchet.errors import UsageError
from ratchet.records import Outcome, TestCase, TestRun
from ratchet.rewards import RewardConfig, score, score_stored
from ratchet.rewards.preference import (
    PREFERENCE,
    Preference,
    RewardModel,
    fit,
    pairs_to_label,
    store_model,
    stored_model,
)
from ratchet.store import Store
from ratchet.task_records import FileChange, Flag, Grade, Rollout, Task, TaskKind


def task_of(name: str) -> Task:
    return Task(name, "env", TaskKind.BUG, "python", f"Mend {name}.", (), ("t::a",), ("t::b",))


TASKS = {name: task_of(name) for name in ("task0", "task1", "task2")}


def rollout_of(task: str, number: int, *, solves: bool, lines: int) -> Rollout:
    outcome = Outcome.PASSED if solves else Outcome.FAILED
    tests = TestRun((TestCase("t::a", outcome), TestCase("t::b", Outcome.PASSED)))
    patch = (FileChange("m.py", "", "".join(f"{task}_{number}_{i} = 1\n" for i in range(lines))),)
    return Rollout(
        f"{task}-r{number}",
        task,
        "env",
        f"policy{number % 2}",
        number,
        "",
        "submitted",
        patch,
        Grade(tests),
        steps=lines,
    )


def labelled(pairs: int, *, seed: int = 0) -> tuple[list[Preference], dict[str, Rollout]]:
    """Whoever answers prefers a solution, and of two alike the shorter patch."""
    rng = random.Random(seed)
    rollouts: dict[str, Rollout] = {}
    preferences = []
    for number in range(pairs):
        task = f"task{number % 3}"
        a, b = (
            rollout_of(task, 2 * number + side, solves=rng.random() < 0.5, lines=rng.randint(1, 40)) for side in (0, 1)
        )
        rollouts |= {a.id: a, b.id: b}
        value_a, value_b = ((score(r, TASKS[task]).total, -r.steps) for r in (a, b))
        preferences.append(Preference(task, a.id, b.id, "a" if value_a > value_b else "b", 0))
    return preferences, rollouts


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    return Store(tmp_path)


def filled(store: Store, rollouts: dict[str, Rollout]) -> None:
    for task in TASKS.values():
        store.put("task", task)
    for rollout in rollouts.values():
        store.put("rollout", rollout)


# --------------------------------------------------------------------------- fitting


def test_a_reward_model_finds_what_was_preferred() -> None:
    preferences, rollouts = labelled(60)
    model = fit(preferences, rollouts, TASKS)
    weights = dict(zip(model.features, model.coefficients, strict=True))
    assert weights["solved"] > 0 > weights["changed_lines"]
    assert model.accuracy > 0.8
    assert (model.pairs, model.tasks, model.ties) == (60, 3, 0)


def test_answers_at_random_are_not_predicted() -> None:
    preferences, rollouts = labelled(60)
    rng = random.Random(1)
    noise = [replace(preference, answer=rng.choice("ab")) for preference in preferences]
    assert fit(noise, rollouts, TASKS).accuracy < 0.7


def test_it_does_not_matter_which_side_was_shown_first() -> None:
    preferences, rollouts = labelled(30)
    turned = [
        replace(p, a=p.b, b=p.a, answer="b" if p.answer == "a" else "a") if i % 2 else p
        for i, p in enumerate(preferences)
    ]
    one, other = fit(preferences, rollouts, TASKS), fit(turned, rollouts, TASKS)
    assert other.coefficients == pytest.approx(one.coefficients, abs=1e-3)


def test_the_part_lies_between_0_and_1_and_prefers_what_people_prefer() -> None:
    preferences, rollouts = labelled(60)
    model = fit(preferences, rollouts, TASKS)
    config = RewardConfig(weights={"preference": 1}, gate="none")
    good, bad = (
        score(rollout_of("task0", 900, solves=solves, lines=lines), TASKS["task0"], config, model=model).total
        for solves, lines in ((True, 2), (False, 10**6 // 100))
    )
    assert 0 <= bad < 0.5 < good <= 1


def test_ties_are_left_out_and_counted() -> None:
    preferences, rollouts = labelled(30)
    ties = [replace(preference, answer="tie") for preference in preferences[:5]]
    model = fit([*ties, *preferences[5:]], rollouts, TASKS)
    assert (model.pairs, model.ties) == (25, 5)


def test_too_few_pairs_are_refused() -> None:
    preferences, rollouts = labelled(9)
    with pytest.raises(UsageError, match="9 decided pairs are too few") as raised:
        fit(preferences, rollouts, TASKS)
    assert "ratchet label" in raised.value.remedy


def test_answers_that_always_prefer_one_side_are_refused() -> None:
    preferences, rollouts = labelled(20)
    with pytest.raises(UsageError, match="tell of the side"):
        fit([replace(preference, answer="a") for preference in preferences], rollouts, TASKS)


def test_pairs_of_one_task_are_fitted_too() -> None:
    preferences, rollouts = labelled(90)
    model = fit([p for p in preferences if p.task == "task0"], rollouts, TASKS)
    assert (model.tasks, model.pairs) == (1, 30)
    assert model.accuracy > 0.7


def test_a_stored_model_scores_as_the_fitted_one(store: Store) -> None:
    preferences, rollouts = labelled(30)
    model = fit(preferences, rollouts, TASKS)
    store_model(store, model)
    assert stored_model(store) == model
    config = RewardConfig(weights={"preference": 1}, gate="none")
    some = next(iter(rollouts.values()))
    task = TASKS[some.task]
    assert score_stored(store, some, task, config) == score(some, task, config, model=model)


# --------------------------------------------------------------------------- pairs


def test_pairs_take_the_tasks_in_turn_and_differ_with_the_seed() -> None:
    rollouts = [rollout_of(task, number, solves=True, lines=3) for task in TASKS for number in range(4)]
    pairs = list(pairs_to_label(rollouts, (), 0))
    assert len(pairs) == 18
    assert {a.task for a, _ in pairs[:3]} == set(TASKS)
    assert pairs == list(pairs_to_label(reversed(rollouts), (), 0))
    assert pairs != list(pairs_to_label(rollouts, (), 1))


def test_labelled_and_equal_and_ungraded_ones_are_no_pairs() -> None:
    a, b, c = (rollout_of("task0", number, solves=True, lines=3) for number in range(3))
    same, ungraded = replace(a, id="same"), replace(a, id="ungraded", patch=(), grade=None)
    left = list(pairs_to_label([a, b, same, ungraded], [Preference("task0", b.id, a.id, "tie", 0)], 0))
    assert [{x.id for x in pair} for pair in left] == [{b.id, "same"}]
    assert c not in left


# --------------------------------------------------------------------------- the command


def test_answers_are_stored_one_by_one(store: Store) -> None:
    a, b, c = (rollout_of("task0", number, solves=number == 0, lines=number + 1) for number in range(3))
    filled(store, {r.id: r for r in (a, b, c)})
    result = CliRunner().invoke(app, [], input="what?\na\nskip\nquit\n")
    assert result.exit_code == 0, result.output
    found = [store.get(PREFERENCE, name, Preference) for name in store.ids(PREFERENCE)]
    assert [preference.answer for preference in found] == ["a"]
    assert "Mend task0." in result.output
    assert "1 of 1 mended" in result.output
    assert "policy0" not in result.output

    CliRunner().invoke(app, [], input="tie\n")
    assert len(store.ids(PREFERENCE)) == 2


def test_hostile_patches_cannot_steer_the_terminal(store: Store) -> None:
    a, b = (rollout_of("task0", number, solves=True, lines=1) for number in range(2))
    a = replace(a, patch=(FileChange("m.py", None, "\x1b]0;title\x07\x1b[2Jx\udcff\u202e\n"),))
    filled(store, {r.id: r for r in (a, b)})
    result = CliRunner().invoke(app, [], input="a\n")
    assert result.exit_code == 0, result.output
    assert not set(result.output) & set("\x1b\x07\u202e\udcff")


def test_only_one_task_or_policy_is_asked_for(store: Store) -> None:
    rollouts = {r.id: r for r in (rollout_of(t, n, solves=True, lines=n + 1) for t in TASKS for n in range(4))}
    filled(store, rollouts)
    CliRunner().invoke(app, ["--task", "task1", "--policy", "policy0"], input="a\na\n")
    (name,) = store.ids(PREFERENCE)
    stored = store.get(PREFERENCE, name, Preference)
    assert {stored.a, stored.b} == {"task1-r0", "task1-r2"}


def test_answers_come_from_a_file_and_a_model_is_fitted(store: Store, tmp_path: Path) -> None:
    preferences, rollouts = labelled(30)
    filled(store, rollouts)
    file = tmp_path / "answers.jsonl"
    file.write_text("\n".join(json.dumps({"a": p.a, "b": p.b, "answer": p.answer}) for p in preferences))
    result = CliRunner().invoke(app, ["--answers", str(file), "--json"])
    assert json.loads(result.stdout) == {"stored": 30}
    fitted = CliRunner().invoke(app, ["fit"])
    assert fitted.exit_code == 0, fitted.output
    model = stored_model(store)
    assert isinstance(model, RewardModel)
    assert f"predicts {model.accuracy:.0%} of 30 answers" in fitted.output


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nonsense", "line 2 of"),
        ('{"a": "task0-r0", "b": "task0-r1"}', "no answer"),
        ('{"a": "task0-r0", "b": "task0-r1", "answer": "c"}', "no answer"),
        ('{"a": "task0-r0", "b": "task0-r1", "answer": []}', "no answer"),
        ('{"a": "task0-r0", "b": "task1-r0", "answer": "a"}', "two rollouts of one task"),
        ('{"a": "task0-r0", "b": "task0-r0", "answer": "a"}', "two rollouts of one task"),
        ('{"a": "task0-r0", "b": "nobody", "answer": "a"}', "no rollout nobody"),
    ],
)
def test_a_line_that_is_no_answer_is_an_error_and_those_before_stay(
    store: Store, tmp_path: Path, line: str, says: str
) -> None:
    filled(store, {r.id: r for r in (rollout_of(t, n, solves=True, lines=n + 1) for t in TASKS for n in range(2))})
    file = tmp_path / "answers.jsonl"
    file.write_text(f'{{"a": "task2-r0", "b": "task2-r1", "answer": "tie"}}\n{line}\n')
    result = CliRunner().invoke(app, ["--answers", str(file)])
    assert isinstance(result.exception, UsageError)
    assert says in str(result.exception)
    assert len(store.ids(PREFERENCE)) == 1


def test_flags_of_a_rollout_are_features() -> None:
    preferences, rollouts = labelled(40)
    for preference in preferences:  # only flags differ from here on
        for name in (preference.a, preference.b):
            grade = rollouts[name].grade
            assert grade is not None
            better = name == (preference.a if preference.answer == "a" else preference.b)
            flags = () if better else (Flag("odd", "x"),)
            rollouts[name] = replace(
                rollouts[name], patch=(), steps=1, grade=replace(grade, tests=TestRun(), flags=flags)
            )
    model = fit(preferences, rollouts, TASKS)
    assert model.accuracy == 1
    assert dict(zip(model.features, model.coefficients, strict=True))["flags"] < 0
