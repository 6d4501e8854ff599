"""TOML, YAML and INI as plain data with lines, tolerant of whatever a repository holds.

The parsers raise `UnreadableError` and nothing else. Data of a wrong shape (a number where a list belongs) is
met by `table`, `items`, `strings` and `word`, which give something empty instead.
"""

from __future__ import annotations

import configparser
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

MAX_MANIFEST = 250_000
MAX_MANIFEST_LINES = 6_000
MAX_YAML_BYTES = 120_000
MAX_YAML_FLOWS = 4_000  # a flow collection takes the parser a hundred times as long as a line
MAX_LINES_LOOKED_AT = 4_000_000
MAX_YAML_NODES = 50_000
MAX_YAML_DEPTH = 60


def names(text: str) -> frozenset[str]:
    """The words of a table that is written as text."""
    return frozenset(text.split())


class UnreadableError(ValueError):
    """The text is not in the format that its name promises, or goes past a limit."""


class Text(str):
    """A string that knows the line it came from."""

    line: int

    def __new__(cls, text: str, line: int = 1) -> Text:
        self = super().__new__(cls, text)
        self.line = line
        return self


def line_of(value: object, default: int = 1) -> int:
    """The line of a value that `parse_yaml` gave: its own, or that of the first thing inside it."""
    if isinstance(value, Text):
        return value.line
    if isinstance(value, Mapping):
        value = list(value)
    if isinstance(value, list):
        return next((line_of(each, default) for each in value), default)
    return default


# --------------------------------------------------------------------------- shapes


def table(data: object, *path: str) -> dict[str, Any]:
    """The mapping at `path`, or an empty one."""
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def at(data: object, *path: str) -> Any:
    """The value at `path`, or None."""
    return table(data, *path[:-1]).get(path[-1])


def items(data: object) -> list[Any]:
    """A list as it is; None as nothing; anything else as a list of one."""
    if data is None:
        return []
    return list(data) if isinstance(data, list | tuple) else [data]


def word(value: object) -> str:
    """A scalar as text; anything else as nothing."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def strings(data: object) -> list[str]:
    """The non-empty strings of a list, or the one string."""
    return [each for each in items(data) if isinstance(each, str) and each.strip()]


# --------------------------------------------------------------------------- lines


class Lines:
    """Finds the line on which a value stands, for formats whose parsers do not say. What it looks at is limited:
    past that, a value is said to stand where the search began."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._seen: dict[tuple[str, int], int] = {}
        self._left = MAX_LINES_LOOKED_AT
        self._sections: dict[str, int] = {}
        for number, line in enumerate(self._lines, 1):
            if line.lstrip().startswith("["):
                self._sections.setdefault(line.strip().split("]", 1)[0].strip("[ ").replace(" ", ""), number)

    def find(self, value: str, start: int = 1) -> int:
        """The first line from `start` that holds `value`, rather quoted than not; `start` when none does."""
        wanted = value.strip().split("\n", 1)[0][:200]
        key = (wanted, start)
        if key not in self._seen:
            forms = (f'"{wanted}"', f"'{wanted}'", wanted)
            self._seen[key] = next(filter(None, (self._first(form, start) for form in forms)), start)
        return self._seen[key]

    def starting(self, prefix: str) -> int:
        """The first line that starts with `prefix`; 1 when none does."""
        return next((number for number, line in enumerate(self._lines, 1) if line.startswith(prefix)), 1)

    def key(self, name: str, start: int = 1) -> int:
        """The first line from `start` that begins with a key, as in `name = …`; `start` when none does."""
        forms = tuple(f"{quote}{name}{quote}" for quote in ("", '"', "'"))
        for number in range(start, len(self._lines) + 1) if self._left > 0 else ():
            self._left -= 1
            line = self._lines[number - 1].strip()
            if line.startswith(forms) and line.strip("\"'")[len(name) :].lstrip("\"' ")[:1] in ("=", ":", "."):
                return number
        return start

    def _first(self, wanted: str, start: int) -> int:
        if self._left < 0:
            return 0
        found = next((n for n in range(start, len(self._lines) + 1) if wanted in self._lines[n - 1]), 0)
        self._left -= (found or len(self._lines)) - start
        return found

    def section(self, *path: str) -> int:
        """The line of the header of a TOML table or INI section: `[a.b]`; 1 when there is none."""
        for name in (".".join(path), ".".join(_quoted(part) for part in path)):
            if name.replace(" ", "") in self._sections:
                return self._sections[name.replace(" ", "")]
        return self.section(*path[:-1]) if len(path) > 1 else 1


