"""State of the system that tests take for granted: environment variables, locale, time zones, a display, git's user."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from ratchet.policies.rules.repairs import changes, names
from ratchet.policies.rules.repairs.failure import Repair
from ratchet.policies.rules.repairs.reading import (
    EVERY_STAGE,
    TEST_STAGES,
    Reading,
    Rule,
    before,
    errors_and_captured,
    line_of,
    pattern,
)

# What to invent for a variable that nothing in the project sets, by the end of its name.
_INVENTED = (
    ("DATABASE_URL", "sqlite:////tmp/test.db"),
    ("_URL", "http://localhost"),
    ("_URI", "http://localhost"),
    ("_HOST", "localhost"),
    ("_PORT", "8000"),
    ("_DIR", "/tmp"),  # noqa: S108 (a path in the sandbox)
    ("_PATH", "/tmp"),  # noqa: S108
    ("_REGION", "us-east-1"),
    ("DEBUG", "0"),
    ("EMAIL", "dev@localhost"),
)

_LOCALE = re.compile(r"\b([a-z]{2,3}_[A-Z]{2})(?:\.(?:UTF-?8|utf-?8))?\b")


def _variable(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """A variable that must be set, by its name in the message."""
    if (name := names.variable(match["name"])) is not None:
        yield from _set(name, reading, line_of(match))


def _key_error(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """KeyError from `os.environ[…]`, and from no other mapping."""
    above = before(match, 14)
    if re.search(rf"environ\b.*{re.escape(match['name'])}|<frozen os>|\bos\.py:\d+: in __getitem__", above):
        yield from _variable(match, reading)


def _set(name: str, reading: Reading, line: str) -> Iterator[Repair]:
    if name == "DJANGO_SETTINGS_MODULE":
        yield from _django(name, reading, line)
        return
    given = _given(name, reading)
    value = given if given is not None else next((v for end, v in _INVENTED if name.endswith(end)), "test")
    origin = "as the project's CI sets it" if given is not None else "an invented value"
    yield Repair(f"variable:{name}", f"{name}={value} ({origin}): {line}", changes.set_env({name: value}))


def _given(name: str, reading: Reading) -> str | None:
    for text in reading.context.survey.values("environment-variable"):
        key, _, value = text.partition("=")
        if key == name and "${{" not in value and "$" not in value:
            return value
    return None


def _django(name: str, reading: Reading, line: str) -> Iterator[Repair]:
    """The settings that the project names, or a module that looks like settings for tests."""
    survey = reading.context.survey
    given = _given(name, reading)
    for text in survey.values("pytest-setting"):
        if text.startswith(f"{name}="):
            given = given or text.partition("=")[2].strip()
    modules = [
        m for m in survey.values("module") if m.rpartition(".")[2] in {"settings", "test_settings", "settings_test"}
    ]
    modules += [m for m in survey.values("module") if ".settings." in m]
    for fact in survey.of("test-file"):
        folder = fact.value.rpartition("/")[0].replace("/", ".")
        modules += [f"{folder}.settings"] if folder and f"{folder}.settings" in survey.values("module") else []
    ranked = sorted(dict.fromkeys(modules), key=lambda m: ("test" not in m, m.count("."), m))
    value = given or (ranked[0] if ranked else None)
    if value is not None and names.module(value):
        change = changes.both(changes.set_env({name: value}), changes.add_python_path(""))
        yield Repair(f"variable:{name}", f"{name}={value}: {line}", change)


def _locale(match: re.Match[str], _: Reading) -> Iterator[Repair]:
    """The locale that the tests set, as far as the traceback shows it."""
    source = before(match, 40) + line_of(match)
    found = _LOCALE.findall(source)
    name = f"{found[-1]}.UTF-8" if found else "en_US.UTF-8"
    yield Repair(f"locale:{name}", f"the locale {name} is missing: {line_of(match)}", changes.use_locale(name))


def _time_zones(match: re.Match[str], _: Reading) -> Iterator[Repair]:
    change = changes.both(changes.install_debian("tzdata"), changes.require("tzdata"))
    yield Repair("time-zones", f"time zone data is missing: {line_of(match)}", change)


def _environment(key: str, why: str, values: Mapping[str, str], *packages: str) -> Callable[..., Iterator[Repair]]:
    """A repair that sets variables, and installs Debian packages where some are named."""

    def repair(match: re.Match[str], _: Reading) -> Iterator[Repair]:
        change = changes.both(changes.set_env(values), changes.install_debian(*packages))
        yield Repair(key, f"{why}: {line_of(match)}", change)

    return repair


def _display(match: re.Match[str], _: Reading) -> Iterator[Repair]:
    change = changes.both(
        changes.install_debian("xvfb"),
        changes.require("pytest-xvfb"),
        changes.set_env({"QT_QPA_PLATFORM": "offscreen", "MPLBACKEND": "Agg"}),
    )
    yield Repair("display", f"a display is needed, and a virtual one will do: {line_of(match)}", change)


_IDENTITY = {
    "GIT_AUTHOR_NAME": "dev",
    "GIT_AUTHOR_EMAIL": "dev@localhost",
    "GIT_COMMITTER_NAME": "dev",
    "GIT_COMMITTER_EMAIL": "dev@localhost",
}
_NAME = r"[`'\"]?(?P<name>[A-Z][A-Z0-9_]{2,79})[`'\"]?"

RULES = (
    Rule(pattern(r"^KeyError: '(?P<name>[A-Z][A-Z0-9_]{1,79})'"), _key_error),
    Rule(
        pattern(
            rf"^\w[\w.]*(?:Error|Exception|ImproperlyConfigured"
            rf"|Exit)?: [^\n]{{0,120}}?(?:[Ee]nvironment variable|env var) {_NAME}"
            rf"(?: (?:is )?(?:not set|missing|required|must be set|undefined|not defined|not found)|$|[.,])"
        ),
        _variable,
    ),
    Rule(
        pattern(
            rf"^\w[\w.]*: [^\n]{{0,120}}?{_NAME} (?:environment|env) (?:variable|var)[^\n]{{0,20}} (?:not"
            rf"|must|missing|required|undefined)"
        ),
        _variable,
    ),
    Rule(pattern(rf"^\w[\w.]*ImproperlyConfigured: (?:Set the {_NAME} environment variable)"), _variable),
    Rule(pattern(r"ImproperlyConfigured: .*environment variable (?P<name>DJANGO_SETTINGS_MODULE)"), _variable),
    Rule(pattern(r"^(?:locale\.)?Error: unsupported locale setting"), _locale),
    Rule(
        pattern(
            r"^(?:\w+\.)*ZoneInfoNotFoundError: |^(?:\w+\.)*UnknownTimeZoneError: "
            r"|No time zone found with key|FileNotFoundError: .*/usr/share/zoneinfo"
        ),
        _time_zones,
    ),
    Rule(
        pattern(r"^UnicodeDecodeError: 'ascii' codec|^UnicodeEncodeError: '(?:ascii|latin-1)' codec"),
        _environment("utf-8", "files are read in the locale's encoding", {"LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}),
    ),
    Rule(
        pattern(
            r"(?:Please tell me who you are|unable to auto-detect email address|empty ident name"
            r"|Author identity unknown|Committer identity unknown)"
        ),
        _environment("git-identity", "git wants a name", _IDENTITY),
        TEST_STAGES,
        errors_and_captured,
    ),
    Rule(
        pattern(r"^KeyError: 'getpwuid\(\): uid not found|^OSError: No username set in the environment"),
        _environment("user-name", "the user's name is asked for", {"USER": "dev", "LOGNAME": "dev"}),
    ),
    Rule(
        pattern(
            r"(?:TERM environment variable (?:is )?not set|^_curses\.error: (?:setupterm"
            r"|setupterm: could not find terminal))"
        ),
        _environment("terminal", "a terminal type is asked for", {"TERM": "xterm"}, "ncurses-base"),
        EVERY_STAGE,
        errors_and_captured,
    ),
    Rule(
        pattern(
            r"no display name and no \$DISPLAY|could not connect to display|[Cc]annot connect to X server"
            r"|Unable to init server|qt\.qpa\.(?:xcb|plugin): "
        ),
        _display,
        TEST_STAGES,
        errors_and_captured,
    ),
    Rule(
        pattern(r"Could not find a suitable TLS CA certificate bundle|FileNotFoundError: .*ca-certificates\.crt"),
        _environment("certificates", "certificates are missing", {}, "ca-certificates"),
    ),
)
