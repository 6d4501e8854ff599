"""How hard tasks are for a policy, and harder ones made of several."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.errors import UsageError
from ratchet.records import Outcome, TestCase, TestRun
from ratchet.task_records import FailureKind, FileChange, Grade, Rollout, Task, TaskKind
from ratchet.tasks.curriculum import Unfit, combine, difficulty, measured, select

SOURCE = '''\
import math


def first(x):
    """The first."""
    return x + 1


class Box:
    @property
    def size(self):
        y = 2
        return y * 3


def last(x):
    return x - 1
'''


def task_of(name: str, *edits: tuple[str, str], path: str = "m.py", before: str = SOURCE) -> Task:
    after = before
    for old, new in edits:
        assert old in after
        after = after.replace(old, new)
    changes = (FileChange(path, before, after),)
    return Task(name, "env", TaskKind.BUG, "python", "Mend it.", changes, (f"t::{name}",), ("t::kept",))


ONE = task_of("one", ("x + 1", "x + 2"))
TWO = task_of("two", ("y * 3", "y * 4"))


def rollouts_of(task: str, solved: int, failed: int, policy: str = "p") -> list[Rollout]:
    cases = {True: Outcome.PASSED, False: Outcome.FAILED}
    return [
        Rollout(
            f"{task}-{policy}-{i}", task, "env", policy, i, "", "submitted", (),
            Grade(TestRun((TestCase(f"t::{task}", cases[i < solved]), TestCase("t::kept", Outcome.PASSED)))),
        )
        for i in range(solved + failed)
    ]  # fmt: skip


# --------------------------------------------------------------------------- difficulty


def test_difficulty_is_measured_by_policy() -> None:
    found = difficulty(ONE, [*rollouts_of("one", 3, 1), *rollouts_of("one", 0, 2, "q"), *rollouts_of("two", 5, 0)])
    assert {policy: (d.solved, d.samples) for policy, d in found.items()} == {"p": (3, 4), "q": (0, 2)}


def test_failures_that_say_nothing_of_the_policy_are_not_counted() -> None:
    four = rollouts_of("one", 4, 0)
    kinds = (FailureKind.INFRASTRUCTURE, FailureKind.TASK, FailureKind.LIMITS, FailureKind.POLICY)
    failed = [replace(rollout, failure=kind, grade=None) for rollout, kind in zip(four, kinds, strict=True)]
    assert difficulty(ONE, failed)["p"].samples == 2


def test_the_interval_is_wilsons() -> None:
    found = measured(8, 10)
    assert (found.low, found.high) == pytest.approx((0.4902, 0.9433), abs=1e-4)


@given(st.integers(0, 500), st.integers(0, 500))
def test_the_interval_holds_the_rate(hits: int, misses: int) -> None:
    found = measured(hits, hits + misses)
    assert 0 <= found.low <= found.rate + 1e-12
    assert found.rate - 1e-12 <= found.high <= 1


def test_only_tasks_that_are_solved_sometimes_are_selected() -> None:
    tasks = [task_of(name, ("x + 1", "x + 2")) for name in ("never", "always", "sometimes", "rarely", "untried")]
    rollouts = [
        *rollouts_of("never", 0, 4), *rollouts_of("always", 4, 0), *rollouts_of("sometimes", 2, 2),
        *rollouts_of("rarely", 1, 9), *rollouts_of("untried", 2, 2, "q"),
    ]  # fmt: skip
    found = select(tasks, rollouts, "p", min_rate=0.2, max_rate=0.8)
    assert [task.id for task in found.tasks] == ["sometimes"]
    assert found.unfit == {
        "never": Unfit.TOO_HARD,
        "always": Unfit.TOO_EASY,
        "rarely": Unfit.TOO_HARD,
        "untried": Unfit.TOO_FEW_SAMPLES,
    }
    assert found.counts == {"too-hard": 2, "too-easy": 1, "too-few-samples": 1}


def test_rates_out_of_order_are_refused() -> None:
    with pytest.raises(UsageError):
        select([], [], "p", min_rate=0.9, max_rate=0.1)


# --------------------------------------------------------------------------- combining


def test_faults_of_one_file_are_merged() -> None:
    candidate = combine([ONE, TWO])
    assert candidate is not None
    (change,) = candidate.changes
    assert change.before == SOURCE
    assert change.after == SOURCE.replace("x + 1", "x + 2").replace("y * 3", "y * 4")
    assert [(d.name, d.kind, d.first_line, d.last_line) for d in candidate.about] == [
        ("first", "function", 4, 6),
        ("Box.size", "method", 10, 13),
    ]
    assert candidate.about[0].docstring == "The first."
    assert candidate.about[1].signature == "def size(self):"
    assert candidate.covering == {"t::one", "t::two"}


def test_faults_of_several_files_are_put_together() -> None:
    other = task_of("other", ("a", "b"), path="n.py", before="a = 1\n")
    third = task_of("third", ("x - 1", "x - 2"))
    candidate = combine([ONE, other, third])
    assert candidate is not None
    assert [change.path for change in candidate.changes] == ["m.py", "n.py"]
    assert candidate.changes[0].after == SOURCE.replace("x + 1", "x + 2").replace("x - 1", "x - 2")


@pytest.mark.parametrize("edit", [("x + 1", "x + 9"), ('"""The first."""', '"""The second."""')], ids=["same", "next"])
def test_faults_that_touch_are_not_combined(edit: tuple[str, str]) -> None:
    assert combine([ONE, task_of("near", edit)]) is None


@pytest.mark.parametrize(
    "tasks",
    [
        [ONE],
        [ONE, ONE],
        [ONE, replace(TWO, environment="other")],
        [ONE, replace(TWO, kind=TaskKind.FEATURE)],
        [ONE, replace(TWO, language="javascript")],
    ],
    ids=["one", "twice", "environments", "kinds", "languages"],
)
def test_tasks_that_do_not_belong_together_are_refused(tasks: list[Task]) -> None:
    with pytest.raises(UsageError):
        combine(tasks)


def test_a_file_that_is_no_python_has_no_definitions() -> None:
    lines = "def broken(:\n" + "pass\n" * 9
    a = task_of("a", ("def broken(:", "def broken[:"), before=lines)
    b = replace(a, id="b", changes=(FileChange("m.py", lines, lines + "more\n"),))
    candidate = combine([a, b])
    assert candidate is not None
    assert candidate.about == ()
