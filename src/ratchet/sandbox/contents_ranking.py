"""Which of several packages that ship a file is the one that people mean.

A package is scored by what the archive's own conventions say: development packages end in `-dev` and live in section
libdevel, a header that compilers find without further flags lies in the top of an include folder, and a package is
named after what it is for. Lower is better.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Found:
    """A file that was looked for: the folder that the asked-for name starts in, and the package with its section."""

    folder: str
    package: str
    section: str


_TOP = re.compile(r"(?:usr/)?(?:include|lib|s?bin)(?:/[a-z0-9_]+-linux-gnu[a-z0-9]*)?|usr/share/pkgconfig")
_PKG_CONFIG = re.compile(r"usr/lib/[a-z0-9_]+-linux-gnu[a-z0-9]*/pkgconfig|usr/lib/pkgconfig")
_OTHER_SYSTEMS = re.compile(r"wine|musl|dietlibc|klibc|uclibc|hurd|kfreebsd|avr|newlib|emscripten|-web$|-mozilla$")
_PYTHON_HEADERS = re.compile(r"libpython3(?:\.[0-9]+)?-dev")
# Of builds of one library with different options, these are the ones that nobody means when they name none.
_FLAVOURS = re.compile(r"-(?:nss|gnutls|serial|openmp|mpich|openmpi|debug|compat)-|64-|^lib(?:x?32)|-mozjs")
# Names that update-alternatives makes when a package is installed: no contents index has them.
_ALTERNATIVES = {
    "cblas.h": ("libopenblas-dev", "libblas-dev"),
    "lapacke.h": ("liblapacke-dev",),
    "mpi.h": ("libopenmpi-dev",),
    "hdf5": ("libhdf5-dev",),
    "openblas": ("libopenblas-dev",),
    "mysql/mysql.h": ("default-libmysqlclient-dev",),
    "java": ("default-jre-headless",),
    "javac": ("default-jdk-headless",),
    "mpicc": ("libopenmpi-dev",),
    "mpirun": ("openmpi-bin",),
    "mpiexec": ("openmpi-bin",),
    "convert": ("imagemagick",),
    "which": ("debianutils",),
    "awk": ("mawk",),
    "nc": ("netcat-openbsd",),
    "editor": ("nano",),
    "lzma": ("xz-utils",),
}
_SECTIONS = {"libdevel": 0, "devel": 1, "oldlibs": 30, "debug": 40, "doc": 40}


def ranked(found: Iterable[Found], wanted: str) -> tuple[str, ...]:
    """The packages, best first, each once."""
    best: dict[str, tuple[float, int, str]] = {}
    for each in found:
        # Debian's interpreter headers are split by version; the package that follows the default is the one to name.
        package = "python3-dev" if _PYTHON_HEADERS.fullmatch(each.package) else each.package
        key = (_score(each, wanted), len(package), package)
        best[package] = min(key, best.get(package, key))
    first = _ALTERNATIVES.get(wanted, ())
    return tuple(dict.fromkeys([*first, *sorted(best, key=lambda package: best[package])]))


def _score(found: Found, wanted: str) -> float:
    score = 0.0
    if not (_TOP.fullmatch(found.folder) or _PKG_CONFIG.fullmatch(found.folder)):
        score += 8 + found.folder.count("/")
    score += _SECTIONS.get(found.section, 4)
    if _OTHER_SYSTEMS.search(found.package):
        score += 50
    if _FLAVOURS.search(found.package):
        score += 3
    return score - _kinship(found.package, wanted)


def _kinship(package: str, wanted: str) -> float:
    """How much the names of a package and of a file have in common: 0 to 6."""
    if package == wanted:
        return 6
    stem = _stem(package)
    names = {_stem(part) for part in re.sub(r"\.(h|hpp|pc|so[.0-9]*|a)$", "", wanted).split("/")} - {""}
    if stem in names:
        return 4
    if any(stem.startswith(name) or name.startswith(stem) for name in names if min(len(name), len(stem)) > 2):
        return 2
    return 0


def _stem(name: str) -> str:
    bare = re.sub(r"^lib|-dev$|-bin$|-tools$", "", name.lower())
    return re.sub(r"[^a-z]", "", bare)
