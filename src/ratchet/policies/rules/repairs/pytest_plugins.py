"""A pytest plugin is missing: an option, a setting, a mark or a fixture of the project belongs to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from packaging.utils import canonicalize_name

from ratchet.policies.rules.distributions import requirement_for
from ratchet.policies.rules.repairs import changes, names
from ratchet.policies.rules.repairs.failure import Repair
from ratchet.policies.rules.repairs.pytest_tables import COMMON_FIXTURES, FIXTURES, MARKS, OPTIONS, SETTINGS
from ratchet.policies.rules.repairs.reading import TEST_STAGES, Reading, Rule, line_of, pattern

_ASYNC_FRAMEWORKS = (
    ("pytest-asyncio", "asyncio"),
    ("anyio", "anyio"),
    ("pytest-trio", "trio"),
    ("pytest-twisted", "twisted"),
)


def plugin(distribution: str, key: str, reading: Reading, line: str) -> Iterator[Repair]:
    """Install a plugin, with the bounds that the project declares."""
    wanted = names.canonical(distribution)
    survey = reading.context.survey
    declared = [
        text
        for kind in ("group-requirement", "extra-requirement", "requirement", "constraint")
        for text in survey.values(kind)
        if names.canonical(text) == wanted and names.requirement(text)
    ]
    bounded = next((text for text in declared if any(sign in text for sign in "<>=~")), distribution)
    requirement = distribution if "<" in distribution else bounded
    change = changes.require(requirement)
    if "<" in distribution:
        change = changes.both(change, changes.constrain(distribution))
    yield Repair(f"plugin:{key}", f"{requirement} is the pytest plugin that is missing: {line}", change)


def _lookup(table: Mapping[str, str], name: str) -> str | None:
    if name in table:
        return table[name]
    return next((table[key] for key in table if key.endswith("*") and name.startswith(key[:-1])), None)


def _option(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    unknown = []
    for word in match["words"].split()[:60]:
        option = word.partition("=")[0]
        if not option.startswith("-"):
            continue
        option = "-n" if re.fullmatch(r"-n(\d+|auto|logical)", option) else option
        distribution = _lookup(OPTIONS, option)
        if distribution is None:
            unknown.append(option)
        else:
            yield from plugin(distribution, canonicalize_name(distribution), reading, line_of(match))
    configured = " ".join(reading.context.survey.values("pytest-option"))
    if unknown and all(option in configured for option in unknown):
        yield Repair(
            "drop-addopts",
            f"no plugin is known for {' '.join(unknown)[:80]}: the configured options are left out: {line_of(match)}",
            changes.add_pytest_options("-o", "addopts="),
        )


def _setting(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    for name in re.findall(r"[\w-]+", match["names"]):
        if distribution := SETTINGS.get(name):
            yield from plugin(distribution, canonicalize_name(distribution), reading, line_of(match))


def _mark(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    if distribution := MARKS.get(match["name"]):
        yield from plugin(distribution, canonicalize_name(distribution), reading, line_of(match))


def _fixture(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    name = match["name"]
    distribution = FIXTURES.get(name)
    if distribution is None:
        return
    survey = reading.context.survey
    requirements = [*survey.values("group-requirement"), *survey.values("extra-requirement")]
    asked_for = names.canonical(distribution) in {names.canonical(text) for text in requirements}
    if name not in COMMON_FIXTURES or asked_for:
        yield from plugin(distribution, canonicalize_name(names.canonical(distribution)), reading, line_of(match))


def _required(match: re.Match[str], _: Reading) -> Iterator[Repair]:
    for text in match["names"].split(","):
        if requirement := names.requirement(text.strip()):
            name = names.canonical(requirement)
            yield Repair(
                f"plugin:{name}", f"the configuration requires it: {line_of(match)}", changes.require(requirement)
            )


def _plugin_module(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    module = names.module(match["module"])
    if module is None or module.partition(".")[0] in reading.own_modules:
        return
    requirement = requirement_for(module)
    yield from plugin(requirement, names.canonical(requirement), reading, line_of(match))


def _async_tests(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """Tests are coroutines: the plugin that the project asks for, or the one that its imports suggest."""
    survey = reading.context.survey
    texts = [t for kind in ("group-requirement", "extra-requirement", "requirement") for t in survey.values(kind)]
    asked_for = {names.canonical(text) for text in texts}
    imported = set(survey.values("test-import")) | set(survey.values("undeclared-import"))
    settings = " ".join(survey.values("pytest-setting")) + " " + " ".join(survey.values("pytest-option"))
    chosen = next(
        (d for d, _ in _ASYNC_FRAMEWORKS if d in asked_for and d != "anyio"),
        next((d for d, m in reversed(_ASYNC_FRAMEWORKS) if m in imported and m not in {"asyncio"}), "pytest-asyncio"),
    )
    if "asyncio_mode" in settings or "asyncio-mode" in settings:
        chosen = "pytest-asyncio"
    line = line_of(match)
    yield from plugin(chosen, chosen, reading, line)
    if (
        chosen == "pytest-asyncio"
        and "asyncio_mode" not in settings
        and chosen in {names.canonical(r) for r in reading.plan.requirements}
    ):
        yield Repair(
            "asyncio-auto",
            f"unmarked coroutines are tests too: {line}",
            changes.add_pytest_options("-o", "asyncio_mode=auto"),
        )


RULES = (
    Rule(pattern(r"error: (?:unrecognized arguments|unrecognised arguments): (?P<words>.*)$"), _option, TEST_STAGES),
    Rule(pattern(r"error: argument (?P<words>-[\w-]+)[:/]"), _option, TEST_STAGES),
    Rule(pattern(r"error: ambiguous option: (?P<words>-\S+) could match"), _option, TEST_STAGES),
    Rule(
        pattern(r"^(?:ERROR: |pytest\.PytestConfigWarning: )?Unknown config options?: (?P<names>[\w, -]{1,200})$"),
        _setting,
        TEST_STAGES,
    ),
    Rule(
        pattern(r"PytestConfigWarning: Unknown config option: (?P<names>[\w-]{1,60})$"),
        _setting,
        TEST_STAGES,
        where=lambda reading: reading.failure.output,
    ),
    Rule(
        pattern(r"^(?:ERROR .* - Failed: )?'(?P<name>\w+)' not found in `markers` configuration option"),
        _mark,
        TEST_STAGES,
    ),
    Rule(pattern(r"Unknown pytest\.mark\.(?P<name>\w+) - is this a typo"), _mark, TEST_STAGES),
    Rule(pattern(r"^fixture '(?P<name>\w+)' not found$"), _fixture, TEST_STAGES),
    Rule(pattern(r"Missing required plugins: (?P<names>.{1,400})$"), _required, TEST_STAGES),
    Rule(pattern(r"Error importing plugin \"(?P<module>[\w.]+)\": No module named"), _plugin_module, TEST_STAGES),
    Rule(
        pattern(
            r"^(?:Failed: )?async def functions? (?:and async generators? )?(?:is|are) not natively supported"
            r"|^RuntimeWarning: coroutine '[\w.<>]+' was never awaited"
            r"|^(?:Failed: )?'\w+' requested an async fixture '\w+', with no plugin"
        ),
        _async_tests,
        TEST_STAGES,
    ),
)
