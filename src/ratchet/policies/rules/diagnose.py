"""Why an install failed, where nothing could be repaired: a typed reason, and the line that decides.

The last line of a log is seldom the cause. The table is in order of causes: what stops everything else (a limit, a
registry) before what the project asks for in vain, and that before what merely did not work.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from packaging.utils import canonicalize_name

from ratchet.policies.rules.plan import Plan
from ratchet.policies.rules.repairs.failure import Context, Failure
from ratchet.policies.rules.repairs.python_version import PYTHON_2_MODULES
from ratchet.policies.rules.repairs.reading import BUILD_STAGES, Reading, line_of, pattern, read
from ratchet.records import LimitHit, Reason

Diagnosis = tuple[Reason, str]

_HOST = re.compile(
    r"https?://(?:[^/@\s]{1,100}@)?([A-Za-z0-9][A-Za-z0-9.-]{1,200})|host:? '?([A-Za-z0-9][A-Za-z0-9.-]{1,200})"
)


def diagnose(failure: Failure, context: Context) -> Diagnosis:
    """The reason, and one sentence that quotes the decisive line."""
    if failure.limit is not None:
        return _limit(failure)
    reading = read(failure, Plan(python=context.pythons[0] if context.pythons else "3"), context)
    for stages, expression, judge in _CAUSES:
        if stages is not None and failure.stage not in stages:
            continue
        if (match := expression.search(f"{reading.errors}\n{reading.captured}")) and (found := judge(match, reading)):
            return found
    return _otherwise(reading)


# --------------------------------------------------------------------------- limits


def _limit(failure: Failure) -> Diagnosis:
    command = failure.command.strip().splitlines()[-1][:120] if failure.command.strip() else "the command"
    tests = failure.stage in {"collect", "test"}
    reasons = {
        LimitHit.TIME: Reason.TEST_TIMEOUT if tests else Reason.BUILD_TIMEOUT,
        LimitHit.MEMORY: Reason.MEMORY_LIMIT,
        LimitHit.PROCESSES: Reason.PROCESS_LIMIT,
        LimitHit.DISK: Reason.DISK_LIMIT,
    }
    limit = failure.limit or LimitHit.TIME
    return reasons[
        limit
    ], f"`{command}` used up its {limit.value} during {_STAGE_WORDS.get(failure.stage, 'the build')}."


_STAGE_WORDS = {
    "apt": "the installation of Debian packages",
    "environment": "the making of the virtual environment",
    "resolve": "resolution",
    "install": "the installation",
    "build": "the build",
    "collect": "the collection of tests",
    "test": "the tests",
}


# --------------------------------------------------------------------------- causes


def _as(reason: Reason, what: str) -> Callable[[re.Match[str], Reading], Diagnosis | None]:
    return lambda match, _: (reason, f"{what}: {line_of(match)}")


def _unreachable(match: re.Match[str], _: Reading) -> Diagnosis | None:
    near = match.string[max(0, match.start() - 600) : match.end() + 300]
    found = [a or b for a, b in _HOST.findall(near) if (a or b) not in {"127.0.0.1", "localhost"}]
    host = found[0].rstrip(".") if found else "a host"
    return Reason.REGISTRY_UNREACHABLE, f"{host} cannot be reached from the install phase: {line_of(match)}"


def _not_found(match: re.Match[str], _: Reading) -> Diagnosis | None:
    name = canonicalize_name(match["name"])
    return Reason.DEPENDENCY_NOT_FOUND, f"there is no distribution named {name}: {line_of(match)}"


def _no_version(match: re.Match[str], _: Reading) -> Diagnosis | None:
    """A version that no release satisfies; not so where the resolver only says which of several is left."""
    return Reason.VERSION_NOT_FOUND, f"no release satisfies {match['what'].strip()}: {line_of(match)}"


def _only_available(match: re.Match[str], reading: Reading) -> Diagnosis | None:
    """ "only X<=1.0 is available and you require X>=99": the project's own version among them is no pin."""
    if canonicalize_name(match["name"]) == reading.project:
        return None
    return Reason.VERSION_NOT_FOUND, f"no release satisfies what is asked for: {line_of(match)}"


def _syntax_error(match: re.Match[str], reading: Reading) -> Diagnosis | None:
    """In the build script itself (setuptools runs it as "<string>"), or in a module that it imports."""
    if not reading.project_failed:
        return None
    above = match.string[max(0, match.start() - 800) : match.start()]
    files = re.findall(r'File "([^"\n]{1,300})", line (\d+)', above)
    where = f"{files[-1][0].rpartition('/')[2]}, line {files[-1][1]}" if files else "the build script"
    where = where.replace("<string>", "setup.py")
    return Reason.BROKEN_BUILD_SCRIPT, f"the build script does not parse ({where}): {line_of(match)}"


