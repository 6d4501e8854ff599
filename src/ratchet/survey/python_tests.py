"""Test files with their counts, and the plugins that they ask pytest for."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import PurePosixPath

from ratchet.survey.findings import Findings
from ratchet.survey.formats import names
from ratchet.survey.pytest_config import PytestConfig, load
from ratchet.survey.python_imports import ImportCheck
from ratchet.survey.python_sources import Naming, Source, summarise, summarise_lines
from ratchet.survey.tree import Tree, is_vendored

MAX_SOURCES = 6_000
MAX_SCRIPTS = 200
MAX_SOURCE_BYTES = 48 << 20
MAX_PARSED_BYTES = 6 << 20  # parsing takes most of the time; past this, tests are counted line by line

_TEST_FOLDERS = names(
    """
    test tests testing _tests unit_tests unittests integration_tests functional_tests t spec
    """
)
_TEST_NAMES = ("test_*.py", "*_test.py", "test*.py", "*_tests.py", "tests.py", "*test.py", "*tests.py", "conftest.py")
_NOT_SEARCHED = names(
    """
    examples example docs doc benchmarks benchmark bench asv_bench templates cookiecutter data fixtures
    testdata test_data samples demos demo
    """
)
_DEFAULT_FILES = ("test_*.py", "*_test.py")


def read(tree: Tree, found: Findings) -> None:
    config = load(tree)
    naming = Naming(config.words("python_functions", ("test",)), config.words("python_classes", ("Test",)))
    check = ImportCheck(tree, found)
    size = 0
    for path in _sources(tree):
        text = tree.text_once(path) or ""
        size += len(text)
        if size > MAX_SOURCE_BYTES:
            break
        in_tests = is_test_path(path)
        if not in_tests and not _is_collected(path, config):
            check.note_package_file(path, text)
            continue
        source = summarise(text, naming) if size < MAX_PARSED_BYTES else summarise_lines(text, naming)
        counted = _note_tests(found, path, source, config)
        imported = counted or path.endswith(("conftest.py", "__init__.py")) or _is_collected(path, config)
        check.note_test_file(path, source.imports, collected=imported)
        for plugin, line in source.plugins:
            if not check.is_local(path, plugin.split(".")[0], nearby=True):
                found.add("pytest-plugin", plugin, path, line, "pytest_plugins")
    _note_doctests(tree, found, config)
    for path in [path for path in _sources(tree) if _may_run_tests(path)][:MAX_SCRIPTS]:
        found.add("test-script", path, path)


def _may_run_tests(path: str) -> bool:
    """Whether a script near the top of the checkout may be the program that runs its tests."""
    name = path.rsplit("/", 1)[-1]
    return (
        path.count("/") < 3 and ("test" in name or name == "manage.py") and not name.startswith(("test_", "conftest"))
    )


def _sources(tree: Tree) -> list[str]:
    """Python files, those of tests first: limits must not cost them."""
    listed = [
        path for path in tree.files
        if path.endswith(".py") and not is_vendored(path) and not _NOT_SEARCHED & set(PurePosixPath(path).parts[:1])
    ]  # fmt: skip
    return sorted(listed, key=lambda path: not is_test_path(path))[:MAX_SOURCES]


def is_test_path(path: str) -> bool:
    """In a folder of tests, or named like a test."""
    where = PurePosixPath(path)
    if not _TEST_FOLDERS.isdisjoint(part.lower() for part in where.parts[:-1]):
        return True
    return any(fnmatchcase(where.name, pattern) for pattern in _TEST_NAMES[:2]) or where.name in (
        "conftest.py",
        "tests.py",
    )


def _is_collected(path: str, config: PytestConfig) -> bool:
    """Whether pytest would collect a file by its name and place."""
    patterns = config.words("python_files", _DEFAULT_FILES)
    name = path.rsplit("/", 1)[-1]
    if not any(fnmatchcase("/" + path, "*/" + each) if "/" in each else fnmatchcase(name, each) for each in patterns):
        return False
    places = [each.strip("./").rstrip("/*") for each in config.words("testpaths")]
    if not places or "" in places:
        return True
    return any(path == each or path.startswith(each + "/") or fnmatchcase(path, each + "*") for each in places)


def _note_tests(found: Findings, path: str, source: Source, config: PytestConfig) -> bool:
    """Whether the file holds tests. Files that pytest collects count in both styles; others only with unittest's
    classes, and by name."""
    collected = _is_collected(path, config)
    name = path.rsplit("/", 1)[-1]
    unittest_name = any(fnmatchcase(name, pattern) for pattern in _TEST_NAMES[:-1])
    places = config.words("testpaths")
    if not collected and (not unittest_name or bool(places)):
        return False
    plain = source.pytest_tests if collected else 0
    count = plain + source.unittest_tests
    if count:
        style = "unittest" if source.unittest_tests > plain else "pytest"
        found.add("test-file", path, path, 1, style)
        found.add("test-count", str(count), path, 1, style)
    return count > 0


def _note_doctests(tree: Tree, found: Findings, config: PytestConfig) -> None:
    options = config.words("addopts")
    globs = [
        option.partition("=")[2] or following
        for option, following in pairwise((*options, ""))
        if option.startswith("--doctest-glob")
    ]
    for path in tree.matching(*globs)[:200] if globs else ():
        if ">>>" in (tree.text_once(path) or ""):
            found.add("test-file", path, path, 1, "doctest")
    if "--doctest-modules" in options:
        for fact in found.of("module"):
            if ">>> " in (tree.text_once(fact.file) or ""):
                found.add("test-file", fact.file, fact.file, 1, "doctest")
