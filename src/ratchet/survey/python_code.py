"""What a project lets one import: packages, modules, compiled extensions, and where they lie.

The layout is taken from the first of these that says something: the build back end's own settings, setup.cfg and
setup.py, top_level.txt of an egg-info, and last the usual places (src/, the top, a folder named like the project).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

from packaging.utils import canonicalize_name

from ratchet.survey.findings import Findings
from ratchet.survey.formats import at, items, names, strings, table, word
from ratchet.survey.python_manifests import load, metadata_folders
from ratchet.survey.python_setup import SetupScript, configuration, evaluate, packages_keyword
from ratchet.survey.static_python import Call
from ratchet.survey.tree import Tree, is_vendored

MAX_MODULES = 3_000

_NOT_PACKAGES = names(
    """
    test tests testing_data doc docs documentation example examples sample samples demo demos script scripts
    tool tools bench benches benchmark benchmarks asv_bench ci .github .circleci utils_dev tasks conftest
    setup noxfile fabfile integration_tests unit_tests functional_tests e2e playground notebooks packaging
    requirements changelog newsfragments src lib build dist typings stubs news licenses misc contrib etc
    config data resources static templates fuzz fuzzing versioneer release pavement dodo manage tests_common
    extras experiments temp tmp winbuild
    """
)


@dataclass(frozen=True)
class Provided:
    """Something importable: its dotted name, and the folder or file it is in, relative to the checkout."""

    name: str
    path: str

    @property
    def is_package(self) -> bool:
        return not self.path.endswith((".py", ".pyx"))


def provided(tree: Tree, found: Findings, script: SetupScript) -> list[Provided]:
    """The topmost packages and modules of the project; inside a namespace package, its dotted portions."""
    data = load(tree, found)
    name = (found.first("project-name") or "").strip()
    for step in (_from_backends(tree, data, name), _from_setuptools(tree, data, script), _from_egg_info(tree)):
        listed = _existing(tree, step)
        if listed:
            return _topmost(tree, listed)
    return _topmost(tree, _existing(tree, _by_layout(tree, name)))


def _existing(tree: Tree, entries: list[Provided]) -> list[Provided]:
    return list(dict.fromkeys(each for each in entries if each.path in tree or each.path in tree.code_directories))


def _topmost(tree: Tree, entries: list[Provided]) -> list[Provided]:
    """Without what lies inside another entry; a namespace package is replaced by its portions."""
    result: list[Provided] = []
    for entry in sorted(set(entries), key=lambda each: (each.name.count("."), entries.index(each))):
        if any(entry.name == top.name or entry.name.startswith(top.name + ".") for top in result):
            continue
        result += _portions(tree, entry, 0) if entry.is_package else [entry]
    return list(dict.fromkeys(result))


def _portions(tree: Tree, entry: Provided, depth: int) -> list[Provided]:
    """The packages with code below a folder that has no __init__.py, or one that only declares a namespace."""
    init = f"{entry.path}/__init__.py"
    modules = [name for name in tree.files if PurePosixPath(name).parent == PurePosixPath(entry.path)]
    code = [name for name in modules if name.endswith((".py", ".pyx", ".so", ".pyd"))]
    if depth > 3 or (init in tree and not _is_namespace(tree.text(init) or "")):
        return [entry]
    children = [
        folder for folder in sorted(tree.directories)
        if PurePosixPath(folder).parent == PurePosixPath(entry.path) and folder.rsplit("/", 1)[-1].isidentifier()
        and folder.rsplit("/", 1)[-1] not in ("tests", "test") and folder in tree.code_directories
    ]  # fmt: skip
    portions = [
        portion
        for child in children
        for portion in _portions(tree, Provided(f"{entry.name}.{child.rsplit('/', 1)[-1]}", child), depth + 1)
    ]
    if [name for name in code if name != init] or not portions:
        return [entry]
    return portions


def _is_namespace(text: str) -> bool:
    return len(text) < 2_000 and ("declare_namespace" in text or "extend_path" in text)


# --------------------------------------------------------------------------- what build back ends say


def _from_backends(tree: Tree, data: dict[str, Any], name: str) -> list[Provided]:
    tool = table(data, "tool")
    backend = word(at(data, "build-system", "build-backend"))
    entries: list[Provided] = []
    for each in items(at(tool, "poetry", "packages")):
        include, base = word(at(each, "include")), word(at(each, "from"))
        for path in _globbed(tree, f"{base}/{include}" if base else include):
            entries.append(_entry(path, base))
    module = word(at(tool, "flit", "module", "name")) or word(at(tool, "flit", "metadata", "module"))
    if "flit" in backend:
        entries += _named(module or name.replace("-", "_"))
    wheel = table(tool, "hatch", "build", "targets", "wheel")
    roots = [*strings(wheel.get("sources")), *table(wheel, "sources")]
    for path in strings(wheel.get("packages")) + strings(wheel.get("only-include")):
        path = path.strip("/")
        if path in roots or path in ("src", "lib"):
            entries += [_entry(f"{path}/{child}", path) for child in _children(tree, path)]
        else:
            entries.append(_entry(path, str(PurePosixPath(path).parent)))
    for path in strings(at(tool, "scikit-build", "wheel", "packages")):
        entries.append(_entry(path.strip("/"), str(PurePosixPath(path.strip("/")).parent)))
    for each in strings(at(tool, "uv", "build-backend", "module-name")):
        root = word(at(tool, "uv", "build-backend", "module-root"))
        entries.append(_entry(f"{root or 'src'}/{each.replace('.', '/')}", root or "src"))
    source = word(at(tool, "maturin", "python-source"))
    module = word(at(tool, "maturin", "module-name")) or name.replace("-", "_")
    if "maturin" in backend:
        base = module.split(".")[0]
        entries += [_entry(f"{source}/{base}" if source else base, source), *_named(base)]
    if "pdm" in backend and word(at(tool, "pdm", "build", "package-dir")):
        base = word(at(tool, "pdm", "build", "package-dir"))
        entries += [_entry(f"{base}/{child}", base) for child in _children(tree, base)]
    return entries


def _entry(path: str, base: str) -> Provided:
    path = str(PurePosixPath(path))
    relative = path.removeprefix(base.strip("/") + "/") if base.strip("./") else path
    return Provided(relative.removesuffix(".py").replace("/", "."), path)


def _named(name: str) -> list[Provided]:
    path = name.replace(".", "/")
    return [Provided(name, f"{base}{path}{end}") for base in ("src/", "") for end in ("", ".py")]


def _globbed(tree: Tree, pattern: str) -> list[str]:
    pattern = pattern.strip("/").removesuffix("/**/*").removesuffix("/**").removesuffix("/*")
    if "*" not in pattern:
        return [pattern]
    return [name for name in (*sorted(tree.directories), *tree.files) if fnmatchcase(name, pattern)][:20]


def _children(tree: Tree, base: str) -> list[str]:
    """Packages and modules directly in a folder ("" is the top)."""
    prefix = f"{base}/" if base else ""
    names = {
        name[len(prefix) :].split("/")[0] for name in (*tree.directories, *tree.files)
        if name.startswith(prefix) and (name.endswith(".py") or name in tree.directories)
    }  # fmt: skip
    return sorted(
        name for name in names
        if re.fullmatch(r"[A-Za-z_]\w*(?:\.py)?", name)
        and (name.endswith(".py") or any(f"{prefix}{name}/{init}" in tree for init in ("__init__.py", "__init__.pyi"))
             or bool(base))
    )  # fmt: skip


# --------------------------------------------------------------------------- setuptools


def _from_setuptools(tree: Tree, data: dict[str, Any], script: SetupScript) -> list[Provided]:
    settings = table(data, "tool", "setuptools")
    options = configuration(tree).get("options", {})
    find = configuration(tree).get("options.packages.find", {})
    files = configuration(tree).get("files", {})  # pbr
    where = (
        table(settings, "package-dir") or script.keywords.get("package_dir") or _mapping(options.get("package_dir", ""))
    )
    folders = {str(key): word(value).strip("./") for key, value in table(where).items()}
    entries: list[Provided] = []
    for each in (
        strings(settings.get("packages")) + _lines(options.get("packages", "")) + _lines(files.get("packages", ""))
    ):
        if not each.startswith(("find", "$")):
            entries.append(Provided(each, _folder(each, folders)))
    for each in packages_keyword(script):
        if isinstance(each, str):
            entries.append(Provided(each, _folder(each, folders)))
        elif isinstance(each, Call):
            entries += _found_packages(tree, _where(each.kwargs, each.args), each.kwargs.get("exclude"), folders)
    searches = [table(settings, "packages", "find")] if at(settings, "packages", "find") is not None else []
    if options.get("packages", "").startswith("find"):
        searches.append({"where": find.get("where", folders.get("", "")), "exclude": _lines(find.get("exclude", "")),
                         "include": _lines(find.get("include", ""))})  # fmt: skip
    for search in searches:
        for base in strings(search.get("where")) or [folders.get("", "")]:
            found = _found_packages(tree, base.strip("./"), search.get("exclude"), folders)
            include = strings(search.get("include")) or ["*"]
            entries += [each for each in found if any(fnmatchcase(each.name, pattern) for pattern in include)]
    modules = strings(settings.get("py-modules")) + _lines(options.get("py_modules", ""))
    modules += strings(script.keywords.get("py_modules"))
    for module in modules:
        entries.append(Provided(module, _folder(module, folders) + ".py"))
    return entries


def _where(kwargs: dict[str, Any], args: tuple[Any, ...]) -> str:
    return (word(kwargs.get("where")) or word(args[0] if args else "")).strip("./")


def _found_packages(tree: Tree, base: str, exclude: Any, folders: dict[str, str]) -> list[Provided]:
    """Top-level packages as find_packages would list them, without tests and the like at the top of a flat layout."""
    excluded = [each.rstrip("*").rstrip(".") for each in strings(exclude)]
    base = base or folders.get("", "")
    prefix = f"{base}/" if base else ""
    return [
        Provided(name, prefix + name)
        for name in _children(tree, base)
        if not name.endswith(".py") and name not in excluded and name not in _NOT_PACKAGES
    ]


def _folder(name: str, folders: dict[str, str]) -> str:
    """Where a package or module lies, by package_dir."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        prefix = ".".join(parts[:count])
        if prefix in folders:
            return "/".join(filter(None, [folders[prefix], *parts[count:]]))
    return "/".join(filter(None, [folders.get("", ""), *parts]))


