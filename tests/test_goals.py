"""Which goals a checkout gets: of a model's proposals those that prove something, and never less than the floor's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ratchet.autoinstall.goals import GOALS, GoalSet, choose_goals
from ratchet.autoinstall.objections import objection
from ratchet.records import Expectation, Goal, GoalKind, Verdict, from_json, to_json

REPORT = "/tmp/report.xml"
MARK = Expectation(matches=("^works$",))


def goal(command: str, kind: GoalKind = GoalKind.SETUP, expectation: Expectation = MARK) -> Goal:
    return Goal(command, f"It works: {command}.", kind, expectation)


SUITE = goal("pytest", GoalKind.TESTS, Expectation(None, report=REPORT, min_tests=50))
FILE = goal("pytest a", GoalKind.TESTS, Expectation(None, report=REPORT))
IMPORT = goal("import", GoalKind.IMPORT)
FLOOR = (SUITE, IMPORT, *(goal(f"floor {number}") for number in range(12)), FILE)


def judge(*passing: Goal) -> Callable[[Goal], Verdict]:
    return lambda asked: Verdict(asked.id, asked in passing, "", exit_status=0 if asked in passing else 1)


def chosen(*proposed: Goal, passing: tuple[Goal, ...] = (), prose: bool = False) -> GoalSet:
    return choose_goals(proposed, FLOOR, judge(*passing), "seed", proposer="small", prose_allowed=prose)


def why(goals: GoalSet, rejected: Goal) -> str:
    (reason,) = (reason for command, reason in goals.rejected if command == rejected.command)
    return reason


# --------------------------------------------------------------------------- the floor alone


def test_the_floor_alone_is_its_first_ten_that_discriminate() -> None:
    goals = choose_goals((), FLOOR, judge(FLOOR[2]), "seed")
    assert goals.goals == (*FLOOR[:2], *FLOOR[3:11])
    assert set(goals.origins.values()) == {"rules"}


def test_where_too_few_discriminate_the_others_fill_up_and_are_no_targets() -> None:
    goals = choose_goals((), FLOOR[:5], judge(IMPORT, FLOOR[2]), "seed")
    assert goals.goals == (SUITE, FLOOR[3], FLOOR[4], IMPORT, FLOOR[2])
    assert set(goals.targets) == {SUITE, FLOOR[3], FLOOR[4]}


def test_no_more_goals_are_judged_than_are_needed() -> None:
    asked: list[Goal] = []

    def pristine(goal: Goal) -> Verdict:
        asked.append(goal)
        return judge()(goal)

    choose_goals((), FLOOR, pristine, "seed")
    assert len(asked) == GOALS


# --------------------------------------------------------------------------- proposals


def test_targets_are_the_floors_proposals_are_held_out_and_the_floor_fills_up() -> None:
    proposed = [goal("mine 1"), goal("mine 2", GoalKind.LINT), goal("mine 3", GoalKind.IMPORT)]
    goals = chosen(*proposed)
    assert goals.targets[:2] == (SUITE, IMPORT)
    assert goals.targets[2] in FLOOR
    assert goals.goals[:6] == (*goals.targets, *proposed)
    assert [goals.origins[g.id] for g in goals.goals] == [*["rules"] * 3, *["small"] * 3, *["rules"] * 4]


def test_no_proposal_takes_the_place_of_the_suite() -> None:
    weak = goal("pytest --one-test", GoalKind.TESTS, Expectation(None, report=REPORT, min_tests=1))
    goals = chosen(weak)
    assert weak in goals.goals
    assert [g for g in goals.targets if g.kind is GoalKind.TESTS] == [SUITE]


def test_where_the_suite_passes_already_a_proposal_is_still_no_suite() -> None:
    weak = goal("pytest --one-test", GoalKind.TESTS, Expectation(None, report=REPORT, min_tests=1))
    assert chosen(weak, passing=(SUITE,)).targets[0] == FILE
    assert chosen(weak, passing=(SUITE, FILE)).targets == ()


def test_a_proposal_of_the_floors_command_is_the_floors_goal_and_of_both() -> None:
    weak = goal(SUITE.command, GoalKind.TESTS, Expectation(0))
    goals = chosen(weak, goal("import", GoalKind.IMPORT, Expectation(0)))
    assert goals.goals[:2] == (SUITE, IMPORT)
    assert [goals.origins[g.id] for g in goals.goals[:2]] == ["small and rules", "small and rules"]
    assert goals.rejected == ()


def test_a_proposal_that_passes_in_the_pristine_sandbox_is_rejected() -> None:
    empty = goal("true", expectation=Expectation(matches=("^works$",)))
    assert why(chosen(empty, passing=(empty,)), empty) == "it passes before anything is installed"


@pytest.mark.parametrize(
    "expectation", [Expectation(0), Expectation(0, matches=(".*",)), Expectation(0, matches=("",))]
)
def test_prose_alone_needs_a_judge(expectation: Expectation) -> None:
    prose = goal("describe", expectation=expectation)
    assert "there is no judge" in why(chosen(prose), prose)
    assert prose in chosen(prose, prose=True).goals


def test_prose_discriminates_by_its_exit_status_whatever_a_judge_thinks() -> None:
    prose = goal("describe", expectation=Expectation(0))
    goals = choose_goals(
        [prose], FLOOR, lambda g: Verdict(g.id, False, "cannot tell", exit_status=0), "seed", prose_allowed=True
    )
    assert why(goals, prose) == "it passes before anything is installed"


def test_at_most_four_of_a_kind_are_taken() -> None:
    proposed = [goal(f"lint {number}", GoalKind.LINT) for number in range(6)]
    goals = chosen(*proposed)
    assert [g for g in goals.goals if g.kind is GoalKind.LINT] == proposed[:4]
    assert "4 goals of the kind lint" in why(goals, proposed[4])


def test_at_most_ten_goals_are_taken() -> None:
    kinds = [GoalKind.LINT, GoalKind.SETUP, GoalKind.LAUNCH]
    proposed = [goal(f"mine {number}", kinds[number % 3]) for number in range(12)]
    goals = chosen(*proposed)
    assert goals.held_out == tuple(proposed[:7])
    assert why(goals, proposed[11]) == "there are 10 goals already"


def test_goals_are_kept_and_read_again() -> None:
    goals = chosen(goal("mine"), goal("tox"))
    assert from_json(to_json(goals), GoalSet) == goals


# --------------------------------------------------------------------------- commands that prove nothing


@pytest.mark.parametrize(
    "command",
    [
        "pip install . && python -c 'import x'", "python3.11 -m pip install -q x", "uv pip install -e .", "uv sync",
        "A=1 apt-get -y install gcc", "npm ci", "cd x; poetry install", "tox -e py311", "sh -c 'pip install x'",
        "python -m venv v", "python setup.py develop", "make -j2 install", "sudo pip install x", "(pip install x)",
        "bash <<E\npip install x\nE", "curl x | sh",
    ],
)  # fmt: skip
def test_a_goal_that_installs_is_rejected(command: str) -> None:
    assert "installs something" in objection(goal(command))


@pytest.mark.parametrize(
    "command",
    [
        "echo x > tests/a.py && pytest",
        "x >> conftest.py",
        "cat <<E >a\nE",
        "sed -i s/a/b/ x",
        "git checkout .",
        "x | tee y",
    ],
)
def test_a_goal_that_writes_files_is_rejected(command: str) -> None:
    assert "writes files" in objection(goal(command))


@pytest.mark.parametrize(
    "command",
    ["ruff check || true", "ruff check; exit 0", "ruff check | tail", "sh -c 'ruff check; :'", "ruff check &"],
)
def test_a_hidden_exit_status_is_no_check(command: str) -> None:
    assert "its exit status is not" in objection(goal(command, expectation=Expectation(0)))
    assert objection(goal(command)) == ""


@pytest.mark.parametrize(
    "command",
    [
        "ruff check; echo works",
        "ruff check && printf 'works\\n'",
        'x || echo "works"',
        "cat <<E\nworks\nE",
        "sh -c 'x; echo works'",
    ],
)
def test_a_command_that_prints_what_is_expected_is_rejected(command: str) -> None:
    assert "itself prints" in objection(goal(command))


@pytest.mark.parametrize(
    "command",
    [
        "python -m pip show x", "python -m pip check", "python -c 'import x; print(1 > 0)'", "mypy src 2>&1",
        "python -m build --no-isolation --outdir /tmp/x", "x > /dev/null", "x --help 2>/dev/null | head",
        "python - <<E\nimport x\nif 1 > 0: print('works')\nE", "grep -c install README", "make && ./a.out",
    ],
)  # fmt: skip
def test_a_goal_that_only_checks_is_not(command: str) -> None:
    assert objection(goal(command)) == ""
