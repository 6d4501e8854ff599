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
_ASSIGNMENTS = re.compile(r"(?:[A-Za-z_]\w*=[\w./:,@+-]*\s+)*")
_VALUE_OPTIONS = {"-m", "-p", "-k", "-c", "-n", "-W", "-o", "-r", "--ignore", "--ignore-glob", "--deselect", "--cov"}
_VALUE_OPTIONS |= {"--rootdir", "--confcutdir", "--maxfail", "--durations", "--junitxml", "--cov-report", "--tb"}
_VALUE_OPTIONS |= {"--numprocesses", "--dist", "--cov-config", "--timeout", "--color", "--basetemp", "--reruns", "--ds"}
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
    options: tuple[str, ...] = ()  # of pytest, whatever it is pointed at

    @property
    def functions(self) -> int:
        return sum(count for _, count in self.files)


def find_suite(survey: Survey) -> Suite | None:
    """The project's suite, or None where the checkout holds no tests."""
    counts = {f.file: int(f.value) for f in survey.of("test-count") if f.value.isdigit() and int(f.value) > 0}
    counts = counts or dict.fromkeys(survey.values("test-file", "doctest"), 1)
    if not counts:
        return None
    documented = _documented_commands(survey)
    for command in documented:
        if not _uses_pytest(command) and not _configures_pytest(survey) and (own := _own_runner(command, survey)):
            variables, arguments = own
            run = f"{variables}python {UNITTEST_SHIM} {REPORT} {arguments}"
            return Suite("unittest", run, (), tuple(sorted(counts.items())), command)
    paths, options, source = _pytest_arguments(documented, survey, counts)
    files = tuple(sorted((path, count) for path, count in counts.items() if _below(path, paths)))
    if not files:
        paths, options, source = _default_paths(counts), (), None
        files = tuple(sorted((path, count) for path, count in counts.items() if _below(path, paths)))
    options = (*_all_of_them(survey), *options)
    return Suite("pytest", pytest_command(*options, *paths), paths, files, source, options)


def _all_of_them(survey: Survey) -> tuple[str, ...]:
    """What undoes a configuration that ends a run at the first failures: the tests after those would be missing."""
    stops = any(re.match(r"-x$|--exitfirst$|--maxfail\b", word) for word in survey.values("pytest-option"))
    return ("--maxfail=0",) if stops else ()


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
    parts = [part for part in first if not part.startswith("cd ")] or first
    chosen = next((part for part in parts if re.search(r"py\.?test|unittest|test", part)), parts[0])
    variables = _ASSIGNMENTS.match(chosen)
    if variables is not None and variables.group():
        return variables.group() + _bare(chosen[variables.end() :])
    if module := re.search(r"\bcoverage[\d.]* run\s(?:.*?\s)?(-m\s.*)$", chosen):
        return f"python {module[1]}"
    stripped = _WRAPPERS.sub("", chosen)
    if stripped.startswith("-m ") or (stripped != chosen and re.match(r"\S+\.py\b", stripped)):
        return f"python {stripped}"
    return stripped


def _uses_pytest(command: str) -> bool:
    return bool(re.search(r"(^|\s|/)(pytest|py\.test)(\s|$)", command))


def _configures_pytest(survey: Survey) -> bool:
    return bool(survey.of("pytest-setting") or survey.of("pytest-option"))


def _own_runner(command: str, survey: Survey) -> tuple[str, str] | None:
    """Variables, and `-m package.test.runtests ARGS`, `script.py ARGS` or Django's `manage.py test ARGS`: where the
    project runs its tests by a program of its own."""
    variables = _ASSIGNMENTS.match(command)
    before = variables.group() if variables is not None else ""
    try:
        words = shlex.split(command[len(before) :])
    except ValueError:
        return None
    if not words or not _PYTHON.match(words[0]) or any(re.search(r"[{}$<>`]", word) for word in words[1:]):
        return None
    arguments = words[1:]
    while arguments and re.match(r"^-([bBEsuIO]|W.*|X.*)$", arguments[0]):
        arguments = arguments[1:]
    if len(arguments) >= 2 and arguments[0] == "-m":
        top = arguments[1].split(".")[0]
        django = arguments[1:3] == ["django", "test"]
        named = top in {"unittest", *survey.values("import-name")}
        if django or named or re.search(r"(^|\.)(run)?_?tests?$", arguments[1]):
            return before, shlex.join(arguments)
    elif arguments and (script := _script(arguments, survey)) is not None:
        return before, shlex.join([script, *arguments[1:]])
    return None


def _script(arguments: list[str], survey: Survey) -> str | None:
    """The test program of the checkout that a command names, perhaps from within another folder; None where there is
    none, or several could be meant: a command that cannot work is worse than pytest."""
    path = arguments[0].removeprefix("./")
    name = PurePosixPath(path).name
    if not path.endswith(".py") or name == "setup.py":
        return None
    if not ("test" in name or (name == "manage.py" and "test" in arguments[1:])):
        return None
    known = [*survey.values("test-script"), *survey.values("test-file")]
    if path in known:
        return path
    below = [each for each in known if each.endswith(f"/{path}")]
    return below[0] if len(below) == 1 else None


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
        # Besides folders of tests, a few tests in the root are strays.
        share = folders.pop(".") / sum(counts.values())
        root = sorted(p for p in counts if "/" not in p) if not folders or share >= 0.2 else []
    else:
        root = []
    outer = [f for f in sorted(folders) if not any(f.startswith(f"{o}/") for o in folders)]
    return (*root, *outer)


def _below(path: str, folders: Iterable[str]) -> bool:
    folders = tuple(folders)
    if not folders:
        return not any(part.lower() in ASIDE for part in PurePosixPath(path).parts[:-1])
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def file_command(suite: Suite, path: str) -> str | None:
    """The command that runs one test file of the suite, with the same runner and the same report; None where the
    project has a runner of its own, of which nobody knows how it takes a file."""
    if suite.runner == "pytest":
        return pytest_command(*suite.options, path)
    if "-m unittest" not in suite.command:
        return None
    module = path.removesuffix(".py").removeprefix("src/").removeprefix("lib/").replace("/", ".")
    return f"python {UNITTEST_SHIM} {REPORT} -m unittest {shlex.quote(module)}"


def largest_files(suite: Suite, most: int) -> list[Fact]:
    """The `most` test files with the most test functions, largest first, as facts."""
    ranked = sorted(suite.files, key=lambda item: (-item[1], item[0]))[:most]
    return [Fact("test-count", str(count), path) for path, count in ranked]
