"""How a Python project's own test suite is run: which runner, on which paths, with which report.

Decided from the survey alone, before anything is built, since goals are set on the pristine checkout.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from ratchet.records import Fact, Survey

REPORT = "/tmp/ratchet/report.xml"  # noqa: S108 - a path inside the sandbox
UNITTEST_SHIM = "/opt/ratchet/unittest_junit.py"

# Folders that hold code which looks like tests and is no part of the suite.
ASIDE = {"examples", "example", "docs", "doc", "benchmarks", "benchmark", "asv_bench", "samples", "demo", "demos"}
ASIDE |= {"vendor", "third_party", "_vendor", "node_modules", "perf", "fuzz", "tutorials", "scripts", "tools"}

# Where a documented test command is the most likely to be the whole suite, best first.
_ORDER: tuple[str, ...] = (
    "tox:testenv",
    "tox:py",
    "tox:",
    "make:test",
    "make:check",
    "just:test",
    "nox:test",
    "nox:",
    "hatch:",
)
_ORDER += ("ci:test", "ci:", "make:", "just:", "readme", "docs", "docker", "devcontainer")
_SKIP_GROUPS = re.compile(r"lint|docs?\b|mypy|typ(e|ing)|cover|bench|release|publish|style|format|fuzz|integration|e2e")

_PYTHON = re.compile(r"^(\$[({]?PYTHON[)}]?|\{envpython\}|python[0-9.]*)$", re.IGNORECASE)
_WRAPPERS = re.compile(
    r"^(?:(?:xvfb-run|uv run|poetry run|pdm run|hatch run|pipenv run|rye run|coverage run|sudo|time|env|exec)\s+"
    r"(?:-[^\s-][^\s]*\s+|--[\w-]+(?:=\S+)?\s+|[A-Z_][A-Z0-9_]*=\S*\s+)*)+"
)
_VALUE_OPTIONS = {"-m", "-p", "-k", "-c", "-n", "-W", "-o", "-r", "--ignore", "--ignore-glob", "--deselect", "--cov"}
_VALUE_OPTIONS |= {"--rootdir", "--confcutdir", "--maxfail", "--durations", "--junitxml", "--cov-report", "--tb"}
_KEPT_OPTIONS = {"--ignore", "--ignore-glob", "--deselect", "--rootdir", "--confcutdir", "-c", "--import-mode"}


@dataclass(frozen=True)
class Suite:
    """The whole suite as one command that leaves a JUnit report at `REPORT`.

    `runner` is "pytest" or "unittest" (a runner of the project's own, built on unittest). `paths` are what it is
    pointed at; `files` the test files below them, with the number of test functions that each contains.
    """

    runner: str
    command: str
    paths: tuple[str, ...]
    files: tuple[tuple[str, int], ...]
    documented: str | None

    @property
    def functions(self) -> int:
        return sum(count for _, count in self.files)


def find_suite(survey: Survey) -> Suite | None:
    """The project's suite, or None where the checkout holds no tests."""
    counts = {f.file: int(f.value) for f in survey.of("test-count") if f.value.isdigit() and int(f.value) > 0}
    if not counts:
        return None
    documented = _documented_commands(survey)
    for command in documented:
        if not _uses_pytest(command) and not _configures_pytest(survey) and (own := _own_runner(command, survey)):
            run = f"python {UNITTEST_SHIM} {REPORT} {own}"
            return Suite("unittest", run, (), tuple(sorted(counts.items())), command)
    paths, options, source = _pytest_arguments(documented, survey, counts)
    files = tuple(sorted((path, count) for path, count in counts.items() if _below(path, paths)))
    if not files:
        paths, options, source = _default_paths(counts), (), None
        files = tuple(sorted((path, count) for path, count in counts.items() if _below(path, paths)))
    return Suite("pytest", pytest_command(*options, *paths), paths, files, source)


def pytest_command(*arguments: str) -> str:
    words = " ".join(shlex.quote(a) for a in arguments)
    return f"python -m pytest --junitxml={REPORT} {words}".rstrip()


def _documented_commands(survey: Survey) -> list[str]:
    facts = [f for f in survey.of("test-command") if not _SKIP_GROUPS.search(f.group.partition(":")[2])]
    ranked = sorted(facts, key=lambda f: next((i for i, g in enumerate(_ORDER) if f.group.startswith(g)), len(_ORDER)))
    return list(dict.fromkeys(_bare(f.value) for f in ranked))


def _bare(command: str) -> str:
    """The command without wrappers: `coverage run -m pytest x` is `python -m pytest x`."""
    first = re.split(r"\s*(?:&&|\|\||;|\|)\s*", command.strip())
    chosen = next((part for part in first if re.search(r"py\.?test|unittest|test", part)), first[0])
    stripped = _WRAPPERS.sub("", chosen)
    if stripped.startswith("-m ") or (stripped != chosen and re.match(r"\S+\.py\b", stripped)):
        return f"python {stripped}"
    return re.sub(r"^coverage run\s+(?:--?[\w-]+(?:=\S+)?\s+)*?(?=-m\b|\S+\.py)", "python ", stripped)


def _uses_pytest(command: str) -> bool:
    return bool(re.search(r"(^|\s|/)(pytest|py\.test)(\s|$)", command))


def _configures_pytest(survey: Survey) -> bool:
    return bool(survey.of("pytest-setting") or survey.of("pytest-option"))


def _own_runner(command: str, survey: Survey) -> str | None:
    """`-m package.test.runtests ARGS` or `script.py ARGS`, where the project runs its tests by a program of its own."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if not words or not _PYTHON.match(words[0]) or any(re.search(r"[{}$<>`]", word) for word in words[1:]):
        return None
    arguments = words[1:]
    while arguments and re.match(r"^-([bBEsuIO]|W.*|X.*)$", arguments[0]):
        arguments = arguments[1:]
    if len(arguments) >= 2 and arguments[0] == "-m":
        top = arguments[1].split(".")[0]
        if top in {"unittest", *survey.values("import-name")} or re.search(r"(^|\.)(run)?_?tests?$", arguments[1]):
            return shlex.join(arguments)
        return None
    if arguments and arguments[0].endswith(".py") and arguments[0] != "setup.py":
        known = {fact.file for fact in survey.facts} | set(survey.values("test-file"))
        looks_like_runner = re.search(r"test", PurePosixPath(arguments[0]).name)
        if looks_like_runner and (arguments[0] in known or "/" not in arguments[0]):
            return shlex.join(arguments)
    return None


def _pytest_arguments(
    documented: Iterable[str], survey: Survey, counts: dict[str, int]
) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
    """Paths and options of the first documented pytest command whose paths hold most of the tests."""
    total = sum(counts.values())
    for command in documented:
        if not _uses_pytest(command):
            continue
        parsed = _parse_pytest(command)
        if parsed is None:
            continue
        words, options = parsed
        paths = tuple(word for word in words if any(_below(path, (word,)) for path in counts))
        covered = sum(count for path, count in counts.items() if _below(path, paths))
        if paths and covered >= 0.5 * total:
            return paths, options, command
        if not words and _has_testpaths(survey):
            return (), options, command
    return (() if _has_testpaths(survey) else _default_paths(counts)), (), None


def _parse_pytest(command: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    start = next(i for i, word in enumerate(words) if word.rsplit("/", 1)[-1] in {"pytest", "py.test"})
    paths: list[str] = []
    options: list[str] = []
    rest = iter(words[start + 1 :])
    for word in rest:
        name, equals, value = word.partition("=")
        if word.startswith("-"):
            if name in _VALUE_OPTIONS and not equals:
                value = next(rest, "")
            keep = name in _KEPT_OPTIONS or (name == "-m" and value.startswith("not "))
            if keep and not re.search(r"[{}$]", value):
                options += [f"{name}={value}"] if name.startswith("--") else [name, value]
        elif re.fullmatch(r"[\w./-]+", word) and ".." not in word and not word.startswith("/"):
            paths.append(word.removeprefix("./").rstrip("/") or ".")
    return tuple(p for p in paths if p != "."), tuple(options)


def _has_testpaths(survey: Survey) -> bool:
    return any(f.value.startswith("testpaths=") for f in survey.of("pytest-setting"))


def _default_paths(counts: dict[str, int]) -> tuple[str, ...]:
    """The folders that hold the tests, outermost test folder of each; nothing where tests lie in the root."""
    folders: dict[str, int] = {}
    for path, count in counts.items():
        parts = PurePosixPath(path).parts[:-1]
        if any(part.lower() in ASIDE for part in parts):
            continue
        named = next((i for i, part in enumerate(parts) if re.search(r"test", part.lower())), None)
        folder = "/".join(parts[: named + 1]) if named is not None else "/".join(parts)
        folders[folder or "."] = folders.get(folder or ".", 0) + count
    if not folders:
        return ()
    if "." in folders:
        if folders["."] >= 0.2 * sum(folders.values()) and len(folders) == 1:
            return tuple(sorted(p for p in counts if "/" not in p))
        folders.pop(".")
    outer = [f for f in sorted(folders) if not any(f.startswith(f"{o}/") for o in folders)]
    return tuple(outer)


def _below(path: str, folders: Iterable[str]) -> bool:
    folders = tuple(folders)
    if not folders:
        return not any(part.lower() in ASIDE for part in PurePosixPath(path).parts[:-1])
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def file_command(suite: Suite, path: str) -> str | None:
    """The command that runs one test file of the suite, with the same runner and the same report; None where the
    project has a runner of its own, of which nobody knows how it takes a file."""
    if suite.runner == "pytest":
        return pytest_command(path)
    if "-m unittest" not in suite.command:
        return None
    module = path.removesuffix(".py").removeprefix("src/").removeprefix("lib/").replace("/", ".")
    return f"python {UNITTEST_SHIM} {REPORT} -m unittest {shlex.quote(module)}"


def largest_files(suite: Suite, most: int) -> list[Fact]:
    """The `most` test files with the most test functions, largest first, as facts."""
    ranked = sorted(suite.files, key=lambda item: (-item[1], item[0]))[:most]
    return [Fact("test-count", str(count), path) for path, count in ranked]
