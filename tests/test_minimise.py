"""Minimising a recipe: what is left still holds, nothing is tried twice, and nothing that was replayed is left over."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.autoinstall.minimise import minimise
from ratchet.records import Recipe, RecipeStep


class Bench:
    """Judges recipes by a rule about the names of their steps, and knows what was replayed and not yet released."""

    def __init__(self, rule: Callable[[str], bool]) -> None:
        self.rule = rule
        self.tried: list[str] = []
        self.open: set[str] = set()

    def holds(self, recipe: Recipe) -> str | None:
        name = letters(recipe)
        self.tried.append(name)
        if not self.rule(name):
            return None
        self.open.add(name)
        return name

    def release(self, name: str) -> None:
        self.open.remove(name)


def recipe_of(names: str) -> Recipe:
    return Recipe(tuple(RecipeStep(command=name) for name in names), {"PATH": "/bin"}, "start it")


def letters(recipe: Recipe) -> str:
    return "".join(step.command for step in recipe.steps)


def needs(wanted: str) -> Callable[[str], bool]:
    return lambda names: set(wanted) <= set(names)


def test_what_matters_is_left_in_its_order_with_what_its_replay_gave() -> None:
    bench = Bench(needs("cf"))
    found = minimise(recipe_of("abcdefgh"), bench.holds, release=bench.release, most_tries=100)
    assert found == (recipe_of("cf"), "cf")
    assert bench.open == {"cf"}


def test_a_recipe_that_does_not_hold_is_told() -> None:
    bench = Bench(lambda _: False)
    assert minimise(recipe_of("abc"), bench.holds, release=bench.release) is None
    assert bench.tried == ["abc"]


def test_idle_steps_are_dropped_at_once() -> None:
    bench = Bench(needs("ac"))
    minimise(recipe_of("abcd"), bench.holds, release=bench.release, idle=frozenset({1, 3}))
    assert bench.tried[:2] == ["abcd", "ac"]


def test_a_step_that_only_a_dropped_one_needed_goes_too() -> None:
    bench = Bench(lambda names: "d" in names and ("b" not in names or "a" in names))
    found = minimise(recipe_of("abcd"), bench.holds, release=bench.release, most_tries=100)
    assert found is not None
    assert letters(found[0]) == "d"


@pytest.mark.parametrize(("most_tries", "seconds", "tries"), [(3, 60.0, 3), (100, 0.0, 1), (1, 60.0, 1)])
def test_the_budget_ends_it_with_the_best_so_far(most_tries: int, seconds: float, tries: int) -> None:
    bench = Bench(needs("a"))
    found = minimise(recipe_of("abcdefgh"), bench.holds, release=bench.release, most_tries=most_tries, seconds=seconds)
    assert len(bench.tried) == tries
    assert found is not None
    assert bench.open == {found[1]}


def test_broken_machinery_leaves_no_replay_behind() -> None:
    bench = Bench(needs("a"))

    def holds(recipe: Recipe) -> str | None:
        if len(bench.tried) == 2:
            raise OSError("the disk is gone")
        return bench.holds(recipe)

    with pytest.raises(OSError, match="the disk is gone"):
        minimise(recipe_of("abcd"), holds, release=bench.release)
    assert not bench.open


@given(st.sets(st.sampled_from("abcdefghij")), st.integers(0, 10), st.sets(st.integers(0, 9)))
def test_any_recipe(wanted: set[str], length: int, idle: set[int]) -> None:
    """With enough tries no single step can be dropped; none is tried twice; each try is told."""
    names = "abcdefghij"[:length]
    needed = "".join(sorted(wanted & set(names)))
    bench = Bench(needs(needed))
    told: list[str] = []
    found = minimise(
        recipe_of(names),
        bench.holds,
        release=bench.release,
        idle=frozenset(idle),
        most_tries=1000,
        on_try=lambda recipe, _: told.append(letters(recipe)),
    )
    assert found == (recipe_of(needed), needed)
    assert len(set(bench.tried)) == len(bench.tried)
    assert told == bench.tried
