"""conda environment files and pixi manifests: requirements under their names on a Python index, and tasks."""

from __future__ import annotations

import re
from typing import Any

from ratchet.survey.findings import Findings
from ratchet.survey.formats import (
    Lines,
    UnreadableError,
    at,
    items,
    line_of,
    names,
    parse_toml,
    parse_yaml,
    strings,
    table,
    word,
)
from ratchet.survey.requirements import note_requirement
from ratchet.survey.shell import note_script
from ratchet.survey.tree import Tree

MAX_FILES = 12

_ENVIRONMENTS = ("environment*.y*ml", "*environment.y*ml", "*conda*env*.y*ml", "*requirements*/*.yml")
# Conda's names for what an index has under another name, and what only conda has.
_NOT_DISTRIBUTIONS = names(
    """
    python pip conda mamba nomkl compilers cxx-compiler c-compiler fortran-compiler gcc gxx make cmake ninja
    pandoc graphviz git nodejs libgdal proj geos hdf5 libnetcdf openmpi mpich blas openblas mkl doxygen curl
    """
)
_CONDA_NAMES = {"pytables": "tables", "python-build": "build", "matplotlib-base": "matplotlib", "dask-core": "dask",
                "pyqt": "pyqt5", "pytorch": "torch", "msgpack-python": "msgpack", "pre-commit": "pre-commit",
                "importlib_metadata": "importlib-metadata", "flask-cors": "flask-cors"}  # fmt: skip


def read(tree: Tree, found: Findings) -> None:
    for path in tree.matching(*_ENVIRONMENTS, depth=3)[:MAX_FILES]:
        try:
            _read_environment(found, path, parse_yaml(tree.text(path) or ""))
        except UnreadableError as error:
            found.add("unreadable", str(error), path)
    for path, prefix in (("pixi.toml", ()), ("pyproject.toml", ("tool", "pixi"))):
        try:
            data = table(parse_toml(tree.text(path) or ""), *prefix)
        except UnreadableError as error:
            if path == "pixi.toml":
                found.add("unreadable", str(error), path)
            continue
        _read_pixi(tree, found, path, data, Lines(tree.text(path) or ""), prefix)


def _read_environment(found: Findings, path: str, data: Any) -> None:
    for entry in items(at(data, "dependencies")):
        if isinstance(entry, dict):
            for text in strings(entry.get("pip")):
                if not text.startswith("-"):
                    note_requirement(found, text, "group-requirement", path, line_of(text), "conda")
        elif isinstance(entry, str):
            _note_conda(found, entry, path, line_of(entry), "conda")


def _note_conda(found: Findings, entry: str, path: str, line: int, group: str) -> None:
    """`channel::name=1.2=build` as PEP 508; what only conda has is left out."""
    match = re.match(r"(?:[\w-]+::)?([A-Za-z0-9][\w.-]*)\s*(.*)$", entry.split("#")[0].strip())
    if not match:
        return
    name, specifier = match.group(1), match.group(2).strip()
    if name == "python":
        version = re.search(r"3\.\d+", specifier)
        if version:
            found.add("python-version", version.group(0), path, line, group)
        return
    if name.lower() in _NOT_DISTRIBUTIONS or name.startswith(("lib", "r-", "_")):
        return
    exact = re.match(r"=\s*([\d][\w.]*)(?:=.*)?$", specifier)
    if exact:
        specifier = f"=={exact.group(1).rstrip('.*')}.*"
    note_requirement(
        found, f"{_CONDA_NAMES.get(name, name)}{specifier}", "group-requirement", path, line, group, raw=True
    )


def _read_pixi(
    tree: Tree, found: Findings, path: str, data: dict[str, Any], lines: Lines, prefix: tuple[str, ...]
) -> None:
    """The default feature and the named ones; a feature is the group `pixi:NAME`."""
    features = {"default": data, **{name: table(feature) for name, feature in table(data, "feature").items()}}
    for name, feature in features.items():
        section = prefix if name == "default" else (*prefix, "feature", name)
        start = lines.section(*section, "dependencies")
        for package, spec in table(feature, "dependencies").items():
            version = word(spec) or word(at(spec, "version"))
            entry = package if version in ("", "*") else f"{package}{version}"
            _note_conda(found, entry, path, lines.key(package, start), f"pixi:{name}")
        start = lines.section(*section, "pypi-dependencies")
        for package, spec in table(feature, "pypi-dependencies").items():
            version = word(spec) or word(at(spec, "version"))
            text = package if version in ("", "*") else f"{package}{version}"
            if not {"path", "git", "url"} & set(table(spec)):
                note_requirement(found, text, "group-requirement", path, lines.key(package, start), f"pixi:{name}")
        start = lines.section(*section, "tasks")
        for task, command in table(feature, "tasks").items():
            text = word(command) or word(at(command, "cmd"))
            note_script(tree, found, text, path, lines.key(task, start), f"pixi:{name}")
