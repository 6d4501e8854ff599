"""setup.cfg and setup.py. The script is never run: its syntax tree is evaluated, see `static_python`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ratchet.survey.findings import Findings
from ratchet.survey.formats import Lines, UnreadableError, at, items, names, parse_ini, strings, table, word
from ratchet.survey.python_manifests import VERSION_SOURCES, load, note_classifier, note_requires_python
from ratchet.survey.python_syntax import parse
from ratchet.survey.requirements import note_requirement
from ratchet.survey.static_python import Call, Script
from ratchet.survey.tree import Tree

SETUP_CFG = "setup.cfg"
SETUP_PY = "setup.py"
_RECORDED = names(
    """
    setup Extension CppExtension CUDAExtension CFFIExtension RustExtension RustBin Pybind11Extension
    CMakeExtension cythonize build_ext find_packages find_namespace_packages
    """
)
_REQUIREMENT_KEYS = (
    ("install_requires", "requirement", ""),
    ("requires", "requirement", ""),
    ("setup_requires", "build-requirement", ""),
    ("tests_require", "group-requirement", "setup.py"),
)


@dataclass(frozen=True)
class SetupScript:
    """The keywords that setup.py hands to `setup`, and the extensions that it makes, as far as they can be known."""

    keywords: dict[str, Any] = field(default_factory=dict)
    line: int = 1
    extensions: tuple[Call, ...] = ()
    cythonizes: bool = False
    names: dict[str, Any] = field(default_factory=dict)


def evaluate(tree: Tree) -> SetupScript:
    """Evaluate setup.py for CPython on Linux; empty where there is none or it is no Python."""
    return tree.remember(SETUP_PY, lambda: _evaluate(tree))


def _evaluate(tree: Tree) -> SetupScript:
    text = tree.text(SETUP_PY)
    if not text:
        return SetupScript()
    try:
        module = parse(text)
    except UnreadableError:
        return SetupScript()
    script = Script(record=_RECORDED, read_file=lambda path: tree.text(path.removeprefix("./").lstrip("/")))
    script.run(module)
    setups = [call for call in script.calls if call.name == "setup"]
    keywords: dict[str, Any] = {}
    for call in setups:
        keywords |= call.kwargs
    extensions = tuple(call for call in script.calls if "Extension" in call.name or call.name.startswith("Rust"))
    cythonizes = any(call.name == "cythonize" for call in script.calls)
    return SetupScript(keywords, setups[0].line if setups else 1, extensions, cythonizes, script.names)


def configuration(tree: Tree) -> dict[str, dict[str, str]]:
    """setup.cfg as sections; empty where there is none or it is no INI."""
    return tree.remember(SETUP_CFG, lambda: _configuration(tree))


def _configuration(tree: Tree) -> dict[str, dict[str, str]]:
    try:
        return parse_ini(tree.text(SETUP_CFG) or "")
    except UnreadableError:
        return {}


# What PEP 517 has a front end use where a setup.py stands and no manifest names a backend.
_LEGACY_BACKEND = "setuptools.build_meta:__legacy__"


def read(tree: Tree, found: Findings) -> None:
    if tree.text(SETUP_PY) is not None and found.first("build-backend") is None:
        found.add("build-backend", _LEGACY_BACKEND, SETUP_PY)
    _note_unreadable(tree, found)
    _read_cfg(tree, found)
    _read_script(tree, found)


def _note_unreadable(tree: Tree, found: Findings) -> None:
    for path, parser in ((SETUP_PY, parse), (SETUP_CFG, parse_ini)):
        text = tree.text(path)
        if text is None:
            continue
        try:
            parser(text)
        except UnreadableError as error:
            found.add("unreadable", str(error), path)


# --------------------------------------------------------------------------- setup.cfg


def _read_cfg(tree: Tree, found: Findings) -> None:
    sections = configuration(tree)
    lines = Lines(tree.text(SETUP_CFG) or "")
    metadata, options = sections.get("metadata", {}), sections.get("options", {})
    start = lines.section("metadata")
    found.add("project-name", metadata.get("name", ""), SETUP_CFG, lines.find("name", start))
    version = metadata.get("version", "")
    if version and not version.startswith(("attr:", "file:")):
        found.add("project-version", version, SETUP_CFG, lines.find("version", start))
    for text in metadata.get("classifiers", metadata.get("classifier", "")).splitlines():
        note_classifier(found, text, SETUP_CFG, lines.find(text, start))
    start = lines.section("options")
    python = options.get("python_requires") or metadata.get("requires-python") or metadata.get("python-requires") or ""
    note_requires_python(found, python, SETUP_CFG, lines.find(python, start))
    for key, kind, group in _REQUIREMENT_KEYS:
        _note_list(tree, found, options.get(key, ""), kind, lines, start, group)
    start = lines.section("options.extras_require")
    for extra, text in sections.get("options.extras_require", {}).items():
        _note_list(tree, found, text, "extra-requirement", lines, start, f"extra:{extra}", sections)
    start = lines.section("extras")  # pbr
    for extra, text in sections.get("extras", {}).items():
        _note_list(tree, found, text, "extra-requirement", lines, start, f"extra:{extra}")
    for section in ("options.entry_points", "entry_points"):
        for text in sections.get(section, {}).get("console_scripts", "").splitlines():
            _note_script(found, text, SETUP_CFG, lines.find(text, lines.section(section)))
    if "versioneer" in sections:
        found.add("version-source", "versioneer", SETUP_CFG, lines.section("versioneer"))
    if "pbr" in sections or "pbr" in options.get("setup_requires", ""):
        found.add("version-source", "pbr", SETUP_CFG, lines.find("pbr"))


def _note_list(
    tree: Tree,
    found: Findings,
    text: str,
    kind: str,
    lines: Lines,
    start: int,
    group: str,
    sections: dict[str, dict[str, str]] | None = None,
) -> None:
    if text.startswith("file:"):
        for path in re.split(r"[,\s]+", text[5:].strip()):
            for number, line in enumerate((tree.text(path) or "").splitlines(), 1):
                if line.strip() and not line.lstrip().startswith(("#", "-")):
                    note_requirement(found, line.split(" #")[0], kind, path, number, group)
        return
    entries = text.splitlines() if "\n" in text else text.split(";") if ";" in text and "_" not in text else [text]
    for entry in entries:
        entry = re.sub(r"(^|\s)#.*$", "", entry).strip()
        # "%(test)s" in an extra stands for another one
        other = re.fullmatch(r"%\((\w+)\)s", entry)
        if other and sections:
            more = sections.get("options.extras_require", {}).get(other.group(1), "")
            _note_list(tree, found, more, kind, lines, start, group)
        else:
            note_requirement(found, entry, kind, SETUP_CFG, lines.find(entry, start), group)


def _note_script(found: Findings, text: str, file: str, line: int) -> None:
    name, separator, target = text.partition("=")
    if separator and target.strip():
        found.add("console-script", f"{name.strip()}={target.strip()}", file, line)


# --------------------------------------------------------------------------- setup.py


def _read_script(tree: Tree, found: Findings) -> None:
    text = tree.text(SETUP_PY)
    if text is None:
        return
    script = evaluate(tree)
    keywords, lines = script.keywords, Lines(text)

    def line(value: str) -> int:
        position = lines.find(value)
        return position if position > 1 else script.line

    found.add("project-name", word(keywords.get("name")), SETUP_PY, line("name"))
    version = word(keywords.get("version"))
    if re.match(r"\d", version):
        found.add("project-version", version, SETUP_PY, line("version"))
    note_requires_python(found, word(keywords.get("python_requires")), SETUP_PY, line("python_requires"))
    for each in strings(keywords.get("classifiers")):
        for classifier in each.splitlines():
            note_classifier(found, classifier, SETUP_PY, line(classifier))
    for key, kind, group in _REQUIREMENT_KEYS:
        for each in _requirement_texts(keywords.get(key)):
            note_requirement(found, each, kind, SETUP_PY, line(each), group)
    _note_extras(found, keywords.get("extras_require"), line)
    _note_entry_points(found, keywords.get("entry_points"), line)
    _note_version_source(tree, found, keywords, text, line)


def _requirement_texts(value: Any) -> list[str]:
    texts = [each for text in strings(value) for each in text.splitlines()]
    return [text for text in texts if text.strip() and not text.lstrip().startswith(("#", "-"))]


def _note_extras(found: Findings, extras: Any, line: Any) -> None:
    for name, value in table(extras).items():
        extra, _, marker = str(name).partition(":")
        for each in _requirement_texts(value):
            text = f"{each}; {marker}" if marker and ";" not in each else each
            if extra:
                note_requirement(found, text, "extra-requirement", SETUP_PY, line(each), f"extra:{extra}")
            else:
                note_requirement(found, text, "requirement", SETUP_PY, line(each))


def _note_entry_points(found: Findings, value: Any, line: Any) -> None:
    if isinstance(value, str):
        try:
            sections = parse_ini(value)
        except UnreadableError:
            return
        for name, target in sections.get("console_scripts", {}).items():
            _note_script(found, f"{name}={target}", SETUP_PY, line(name))
        return
    for each in _requirement_texts(table(value).get("console_scripts")):
        _note_script(found, each, SETUP_PY, line(each))


def _note_version_source(tree: Tree, found: Findings, keywords: dict[str, Any], text: str, line: Any) -> None:
    names = " ".join(_requirement_texts(keywords.get("setup_requires"))).lower()
    for distribution, source in VERSION_SOURCES.items():
        if (
            distribution in ("pbr", "setuptools-scm", "setuptools_scm", "setuptools-git-versioning")
            and distribution in names
        ):
            found.add("version-source", source, SETUP_PY, line(distribution))
    for key, source in (("use_scm_version", "setuptools-scm"), ("pbr", "pbr")):
        if key in keywords:
            found.add("version-source", source, SETUP_PY, line(key))
    if "versioneer" in text and (
        tree.matching("versioneer.py", depth=0) or at(load(tree, found), "tool", "versioneer")
    ):
        found.add("version-source", "versioneer", SETUP_PY, line("versioneer"))


def packages_keyword(script: SetupScript) -> list[Any]:
    """The `packages` keyword as a list: names, and recorded calls of `find_packages`."""
    value = script.keywords.get("packages")
    return [value] if isinstance(value, Call) else items(value)
