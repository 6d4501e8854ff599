"""A Python module is missing when tests are collected or run: which requirement brings it?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ratchet.policies.rules.distributions import NAMESPACES, declared_requirement, requirement_for
from ratchet.policies.rules.repairs import changes, drift, names, project_layout, python_version
from ratchet.policies.rules.repairs.failure import Repair
from ratchet.policies.rules.repairs.reading import TEST_STAGES, Reading, Rule, before, line_of, pattern, skips

# Parts of the standard library that Debian packages apart from the interpreter.
DEBIAN_STANDARD_LIBRARY = {
    "tkinter": "python3-tk",
    "_tkinter": "python3-tk",
    "ensurepip": "python3-venv",
    "lib2to3": "python3-lib2to3",
    "_dbm": "python3-gdbm",
    "_gdbm": "python3-gdbm",
    "apt": "python3-apt",
    "apt_pkg": "python3-apt",
}

# A plugin or part that needs more than its own distribution.
_COMPANIONS = {"pkg_resources": ("setuptools<81",), "tzdata": ("tzdata",)}

# Names that projects give to parts of themselves: what the index has under them is something else.
_OWN_NAMES = frozenset(
    {"tests", "test", "testing", "testutils", "fixtures", "helpers", "utils", "util", "common", "conftest", "config"}
    | {
        "settings",
        "app",
        "main",
        "src",
        "lib",
        "examples",
        "example",
        "docs",
        "setup",
        "scripts",
        "tools",
        "benchmarks",
    }
)

_IMPORT = re.compile(r"^\s*(?:from|import) ([A-Za-z_][\w.]*)(?: import ([A-Za-z_]\w*))?")


def _missing(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    module = names.module(match["module"])
    if module is None:
        return
    line = line_of(match)
    if module.partition(".")[0] in NAMESPACES:
        module = _full_name(match, module)
    yield from repairs_for(module, reading, line)


def repairs_for(module: str, reading: Reading, line: str) -> Iterator[Repair]:
    """What can bring a missing module, by its dotted name."""
    top, _, rest = module.partition(".")
    if top in reading.own_modules:
        yield from project_layout.own_module(module, reading, line)
        return
    if top in python_version.REMOVED_MODULES or top in python_version.NEW_MODULES:
        yield from python_version.standard_library(top, reading, line)
        return
    if top in DEBIAN_STANDARD_LIBRARY:
        package = DEBIAN_STANDARD_LIBRARY[top]
        yield Repair(f"debian:{package}", f"{top} is in {package}: {line}", changes.install_debian(package))
        return
    declared = declared_requirement(reading.context.survey, module)
    if declared is None and (top in _OWN_NAMES or top in python_version.PYTHON_2_MODULES):
        yield from project_layout.importable(top, reading, line)
        return
    if rest and top not in NAMESPACES:
        # The distribution is there, and this part of it is not: another release had it.
        yield from drift.another_release(module, reading, line, declared)
        return
    if declared is None and project_layout.find_folder(reading.context, top) is not None:
        yield from project_layout.importable(top, reading, line)
        return
    if requirement := names.requirement(declared or requirement_for(module)):
        origin = "declared by the project" if declared else "by its import name"
        yield Repair(
            f"missing-module:{module}",
            f"{module} comes with {requirement}, {origin}: {line}",
            changes.require(requirement, *_COMPANIONS.get(top, ())),
        )


def _full_name(match: re.Match[str], module: str) -> str:
    """The dotted name that was imported, where the message names only the namespace that is missing."""
    for source in reversed(before(match, 4).splitlines()):
        if found := _IMPORT.match(source.lstrip("> ")):
            name = found[1]
            if name in NAMESPACES and found[2]:
                name = f"{name}.{found[2]}"
            if name == module or name.startswith(f"{module}."):
                return name
    return module


def _skipped(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """Tests that are skipped for want of a module: only a module that the project itself asks for is installed."""
    module = names.module(match["module"])
    if module is None or module.partition(".")[0] in reading.own_modules:
        return
    survey = reading.context.survey
    declared = declared_requirement(survey, module)
    imported = module.partition(".")[0] in survey.values("undeclared-import")
    requirement = names.requirement(declared or requirement_for(module)) if declared or imported else None
    if requirement is not None:
        yield Repair(
            f"missing-module:{module}",
            f"tests are skipped for want of {module}, which the project asks for: {line_of(match)}",
            changes.require(requirement),
        )


_NAME = r"['\"](?P<module>[^'\"\n]{1,200})['\"]"


def _advised(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """An error that says what to install: `pip install name[extra]`."""
    name, extras = names.distribution(match["name"]), (match["extras"] or "").replace(" ", "").split(",")
    if name is None or (name == reading.project and not match["extras"]):
        return
    line = line_of(match)
    if name == reading.project:
        survey = reading.context.survey
        wanted = [f.value for extra in extras for f in survey.of("extra-requirement", f"extra:{extra}")]
        yield Repair(f"extra:{','.join(extras)}", f"an extra is wanted: {line}", changes.require(*wanted))
    elif requirement := names.requirement(f"{name}[{','.join(extras)}]" if match["extras"] else name):
        yield Repair(f"advised:{requirement}", f"the error names {requirement}: {line}", changes.require(requirement))


RULES = (
    Rule(pattern(rf"^(?:Module\w*|Import)Error: No module named {_NAME}"), _missing, TEST_STAGES),
    Rule(pattern(r"^(?:ERROR: .*|.*/python[\d.]*: )No module named (?P<module>[\w.]+)$"), _missing, TEST_STAGES),
    Rule(pattern(rf"^(?:FAILED|ERROR) .* - ModuleNotFoundError: No module named {_NAME}$"), _missing, TEST_STAGES),
    Rule(
        pattern(rf"^ModuleNotFoundError: No module named {_NAME}"),
        _missing,
        TEST_STAGES,
        where=lambda reading: reading.captured,
    ),
    Rule(
        pattern(
            r"^(?:E +)?(?:\w+\.)*\w*(?:Error|Exception): .{0,400}?\bpip3? install (?:-U |--upgrade )?['\"`]{0,3}"
            r"(?P<name>[A-Za-z0-9][\w.-]{0,98}?)(?:\[(?P<extras>[\w., -]{1,80})\])?(?=['\"`\s.,;:<>=!)]|$)"
        ),
        _advised,
        TEST_STAGES,
    ),
    Rule(pattern(rf"could not import {_NAME}: No module named"), _skipped, TEST_STAGES, where=skips),
)
