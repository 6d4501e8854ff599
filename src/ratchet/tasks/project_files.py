"""Which files of a checkout are the project's own sources, and which are its tests and what configures them."""

from __future__ import annotations

import filecmp
import re
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from ratchet.autoinstall.workshop import WORKSPACE, Workshop
from ratchet.records import Environment, Survey
from ratchet.survey import survey
from ratchet.survey.formats import names
from ratchet.survey.tree import MAX_BYTES, Tree, is_vendored

KIND = "project-files"

_INTERPRETED = (".py", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx")
# What has to be built between an edit and a test run: sources only where the suite's command builds them.
_COMPILED = (".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".hh")
_BUILDS = re.compile(r"\b(?:make|cmake|ctest|meson|ninja|build_ext)\b")

_TEST_FOLDERS = frozenset({"tests", "test", "testsuite", "unittests", "__tests__", "spec"})
_TEST_NAME = re.compile(r"(?:^test_.*|.*_test)\.\w+$|.*\.(?:test|spec)\.\w+$|^conftest\.py$|^tests?\.py$")
_TEST_FACTS = ("test-count", "test-file", "test-script")
CONFIGURATION = names(
    """pytest.ini .pytest.ini pytest.toml tox.ini tox.toml setup.cfg setup.py pyproject.toml .coveragerc noxfile.py
    package.json jest.config.js vitest.config.ts .mocharc.json Makefile CMakeLists.txt meson.build"""
)
# Beside the project, not of it.
_ASIDE_FOLDERS = names(
    """docs doc documentation examples example samples demo demos benchmarks benchmark bench scripts script tools tool
    ci maint misc contrib checks performance perf requirements .github"""
)
_ASIDE_NAMES = frozenset({"conf.py", "fabfile.py", "tasks.py", "versioneer.py", "_version.py", "runtests.py"})


@dataclass(frozen=True)
class ProjectFiles:
    """Paths relative to the workspace, sorted. `tests` are test files, everything below a folder of tests, and what
    configures runners and builds."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


def project_files(workshop: Workshop, environment: Environment) -> ProjectFiles:
    """Of the environment's checkout; looked at once, then kept in the store."""
    if environment.id in workshop.store.ids(KIND):
        return workshop.store.get(KIND, environment.id, ProjectFiles)
    root = checkout_root(workshop, environment)
    found = _classify(Tree(root), survey(replace(environment.checkout, path=str(root))), _builds(environment))
    upper = workshop.layers.path(environment.layer) / WORKSPACE.lstrip("/")
    # What the recipe wrote anew is generated.
    own = tuple(path for path in found.sources if not _rewritten(upper, root, path))
    found = replace(found, sources=own)
    workshop.store.put(KIND, found, id=environment.id)
    return found


def checkout_root(workshop: Workshop, environment: Environment) -> Path:
    """The checkout as it lies in its layer."""
    return workshop.layers.path(workshop.checkout_layer(environment.checkout)) / WORKSPACE.lstrip("/")


def sources_of(workshop: Workshop, environment: Environment) -> dict[str, str]:
    """The texts of the project's own sources, by path. Files that are no UTF-8, or larger than 1 MiB, are left out."""
    tree = Tree(checkout_root(workshop, environment))
    texts = {}
    for path in project_files(workshop, environment).sources:
        text = exact_text(tree.root / path) if path in tree else None
        if text is not None:
            texts[path] = text
    return texts


def test_files(workshop: Workshop, environment: Environment) -> frozenset[str]:
    return frozenset(project_files(workshop, environment).tests)


def exact_text(path: Path) -> str | None:
    """With its line ends as they are; None where it is no UTF-8, or too large. `Tree` has seen that the path is a
    regular file inside the checkout."""
    if path.is_symlink() or path.stat().st_size > MAX_BYTES:
        return None
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError:
        return None


def _builds(environment: Environment) -> bool:
    return any(goal.expectation.report and _BUILDS.search(goal.command) for goal in environment.goals)


def _classify(tree: Tree, found: Survey, compiled: bool) -> ProjectFiles:
    tests = {fact.file for kind in _TEST_FACTS for fact in found.of(kind) if fact.group != "doctest"}
    suffixes = (*_INTERPRETED, *_COMPILED) if compiled else _INTERPRETED
    # A package of that name is what a library offers to its users' tests; at the top it is that where no tests lie in.
    testing = any(path.startswith("testing/") and _TEST_NAME.fullmatch(PurePosixPath(path).name) for path in tree.files)
    sources = []
    for path in tree.files:
        parts = PurePosixPath(path).parts
        folders = {part.lower() for part in parts[:-1]}
        is_test = path in tests or bool(_TEST_NAME.fullmatch(parts[-1])) or not _TEST_FOLDERS.isdisjoint(folders)
        is_test = is_test or (testing and parts[0] == "testing" and len(parts) > 1)
        if is_test or parts[-1] in CONFIGURATION:
            tests.add(path)
        elif path.endswith(suffixes) and not _aside(parts) and not is_vendored(path):
            sources.append(path)
    return ProjectFiles(tuple(sorted(sources)), tuple(sorted(tests)))


def _aside(parts: tuple[str, ...]) -> bool:
    return (len(parts) > 1 and parts[0] in _ASIDE_FOLDERS) or parts[-1] in _ASIDE_NAMES


def tails_of(path: str) -> list[str]:
    """The last two parts that the path of an installed copy of a source may have. What lies no deeper than one folder
    may be a module on its own, which is installed without its folder."""
    parts = PurePosixPath(path).parts
    folders = ["site-packages", "dist-packages", "lib"] if len(parts) <= 2 else []
    return ["/".join(parts[-2:]), *(f"{folder}/{parts[-1]}" for folder in folders)]


def _rewritten(upper: Path, root: Path, path: str) -> bool:
    """Whether an overlay's upper directory holds another file at `path`; no link is followed."""
    place = upper
    for part in PurePosixPath(path).parts:
        place = place / part
        if place.is_symlink():
            return True
    return place.is_file() and not filecmp.cmp(place, root / path, shallow=False)
