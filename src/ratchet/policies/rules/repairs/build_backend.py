"""A build fails for want of a Python module, or because the build system is newer than the build script."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from ratchet.policies.rules.distributions import declared_requirement, requirement_for
from ratchet.policies.rules.repairs import changes, drift, names, project_layout, python_version
from ratchet.policies.rules.repairs.failure import Repair
from ratchet.policies.rules.repairs.reading import BUILD_STAGES, Reading, Rule, line_of, pattern

# Modules of build systems, where the import name says too little.
_BACKENDS = {
    "poetry": "poetry-core",
    "hatchling": "hatchling",
    "setuptools": "setuptools",
    "distutils": "setuptools<81",
    "pkg_resources": "setuptools<81",
    "Cython": "Cython",
    "mesonpy": "meson-python",
    "skbuild": "scikit-build",
}


def _missing(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """A module that a build script imports and that isolated builds do not get."""
    module = names.module(match["module"])
    if module is None or module.startswith("setuptools."):
        return
    top = module.partition(".")[0]
    line = line_of(match)
    survey = reading.context.survey
    if top in python_version.REMOVED_MODULES and top != "distutils":
        yield from python_version.standard_library(top, reading, line)
        return
    if top in reading.own_modules or project_layout.find_folder(reading.context, top) == "":
        yield from project_layout.importable(top, reading, line)
        return
    if top == "pkg_resources" and reading.plan.build_isolation:
        yield Repair(
            "build-setuptools:81", f"setuptools 81 and later lack it: {line}", changes.constrain_build("setuptools<81")
        )
        return
    if top == "distutils":
        yield from python_version.older_than("3.12", reading, line, "distutils left with Python 3.12")
    if not reading.project_failed:
        yield from _third_party(reading, line)
    requirement = _BACKENDS.get(top) or declared_requirement(survey, module) or requirement_for(module)
    yield Repair(
        f"build-requirement:{module}",
        f"the build needs {module} and does not declare it: {line}",
        changes.build_without_isolation(survey.values("build-requirement"), requirement),
        alone=not reading.project_failed,
    )


def _third_party(reading: Reading, line: str) -> Iterator[Repair]:
    """The build of somebody else's source distribution failed: a release with a wheel will do, or one of its time."""
    if failed := reading.failing_distribution:
        name, _ = failed
        yield Repair(
            f"wheel:{name}",
            f"{name} does not build here, so take a wheel: {line}",
            changes.only_binary(name),
            alone=True,
        )


def _setuptools(release: str, why: str) -> Callable[[re.Match[str], Reading], Iterator[Repair]]:
    def repair(match: re.Match[str], _: Reading) -> Iterator[Repair]:
        change = changes.constrain_build(f"setuptools<{release}")
        yield Repair(f"build-setuptools:{release}", f"{why}: {line_of(match)}", change)

    return repair


def _cython(match: re.Match[str], _: Reading) -> Iterator[Repair]:
    yield Repair("build-cython:3", f"written for Cython 0.29: {line_of(match)}", changes.constrain_build("Cython<3"))


def _numpy(match: re.Match[str], _: Reading) -> Iterator[Repair]:
    line = line_of(match)
    change = changes.both(changes.constrain_build("numpy<2"), changes.constrain("numpy<2"))
    yield Repair("build-numpy:2", f"written for NumPy 1: {line}", change)


