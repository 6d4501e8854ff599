"""From the survey to a plan: which Python, which requirements, resolved as of when. And what to try next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from ratchet.policies.rules.plan import Plan
from ratchet.policies.rules.project import installable
from ratchet.policies.rules.python_tests import find_suite
from ratchet.policies.rules.versions import first_version
from ratchet.records import Checkout, Fact, Reason, Survey

# A checkout older than this is resolved as of its own date first: drift is the biggest kind of failure.
OLD = timedelta(days=150)

# First release of each Python, which no older checkout can have been tested with. Source: the release PEPs
# (596, 619, 664, 693, 719, 745).
PYTHON_RELEASED = {
    "3.9": "2020-10-05",
    "3.10": "2021-10-04",
    "3.11": "2022-10-24",
    "3.12": "2023-10-02",
    "3.13": "2024-10-07",
    "3.14": "2025-10-07",
}

# The version that most projects support and most wheels are built for comes first.
_PYTHON_PREFERENCE = ("3.11", "3.12", "3.13", "3.10", "3.9", "3.14")

# Groups of requirements that mean "needed to run the tests", best first. The first level that exists is used whole.
_TEST = re.compile(
    r"^(extra|group|hatch):_?(hatch-)?(tests?|testing|unit[-_]?tests?|pytest)$"
    r"|^tox:(testenv|py|py3|py\d+|test|tests|unit|unittests?)$"
    r"|^nox:_?(tests?|unit([-_]?tests?)?|pytest)$"
    r"|^file:(.*/)?[\w.-]*tests?(ing)?([-_.](requirements|req|deps|pinned|ci))?[\w-]*\.(txt|in)$"
    r"|^file:(.*/)?tests?/[\w.-]*requirements[\w.-]*$"
    r"|^setup\.py$",
    re.IGNORECASE,
)
_TEST_VARIANT = re.compile(
    r"^(extra|group|hatch|nox):_?(tests?[-_].*|.*[-_]tests?)$|^tox:(py\d*|tests?)[-_].*$", re.IGNORECASE
)
_DEV = re.compile(
    r"^(extra|group|hatch):(dev|devel|develop|development|dev[-_]dependencies|all|default|ci|qa)$"
    r"|^file:(.*/)?(dev|develop|development)[\w.-]*\.(txt|in)$"
    r"|^file:(.*/)?[\w.-]*[-_](dev|devel|develop|development|ci)\.(txt|in)$",
    re.IGNORECASE,
)
_CI = re.compile(r"^(ci:.*test.*|ci:build.*|ci:ci.*|ci:py.*)$", re.IGNORECASE)
_DOCUMENTED = re.compile(r"^(readme|docs|conda)$")

# Extras without which a program of the project does not start.
_PROGRAM = re.compile(r"^extra:(cli|cmd|console|command[-_]?line|main)$")

# Tools that run or publish a suite from outside; no test imports them, and they pull in much.
_OUTSIDE = {"tox", "nox", "pre-commit", "twine", "codecov", "coveralls", "bump2version", "bumpversion", "cibuildwheel"}
_OUTSIDE |= {"tox-gh-actions", "tox-uv", "zest-releaser", "python-semantic-release", "commitizen", "gitlint", "sphinx"}
_OUTSIDE |= {"mkdocs", "mkdocs-material", "pyright", "black", "isort", "check-manifest", "towncrier", "furo", "hatch"}


@dataclass(frozen=True)
class Lesson:
    """What an earlier attempt leaves to the next: the plan that it ended with, and why it failed."""

    plan: Plan
    reason: Reason
    detail: str


def first_plan(survey: Survey, checkout: Checkout, pythons: Sequence[str], now: datetime) -> Plan | None:
    """The plan to start with; None where none of `pythons` (versions a base can be had for) is allowed."""
    ranked = rank_pythons(survey, checkout, pythons)
    if not ranked:
        return None
    date = _date(checkout)
    old = date is not None and now - date > OLD
    return Plan(
        python=ranked[0],
        requirements=test_requirements(survey),
        build_requirements=survey.values("build-requirement")
        or (("setuptools", "wheel") if installable(survey) else ()),
        extras=_own_extras(survey),
        exclude_newer=as_of(date if old and date is not None else now),
        build_isolation=survey.first("build-backend") not in _IMPORTS_WHEN_BUILT,
        install_project=installable(survey),
        documented_debian=_documented_debian(survey),
        env=_version_variables(survey, checkout) | _declared_variables(survey),
    )


def next_plan(
    survey: Survey, checkout: Checkout, pythons: Sequence[str], now: datetime, lessons: Sequence[Lesson]
) -> Plan | None:
    """A plan that differs from all that were tried, keeping what they learnt; None when nothing is left to try.

    First comes the Python that the last attempt turned out to need, on a base that has it. Then the order is: the same
    Python in another time, then the other Pythons, each now and as of the checkout's date, and at last without any
    requirement but the runner.
    """
    start = first_plan(survey, checkout, pythons, now)
    if start is None:
        return None
    if not lessons:
        return start
    if lessons[-1].reason in TERMINAL:
        return None
    learnt = lessons[-1].plan
    if _wants_other_base(lessons, pythons):
        return learnt
    date = _date(checkout)
    times = [start.exclude_newer, as_of(date) if date else None, as_of(now)]
    tried = {(lesson.plan.python, lesson.plan.exclude_newer, lesson.plan.requirements) for lesson in lessons}
    for python in rank_pythons(survey, checkout, pythons):
        for time in dict.fromkeys(t for t in times if t):
            plan = replace(
                start, python=python, exclude_newer=time, debian=learnt.debian, left_out=learnt.left_out, env=learnt.env
            )
            if (python, time, plan.requirements) not in tried and not _same_moment(plan, lessons):
                return plan
    bare = replace(start, requirements=("pytest",), debian=learnt.debian, env=learnt.env)
    return bare if (bare.python, bare.exclude_newer, bare.requirements) not in tried else None


def _wants_other_base(lessons: Sequence[Lesson], pythons: Sequence[str]) -> bool:
    """Whether the last attempt found out that another Python is needed, which its base did not have."""
    *earlier, last = lessons
    python = last.plan.python
    untried = all(lesson.plan.python != python for lesson in earlier)
    return last.reason is Reason.PYTHON_UNAVAILABLE and python in pythons and untried


# Nothing that the rules can change would make these go away.
TERMINAL = {
    Reason.EMPTY_CHECKOUT,
    Reason.NO_TESTS,
    Reason.UNSUPPORTED,
    Reason.BROKEN_BUILD_SCRIPT,
    Reason.DEPENDENCY_NOT_FOUND,
    Reason.BUILD_TIMEOUT,
    Reason.TEST_TIMEOUT,
    Reason.MEMORY_LIMIT,
    Reason.PROCESS_LIMIT,
    Reason.DISK_LIMIT,
}


def rank_pythons(survey: Survey, checkout: Checkout, pythons: Sequence[str]) -> list[str]:
    """The versions of `pythons` that the project allows, the most promising first."""
    allowed = [p for p in pythons if _allows(survey.first("requires-python"), p)]
    named = set(survey.values("python-classifier")) | set(survey.values("python-version"))
    pinned = [f.value for f in survey.of("python-version") if f.file in {".python-version", "runtime.txt"}]
    date = _date(checkout)

    def rank(python: str) -> tuple[bool, bool, bool, int]:
        released = PYTHON_RELEASED.get(python)
        too_new = date is not None and released is not None and datetime.fromisoformat(released).date() > date.date()
        order = _PYTHON_PREFERENCE.index(python) if python in _PYTHON_PREFERENCE else len(_PYTHON_PREFERENCE)
        exact = any(v == python or v.startswith(f"{python}.") for v in pinned)
        return too_new, bool(named) and python not in named, not exact, order

    return sorted(allowed, key=rank)


def test_requirements(survey: Survey) -> tuple[str, ...]:
    """What has to be installed beside the project to run its tests, wherever it was declared; pytest always."""
    extras = survey.of("extra-requirement")
    facts = extras + survey.of("group-requirement")
    for level in (_TEST, _TEST_VARIANT, _DEV, _CI, _DOCUMENTED):
        if chosen := [f for f in facts if level.match(f.group)]:
            break
    else:
        chosen = []
    merged = _merge(f.value for f in _of_best_files(chosen))
    # An extra that holds no test tool is a feature, and its tests need it: take those that the test imports name.
    imported = {canonicalize_name(v) for v in survey.values("test-import")}
    others = _merge(f.value for f in extras).items()
    merged |= {k: v for k, v in others if k.partition(";")[0] in imported and k not in merged}
    runtime = _merge(survey.values("requirement"))
    if survey.of("console-script"):
        merged |= _merge(f.value for f in extras if _PROGRAM.match(f.group)) | merged
    if not installable(survey):
        merged = _merge(f.value for f in facts if f.group.startswith("file:")) | merged | runtime
    unwanted = {*(_OUTSIDE - imported), canonicalize_name(survey.first("project-name") or "")}
    merged = {key: text for key, text in merged.items() if key.partition(";")[0] not in unwanted}
    suite = find_suite(survey)
    if "pytest" not in merged and (suite is None or suite.runner == "pytest"):
        merged["pytest"] = "pytest"
    return tuple(merged.values())


# Editable installs of these rebuild when the package is imported, so what builds them has to stay installed.
_IMPORTS_WHEN_BUILT = {"mesonpy"}


def _own_extras(survey: Survey) -> tuple[str, ...]:
    """Extras of the project itself that its own test environments install: `extras = socks` in tox, `.[socks]` in a
    test group."""
    used = survey.of("used-extra")
    return tuple(sorted({f.value for f in used if _TEST.match(f.group) and re.fullmatch(r"[\w.-]+", f.value)}))


def as_of(moment: datetime) -> str:
    """The moment as uv's `--exclude-newer` takes it (RFC 3339, UTC, whole seconds)."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _documented_debian(survey: Survey) -> tuple[str, ...]:
    """Libraries that the project's docs and CI install for its compiled parts: most are optional, so no build fails for
    want of them, and the tests of what they bring are skipped instead."""
    if not survey.of("extension-module"):
        return ()
    names = survey.values("system-package")
    wanted = [n for n in names if re.fullmatch(r"(?!python)[a-z0-9][a-z0-9+.-]+-dev|python3-tk", n)]
    return tuple(dict.fromkeys(wanted))[:40]


