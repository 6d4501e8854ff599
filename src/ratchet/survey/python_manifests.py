"""pyproject.toml by PEP 517, 621 and 735, and the metadata that sdists carry (PKG-INFO, requires.txt)."""

from __future__ import annotations

import re
from email.parser import HeaderParser
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from ratchet.survey.findings import Findings
from ratchet.survey.formats import Lines, UnreadableError, at, items, parse_toml, strings, table, word
from ratchet.survey.requirements import note_requirement, split_extra
from ratchet.survey.tree import Tree

FILE = "pyproject.toml"
MAX_INCLUDED = 50
MAX_GROUPS = 400

# What gives a version from git metadata, by the distribution that build-system.requires names.
VERSION_SOURCES = {
    "setuptools-scm": "setuptools-scm", "setuptools_scm": "setuptools-scm", "hatch-vcs": "hatch-vcs", "pbr": "pbr",
    "versioneer": "versioneer", "versioningit": "versioningit", "poetry-dynamic-versioning": "dunamai",
    "dunamai": "dunamai", "setuptools-git-versioning": "setuptools-git-versioning", "uv-dynamic-versioning": "dunamai",
    "vcs-versioning": "vcs-versioning", "hatch-regex-commit": "hatch-regex-commit",
    "setuptools-git-ver": "setuptools-git-ver",
    "setuptools-vcs-version": "setuptools-vcs-version", "versioneer-518": "versioneer", "incremental": "incremental",
    "poetry-version-plugin": "poetry-version-plugin", "setuptools-gitver": "setuptools-gitver", "miniver": "miniver",
    "git-versioner": "git-versioner", "better-setuptools-git-version": "better-setuptools-git-version",
}  # fmt: skip
# Of these the version is a file's, unless the project is built from git.
_NOT_GIT = frozenset({"incremental", "hatch-regex-commit"})


def load(tree: Tree, found: Findings, path: str = FILE) -> dict[str, Any]:
    """A TOML file as data; empty (and noted as unreadable) when it is no TOML."""
    return tree.remember(f"toml:{path}", lambda: _load(tree, found, path))


def _load(tree: Tree, found: Findings, path: str) -> dict[str, Any]:
    text = tree.text(path)
    try:
        return {} if text is None else parse_toml(text)
    except UnreadableError as error:
        found.add("unreadable", str(error), path)
        return {}


def read(tree: Tree, found: Findings) -> None:
    data = load(tree, found)
    lines = Lines(tree.text(FILE) or "")
    _read_build_system(found, data, lines)
    _read_project(found, table(data, "project"), lines)
    _read_groups(found, table(data, "dependency-groups"), lines)
    _read_version_source(found, data, lines)
    _read_metadata(tree, found)
    _read_requires(tree, found)


def _read_build_system(found: Findings, data: dict[str, Any], lines: Lines) -> None:
    system = table(data, "build-system")
    start = lines.section("build-system")
    backend = word(system.get("build-backend"))
    found.add("build-backend", backend, FILE, lines.key("build-backend", start))
    for text in strings(system.get("requires")):
        line = lines.find(text, start)
        note_requirement(found, text, "build-requirement", FILE, line)
        name = re.split(r"[\s\[<>=!~;@(]", text, maxsplit=1)[0].lower()
        if name in VERSION_SOURCES and name not in _NOT_GIT:
            found.add("version-source", VERSION_SOURCES[name], FILE, line)


def _read_version_source(found: Findings, data: dict[str, Any], lines: Lines) -> None:
    for path, source in (
        (("tool", "setuptools_scm"), "setuptools-scm"),
        (("tool", "versioneer"), "versioneer"),
        (("tool", "versioningit"), "versioningit"),
        (("tool", "poetry-dynamic-versioning"), "dunamai"),
        (("tool", "uv-dynamic-versioning"), "dunamai"),
    ):
        if at(data, *path) is not None:
            found.add("version-source", source, FILE, lines.section(*path))
    if at(data, "tool", "pdm", "version", "source") == "scm":
        found.add("version-source", "pdm-backend", FILE, lines.section("tool", "pdm", "version"))
    if at(data, "tool", "hatch", "version", "source") == "vcs":
        found.add("version-source", "hatch-vcs", FILE, lines.section("tool", "hatch", "version"))
    if "setuptools_scm" in word(at(data, "tool", "scikit-build", "metadata", "version", "provider")):
        found.add("version-source", "setuptools-scm", FILE, lines.section("tool", "scikit-build"))


def _read_project(found: Findings, project: dict[str, Any], lines: Lines) -> None:
    start = lines.section("project")
    found.add("project-name", word(project.get("name")), FILE, lines.key("name", start))
    found.add("project-version", word(project.get("version")), FILE, lines.key("version", start))
    note_requires_python(found, word(project.get("requires-python")), FILE, lines.key("requires-python", start))
    for text in strings(project.get("classifiers")):
        note_classifier(found, text, FILE, lines.find(text, start))
    for text in strings(project.get("dependencies")):
        note_requirement(found, text, "requirement", FILE, lines.find(text, start))
    extras = table(project, "optional-dependencies")
    start = lines.section("project", "optional-dependencies")
    own = word(project.get("name"))
    for extra in list(extras)[:MAX_GROUPS]:
        for text in expanded_extra(extras, extra, own):
            note_requirement(found, text, "extra-requirement", FILE, lines.find(text, start), f"extra:{extra}")
    for key in ("scripts", "gui-scripts"):
        start = lines.section("project", key)
        for name, target in table(project, key).items():
            if key == "scripts":
                found.add("console-script", f"{name}={word(target)}", FILE, lines.key(name, start))


