"""The read-only look at a checkout: `survey(checkout) -> Survey`. Nothing of the repository is run.

The kinds of fact (`Fact.kind`), with what `value` and `group` hold. Where a kind comes from several places, the
group says which: `readme`, `docs`, `ci:JOB`, `tox:ENV`, `nox:SESSION`, `make:TARGET`, `just:RECIPE`, `hatch:ENV`,
`pdm:SCRIPT`, `poe:TASK`, `pixi:FEATURE`, `docker`, `compose:SERVICE`, `devcontainer`, `pre-commit`, `extra:NAME`,
`group:NAME`, `file:PATH`, `setup.py`, `conda`, `pytest`.

    project-name            distribution name
    project-version         version as the manifests or PKG-INFO say it
    requires-python         a PEP 440 specifier
    python-classifier       "3.11"
    python-version          "3.11": a version that .python-version, CI or tox runs with
    build-backend           "setuptools.build_meta"; with a setup.py alone, the legacy one of PEP 517
    build-requirement       PEP 508 (build-system.requires)
    requirement             PEP 508, needed at run time
    extra-requirement       PEP 508; group extra:NAME
    group-requirement       PEP 508; group group:NAME (PEP 735, Poetry, PDM), tox:ENV, nox:SESSION, hatch:ENV, ci:JOB,
                            file:PATH, readme, setup.py (tests_require), conda. A group holds all that it installs:
                            included groups and files are in it too, with the file and line where they stand
    used-extra              name of an extra of the project that tox:ENV, nox:SESSION, ci:JOB, … installs
    used-group              name of a dependency group that one of these installs
    constraint              PEP 508; group file:PATH
    requirement-file        path of a requirements file; group: test, dev, docs, lint, build, runtime or constraint
    direct-requirement      a requirement that is no package of an index (git+https://…, a path) or cannot be
                            parsed; group as above
    test-command            a command that runs tests; likewise build-command, lint-command, install-command,
                            docs-command, launch-command, and command for the rest
    system-package          a Debian package that CI, a Dockerfile or the README installs
    environment-variable    NAME=VALUE
    service                 "postgres:16" (image or name); group compose:SERVICE or ci:JOB
    import-name             a top-level module or package that the project provides, dotted where it lies in a
                            namespace package ("zope.interface"); `file` is where it lives (a folder for a package)
    module                  a dotted module of the project, importable without extension modules being known
    extension-module        dotted name of a compiled module; group: c, c++, cython, cffi, rust, fortran
    console-script          "name=module:function"
    main-module             a package that has __main__.py
    test-file               path of a file with tests; group: pytest, unittest or doctest style
    test-script             path of a script near the top that, by its name, may run the tests (runtests.py, manage.py)
    test-count              number of test functions and methods in `file`, counted in the syntax tree, in very large
                            suites by line (parameters not multiplied); group as of test-file
    test-import             top-level module that test files import and the checkout does not hold ("google.cloud" for
                            namespaces); group: "", or optional where its absence is provided for or fails one test only
    undeclared-import       such a module that no manifest or standard library provides either; group: test,
                            test-optional, package (only what importing the package needs)
    pytest-option           one word of addopts
    pytest-setting          "key=value" from the pytest configuration in force; one fact for each value of a list
    pytest-plugin           a plugin named by pytest_plugins, required_plugins or -p; group: where
    tool                    a configured tool: ruff, flake8, mypy, pylint, sphinx, mkdocs, pre-commit, coverage, …
    version-source          setuptools-scm, hatch-vcs, pbr, versioneer, dunamai, …: where git metadata gives the version
    missing                 a submodule or an LFS object that is referred to and absent; group: submodule, lfs
    unreadable              why a manifest or configuration file could not be parsed; `file` is that file
    readme, license, ci     the path of such a file
"""

from __future__ import annotations

from pathlib import Path

from ratchet.records import Checkout, Survey
from ratchet.survey import (
    build_files,
    ci,
    conda,
    docs,
    extensions,
    nox,
    pytest_config,
    python_code,
    python_manifests,
    python_setup,
    python_tests,
    python_tools,
    requirements,
    submodules,
    tox,
)
from ratchet.survey.findings import Findings
from ratchet.survey.tree import Tree

__all__ = ["survey"]

# In order of authority: what comes first is what `Survey.first` gives.
_READERS = (
    python_manifests.read,
    python_tools.read,
    python_setup.read,
    requirements.read,
    tox.read,
    nox.read,
    pytest_config.read,
    ci.read,
    build_files.read,
    conda.read,
    docs.read,
    python_code.read,
    extensions.read,
    python_tests.read,
)


def survey(checkout: Checkout) -> Survey:
    """All facts about a checkout. Files that are too large, no text, or outside are left out; a manifest that
    cannot be parsed is an `unreadable` fact. Nothing in a repository makes this raise, hang or run its code."""
    tree = Tree(Path(checkout.path))
    found = Findings()
    submodules.note(tree, found, checkout.missing)
    for read in _READERS:
        read(tree, found)
    requirements.settle_own(found)
    return Survey(checkout.id, found.facts)
