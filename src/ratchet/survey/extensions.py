"""Compiled modules: from setup.py's Extension and cythonize, cffi, setuptools-rust, maturin, meson and CMake."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from ratchet.survey.findings import Findings
from ratchet.survey.formats import Lines, at, items, strings, table, word
from ratchet.survey.python_manifests import load
from ratchet.survey.python_setup import SetupScript, evaluate
from ratchet.survey.static_python import Call
from ratchet.survey.tree import Tree, is_vendored

_BY_SUFFIX = (
    (("pyx", "py", "pxd"), "cython"),
    (("cpp", "cc", "cxx", "mm"), "c++"),
    (("f", "f90", "f77"), "fortran"),
    (("rs",), "rust"),
)
_MESON = re.compile(r"py\w*\.extension_module\(\s*['\"]([\w.]+)['\"]")
_CMAKE = re.compile(
    r"(?:python3?_add_library|pybind11_add_module|nanobind_add_module)\(\s*(\w+)|--module-name\s+\"?([\w.]+)",
    re.IGNORECASE,
)
_CFFI = re.compile(r"""set_source\(\s*['"]([\w.]+)['"]""")
# Built on other systems only.
_ELSEWHERE = re.compile(r"(?:windows|win32|win|osx|darwin|macos|bsd|sunos|solaris|aix|cygwin)$")
_INIT = re.compile(r"^\s*PyMODINIT_FUNC\s+PyInit_(\w+)\s*\(", re.MULTILINE)


def read(tree: Tree, found: Findings) -> None:
    script = evaluate(tree)
    _read_setup(tree, found, script)
    _read_cffi(tree, found, script)
    _read_pyproject(tree, found)
    _read_native_builds(tree, found)
    _read_cython_sources(tree, found)


def _read_setup(tree: Tree, found: Findings, script: SetupScript) -> None:
    lines = Lines(tree.text("setup.py") or "")
    for call in script.extensions:
        name = (
            word(call.kwargs.get("name")) or word(call.kwargs.get("target")) or word(call.args[0] if call.args else "")
        )
        if not re.fullmatch(r"[\w.]+", name) or _ELSEWHERE.search(name.rsplit("_", 1)[-1]):
            continue
        if call.name.startswith("Rust") or "RustExtension" in call.name:
            found.add("extension-module", name, "setup.py", call.line, "rust")
            continue
        sources = call.kwargs.get("sources") or (call.args[1] if len(call.args) > 1 else None)
        found.add("extension-module", name, "setup.py", call.line, _language(call, strings(sources)))
    if not script.extensions and ("ext_modules" in script.keywords or script.cythonizes):
        for name in _initialised(tree, found):
            found.add("extension-module", name, "setup.py", lines.find("ext_modules"), "c")


def _language(call: Call, sources: list[str]) -> str:
    for suffixes, language in _BY_SUFFIX:
        if any(source.rsplit(".", 1)[-1].lower() in suffixes for source in sources):
            return language
    if word(call.kwargs.get("language")) == "c++" or call.name in ("Pybind11Extension", "CppExtension"):
        return "c++"
    return "c"


def _initialised(tree: Tree, found: Findings) -> list[str]:
    """Modules that C sources of the project define, when setup.py does not say which it builds."""
    names: list[str] = []
    packages = {fact.file: fact.value for fact in found.of("import-name")}
    for path in tree.matching("*.c", "*.cpp", depth=4)[:200]:
        for name in _INIT.findall(tree.text_once(path) or "") if not is_vendored(path) else ():
            top = next((folder for folder in packages if path.startswith(folder + "/")), None)
            inner = [packages[top], *PurePosixPath(path[len(top) + 1 :]).parent.parts] if top else []
            names.append(".".join([*inner, name]))
    return names


def _read_cffi(tree: Tree, found: Findings, script: SetupScript) -> None:
    for entry in strings(script.keywords.get("cffi_modules")):
        path, _, _builder = entry.partition(":")
        for match in _CFFI.finditer(tree.text(path) or ""):
            line = (tree.text(path) or "").count("\n", 0, match.start()) + 1
            found.add("extension-module", match.group(1), path, line, "cffi")


def _read_pyproject(tree: Tree, found: Findings) -> None:
    data = load(tree, found)
    lines = Lines(tree.text("pyproject.toml") or "")
    tool = table(data, "tool")
    for each in items(at(tool, "setuptools", "ext-modules")):
        name = word(at(each, "name"))
        call = Call("Extension", (), table(each), 1)
        language = _language(call, strings(at(each, "sources")))
        found.add("extension-module", name, "pyproject.toml", lines.find(name), language)
    for each in items(at(tool, "setuptools-rust", "ext-modules")):
        found.add("extension-module", word(at(each, "target")), "pyproject.toml", lines.find("setuptools-rust"), "rust")
    if "maturin" in word(at(data, "build-system", "build-backend")):
        name = word(at(tool, "maturin", "module-name")) or (found.first("project-name") or "").replace("-", "_")
        found.add("extension-module", name, "pyproject.toml", lines.section("tool", "maturin"), "rust")


def _read_native_builds(tree: Tree, found: Findings) -> None:
    packages = {fact.file: fact.value for fact in found.of("import-name")}
    backend = found.first("build-backend") or ""
    for pattern, names, wanted in (
        (_MESON, ("meson.build",), "mesonpy"),
        (_CMAKE, ("CMakeLists.txt",), "scikit_build"),
    ):
        if wanted not in backend:
            continue
        for path in tree.matching(*names, depth=6)[:200]:
            text = tree.text(path) or ""
            for match in pattern.finditer(text) if not is_vendored(path) else ():
                line = text.count("\n", 0, match.start()) + 1
                found.add(
                    "extension-module", _qualified(path, match[match.lastindex or 0], packages), path, line, "c++"
                )


def _qualified(path: str, name: str, packages: dict[str, str]) -> str:
    """The dotted name of a module that a build file in the package's folder, or beside it, defines."""
    if "." in name:
        return name
    folder = str(PurePosixPath(path).parent)
    for top, package in packages.items():
        if folder == top or folder.startswith(top + "/"):
            return ".".join([package, *[part for part in folder[len(top) + 1 :].split("/") if part], name])
    return f"{next(iter(packages.values()))}.{name}" if packages else name


def _read_cython_sources(tree: Tree, found: Findings) -> None:
    """.pyx files inside the packages, where no other place named extensions."""
    if found.of("extension-module"):
        return
    packages = {fact.file: fact.value for fact in found.of("import-name")}
    for path in tree.matching("*.pyx", depth=8):
        for top, package in packages.items():
            inner = path[len(top) + 1 :].removesuffix(".pyx").replace("/", ".")
            if path.startswith(top + "/") and not is_vendored(path) and re.fullmatch(r"[\w.]+", inner):
                found.add("extension-module", f"{package}.{inner}", path, 1, "cython")