def expanded_extra(extras: dict[str, Any], extra: str, own: str) -> list[str]:
    """The requirements of an extra, with `own[other]` replaced by what `other` holds."""
    by_name = {canonicalize_name(key): key for key in extras}
    result: list[str] = []
    waiting, seen = [extra], set[str]()
    while waiting and len(seen) < MAX_INCLUDED:
        name = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        for text in strings(extras.get(name)):
            match = re.match(r"\s*([\w.-]+)\s*\[([^\]]*)\]\s*(?:;.*)?$", text)
            if own and match and canonicalize_name(match.group(1)) == canonicalize_name(own):
                others = [each.strip() for each in match.group(2).split(",")]
                waiting += [by_name.get(canonicalize_name(each), each) for each in others]
            else:
                result.append(text)
    return result


def _read_groups(found: Findings, groups: dict[str, Any], lines: Lines) -> None:
    """PEP 735: each group with the groups that it includes."""
    start = lines.section("dependency-groups")
    by_name = {canonicalize_name(key): key for key in groups}
    for name in list(groups)[:MAX_GROUPS]:
        waiting, seen = [name], set[str]()
        while waiting and len(seen) < MAX_INCLUDED:
            current = waiting.pop(0)
            if current in seen:
                continue
            seen.add(current)
            for entry in items(groups.get(current)):
                included = word(at(entry, "include-group"))
                if included:
                    waiting.append(by_name.get(canonicalize_name(included), included))
                elif isinstance(entry, str):
                    line = lines.find(entry, start)
                    note_requirement(found, entry, "group-requirement", FILE, line, f"group:{name}")


def note_requires_python(found: Findings, text: str, file: str, line: int = 1) -> None:
    """Note a Python range, where it is a PEP 440 specifier."""
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return
    found.add("requires-python", text, file, line)


def note_classifier(found: Findings, text: str, file: str, line: int) -> None:
    match = re.fullmatch(r"\s*Programming Language :: Python :: (\d\.\d+)\s*", text)
    if match:
        found.add("python-classifier", match.group(1), file, line)


# --------------------------------------------------------------------------- metadata of sdists


def metadata_folders(tree: Tree) -> list[str]:
    """The .egg-info folders at the top or in the source folder."""
    folders = {name.rsplit("/", 1)[0] for name in tree.matching("*.egg-info/*", depth=2)}
    return sorted(folder for folder in folders if re.match(r"(?:(?:src|lib|python)/)?[^/]+$", folder))[:4]


def _read_metadata(tree: Tree, found: Findings) -> None:
    """PKG-INFO says what the build back end computed. It adds what the manifests leave open, repeats nothing."""
    paths = ["PKG-INFO", *(f"{folder}/PKG-INFO" for folder in metadata_folders(tree))]
    path = next((path for path in paths if path in tree), None)
    text = tree.text(path) if path else None
    if path is None or not text:
        return
    headers = HeaderParser().parsestr(text)
    lines = Lines(text)
    for kind, header in (("project-name", "Name"), ("project-version", "Version")):
        if found.first(kind) is None or kind == "project-version":
            found.add(kind, str(headers.get(header, "")), path, lines.starting(f"{header}:"))
    if found.first("requires-python") is None:
        note_requires_python(found, str(headers.get("Requires-Python", "")), path, lines.starting("Requires-Python:"))
    if found.first("python-classifier") is None:
        for value in headers.get_all("Classifier", []):
            note_classifier(found, str(value), path, lines.find(str(value)))
    known = set(found.values("requirement", "extra-requirement"))
    for value in headers.get_all("Requires-Dist", []):
        requirement, extra = split_extra(str(value))
        scratch = Findings()
        note_requirement(scratch, requirement, "requirement", path)
        if known.isdisjoint(fact.value for fact in scratch.facts):
            kind, group = ("extra-requirement", f"extra:{extra}") if extra else ("requirement", "")
            note_requirement(found, requirement, kind, path, lines.find(str(value)), group)


def _read_requires(tree: Tree, found: Findings) -> None:
    """requires.txt of an egg-info: sections are extras and markers, "[extra:marker]"."""
    if found.of("requirement", "extra-requirement"):
        return
    for folder in metadata_folders(tree):
        path = f"{folder}/requires.txt"
        extra = marker = ""
        for number, line in enumerate((tree.text(path) or "").splitlines(), 1):
            section = re.fullmatch(r"\[([^:\]]*):?([^\]]*)\]", line.strip())
            if section:
                extra, marker = section.groups()
            elif line.strip():
                text = f"{line.strip()}; {marker}" if marker else line.strip()
                kind, group = ("extra-requirement", f"extra:{extra}") if extra else ("requirement", "")
                note_requirement(found, text, kind, path, number, group)
