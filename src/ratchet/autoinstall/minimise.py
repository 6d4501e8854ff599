"""A smaller recipe that does the same: steps are dropped while a fresh replay still holds.

A model tries this and that, and not everything that it kept mattered. What is dropped is proved not to matter in the
only way that counts: without it the recipe is replayed from the base, and the targets are judged there. This is delta
debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002), less its test of the
subsets: an installation is seldom a small part of what was done. It goes from the end, because later steps stand on
earlier ones: once a step is gone, so is what needed the one before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TypeVar

from ratchet.records import Recipe

Held = TypeVar("Held")


def minimise(
    recipe: Recipe,
    holds: Callable[[Recipe], Held | None],
    *,
    release: Callable[[Held], None],
    idle: frozenset[int] = frozenset(),
    fixed: frozenset[int] = frozenset(),
    most_tries: int = 24,
    seconds: float = 3600.0,
    on_try: Callable[[Recipe, bool], None] = lambda _recipe, _held: None,
) -> tuple[Recipe, Held] | None:
    """The smallest recipe found that holds, with what `holds` gave for it; None when not even `recipe` itself holds.

    `holds` replays a recipe in a new sandbox and judges the targets: something (a layer, verdicts) where they pass,
    None where not. What it gave is handed to `release` once something smaller holds. `idle` are the indices of steps
    that probably do not matter: they are dropped first, all at once. Those of `fixed` are never dropped. At most
    `most_tries` recipes are tried, none twice, and none is begun after `seconds`; within them the result is the same
    each time, and after enough of them no single step can be dropped. `on_try` is told of each try and whether it held.
    """
    deadline = time.monotonic() + seconds
    kept = tuple(range(len(recipe.steps)))
    tried = {kept}

    def attempt(indices: tuple[int, ...]) -> Held | None:
        part = replace(recipe, steps=tuple(recipe.steps[index] for index in indices))
        given = holds(part)
        on_try(part, given is not None)
        return given

    held = attempt(kept)
    if held is None:
        return None
    search = _search(kept, idle, fixed)
    candidate = next(search, None)
    try:
        while candidate is not None and len(tried) < most_tries and time.monotonic() < deadline:
            smaller = None if candidate in tried else attempt(candidate)
            tried.add(candidate)
            if smaller is not None:
                before, kept, held = held, candidate, smaller
                release(before)
            candidate = _told(search, smaller is not None)
    except BaseException:
        release(held)
        raise
    return replace(recipe, steps=tuple(recipe.steps[index] for index in kept)), held


def _search(
    every: tuple[int, ...], idle: frozenset[int], fixed: frozenset[int]
) -> Generator[tuple[int, ...], bool, None]:
    """The steps to keep next, as indices; is told whether they held."""

    def with_fixed(free: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted({*free, *fixed}))

    kept = tuple(index for index in every if index not in fixed)  # of those that may go
    if not kept:
        return
    less = tuple(index for index in kept if index not in idle)
    if less != kept and (yield with_fixed(less)):
        kept = less
    size = max(1, len(kept) // 2)
    while True:
        dropped = False
        end = len(kept)
        while end > 0:
            start = max(0, end - size)
            less = kept[:start] + kept[end:]
            if (yield with_fixed(less)):
                kept, dropped = less, True
            end = start
        if size == 1 and not dropped:
            return
        size = max(1, size // 2)


def _told(search: Generator[tuple[int, ...], bool, None], held: bool) -> tuple[int, ...] | None:
    """What comes next; None where the search is over."""
    try:
        return search.send(held)
    except StopIteration:
        return None
