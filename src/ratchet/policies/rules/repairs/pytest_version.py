"""The pytest is too new (or too old) for the tests: what later releases took away, and the last release before that."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from packaging.requirements import Requirement
from packaging.version import Version

from ratchet.policies.rules.repairs import changes, drift, names, python_version
from ratchet.policies.rules.repairs.failure import Repair
from ratchet.policies.rules.repairs.reading import TEST_STAGES, Reading, Rule, before, line_of, pattern

# What was removed, and the release without it. Source: pytest's changelog, "Deprecations and Removals".
_REMOVED = (
    (r"^(?:Failed: )?'yield' keyword is allowed in fixtures, but not in tests", "4"),
    (r"^(?:Failed: )?(?:\[pytest\] section|Fixture \"\w+\" called directly)", "4"),
    (r"^TypeError: exceptions must be derived from Warning, not <class 'NoneType'>", "8"),
    (r"^TypeError: .*(?:skip|fail|exit|_Skip|_Fail|_Exit)\S*\(?\)? got an unexpected keyword argument 'msg'", "8"),
    (r"^(?:Failed: )?Marks cannot be applied to fixtures", "9"),
    (r"^(?:Failed: )?Direct construction of \S+ has been deprecated", "6"),
    (r"^AttributeError: module 'pytest' has no attribute '(?:Instance|collect)'", "8"),
    (r"^AttributeError: module 'pytest' has no attribute '(?:config|yield_fixture)'", "7"),
    (r"^AttributeError: module 'py' has no attribute '\w+'", "7"),
    (r"^(?:\w+\.)*PytestRemovedIn8Warning", "8"),
    (r"^(?:\w+\.)*PytestRemovedIn9Warning", "9"),
    (r"^(?:\w+\.)*PytestRemovedIn10Warning", "9.1"),
    (r"^AttributeError: '\w+' object has no attribute '(?:getfuncargvalue|funcargnames|get_marker)'", "4"),
    (r"^AttributeError: '\w+' object has no attribute 'fspath'", "9"),
    (r"^AttributeError: 'FixtureRequest' object has no attribute", "8"),
    (r"^\S*PluginValidationError: unknown hook 'pytest_(?:warning_captured|logwarning|namespace)'", "7"),
    (r"^\S*PluginValidationError: unknown hook 'pytest_cmdline_preparse'", "8"),
    (r"^hookimpl definition: pytest_\w+\([^)]*\b(?:path|startdir|fspath)\b[^)]*\)", "9"),
    (r"^TypeError: .*\bcollect\(\) (?:got|takes) .*", "8"),
    (r"^(?:Failed|ValueError|_pytest\.\S+): .*nose.*(?:removed|not supported)", "8"),
)

_PRIVATE = r"^(?:ImportError: cannot import name '\w+' from|ModuleNotFoundError: No module named) '_pytest\.?[\w.]*'"

_NOSE_SETUP = re.compile(r"\bself\.(\w+)|'(\w+)' object")


def _bound(release: str) -> Callable[[re.Match[str], Reading], Iterator[Repair]]:
    return lambda match, reading: older_pytest(release, reading, line_of(match))


def older_pytest(release: str, reading: Reading, line: str) -> Iterator[Repair]:
    """A pytest before `release`: within the project's own bound, or as of its time, or the last that still had it."""
    survey = reading.context.survey
    declared = [
        text
        for kind in ("group-requirement", "extra-requirement", "constraint", "requirement")
        for text in survey.values(kind)
        if names.canonical(text) == "pytest" and _bounded_below(text, release)
    ]
    requirement = declared[0].partition(";")[0] if declared else ""
    if Version(release) >= Version("6") or reading.plan.python in {"3.8", "3.9"}:
        yield Repair(
            f"older-pytest:{release}",
            f"pytest {release} took it away: {line}",
            changes.constrain(requirement) if declared else changes.bound_above("pytest", release),
        )
    yield from drift.travel(reading, line)


def _bounded_below(text: str, release: str) -> bool:
    """Whether a declared requirement on pytest keeps it before `release`."""
    if names.requirement(text) is None:
        return False
    return (not Requirement(text).specifier.contains(release, prereleases=True) and "<" in text) or "==" in text


def _setup_not_run(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """Attributes that a nose-style `setup` method would have set: pytest 8 does not call it any more.

    One missing attribute is a bug of the tests; several tests of a class that lack one are a method not called.
    """
    pattern_ = re.compile(rf"^AttributeError: '{re.escape(match['name'])}' object has no attribute", re.MULTILINE)
    if len(pattern_.findall(reading.errors)) >= 2 and re.match(r"Test|\w*Tests?$", match["name"]):
        yield from older_pytest("8", reading, line_of(match))


def _private(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """Private modules of pytest are imported, by the project or by an old plugin."""
    yield from drift.travel(reading, line_of(match))
    yield Repair(
        "older-pytest:8", f"private parts of pytest moved: {line_of(match)}", changes.bound_above("pytest", "8")
    )


def _new_option(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """The configuration asks for a pytest that resolving as of an earlier date (or this Python) does not give."""
    if reading.plan.exclude_newer is not None:
        yield from drift.step_away(match, reading)
    if any(names.canonical(text) == "pytest" for text in reading.plan.constraints):
        yield Repair("newer-pytest", f"the bound on pytest is too low: {line_of(match)}", changes.relax("pytest"))
    yield from python_version.at_least("3.10", reading, line_of(match), "a newer pytest is asked for")


def _crash(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """pytest itself crashed, in a hook or in a plugin."""
    if "site-packages" in before(match, 30):
        yield from drift.travel(reading, line_of(match))


RULES = (
    *(Rule(pattern(text), _bound(release), TEST_STAGES) for text, release in _REMOVED),
    Rule(pattern(r"^AttributeError: '(?P<name>\w+)' object has no attribute '\w+'"), _setup_not_run, TEST_STAGES),
    Rule(pattern(_PRIVATE), _private, TEST_STAGES),
    Rule(
        pattern(r"'minversion' requires pytest-[\d.]+, actual pytest-.*|requires pytest-[\d.]+, actual.*"),
        _new_option,
        TEST_STAGES,
    ),
    Rule(pattern(r"^INTERNALERROR> (?:\w+\.)*\w+Error: .*"), _crash, TEST_STAGES),
)
