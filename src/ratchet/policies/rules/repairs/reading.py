"""From a failing log to what the rules may read of it, and the form of a rule.

Root causes hide in noise that looks the same: a warning that mentions an optional module, the captured output of a
passing test, the source lines of a traceback. So the text is divided first: `errors` holds what failed, `captured`
what failing tests printed, `skips` why tests were skipped. Warnings and passing tests are left out of all three.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from packaging.utils import canonicalize_name

from ratchet.policies.rules.plan import Plan
from ratchet.policies.rules.repairs.failure import Context, Failure, Repair

TEST_STAGES = frozenset({"collect", "test"})
BUILD_STAGES = frozenset({"resolve", "install", "build", "environment"})
EVERY_STAGE = TEST_STAGES | BUILD_STAGES | {"apt"}

_MOST_TEXT = 400_000
_LONGEST_LINE = 2_000
_MOST_MATCHES = 100

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]{0,200}\x07|\r(?!\n)")
_SECTION = re.compile(r"={3,} (.{1,100}?) ={3,}$")
_CAPTURED = re.compile(r"-{3,} ?Captured (stdout|stderr|log) (call|setup|teardown) ?-{3,}$")
_TEST_HEADER = re.compile(r"_{3,} .{1,200} _{3,}$|=+ .* =+$")
_STREAM = re.compile(r"( +)\[std(?:out|err)\]$")
_FAILED_TO_BUILD = re.compile(
    r"Failed to (?:download and )?build `?([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[\w,."
    r" -]*\])?(?:==([\w.+!-]+)| @ ([^`\n]+))?`?"
)
_QUIET_SECTIONS = ("warnings summary", "PASSES", "XFAILURES", "XPASSES", "slowest", "tests coverage", "coverage:")


@dataclass(frozen=True)
class Reading:
    """A failure as the rules read it, with the plan that failed and the context."""

    failure: Failure
    plan: Plan
    context: Context
    errors: str
    captured: str
    skips: str

    @cached_property
    def failing_distribution(self) -> tuple[str, str | None] | None:
        """Normalised name and version of the distribution whose build failed, where the log names one."""
        match = _FAILED_TO_BUILD.search(self.errors)
        return (canonicalize_name(match[1]), match[2]) if match else None

    @cached_property
    def project_failed(self) -> bool:
        """Whether it was the project's own build that failed (or no distribution is named)."""
        match = _FAILED_TO_BUILD.search(self.errors)
        if match is None:
            return True
        local = (match[3] or "").startswith("file://")
        return local or canonicalize_name(match[1]) == self.project

    @cached_property
    def project(self) -> str:
        """The project's normalised distribution name."""
        name = self.context.survey.first("project-name") or self.context.checkout.name
        return canonicalize_name(name)

    @cached_property
    def own_modules(self) -> frozenset[str]:
        """Top-level modules that the project provides."""
        survey = self.context.survey
        return frozenset(survey.values("import-name")) | {m.partition(".")[0] for m in survey.values("module")}


Where = Callable[[Reading], str]


def errors(reading: Reading) -> str:
    return reading.errors


def errors_and_captured(reading: Reading) -> str:
    return f"{reading.errors}\n{reading.captured}"


def skips(reading: Reading) -> str:
    return reading.skips


@dataclass(frozen=True)
class Rule:
    """`repair` is called for every match of `pattern` in a part of a failing log of one of the `stages`."""

    pattern: re.Pattern[str]
    repair: Callable[[re.Match[str], Reading], Iterable[Repair]]
    stages: frozenset[str] = EVERY_STAGE
    where: Where = errors

    def apply(self, reading: Reading) -> Iterator[Repair]:
        if reading.failure.stage not in self.stages:
            return
        for number, match in enumerate(self.pattern.finditer(self.where(reading))):
            if number == _MOST_MATCHES:
                return
            yield from self.repair(match, reading)


def pattern(text: str) -> re.Pattern[str]:
    """`^` and `$` match at every line."""
    return re.compile(text, re.MULTILINE)


def line_of(match: re.Match[str]) -> str:
    """The line of a match as evidence: printable, on one line, not too long."""
    start = match.string.rfind("\n", 0, match.start()) + 1 if match.start() else 0
    end = match.string.find("\n", match.start())
    text = match.string[start : end if end >= 0 else None].strip() or match[0].strip()
    return "".join(c if c.isprintable() else " " for c in text)[:200]


def before(match: re.Match[str], lines: int = 12) -> str:
    """The lines above a match."""
    return "\n".join(match.string[max(0, match.start() - 200 * lines) : match.start()].splitlines()[-lines:])


def read(failure: Failure, plan: Plan, context: Context) -> Reading:
    text = failure.output
    if len(text) > _MOST_TEXT:
        text = f"{text[: _MOST_TEXT // 2]}\n{text[-_MOST_TEXT // 2 :]}"
    lines = [line.rstrip()[:_LONGEST_LINE] for line in _ESCAPE.sub("", text).splitlines()]
    if failure.stage in TEST_STAGES:
        return Reading(failure, plan, context, *_divide(lines))
    return Reading(failure, plan, context, "\n".join(_dedent(lines)), "", "")


def _divide(lines: Iterable[str]) -> tuple[str, str, str]:
    """Errors, captured output and skips of a test run."""
    found: list[str] = []
    captured: list[str] = []
    skipped: list[str] = []
    quiet = capturing = False
    for line in lines:
        if section := _SECTION.match(line):
            quiet = section[1].startswith(_QUIET_SECTIONS)
            capturing = False
        elif _CAPTURED.match(line):
            capturing = True
            continue
        elif _TEST_HEADER.match(line):
            capturing = False
        if quiet:
            continue
        if line.startswith("SKIPPED ["):
            skipped.append(line)
        elif capturing:
            captured.append(line)
        else:
            found.append(_message(line))
    return "\n".join(found), "\n".join(captured), "\n".join(skipped)


def _message(line: str) -> str:
    """A line of a traceback: what pytest marks as the error stands at the start, source lines stay indented."""
    if line.startswith("E  "):
        return line[1:].strip()
    return f"  {line}" if line.startswith(">") else line


def _dedent(lines: Iterable[str]) -> Iterator[str]:
    """uv indents the output of a build; take that away. The heading that shows how far may have been cut out."""
    margin = " " * 9
    for line in lines:
        if stream := _STREAM.match(line):
            margin = stream[1]
        yield line.removeprefix(margin)
