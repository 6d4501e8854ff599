"""Where the readers of one survey put what they find."""

from __future__ import annotations

from collections.abc import Iterable

from ratchet.records import Fact
from ratchet.survey.formats import names

MAX_FACTS = 40_000
MAX_FACTS_OF_KIND = 8_000
MAX_VALUE = 4_000

KINDS = names(
    """
    project-name project-version requires-python python-classifier python-version build-backend
    build-requirement requirement extra-requirement group-requirement constraint requirement-file
    direct-requirement used-extra used-group test-command build-command lint-command install-command
    docs-command launch-command command system-package environment-variable service import-name module
    extension-module console-script main-module test-file test-script test-count test-import undeclared-import
    pytest-option pytest-setting pytest-plugin tool version-source missing unreadable readme license ci
    """
)


class Findings:
    """Facts in the order found. The same fact is kept once; there is a limit per kind and over all."""

    def __init__(self) -> None:
        self._facts: dict[Fact, None] = {}
        self._counts: dict[str, int] = {}

    def add(self, kind: str, value: str, file: str, line: int = 1, group: str = "") -> None:
        """Note one fact. `value` is trimmed; an empty or overlong one is not noted."""
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is not a kind of fact")
        value = _clean(value)
        if not value or len(value) > MAX_VALUE:
            return
        fact = Fact(kind, value, file, max(1, line), _clean(group)[:200])
        if fact in self._facts or len(self._facts) >= MAX_FACTS or self._counts.get(kind, 0) >= MAX_FACTS_OF_KIND:
            return
        self._facts[fact] = None
        self._counts[kind] = self._counts.get(kind, 0) + 1

    @property
    def facts(self) -> tuple[Fact, ...]:
        return tuple(self._facts)

    def of(self, *kinds: str) -> list[Fact]:
        return [fact for fact in self._facts if fact.kind in kinds]

    def values(self, *kinds: str) -> list[str]:
        """The distinct values of some kinds, in the order found."""
        return list(dict.fromkeys(fact.value for fact in self.of(*kinds)))

    def first(self, kind: str) -> str | None:
        return next((fact.value for fact in self._facts if fact.kind == kind), None)

    def drop(self, facts: Iterable[Fact]) -> None:
        """Take back facts that a later reader knows to be wrong."""
        for fact in facts:
            self._facts.pop(fact, None)


def _clean(text: str) -> str:
    """Text that every JSON encoder takes: no lone surrogates, no NUL."""
    return text.encode("utf-8", errors="replace").decode().replace("\0", "").strip()
