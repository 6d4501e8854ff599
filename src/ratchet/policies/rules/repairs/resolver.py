"""The resolver finds no solution: relax what stands beside the project, or resolve as of another date.

What the project itself asks for is never changed: where that cannot be met, `diagnose` says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from packaging.utils import canonicalize_name
from packaging.version import Version

from ratchet.policies.rules.repairs import changes, drift, names, python_version
from ratchet.policies.rules.repairs.failure import Repair
from ratchet.policies.rules.repairs.reading import BUILD_STAGES, Reading, Rule, line_of, pattern

_NAME = re.compile(r"(?<![\w.+-])([A-Za-z0-9][A-Za-z0-9._-]{0,98})(?=[<>=!~\[ ,]|$)")


def _no_solution(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """Names in uv's explanation that are asked for beside the project: their bounds go first, then they go."""
    explanation = match.string[match.start() : match.start() + 6000].partition("\n\nhint:")[0]
    line = _decisive(explanation) or line_of(match)
    yield from _other_python(explanation, reading)
    missing = {canonicalize_name(n) for n in re.findall(r"([A-Za-z0-9][\w.-]*) was not found in the", explanation)}
    mentioned = {canonicalize_name(n) for n in _NAME.findall(explanation)}
    beside = {names.canonical(r): r for r in reading.plan.requirements}
    own = {names.canonical(r) for r in reading.context.survey.values("requirement")}
    for name, text in beside.items():
        if name in missing:
            yield Repair(f"drop:{name}", f"{name} is on no index that can be reached: {line}", changes.drop(name))
        elif name in mentioned and _bounded(text):
            yield Repair(f"relax:{name}", f"the bound in {text} cannot be met: {line}", changes.relax(name))
    for text in reading.plan.constraints:
        name = names.canonical(text)
        if name in mentioned and name not in beside:
            yield Repair(f"relax:{name}", f"the bound {text} cannot be met: {line}", changes.relax(name))
    if reading.plan.exclude_newer is not None:
        yield from drift.step_away(match, reading)
    elif not missing and "there is no version of" not in explanation:
        yield from drift.travel(reading, line)
    for name in sorted((set(beside) & mentioned) - own - missing):
        yield Repair(f"drop:{name}", f"{name} does not fit beside the project: {line}", changes.drop(name), alone=True)


def _other_python(explanation: str, reading: Reading) -> Iterator[Repair]:
    """An ABI without wheels, or a release that wants another Python."""
    if found := re.search(r"does not satisfy Python(?P<spec>[<>=!~][^ \n]+)", explanation):
        yield from python_version.switch_to(found["spec"], reading, _decisive(explanation) or found[0])
    elif re.search(r"has no wheels with a matching Python (?:ABI|version) tag|no usable wheels", explanation):
        for name in re.findall(r"building from source is disabled for `([A-Za-z0-9][\w.-]*)`", reading.errors):
            yield Repair(
                f"source:{name}",
                f"no release of {name} that fits has a wheel: {_decisive(explanation)}",
                changes.allow_source(canonicalize_name(name)),
                alone=True,
            )
        older = python_version.allowed(reading, lambda v: v < Version(reading.plan.python))
        for version in older[:1]:
            yield Repair(
                f"python:{version}",
                f"wheels exist for older Pythons only: {_decisive(explanation)}",
                changes.use_python(version),
                alone=True,
            )


def _decisive(explanation: str) -> str:
    for text in explanation.splitlines():
        if "ecause" in text:
            return text.strip().removeprefix("cause: ")[:200]
    return ""


def _bounded(requirement: str) -> bool:
    return any(sign in requirement.partition(";")[0] for sign in "<>=~!")


def _no_such_extra(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    extra = match["extra"]
    if extra in reading.plan.extras:
        yield Repair(
            f"drop-extra:{extra}",
            f"there is no such extra: {line_of(match)}",
            lambda plan: replace(plan, extras=tuple(e for e in plan.extras if e != extra)),
        )


def _direct(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """A git repository that cannot be reached: a release stands in, where it is asked for beside the project."""
    name = names.distribution(match["name"])
    if name is None:
        return
    wanted = canonicalize_name(name)
    if wanted in {names.canonical(r) for r in reading.plan.requirements}:
        yield Repair(f"release-of:{wanted}", f"a release stands in: {line_of(match)}", changes.relax(wanted))


def _no_such_debian_package(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    package = match["name"].rstrip(".'")
    if package in reading.plan.debian:
        yield Repair(
            f"drop-debian:{package}",
            f"the base's suite has no such package: {line_of(match)}",
            lambda plan: replace(plan, debian=tuple(p for p in plan.debian if p != package)),
        )


RULES = (
    Rule(
        pattern(r"No solution found when resolving (?:dependencies|tool|script|`.*`)?.*$"), _no_solution, BUILD_STAGES
    ),
    Rule(
        pattern(r"^warning: The package `.*` does not have an extra named `(?P<extra>[\w.-]+)`"),
        _no_such_extra,
        BUILD_STAGES,
    ),
    Rule(
        pattern(r"Failed to (?:download and build|build|fetch) `(?P<name>[A-Za-z0-9][\w.-]*) @ git\+"),
        _direct,
        BUILD_STAGES,
    ),
    Rule(
        pattern(
            r"^E: (?:Unable to locate package"
            r"|Package '?) ?(?P<name>[a-z0-9][a-z0-9+.-]+)'?(?: has no installation candidate)?"
        ),
        _no_such_debian_package,
        frozenset({"apt"}),
    ),
    Rule(
        pattern(r"^E: Couldn't find any package by (?:regex|glob) '(?P<name>[a-z0-9][a-z0-9+.-]+)'"),
        _no_such_debian_package,
        frozenset({"apt"}),
    ),
)