def _quoted(part: str) -> str:
    return part if part.replace("-", "").replace("_", "").isalnum() else f'"{part}"'


# --------------------------------------------------------------------------- parsers


def _refuse_excess(text: str) -> None:
    """Manifests that people write stay far below these limits; work on them may grow with the square."""
    if len(text) > MAX_MANIFEST or text.count("\n") > MAX_MANIFEST_LINES:
        raise UnreadableError(f"more than {MAX_MANIFEST} characters or {MAX_MANIFEST_LINES} lines")


def parse_toml(text: str) -> dict[str, Any]:
    _refuse_excess(text)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"not TOML: {str(error)[:200]}") from error


def parse_ini(text: str) -> dict[str, dict[str, str]]:
    """Sections with their options, case kept, nothing interpolated."""
    _refuse_excess(text)
    parser = configparser.ConfigParser(
        interpolation=None, strict=False, allow_no_value=True, default_section="\0", empty_lines_in_values=True
    )
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    try:
        parser.read_string(text)
    except (configparser.Error, ValueError, AttributeError) as error:
        # A continuation line after an option without a value makes configparser raise AttributeError.
        raise UnreadableError(f"not INI: {str(error)[:200]}") from error
    return {name: {key: value or "" for key, value in parser.items(name)} for name in parser.sections()}


def parse_yaml(text: str) -> Any:
    """Dicts, lists and `Text`: every scalar stays text ("3.10" too), keys and values know their line.

    Limits on size, nodes and depth stop alias bombs; tags are ignored, so nothing is constructed.
    """
    if len(text) > MAX_YAML_BYTES:
        raise UnreadableError(f"YAML of {len(text)} characters: more than {MAX_YAML_BYTES}")
    if text.count("[") + text.count("{") > MAX_YAML_FLOWS:
        raise UnreadableError(f"YAML with more than {MAX_YAML_FLOWS} flow collections")
    loader = YAML(typ="safe", pure=True)
    try:
        with warnings.catch_warnings():  # of anchors that are used twice
            warnings.simplefilter("ignore")
            node = loader.compose(text)
    except (YAMLError, ValueError, RecursionError, TypeError, AttributeError, IndexError, KeyError) as error:
        # The composer meets some malformed input with plain Python errors.
        raise UnreadableError(f"not YAML: {str(error)[:200]}") from error
    return _Plain().of(node, 0) if node is not None else None


class _Plain:
    """Turns composed nodes into plain data, counting what it makes: aliases repeat their nodes."""

    def __init__(self) -> None:
        self._left = MAX_YAML_NODES

    def of(self, node: Node, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > MAX_YAML_DEPTH:
            raise UnreadableError("YAML goes past the limits on nodes or depth")
        line = node.start_mark.line + 1
        if isinstance(node, ScalarNode):
            null = node.style is None and node.value in ("", "~", "null")
            return None if null else Text(node.value, line)
        if isinstance(node, SequenceNode):
            return [self.of(each, depth + 1) for each in node.value]
        if isinstance(node, MappingNode):
            return self._mapping(node, depth)
        raise UnreadableError("YAML holds an unknown node")

    def _mapping(self, node: MappingNode, depth: int) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                continue
            plain = self.of(value, depth + 1)
            if key.value == "<<":
                for each in items(plain):
                    merged.update(table(each))
            else:
                own[Text(key.value, key.start_mark.line + 1)] = plain
        return {**merged, **own}


def walk_yaml(data: object) -> Iterator[dict[str, Any]]:
    """Every mapping inside YAML data, outer ones first."""
    waiting = [data]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            yield each
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)
