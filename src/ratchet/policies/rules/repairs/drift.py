"""Drift in time: releases newer than the checkout broke it. Resolve as of its date; where that is done, step away."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import date, timedelta

from ratchet.policies.rules.distributions import requirement_for
from ratchet.policies.rules.repairs import changes, names
from ratchet.policies.rules.repairs.failure import Repair
from ratchet.policies.rules.repairs.reading import (
    BUILD_STAGES,
    EVERY_STAGE,
    TEST_STAGES,
    Reading,
    Rule,
    before,
    line_of,
    pattern,
)

# How far to step back where the releases of the checkout's own day are the broken ones.
_EARLIER = timedelta(days=180)

_INSTALLED = re.compile(r"(?:site|dist)-packages/(\w+)")
_STANDARD_LIBRARY = re.compile(r"/lib/python3\.\d+/(?!site-packages|dist-packages)")


def travel(reading: Reading, line: str) -> Iterator[Repair]:
    """Resolve as of the checkout's date, or, where the plan does that already, half a year earlier."""
    day = _day(reading.context.checkout.date)
    if day is None:
        return
    if reading.plan.exclude_newer is None:
        yield Repair(
            "time-travel",
            f"a later release broke it, so resolve as of {day.isoformat()}: {line}",
            changes.resolve_as_of(day.isoformat()),
            alone=True,
        )
    elif (now := _day(reading.plan.exclude_newer)) is not None and now >= day:
        earlier = (now - _EARLIER).isoformat()
        yield Repair(
            "time-travel:earlier",
            f"the releases of that very day may be the broken ones, so resolve as of {earlier}: {line}",
            changes.resolve_as_of(earlier),
            alone=True,
        )


def step_away(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """Resolving as of a date is itself what fails."""
    if reading.plan.exclude_newer is not None:
        yield Repair(
            "time-return",
            f"what is asked for is newer than {reading.plan.exclude_newer}: {line_of(match)}",
            changes.resolve_as_of(None),
            alone=True,
        )


def another_release(module: str, reading: Reading, line: str, declared: str | None) -> Iterator[Repair]:
    """A part of an installed distribution is missing: a release within the declared bounds, or of that time, has it."""
    if declared is not None and (requirement := names.requirement(declared)) and _is_bounded(requirement):
        yield Repair(
            f"bound:{names.canonical(requirement)}",
            f"{module} is missing from the installed release; the project asks for {requirement}: {line}",
            changes.constrain(requirement.split(";")[0]),
        )
    yield from travel(reading, line)


def _is_bounded(requirement: str) -> bool:
    return any(sign in requirement.split(";")[0] for sign in ("<", "==", "~="))


def _name_gone(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """A name is gone from a module that is neither the project's nor the standard library's."""
    module = names.module(match["module"])
    top = module.partition(".")[0] if module else ""
    if module is None or top in reading.own_modules or top in sys.stdlib_module_names:
        return
    if _STANDARD_LIBRARY.search(match[0]) and not _INSTALLED.search(match[0]):
        return
    bounds = [c for c in reading.context.survey.values("constraint") if _names(c, module) and names.requirement(c)]
    for text in bounds[:1]:
        yield Repair(
            f"bound:{names.canonical(text)}",
            f"the project bounds {names.canonical(text)} in a constraints file: {line_of(match)}",
            changes.constrain(text),
        )
    yield from travel(reading, line_of(match))


def _names(requirement: str, module: str) -> bool:
    return names.canonical(requirement) == names.canonical(requirement_for(module))


def _changed_interface(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """An error of the kind that a changed interface makes, raised or caused inside an installed distribution."""
    above = before(match, 14)
    frames = _INSTALLED.findall(above + match[0] + match.string[match.end() : match.end() + 300].partition("\n\n\n")[0])
    strangers = [name for name in frames if name not in reading.own_modules and name not in {"_pytest", "pluggy"}]
    if strangers:
        yield from travel(reading, line_of(match))


def _deprecated(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """A warning that the configuration turns into an error: releases of that time did not warn."""
    yield from travel(reading, line_of(match))
    yield Repair(
        "warnings-as-errors",
        f"a warning of later releases is turned into an error: {line_of(match)}",
        changes.add_pytest_options("-W", "default"),
    )


def _day(text: str | None) -> date | None:
    try:
        return date.fromisoformat(text[:10]) if text else None
    except ValueError:
        return None


RULES = (
    Rule(pattern(r"^hint: `[\w.-]+` was filtered by `exclude-newer`.*"), step_away, BUILD_STAGES),
    Rule(pattern(r"is missing an upload date, but user provided: .*"), step_away, BUILD_STAGES),
    Rule(
        pattern(
            r"^ImportError: cannot import name '\w+' from (?:partially initialized module )?'(?P<module>[\w.]+)'.*"
        ),
        _name_gone,
    ),
    Rule(pattern(r"^AttributeError: module '(?P<module>[\w.]+)' has no attribute '\w+'"), _name_gone),
    Rule(
        pattern(
            r"^AttributeError: (?!module ).*|^TypeError: .*(?:unexpected keyword argument|positional argument"
            r"|required keyword-only argument).*|^NameError: .*|^ImportError: .*|^TypeError: .*"
        ),
        _changed_interface,
        TEST_STAGES,
    ),
    Rule(
        pattern(r"^(?:\w+\.)*\w*(?:Deprecat\w*|PytestRemovedIn\w*|FutureWarning|Deprecation)\w*(?:Warning)?: .+"),
        _deprecated,
        TEST_STAGES,
    ),
    Rule(pattern(r"^(?:\w+\.)*Pytest\w*Warning: .+"), _deprecated, TEST_STAGES),
)
LAST_RULES = (
    Rule(
        pattern(r"^.*(?:was removed in|has been removed in|is no longer supported|removed in version) .*"),
        lambda match, reading: travel(reading, line_of(match)),
        EVERY_STAGE,
    ),
)