def _of_best_files(facts: Sequence[Fact]) -> Iterable[Fact]:
    """Without the compiled twin (`test.txt`) of a requirements file whose source (`test.in`) is there as well:
    its pins are for one Python version, and the source says what is meant."""
    sources = {f.group for f in facts if f.group.endswith(".in")}
    return (f for f in facts if not (f.group.endswith(".txt") and f"{f.group[:-4]}.in" in sources))


def _merge(requirements: Iterable[str]) -> dict[str, str]:
    """One requirement a distribution and environment marker, by name (and marker). The first mention wins, unless a
    later one bounds what it left open."""
    merged: dict[str, str] = {}
    for text in requirements:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        key = canonicalize_name(requirement.name) + (f"; {requirement.marker}" if requirement.marker else "")
        known = Requirement(merged[key]) if key in merged else None
        if known is None or (not known.specifier and requirement.specifier):
            merged[key] = text
        elif requirement.extras - known.extras:
            known.extras |= requirement.extras
            merged[key] = str(known)
    return merged


def _allows(specifier: str | None, python: str) -> bool:
    if not specifier:
        return True
    try:
        # Any patch release will do, so 3.11 stands for its newest: ">=3.11.4" must not rule it out.
        return SpecifierSet(specifier).contains(Version(f"{python}.99"), prereleases=True) or SpecifierSet(
            specifier
        ).contains(Version(python), prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return True


def _date(checkout: Checkout) -> datetime | None:
    if not checkout.date:
        return None
    try:
        moment = datetime.fromisoformat(checkout.date)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _same_moment(plan: Plan, lessons: Sequence[Lesson]) -> bool:
    """Whether an earlier attempt resolved within a week of this plan on the same Python: it would find the same."""

    def moment(text: str | None) -> datetime | None:
        return datetime.fromisoformat(text) if text else None

    mine = moment(plan.exclude_newer)
    for lesson in lessons:
        theirs = moment(lesson.plan.exclude_newer)
        if lesson.plan.python == plan.python and mine and theirs and abs(mine - theirs) < timedelta(days=7):
            return True
    return False


def _version_variables(survey: Survey, checkout: Checkout) -> dict[str, str]:
    """Where the version comes from git metadata that the checkout does not have, it is told by variables."""
    # What a manifest says is a placeholder then, more often than not ("0.0.0").
    version = first_version([checkout.version, survey.first("project-version")])
    sources = set(survey.values("version-source"))
    if not sources or version is None:
        return {}
    variables: dict[str, str] = {}
    name = re.sub(r"[^A-Za-z0-9]+", "_", survey.first("project-name") or "").upper()
    if "setuptools-scm" in sources and name:
        # By name, since a dependency that is built from source may ask setuptools-scm as well.
        variables[f"SETUPTOOLS_SCM_PRETEND_VERSION_FOR_{name}"] = version
    if sources & {"hatch-vcs", "vcs-versioning", "flit-scm", "scikit-build-core", "pdm-backend"}:
        variables |= {"SETUPTOOLS_SCM_PRETEND_VERSION": version, "PDM_BUILD_SCM_VERSION": version}
    if "pbr" in sources:
        variables["PBR_VERSION"] = version
    if sources & {"dunamai", "poetry-dynamic-versioning", "uv-dynamic-versioning"}:
        variables |= {"POETRY_DYNAMIC_VERSIONING_BYPASS": version, "UV_DYNAMIC_VERSIONING_BYPASS": version}
    return variables


def _declared_variables(survey: Survey) -> dict[str, str]:
    """Variables that the project's own test environments set, where they are plain values."""
    chosen: dict[str, str] = {}
    for fact in survey.of("environment-variable"):
        name, _, value = fact.value.partition("=")
        test = re.fullmatch(r"tox:(testenv|py\d*)|nox:.*tests?|hatch:.*test|pytest", fact.group)
        plain = re.fullmatch(r"[\w./:,@+-]*", value) and re.fullmatch(r"[A-Za-z_]\w*", name)
        if (
            test
            and plain
            and not re.match(r"PATH$|HOME$|PYTHONPATH$|PYTHONWARNINGS$|VIRTUAL_ENV$|PIP_|UV_|COVERAGE|TOX|LD_", name)
        ):
            chosen.setdefault(name, value)
    return chosen
