"""Values of a script that is evaluated without being run: what may be done to them, within limits of size."""

from __future__ import annotations

import ast
from typing import Any

from ratchet.survey.formats import names

MAX_TEXT = 1 << 18
MAX_ITEMS = 1_000


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        return False


UNKNOWN = _Unknown()

_TEXT_METHODS = names(
    """
    strip lstrip rstrip lower upper split rsplit replace startswith endswith title partition removeprefix
    removesuffix find count isspace isdigit
    """
)


def text_method(holder: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A method of `str` that makes nothing much larger than it was given."""
    first = args[0] if args else None
    if name in ("readlines", "splitlines"):
        return holder.splitlines()[:MAX_ITEMS]
    if name == "joinpath":
        return joined_path([holder, *args])
    if name == "format" and len(holder) < 10_000:
        return formatted(holder, args, kwargs)
    if name == "join" and isinstance(first, list):
        texts = [each for each in first if isinstance(each, str)]
        return holder.join(texts) if sum(map(len, texts)) + len(holder) * len(texts) < MAX_TEXT else UNKNOWN
    if name == "replace" and (len(args) != 2 or not all(isinstance(each, str) and len(each) < 100 for each in args)):
        return UNKNOWN
    if name not in _TEXT_METHODS or not all(isinstance(each, str | int | None) for each in args):
        return UNKNOWN
    try:
        result = getattr(holder, name)(*args)
    except (TypeError, ValueError, OverflowError):
        return UNKNOWN
    return list(result)[:MAX_ITEMS] if isinstance(result, list | tuple) else result


def list_method(holder: list[Any], name: str, args: list[Any]) -> Any:
    """A method of `list` or `set`, the list changed in place up to its limit."""
    first = args[0] if args else None
    room = MAX_ITEMS - len(holder)
    if name in ("append", "add") and room > 0:
        holder.append(first)
    elif name == "insert" and len(args) == 2 and room > 0:
        holder.append(args[1])
    elif name in ("extend", "update", "union") and isinstance(first, list | dict):
        holder.extend(listed(first)[: max(0, room)])
    return holder if name in ("copy", "union") else None


def dict_method(holder: dict[Any, Any], name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    first = args[0] if args else None
    if name == "update":
        holder.update({**(first if isinstance(first, dict) else {}), **kwargs})
        return None
    if name in ("values", "keys", "items"):
        return [list(each) if isinstance(each, tuple) else each for each in getattr(holder, name)()]
    if name in ("get", "setdefault", "pop") and isinstance(first, str | int):
        value = holder.get(first, args[1] if len(args) > 1 else None)
        if name == "setdefault":
            holder[first] = value
        return value
    return holder if name == "copy" else UNKNOWN


def added(left: Any, right: Any) -> Any:
    """Concatenation; of a list with something unknown the known part is what is worth keeping."""
    if isinstance(left, list | tuple) or isinstance(right, list | tuple):
        return [*listed(left), *listed(right)][:MAX_ITEMS]
    if isinstance(left, str) and isinstance(right, str):
        return left + right if len(left) + len(right) < MAX_TEXT else UNKNOWN
    return UNKNOWN


def percented(left: str, right: Any) -> Any:
    values = tuple(right) if isinstance(right, list) else right
    if not all(is_plain(each) for each in (values if isinstance(values, tuple) else [values])):
        return UNKNOWN
    if len(left) > 10_000 or any(digit in left for digit in "*123456789"):  # widths can ask for gigabytes
        return (
            left.replace("%s", "{}").format(*(values if isinstance(values, tuple) else [values]))
            if _simple(left, values)
            else UNKNOWN
        )
    try:
        return left % values
    except (TypeError, ValueError):
        return UNKNOWN


def _simple(left: str, values: Any) -> bool:
    count = len(values) if isinstance(values, tuple) else 1
    return left.count("%") == left.count("%s") == count and "{" not in left and "}" not in left


def formatted(template: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`str.format` for plain fields only: attributes, indexes and widths are left alone."""
    result, remaining, automatic = "", template, 0
    while "{" in remaining:
        before, _, rest = remaining.partition("{")
        name, _, remaining = rest.partition("}")
        result += before
        if not name:
            name, automatic = str(automatic), automatic + 1
        value = (
            args[int(name)]
            if name.isdecimal() and len(name) < 4 and int(name) < len(args)
            else kwargs.get(name, UNKNOWN)
        )
        if not is_plain(value) or len(result) > MAX_TEXT:
            return UNKNOWN
        result += str(value)
    return result + remaining


def is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and (not isinstance(value, int) or abs(value) < 10**18)


def listed(value: Any) -> list[Any]:
    return list(value)[:MAX_ITEMS] if isinstance(value, list | tuple | dict) else []


def joined_path(parts: list[Any]) -> Any:
    known = [part for part in parts if isinstance(part, str) and part]
    return "/".join(known) if any(isinstance(part, str) for part in parts) else UNKNOWN


def compared(operator: ast.cmpop, left: Any, right: Any) -> Any:
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    try:
        match operator:
            case ast.Eq() | ast.Is():
                return left == right
            case ast.NotEq() | ast.IsNot():
                return left != right
            case ast.Lt():
                return left < right
            case ast.LtE():
                return left <= right
            case ast.Gt():
                return left > right
            case ast.GtE():
                return left >= right
            case ast.In():
                return left in right
            case ast.NotIn():
                return left not in right
    except TypeError:
        return UNKNOWN
    return UNKNOWN