def _lines(text: str) -> list[str]:
    return [each.strip() for each in re.split(r"[\n,]", text) if each.strip()]


def _mapping(text: str) -> dict[str, str]:
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in text.splitlines()) if _}


# --------------------------------------------------------------------------- egg-info and layout


def _from_egg_info(tree: Tree) -> list[Provided]:
    entries: list[Provided] = []
    for folder in metadata_folders(tree):
        base = str(PurePosixPath(folder).parent).removeprefix(".")
        prefix = f"{base}/" if base else ""
        for name in (tree.text(f"{folder}/top_level.txt") or "").split():
            if name not in _NOT_PACKAGES:
                for root in dict.fromkeys((prefix, "", "src/", "lib/")):
                    entries += [Provided(name, f"{root}{name}"), Provided(name, f"{root}{name}.py")]
    return entries


def _by_layout(tree: Tree, name: str) -> list[Provided]:
    """src/ first, then the top; of several at the top, the one with the project's name."""
    own = canonicalize_name(name) if name else ""
    for base in ("src", "lib", "python", ""):
        if base in ("lib", "python") and f"{base}/{own.replace('-', '_')}" not in tree.directories:
            continue
        prefix = f"{base}/" if base else ""
        children = [child for child in _children(tree, base) if child.removesuffix(".py") not in _NOT_PACKAGES]
        packages = [child for child in children if not child.endswith(".py")]
        same = [each for each in children if canonicalize_name(each.removesuffix(".py")) == own]
        chosen = (packages or same or children) if base else same or packages or children
        if chosen:
            return [Provided(each.removesuffix(".py"), prefix + each) for each in chosen]
    dotted = name.replace("-", ".")
    return [Provided(dotted, dotted.replace(".", "/"))] if dotted.replace(".", "/") in tree.directories else []


