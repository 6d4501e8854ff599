"""From what a model submits to goals: whatever it writes is a goal or a problem, never an error."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from ratchet.policies.model.checked import quoted, shortened
from ratchet.policies.model.fences import blocks
from ratchet.policies.model.patterns import pattern_problem, simplified
from ratchet.policies.model.prompts import encodable
from ratchet.policies.rules.goals import BUILD_TIMEOUT_S, SUITE_TIMEOUT_S
from ratchet.policies.rules.python_tests import REPORT, UNITTEST_SHIM, Suite, pytest_command
from ratchet.records import Expectation, Goal, GoalKind

GOAL_BLOCK = "goal"
MOST_GOALS = 20

_MOST_PROBLEMS = 20
_MOST_COMMAND_CHARACTERS = 2000
_MOST_DESCRIPTION_CHARACTERS = 500
_MOST_EXPECTED = 5

_TIMEOUTS_S = {GoalKind.TESTS: SUITE_TIMEOUT_S, GoalKind.BUILD: BUILD_TIMEOUT_S}

_FIELD = re.compile(
    r"^\s*(?:[-*]\s+|\d{1,2}[.)]\s+)?\**(kind|command|description|expect|exit)\**\s*:\**[ \t]*(.*)$", re.IGNORECASE
)

# What a virtual environment's own tools put before a command: goals run in the environment already.
_WRAPPER = re.compile(r"^(?:(?:uv|poetry|pdm|hatch|pipenv|rye) run(?: --)?|sudo(?: -E)?|time) +(?=\w)")
_PLACE = re.compile(r"^cd (?:/workspace|\.)/? *(?:&&|;)\s*")
_VARIABLES = re.compile(r"(?:[A-Za-z_]\w*=[\w./:,@+-]* +)*")

# Where a command begins, quoted parts left out.
_RUNS_TESTS = re.compile(
    r"(?:^|[;&|(\n])\s*(?:[A-Za-z_]\w*=\S* +)*"
    r"(?:(?:[\w./-]*/)?python[\d.]* +-m +(?:pytest|unittest)|(?:[\w./-]*/)?(?:pytest|py\.test))(?=[\s;&|)]|$)"
)

# More than one simple command, or words that a shell would change.
_COMPOUND = re.compile(r"[|;&<>$`\n\\(){}*?#~]")

# Options of pytest that say nothing of an environment, or spoil the report: with a value, and without.
_LEFT_OUT_WITH_VALUE = frozenset({"-n", "--numprocesses", "--maxfail", "--junitxml", "--junit-xml", "--tb", "--color"})
_LEFT_OUT_WITH_VALUE |= {"--durations", "-r", "--cov-report", "--cov-config", "--cov-fail-under", "--dist"}
_LEFT_OUT = re.compile(r"-[vqslx]+$|-r\w+$|-n\w+$|--(cov\b.*|exitfirst|verbose|quiet|no-header|showlocals|no-cov)$")
_NO_RUN = frozenset({"--collect-only", "--co", "--version", "-V", "--help", "-h", "--fixtures", "--markers"})
_NO_RUN |= {"--setup-only", "--setup-plan", "--setup-show", "--cache-show", "--funcargs"}
_WITH_VALUE = frozenset({"-k", "-m", "-p", "-c", "-o", "-W", "--ignore", "--ignore-glob", "--deselect", "--rootdir"})
_WITH_VALUE |= {"--import-mode", "--confcutdir", "--basetemp", "--timeout"}

_LEAST_SHARE_OF_SUITE = 0.5
_LEAST_SHARE_OF_FILES = 0.2


def parse_goals(text: str, suite: Suite | None = None) -> tuple[list[Goal], list[str]]:
    """The goals that a submission holds, each command once and at most `MOST_GOALS`; and what was wrong with others.

    A goal that runs pytest or unittest is judged by the tests of its report, whatever else it expects. With the
    project's `suite`, a run of all of it is the very command that the rules use, and asks for as many tests.
    """
    goals: dict[str, Goal] = {}
    problems: list[str] = []
    for fields in _proposals(encodable(text)):
        goal = _goal(fields, suite)
        if isinstance(goal, str):
            problems.append(goal)
        elif goal.command in goals:
            problems.append(f"{_named(goal.command)}: this command was proposed twice")
        elif len(goals) >= MOST_GOALS:
            problems.append(f"{_named(goal.command)}: there were {MOST_GOALS} goals already")
        else:
            goals[goal.command] = goal
    return list(goals.values()), problems[:_MOST_PROBLEMS]


# --------------------------------------------------------------------------- the form


def _proposals(text: str) -> Iterator[Mapping[str, list[str]]]:
    """The fields of each proposal, in order. A second `kind` or `command` in a block starts another one."""
    found = [block for block in blocks(text) if block.language == GOAL_BLOCK]
    whole = [block.body for block in found if block.closed] or [
        block.body for block in found
    ]  # the last may be cut off
    for body in whole or [text]:
        fields: dict[str, list[str]] = {}
        name = ""
        for line in body.split("\n"):
            if match := _FIELD.match(line):
                name = match[1].lower()
                if name in fields and name != "expect":
                    yield fields
                    fields = {}
                fields.setdefault(name, []).append(match[2])
            elif name and (line.strip("-= \t`") or (name == "command" and not line.strip())):
                fields[name][-1] += f"\n{line}"
            else:
                name = ""
        if fields:
            yield fields


def _goal(fields: Mapping[str, list[str]], suite: Suite | None) -> Goal | str:
    """The goal, or what is wrong with the proposal."""
    command = _command("\n".join(fields.get("command", ())))
    if not command:
        return "a goal had no command" + (f" (kind {quoted(fields['kind'][0])})" if "kind" in fields else "")
    if "\0" in command:
        return f"{_named(command)}: there is a NUL character in it"
    if len(command) > _MOST_COMMAND_CHARACTERS:
        return f"{_named(command)}: it has more than {_MOST_COMMAND_CHARACTERS} characters"
    word = "".join(fields.get("kind", ())).strip(" `'\".").lower()
    kinds = {kind.value: kind for kind in GoalKind} | {"test": GoalKind.TESTS, "imports": GoalKind.IMPORT}
    if word not in kinds:
        return f"{_named(command)}: kind {quoted(word)} is none of {', '.join(GoalKind)}"
    description = shortened("\n".join(fields.get("description", ())), _MOST_DESCRIPTION_CHARACTERS)
    if not description:
        return f"{_named(command)}: it has no description"
    tests = _tests_goal(command, description, suite)
    if tests is not None:
        return tests
    expectation = _expectation(fields)
    if isinstance(expectation, str):
        return f"{_named(command)}: {expectation}"
    kind = kinds[word]
    return Goal(command, description, kind, expectation, _TIMEOUTS_S.get(kind, Goal.timeout_s))


def _command(text: str) -> str:
    """The command without the marks of a listing, and without what only chooses the environment."""
    command = text.strip()
    if command[:1] == "|":  # as YAML has it
        command = textwrap.dedent(command[1:].lstrip("->").strip("\n")).strip()
    if len(command) > 1 and command[0] == command[-1] == "`":
        command = command.strip("`").strip()
    command = command.removeprefix("$ ")
    while (shorter := _WRAPPER.sub("", _PLACE.sub("", command))) != command:
        command = shorter
    return re.sub(r"^coverage run +-m +", "python -m ", command)


def _expectation(fields: Mapping[str, list[str]]) -> Expectation | str:
    status = "".join(fields.get("exit", ())).strip(" `'\"") or "0"
    if not re.fullmatch(r"[0-9]{1,3}", status) or int(status) > 255:
        return f"exit {quoted(status)} is no exit status"
    patterns: list[str] = []
    for text in fields.get("expect", ()):
        pattern = _pattern(text)
        if problem := pattern_problem(pattern):
            return f"expect {quoted(pattern)}: {problem}"
        if pattern:
            patterns.append(pattern)
    return Expectation(int(status), matches=tuple(dict.fromkeys(patterns))[:_MOST_EXPECTED])


def _pattern(text: str) -> str:
    """The pattern that is meant; empty where nothing is."""
    pattern = text.strip().split("\n")[0].strip()
    for mark in "`'\"/":
        if len(pattern) > 1 and pattern[0] == pattern[-1] == mark:
            pattern = pattern[1:-1]
    return "" if pattern.lower() in ("none", "-", "n/a", "nothing") else simplified(pattern)


def _named(command: str) -> str:
    return f"`{shortened(command, 80)}`"


# --------------------------------------------------------------------------- runs of tests


def _tests_goal(command: str, description: str, suite: Suite | None) -> Goal | str | None:
    """The goal where the command runs tests by pytest or unittest, or what is wrong with it; None where it does not.

    Tests are read one by one from a report, so the command has to be a plain one."""
    if not _RUNS_TESTS.search(re.sub(r"'[^']*'|\"[^\"]*\"", "''", command)):
        return None
    variables = _VARIABLES.match(command)
    before = variables.group() if variables else ""
    words = _words(command[len(before) :])
    if words is None:
        return f"{_named(command)}: a run of tests has to be one plain command: no pipe, variable or redirection"
    if _NO_RUN & set(words):
        return None
    start = 3 if words[1:2] == ["-m"] else 1
    if "unittest" in words[1:3]:
        return _unittest(command, before, words[1:], description, suite)
    options, paths = _arguments(words[start:])
    narrowed = any(re.match(r"-[km]|[^-].*::", word) for word in (*options, *paths))
    whole = suite is not None and not narrowed and set(paths) in (set(), set(suite.paths))
    if suite is not None and suite.runner == "pytest" and whole and set(options) <= set(suite.options):
        return _reported(suite.command, description, int(suite.functions * _LEAST_SHARE_OF_SUITE))
    least = 1 if narrowed or suite is None else int(_LEAST_SHARE_OF_FILES * _count(paths, suite))
    return _reported(before + pytest_command(*options, *paths), description, least)


def _unittest(command: str, before: str, arguments: Sequence[str], description: str, suite: Suite | None) -> Goal:
    """With the report of the shim where the suite has it, so that it is in the environment; else by what is printed."""
    if suite is not None and suite.runner == "unittest":
        return _reported(f"{before}python {UNITTEST_SHIM} {REPORT} {shlex.join(arguments)}", description, 1)
    printed = Expectation(0, matches=(r"^Ran [1-9]\d* tests? in ", r"^OK\b"))
    return Goal(command, description, GoalKind.TESTS, printed, SUITE_TIMEOUT_S)


def _words(command: str) -> list[str] | None:
    """The words of a simple command; None where it is none."""
    if _COMPOUND.search(re.sub(r"'[^'\n]*'", "", command)):
        return None
    try:
        return shlex.split(command) or None
    except ValueError:
        return None


def _arguments(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Options of pytest (with their values), and the paths that it is pointed at."""
    options: list[str] = []
    paths: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, _ = word.partition("=")
        if name in _LEFT_OUT_WITH_VALUE:
            if not equals:
                next(rest, "")
        elif word in _WITH_VALUE:
            options += [word, next(rest, "")]
        elif word.startswith("-"):
            if not _LEFT_OUT.match(word):
                options.append(word)
        else:
            paths.append(word.removeprefix("./").rstrip("/") or ".")
    return options, [path for path in paths if path != "."]


def _count(paths: Sequence[str], suite: Suite) -> int:
    """How many test functions the survey counted below `paths`."""
    below = tuple(f"{path}/" for path in paths)
    return sum(count for path, count in suite.files if not paths or path in paths or path.startswith(below))


def _reported(command: str, description: str, least: int) -> Goal:
    expectation = Expectation(exit_status=None, report=REPORT, min_tests=max(1, least), min_pass_rate=0.95)
    return Goal(command, description, GoalKind.TESTS, expectation, SUITE_TIMEOUT_S)