def _newer_backend(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """The manifest is written for a setuptools that came after the date of resolution."""
    yield from drift.step_away(match, reading)
    yield from _no_project(match, reading)


def _no_editable(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    if reading.project_failed and reading.plan.editable:
        yield Repair(
            "not-editable",
            f"the build backend makes no editable install: {line_of(match)}",
            lambda plan: replace(plan, editable=False),
        )


def _old_poetry(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """`poetry.masonry.api` is the backend of Poetry before 1.1; today's speaks no PEP 660, but makes wheels."""
    yield from _no_editable(match, reading)


def _no_project(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """What cannot be packaged can still be tested from the source tree."""
    line = line_of(match)
    if not reading.project_failed:
        return
    folders = ["src", ""] if project_layout.has_folder(reading.context, "src") else [""]
    requirements = reading.context.survey.values("requirement")
    change = changes.both(
        lambda plan: replace(plan, install_project=False),
        changes.require(*requirements),
        changes.add_python_path(*folders),
    )
    yield Repair("no-project", f"it is no package that can be built, so it is tested in place: {line}", change)


def _failed_dependency(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """The last resort for a dependency that does not build."""
    line = line_of(match)
    if not reading.project_failed and "git+" not in line:
        yield from _third_party(reading, line)
        yield from drift.travel(reading, line)


_NAME = r"['\"](?P<module>[^'\"\n]{1,200})['\"]"

RULES = (
    Rule(
        pattern(r"^(?:error in .* setup command: )?(?:.*: )?use_2to3 is invalid"),
        _setuptools("58", "use_2to3 left with setuptools 58"),
        BUILD_STAGES,
    ),
    Rule(
        pattern(
            r"^ModuleNotFoundError: No module named 'setuptools\.command\.test'"
            r"|cannot import name 'test' from 'setuptools\.command'"
        ),
        _setuptools("72", "the test command left with setuptools 72"),
        BUILD_STAGES,
    ),
    Rule(
        pattern(
            r"^AttributeError: .*(?:'HTTPPasswordMgr'|install_layout|no attribute 'run_commands'"
            r"|_finalize_2to3)|^setuptools\.errors\.RemovedCommandError"
            r"|^setuptools\.errors\.RemovedConfigError|^error: invalid command 'test'"
        ),
        _setuptools("72", "a command left setuptools"),
        BUILD_STAGES,
    ),
    Rule(
        pattern(
            r"InvalidConfigError: License classifiers have been superseded"
            r"|setuptools\.errors\.InvalidConfigError: Cannot set both `project\.license`"
        ),
        _setuptools("77", "licence expressions came with setuptools 77"),
        BUILD_STAGES,
    ),
    Rule(
        pattern(r"^configuration error: `project\.license` must be valid exactly by one"), _newer_backend, BUILD_STAGES
    ),
    Rule(
        pattern(
            r"^(?:FileNotFoundError: \[Errno 2\] No such file or directory: |OSError: Readme file does not exist: "
            r"|(?:\w+\.)*\w*Error: (?:File|Cannot find|Missing) )['\"]?[\w./-]{1,200}\.(?:rst|md|txt|in|cfg|toml)"
        ),
        _no_project,
        BUILD_STAGES,
    ),
    Rule(
        pattern(
            r"^(?:setuptools\.errors\.)?InvalidConfigError: Invalid dash-separated key"
            r"|Usage of dash-separated '.*' will not be supported"
        ),
        _setuptools("78", "dashes in setup.cfg left with setuptools 78"),
        BUILD_STAGES,
    ),
    Rule(pattern(r"^AttributeError: 'build_ext' object has no attribute 'cython_sources'"), _cython, BUILD_STAGES),
    Rule(pattern(r"^Cython\.Compiler\.Errors\.CompileError|^.*\.pyx:\d+:\d+: .*"), _cython, BUILD_STAGES),
    Rule(
        pattern(r"has no member named .(?:elsize|subarray).|numpy/\w+\.h.*error|NPY_\w+.? undeclared"),
        _numpy,
        BUILD_STAGES,
    ),
    Rule(pattern(r"^(?:Module\w*|Import)Error: No module named " + _NAME), _missing, BUILD_STAGES),
    Rule(
        pattern(r"^AttributeError: module 'poetry\.masonry\.api' has no attribute 'build_editable'"),
        _old_poetry,
        BUILD_STAGES,
    ),
    Rule(
        pattern(
            r"has no attribute 'build_editable'|does not (?:have|support) the `?'?build_editable"
            r"|build backend .* is missing the .*build_editable"
        ),
        _no_editable,
        BUILD_STAGES,
    ),
    Rule(
        pattern(
            r"^error: Multiple top-level (?:packages|modules) discovered in a flat-layout"
            r"|does not appear to be a Python project"
            r"|neither 'setup\.py' nor 'pyproject\.toml' found|Unable to determine which files to ship inside the wheel"
        ),
        _no_project,
        BUILD_STAGES,
    ),
)
LAST_RULES = (Rule(pattern(r"Failed to (?:download and )?build `"), _failed_dependency, BUILD_STAGES),)
