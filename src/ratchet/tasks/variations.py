"""Other inputs like those that the tests use: plain data, changed a little at random."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Sequence
from typing import Any

# Characters that a word may be changed by: plain, accented, of another script, outside the basic plane, a blank.
_LETTERS = "abcXYZéßжλ中\U0001f600 -_"
_LARGEST_LITERAL = 4000
_LARGEST_INT = 10**6


def parsed(text: str) -> Any:
    """The plain data that a Python literal stands for. ValueError for anything else."""
    try:
        if len(text) > 10 * _LARGEST_LITERAL:
            raise ValueError("too long")
        return ast.literal_eval(text)
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"no literal: {error}") from error


def literal(value: Any) -> str:
    """The Python literal of plain data, with the elements of sets in order."""
    if isinstance(value, tuple):
        return f"({''.join(f'{literal(item)}, ' for item in value).strip()})"
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, set):
        return f"{{{', '.join(sorted(map(literal, value)))}}}" if value else "set()"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{literal(key)}: {literal(item)}' for key, item in value.items())}}}"
    return ascii(value)


def varied(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    pool: Sequence[tuple[tuple[Any, ...], dict[str, Any]]],
    rng: random.Random,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """One or two of the arguments of a call changed. `pool` are other calls of the same function, whose arguments may
    take the place of this one's where their types agree."""
    args, kwargs = tuple(args), dict(kwargs)
    places: list[int | str] = [*range(len(args)), *sorted(kwargs)]
    # Numbers and texts first: a flag or a None has little to be varied by.
    rich = [place for place in places if not isinstance(_at(args, kwargs, place), bool | None)] or places
    for place in rng.sample(rich, min(len(rich), rng.choice((1, 1, 2)))):
        value = _at(args, kwargs, place)
        others = [other for call in pool if type(other := _at(*call, place)) is type(value) and other != value]
        changed = rng.choice(others) if others and rng.random() < 0.3 else vary(value, rng)
        if isinstance(place, int):
            args = (*args[:place], changed, *args[place + 1 :])
        else:
            kwargs[place] = changed
    return args, kwargs


def _at(args: tuple[Any, ...], kwargs: dict[str, Any], place: int | str) -> Any:
    if isinstance(place, str):
        return kwargs.get(place)
    return args[place] if place < len(args) else None


def vary(value: Any, rng: random.Random) -> Any:
    """Another value of the same type."""
    if value is None:
        return None
    return _VARY[type(value)](value, rng) if type(value) in _VARY else value


def _bool(value: bool, _: random.Random) -> bool:
    return not value


def _int(value: int, rng: random.Random) -> int:
    near = [value + 1, value - 1, value + rng.randint(2, 9), value - rng.randint(2, 9)]
    far = [-value, 2 * value, value // 2, 0, rng.randint(-20, 120)]
    found: int = rng.choice([*near, *near, *far])
    # A count that is far too large would only take long.
    return found if abs(found) <= max(_LARGEST_INT, 2 * abs(value)) else value


def _float(value: float, rng: random.Random) -> float:
    return float(
        rng.choice([value + 0.5, value - 1.25, -value, value * 3, value / 7, round(value), 0.1, 1e-9, 12345.678])
    )


def _text(value: str, rng: random.Random) -> str:
    if not value:
        return "".join(rng.choices(_LETTERS, k=rng.randint(1, 4)))
    changes: list[Callable[[str, random.Random], str]] = [_other_characters, _other_characters, _cut, _longer, _cased]
    return rng.choice(changes)(value, rng)


def _other_characters(value: str, rng: random.Random) -> str:
    """Digits become digits and letters letters, so that what has a form (a number, a date) mostly keeps it."""
    where = [i for i, character in enumerate(value) if character.isalnum()] or range(len(value))
    for i in rng.sample(where, min(len(where), rng.randint(1, 2))):
        letters = "0123456789" if value[i].isdigit() else "abcdefghijklmnopqrstuvwxyz"
        new = rng.choice(letters if value[i].isalnum() else _LETTERS)
        value = value[:i] + (new.upper() if value[i].isupper() else new) + value[i + 1 :]
    return value


def _cut(value: str, rng: random.Random) -> str:
    i, j = sorted((rng.randint(0, len(value)), rng.randint(0, len(value))))
    return rng.choice([value[i:j], value[:i] + value[j:], value[1:], value[:-1]])


def _longer(value: str, rng: random.Random) -> str:
    i = rng.randint(0, len(value))
    piece = rng.choice([rng.choice(_LETTERS), value[i : i + 3], value[::-1][:5], str(rng.randint(0, 99))])
    return value[:i] + piece + value[i:]


def _cased(value: str, rng: random.Random) -> str:
    return rng.choice([value.swapcase(), value.upper(), value.title(), value[::-1], f" {value} "])


def _bytes(value: bytes, rng: random.Random) -> bytes:
    return _text(value.decode("latin-1"), rng).encode("latin-1", "replace")


def _list(value: list[Any], rng: random.Random) -> list[Any]:
    if not value:
        return [rng.randint(0, 9) for _ in range(rng.randint(1, 3))]
    i, j = rng.randrange(len(value)), rng.randrange(len(value))
    swapped = list(value)
    swapped[i], swapped[j] = swapped[j], swapped[i]
    inside = [*value[:i], vary(value[i], rng), *value[i + 1 :]]
    shapes = [value[::-1], value[:i], value[i:], [*value, value[i]], [*value, vary(value[j], rng)], swapped, []]
    return rng.choice([inside, inside, inside, *shapes])


def _tuple(value: tuple[Any, ...], rng: random.Random) -> tuple[Any, ...]:
    """Tuples often have a fixed number of elements with a meaning each: mostly the elements are changed."""
    if not value or rng.random() < 0.2:
        return tuple(_list(list(value), rng))
    i = rng.randrange(len(value))
    return (*value[:i], vary(value[i], rng), *value[i + 1 :])


def _set(value: set[Any], rng: random.Random) -> set[Any]:
    items = sorted(value, key=literal)
    return {*items[: rng.randrange(len(items))], *(vary(item, rng) for item in items[:2])} if items else {1}


def _dict(value: dict[Any, Any], rng: random.Random) -> dict[Any, Any]:
    items = list(value.items())
    if not items:
        return {"a": rng.randint(0, 9)}
    i = rng.randrange(len(items))
    key, item = items[i]
    inside = [*items[:i], (key, vary(item, rng)), *items[i + 1 :]]
    return dict(rng.choice([inside, inside, items[:i] + items[i + 1 :], items[::-1], [*items, (vary(key, rng), item)]]))


_VARY: dict[type, Callable[[Any, random.Random], Any]] = {
    bool: _bool,
    int: _int,
    float: _float,
    str: _text,
    bytes: _bytes,
    list: _list,
    tuple: _tuple,
    set: _set,
    dict: _dict,
}
