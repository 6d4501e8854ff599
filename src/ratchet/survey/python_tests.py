"""Test files with their counts, what tests and package import, and which of it no manifest declares."""

from __future__ import annotations

import re
import sys
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import PurePosixPath

from ratchet.survey.findings import Findings
from ratchet.survey.import_names import fold, provided_by
from ratchet.survey.pytest_config import PytestConfig, load
from ratchet.survey.python_sources import Import, Naming, Source, summarise
from ratchet.survey.requirements import distribution
from ratchet.survey.tree import Tree, is_vendored

MAX_SOURCES = 6_000
MAX_SOURCE_BYTES = 48 << 20

_TEST_FOLDERS = frozenset(
    "test tests testing _tests unit_tests unittests integration_tests functional_tests t spec".split()
)
_TEST_NAMES = ("test_*.py", "*_test.py", "test*.py", "*_tests.py", "tests.py", "*test.py", "*tests.py", "conftest.py")
_NOT_SEARCHED = frozenset("examples example docs doc benchmarks benchmark bench asv_bench templates cookiecutter data fixtures "
                          "testdata test_data samples demos demo".split())  # fmt: skip
_DEFAULT_FILES = ("test_*.py", "*_test.py")
# Python 2 and other names that the interpreter running this does not list.
_ALSO_STANDARD = frozenset(
    "distutils imp asyncore asynchat smtpd lib2to3 cgi cgitb crypt telnetlib nntplib pipes uu xdrlib msilib audioop aifc "
    "chunk imghdr mailcap nis ossaudiodev sndhdr spwd sunau binhex formatter parser symbol _bootlocale __builtin__ "
    "ConfigParser Queue StringIO cStringIO httplib urllib2 urlparse cPickle thread HTMLParser Cookie BaseHTTPServer "
    "SocketServer xmlrpclib Tkinter commands dummy_threading _dummy_threading macpath tomllib compression annotationlib "
    "_testcapi _testinternalcapi test __main__ __future__ _typeshed winreg _winreg _winapi msvcrt nt winsound _overlapped "
    "concurrent zoneinfo graphlib".split()
)


def read(tree: Tree, found: Findings) -> None:
    config = load(tree)
    naming = Naming(config.words("python_functions", ("test",)), config.words("python_classes", ("Test",)))
    packages = {fact.file: fact.value for fact in found.of("import-name")}
    declared = _declared(found)
    size = 0
    seen: dict[tuple[str, str], None] = {}
    for path in _sources(tree):
        text = tree.text_once(path) or ""
        size += len(text)
        if size > MAX_SOURCE_BYTES:
            break
        source = summarise(text, naming)
        if source is None:
            continue
        in_tests = is_test_path(path)
        if in_tests or _is_collected(path, config):
            _note_tests(found, path, source, config)
        if in_tests:
            _note_plugins(tree, found, path, source)
        in_package = any(path == top or path.startswith(top + "/") for top in packages)
        if in_tests or in_package:
            _note_imports(tree, found, path, source.imports, in_tests, declared, seen)
    _note_doctests(tree, found, config)


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
    if not _TEST_FOLDERS.isdisjoint(where.parts[:-1]):
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
    return not places or "" in places or any(path == each or path.startswith(each + "/") or fnmatchcase(path, each + "*")
                                             for each in places)  # fmt: skip


def _note_tests(found: Findings, path: str, source: Source, config: PytestConfig) -> None:
    """Files that pytest collects count in both styles; others only with unittest's classes, and by name."""
    collected = _is_collected(path, config)
    name = path.rsplit("/", 1)[-1]
    unittest_name = any(fnmatchcase(name, pattern) for pattern in _TEST_NAMES[:-1])
    places = config.words("testpaths")
    if not collected and (not unittest_name or bool(places)):
        return
    plain = source.pytest_tests if collected else 0
    count = plain + source.unittest_tests
    if count:
        style = "unittest" if source.unittest_tests > plain else "pytest"
        found.add("test-file", path, path, 1, style)
        found.add("test-count", str(count), path, 1, style)


def _note_plugins(tree: Tree, found: Findings, path: str, source: Source) -> None:
    for plugin, line in source.plugins:
        if not _is_local(tree, path, plugin.split(".")[0], nearby=True):
            found.add("pytest-plugin", plugin, path, line, "pytest_plugins")


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


# --------------------------------------------------------------------------- imports


def _declared(found: Findings) -> frozenset[str]:
    kinds = ("requirement", "extra-requirement", "group-requirement", "build-requirement", "direct-requirement")
    names = {distribution(re.sub(r".*#egg=", "", value)) for value in found.values(*kinds)}
    return frozenset(provided for name in names if name for provided in provided_by(name))


def _note_imports(
    tree: Tree,
    found: Findings,
    path: str,
    imports: tuple[Import, ...],
    in_tests: bool,
    declared: frozenset[str],
    seen: dict[tuple[str, str], None],
) -> None:
    """Each module once for each group, at the first place that imports it."""
    for each in imports:
        top = each.name.split(".")[0]
        if top in sys.stdlib_module_names or top in _ALSO_STANDARD or each.typing:
            continue
        group = ("test-optional" if each.optional else "test") if in_tests else "package"
        if group == "package" and (each.optional or each.nested):
            continue
        if (group, each.name) in seen or _is_local(tree, path, top, nearby=in_tests):
            continue
        seen[group, each.name] = None
        if in_tests:
            found.add("test-import", each.name, path, each.line, "optional" if each.optional else "")
        if fold(each.name) not in declared and fold(top) not in declared and not _is_own(found, each.name):
            found.add("undeclared-import", each.name, path, each.line, group)


def _is_own(found: Findings, name: str) -> bool:
    own = found.values("import-name")
    return any(each == name or each.startswith(name + ".") or name.startswith(each + ".") for each in own) or any(
        value.split(".")[0] == name for value in found.values("extension-module")
    )


def _is_local(tree: Tree, path: str, name: str, *, nearby: bool) -> bool:
    """Whether the checkout itself provides a top-level name: at its top or in src/, and for tests also in any
    folder between the file and the top, from where test runners import."""
    folders = ["", "src/", "lib/", "python/"]
    if nearby:
        folders += [f"{parent}/" for parent in PurePosixPath(path).parents if str(parent) != "."]
        folders += ["tests/", "test/", "tests/lib/", "tests/helpers/"]
    return any(
        f"{folder}{name}.py" in tree
        or f"{folder}{name}/__init__.py" in tree
        or f"{folder}{name}" in tree.code_directories
        for folder in folders
    )