def _script_error(match: re.Match[str], reading: Reading) -> Diagnosis | None:
    """An exception that setup.py itself raised: its frame, named "<string>", is the last one or nearly so."""
    above = match.string[max(0, match.start() - 700) : match.start()]
    frames = re.findall(r'File "([^"\n]{1,300})", line \d+', above)
    if (
        re.match(r"(?:ModuleNotFound|Import)Error", match[0])
        or not reading.project_failed
        or not frames
        or frames[-1] != "<string>"
        or "build_meta" not in match.string
    ):
        return None
    return Reason.BROKEN_BUILD_SCRIPT, f"setup.py raised: {line_of(match)}"


def _python_2(match: re.Match[str], _: Reading) -> Diagnosis | None:
    if "module" in match.groupdict() and match["module"] not in PYTHON_2_MODULES:
        return None
    return Reason.PYTHON_UNAVAILABLE, f"the sources are for Python 2, which no base has: {line_of(match)}"


_UNREACHABLE = (
    r"Could not resolve host(?:name)?\b|Temporary failure in name resolution"
    r"|Temporary failure resolving|Name or service not known"
    r"|403 (?:Forbidden|.{0,40}allowlist)|tunnel error|CONNECT tunnel failed|Tunnel connection failed: 403|dns error: "
    r"|Connection refused \(os error|error sending request for url|NewConnectionError|Failed to fetch: "
    r"|E: Failed to fetch|Could not connect to|Network is unreachable|Unable to connect to"
)
_EXCEPTION = r"^(?:\w+\.)*\w*(?:Error|Exception)(?:: .*)?$"

_CAUSES: tuple[
    tuple[frozenset[str] | None, re.Pattern[str], Callable[[re.Match[str], Reading], Diagnosis | None]], ...
] = (
    (None, pattern(r"No space left on device|Disk quota exceeded"), _as(Reason.DISK_LIMIT, "the disk is full")),
    (
        None,
        pattern(r"^(?:fork|.*: fork|.*can't start new thread|.*Resource temporarily unavailable).*"),
        _as(Reason.PROCESS_LIMIT, "no more processes"),
    ),
    (
        BUILD_STAGES,
        pattern(r"Cannot allocate memory|virtual memory exhausted|internal compiler error: Killed|^MemoryError"),
        _as(Reason.MEMORY_LIMIT, "the memory is used up"),
    ),
    (
        BUILD_STAGES,
        pattern(
            r"(?P<name>[A-Za-z0-9][\w.-]{0,98}) was not found in the (?:package registry"
            r"|provided package locations|cache)"
        ),
        _not_found,
    ),
    (BUILD_STAGES, pattern(r"[Nn]o matching distribution found for (?P<name>[A-Za-z0-9][\w.-]{0,98})"), _not_found),
    (
        BUILD_STAGES,
        pattern(
            r"there (?:is|are) no versions? of (?P<what>[A-Za-z0-9][\w.-]{0,98}(?:\[[\w,-]*\])?[<>=!~][^"
            r" ]{1,80})"
        ),
        _no_version,
    ),
    (
        BUILD_STAGES,
        pattern(
            r"Because only (?:the following versions of )?(?P<name>[A-Za-z0-9][\w.-]{0,98}?)(?:[<>=!~][^"
            r" ]{1,80})? (?:is|are) available and you require (?P=name)[<>=!~].*unsatisfiable"
        ),
        _only_available,
    ),
    (
        BUILD_STAGES,
        pattern(r"the current Python version \([\d.]+\) does not satisfy Python.*"),
        _as(Reason.PYTHON_UNAVAILABLE, "no Python that can be had fits"),
    ),
    (
        BUILD_STAGES,
        pattern(r"No (?:interpreter|download) found for.*"),
        _as(Reason.PYTHON_UNAVAILABLE, "no Python that can be had fits"),
    ),
    (
        # uv fetches an interpreter from elsewhere where the base has none: another base may have it.
        frozenset({"environment"}),
        pattern(r"Failed to download `?https?://\S*/(?:cpython|pypy|graalpy)-.*"),
        _as(Reason.PYTHON_UNAVAILABLE, "the base has no such Python, and uv cannot fetch it"),
    ),
    (
        BUILD_STAGES,
        pattern(r"^.*(?:depends? on|you require) .*(?:unsatisfiable|cannot be used|are incompatible).*"),
        _as(Reason.DEPENDENCY_CONFLICT, "the requirements contradict each other"),
    ),
    (
        BUILD_STAGES,
        pattern(r"ResolutionImpossible|No solution found when resolving.*"),
        _as(Reason.DEPENDENCY_CONFLICT, "the requirements contradict each other"),
    ),
    (BUILD_STAGES | {"apt"}, pattern(_UNREACHABLE), _unreachable),
    (BUILD_STAGES, pattern(r"SyntaxError: Missing parentheses in call to '(?:print|exec)'.*"), _syntax_error),
    (BUILD_STAGES, pattern(r"^ *(?:SyntaxError|IndentationError|TabError): .*"), _syntax_error),
    (
        BUILD_STAGES,
        pattern(
            r"^(?:tomllib\.)?TOMLDecodeError: .*|Failed to parse: `?.*pyproject\.toml`?|TOML parse error.*"
            r"|Invalid `pyproject\.toml`.*"
        ),
        _as(Reason.BROKEN_BUILD_SCRIPT, "the manifest does not parse"),
    ),
    (BUILD_STAGES, pattern(r"^ModuleNotFoundError: No module named '(?P<module>\w+)'"), _python_2),
    (BUILD_STAGES, pattern(_EXCEPTION), _script_error),
    (
        frozenset({"collect", "test"}),
        pattern(r"^ *SyntaxError: Missing parentheses in call to '(?:print|exec)'.*"),
        _python_2,
    ),
    (frozenset({"collect", "test"}), pattern(r"^ModuleNotFoundError: No module named '(?P<module>\w+)'"), _python_2),
)


