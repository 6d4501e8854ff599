"""pytest's configuration, from the one file that pytest would use, and the other tools that are configured."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ratchet.survey.findings import Findings
from ratchet.survey.formats import Lines, UnreadableError, names, parse_ini, parse_toml, table, word
from ratchet.survey.tree import Tree

# In pytest's order. A pytest.ini counts even when it is empty.
_PLACES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("pytest.toml", ("pytest",)),
    (".pytest.toml", ("pytest",)),
    ("pytest.ini", ("pytest",)),
    (".pytest.ini", ("pytest",)),
    ("pyproject.toml", ("tool", "pytest")),
    ("pyproject.toml", ("tool", "pytest", "ini_options")),
    ("tox.ini", ("pytest",)),
    ("setup.cfg", ("tool:pytest",)),
)
_LISTS = frozenset(
    [
        "testpaths",
        "python_files",
        "python_classes",
        "python_functions",
        "norecursedirs",
        "required_plugins",
        "pythonpath",
        "usefixtures",
    ]
)
_TOOLS_BY_FILE = {
    "ruff.toml": "ruff", ".ruff.toml": "ruff", ".flake8": "flake8", "mypy.ini": "mypy", ".mypy.ini": "mypy",
    ".pylintrc": "pylint", "pylintrc": "pylint", "mkdocs.yml": "mkdocs", "docs/conf.py": "sphinx",
    "doc/conf.py": "sphinx", "docs/source/conf.py": "sphinx", "doc/source/conf.py": "sphinx", ".coveragerc": "coverage",
    "noxfile.py": "nox", "tox.ini": "tox", "tox.toml": "tox", "pyrightconfig.json": "pyright", ".isort.cfg": "isort",
    ".stestr.conf": "stestr", ".testr.conf": "testr", "pixi.toml": "pixi", "uv.lock": "uv", "poetry.lock": "poetry",
    "pdm.lock": "pdm", "Pipfile": "pipenv", "Makefile": "make", "justfile": "just", "tasks.py": "invoke",
    "manage.py": "django", "asv.conf.json": "asv", "meson.build": "meson", "CMakeLists.txt": "cmake",
    "Cargo.toml": "cargo", ".gitmodules": "git-submodules", "codecov.yml": "codecov",
    "unittest.cfg": "nose2", ".noserc": "nose", "nose.cfg": "nose",
}  # fmt: skip
_TOOL_TABLES = names(
    """
    ruff black isort mypy pylint flake8 coverage pyright basedpyright tox nox hatch pdm poetry uv
    cibuildwheel codespell towncrier bandit interrogate commitizen poe taskipy pytest setuptools_scm ty
    vulture yapf pydocstyle
    """
)


@dataclass(frozen=True)
class PytestConfig:
    """The settings in force. Lists are lists of words; `file` is empty when nothing configures pytest."""

    file: str = ""
    settings: dict[str, list[str]] = field(default_factory=dict)

    def words(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        return tuple(self.settings.get(key, ())) or default


def load(tree: Tree) -> PytestConfig:
    """The configuration that `pytest` would take when started at the top of the checkout."""
    return next((config for config in _configurations(tree)), PytestConfig())


def _configurations(tree: Tree) -> Iterator[PytestConfig]:
    for path, section in _PLACES:
        text = tree.text(path)
        if text is None:
            continue
        try:
            data: Any = parse_toml(text) if path.endswith(".toml") else parse_ini(text)
        except UnreadableError:
            continue
        settings = dict(table(data, *section))
        settings.pop("ini_options", None)
        if settings or path.endswith("pytest.ini"):
            yield PytestConfig(path, {key: _values(key, value) for key, value in settings.items()})


def _values(key: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [str(value).lower()]
    if isinstance(value, list):
        return [word(each) for each in value if word(each)]
    text = word(value)
    if key == "addopts" or key in _LISTS:
        return _words("\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("#", ";"))))
    return [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def read(tree: Tree, found: Findings) -> None:
    config = load(tree)
    lines = Lines(tree.text(config.file) or "")
    for key, values in config.settings.items():
        line = lines.find(key)
        if key == "addopts":
            _note_options(found, values, config.file, lines, line)
            continue
        for value in values:
            found.add("pytest-setting", f"{key}={value}", config.file, lines.find(value, line))
            if key == "required_plugins":
                found.add("pytest-plugin", value, config.file, lines.find(value, line), "required_plugins")
            if key == "env":
                name, _, content = re.sub(r"^[A-Z]:", "", value).partition("=")
                if content:
                    found.add("environment-variable", f"{name.strip()}={content.strip()}", config.file, line, "pytest")
    _read_tools(tree, found)


def _note_options(found: Findings, options: list[str], file: str, lines: Lines, line: int) -> None:
    for option, following in pairwise((*options, "")):
        found.add("pytest-option", option, file, lines.find(option, line))
        plugin = following if option == "-p" else option[2:].strip() if re.match(r"-p\s*[a-z]", option) else ""
        if plugin and not plugin.startswith("no:"):
            found.add("pytest-plugin", plugin, file, lines.find(plugin, line), "-p")


def _read_tools(tree: Tree, found: Findings) -> None:
    for path, tool in _TOOLS_BY_FILE.items():
        if path in tree:
            found.add("tool", tool, path)
    text = tree.text("pyproject.toml")
    if text is not None:
        try:
            data = parse_toml(text)
        except UnreadableError:
            data = {}
        lines = Lines(text)
        for name in table(data, "tool"):
            if name in _TOOL_TABLES:
                found.add("tool", name, "pyproject.toml", lines.section("tool", name))
    for path in ("setup.cfg", "tox.ini"):
        text = tree.text(path)
        try:
            sections = parse_ini(text) if text else {}
        except UnreadableError:
            continue
        for section in sections:
            name = re.split(r"[:.-]", section.removeprefix("tool:"))[0]
            if name in _TOOL_TABLES or name in ("nosetests", "unittest", "build_sphinx", "pycodestyle", "pep8"):
                found.add("tool", name, path, Lines(text or "").section(section))