# --------------------------------------------------------------------------- facts


def read(tree: Tree, found: Findings) -> None:
    script = evaluate(tree)
    tops = provided(tree, found, script)
    for each in tops:
        found.add("import-name", each.name, each.path)
    _note_modules(tree, found, tops)
    _note_version(tree, found, tops)


def _note_modules(tree: Tree, found: Findings, tops: list[Provided]) -> None:
    count = 0
    folders = {each.path: each.name for each in tops if each.is_package}
    for each in tops:
        if not each.is_package:
            found.add("module", each.name, each.path)
    for name in tree.files:
        if not name.endswith(".py"):
            continue
        top = next((folder for folder in folders if name.startswith(folder + "/")), None)
        if top is None or is_vendored(name):
            continue
        parts = name[len(top) + 1 :].removesuffix(".py").split("/")
        if not all(part.isidentifier() for part in parts):
            continue
        stem = [part for part in parts if part != "__init__"]
        if parts[-1] == "__main__":
            found.add("main-module", ".".join([folders[top], *stem[:-1]]), name)
            continue
        count += 1
        if count <= MAX_MODULES:
            found.add("module", ".".join([folders[top], *stem]), name)


def _note_version(tree: Tree, found: Findings, tops: list[Provided]) -> None:
    """`__version__ = "1.2"`, where no manifest states the version."""
    if found.first("project-version") is not None:
        return
    for each in tops:
        folder = each.path if each.is_package else str(PurePosixPath(each.path).parent)
        for name in (
            "__init__.py",
            "_version.py",
            "version.py",
            "__version__.py",
            "__about__.py",
            "_meta.py",
            "release.py",
        ):
            path = f"{folder}/{name}" if each.is_package else each.path
            match = re.search(r"""^(?:__version__|version|VERSION)\s*(?::\s*\w+\s*)?=\s*['"](\d[\w.+-]*)['"]""",
                              tree.text(path) or "", re.MULTILINE)  # fmt: skip
            if match:
                line = (tree.text(path) or "").count("\n", 0, match.start()) + 1
                found.add("project-version", match.group(1), path, line)
                return