# --------------------------------------------------------------------------- the rest


def _otherwise(reading: Reading) -> Diagnosis:
    failure = reading.failure
    if failure.stage == "collect":
        return Reason.TESTS_NOT_COLLECTED, _quoted("no tests could be collected", reading, _COLLECTION)
    if failure.stage == "test":
        if timeout := re.search(r"^.*\bTimeout \(?>\s?\d+.*|^.*over its time limit of.*", failure.output, re.MULTILINE):
            return Reason.TEST_TIMEOUT, f"tests hang: {timeout[0].strip()[:200]}"
        if re.search(r"^=* ?(?:no tests ran|collected 0 items)|^Ran 0 tests", reading.errors, re.MULTILINE):
            return Reason.TESTS_NOT_COLLECTED, _quoted("no tests ran", reading, _COLLECTION)
        return Reason.TESTS_FAILED, _quoted("too many tests fail", reading, _TEST)
    return Reason.BUILD_FAILED, _quoted(f"{_STAGE_WORDS.get(failure.stage, 'the build')} failed", reading, _BUILD)


def _quoted(what: str, reading: Reading, expressions: tuple[re.Pattern[str], ...]) -> str:
    """A sentence with the line that looks most like a cause, or else the last line there is."""
    for expression in expressions:
        if match := expression.search(reading.errors):
            return f"{what}: {line_of(match)}"
    lines = [line.strip() for line in reading.errors.splitlines() if line.strip()]
    if lines:
        return f"{what}: {lines[-1][:200]}"
    return f"{what}, and printed nothing (exit status {reading.failure.exit_status})."


_EXCEPTIONS = pattern(r"^(?:\w+\.)*\w*(?:Error|Exception|Failed|Warning|Exit|ImproperlyConfigured): .*")
_SUMMARY = pattern(r"^\d+ of \d+ tests passed.*|^=+ .*\b(?:failed|errors?|no tests ran)\b.* =+$")
_COLLECTION = (_EXCEPTIONS, pattern(r"^.*error: .*|^ERROR:? .* - .*|^ERROR: (?!usage).*"), _SUMMARY)
_TEST = (
    _EXCEPTIONS,
    pattern(r"^fixture '\w+' not found|^.*error: .*|^(?:ERROR|FAILED) .* - .*|^ERROR: (?!usage).*"),
    _SUMMARY,
)
_BUILD = (
    pattern(r"^.*\bfatal error: .*|^.*: error: .*|^CMake Error.*|^.*\bERROR: .*|^.*cannot find -l.*"),
    _EXCEPTIONS,
    pattern(r"^E: .*|^error: (?!Failed to build|Command |command |The build backend).*"),
)
