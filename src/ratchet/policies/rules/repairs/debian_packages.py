"""A header, library, program or description file of the system is missing: the Debian package that holds it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from ratchet.policies.rules.repairs import changes, names
from ratchet.policies.rules.repairs.failure import Lookup, Repair
from ratchet.policies.rules.repairs.reading import (
    BUILD_STAGES,
    EVERY_STAGE,
    TEST_STAGES,
    Reading,
    Rule,
    errors_and_captured,
    line_of,
    pattern,
    skips,
)

# Headers that come with a Python distribution, not with Debian.
_PYTHON_HEADERS = {"numpy/": "numpy", "pybind11/": "pybind11", "nanobind/": "nanobind", "mpi4py/": "mpi4py"}

# What a compiler toolchain is made of: one package brings them all.
_TOOLCHAIN = frozenset({"gcc", "g++", "cc", "c++", "make", "ld", "ar", "x86_64-linux-gnu-gcc", "x86_64-linux-gnu-g++"})

# Packages for a CMake `find_package(NAME)` whose name says too little about its library.
_CMAKE_PACKAGES = """
zlib=zlib1g-dev openssl=libssl-dev boost=libboost-all-dev threads=libc6-dev eigen3=libeigen3-dev hdf5=libhdf5-dev
blas=libopenblas-dev lapack=liblapack-dev openblas=libopenblas-dev protobuf=protobuf-compiler gtest=libgtest-dev
curl=libcurl4-openssl-dev libxml2=libxml2-dev opencv=libopencv-dev tbb=libtbb-dev fmt=libfmt-dev mpi=libopenmpi-dev
pybind11=pybind11-dev swig=swig doxygen=doxygen git=git pkgconfig=pkg-config jpeg=libjpeg-dev png=libpng-dev
tiff=libtiff-dev freetype=libfreetype-dev opengl=libgl-dev x11=libx11-dev bzip2=libbz2-dev liblzma=liblzma-dev
lz4=liblz4-dev zstd=libzstd-dev sqlite3=libsqlite3-dev postgresql=libpq-dev nlohmann_json=nlohmann-json3-dev
glog=libgoogle-glog-dev gflags=libgflags-dev absl=libabsl-dev spdlog=libspdlog-dev flex=flex bison=bison llvm=llvm-dev
clang=libclang-dev gmp=libgmp-dev mpfr=libmpfr-dev ffi=libffi-dev yaml-cpp=libyaml-cpp-dev geos=libgeos-dev
gdal=libgdal-dev proj=libproj-dev
"""
_CMAKE = {name: package for name, _, package in (pair.partition("=") for pair in _CMAKE_PACKAGES.split())}

_PROGRAM_PACKAGES = {"pkg-config": "pkg-config", "cmake": "cmake", "ninja": "ninja-build", "git": "git", "make": "make"}


def find(lookup: Callable[[str], tuple[str, ...]], *candidates: str) -> str | None:
    """The best package for the first of the names that any package has."""
    for name in candidates:
        for package in lookup(name):
            if names.debian(package):
                return package
    return None


def _install(packages: Iterable[str | None], what: str, line: str) -> Iterator[Repair]:
    for package in packages:
        if package is not None:
            yield Repair(f"debian:{package}", f"{what} is in {package}: {line}", changes.install_debian(package))


def _header(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    name = names.header(match["name"])
    if name is None or name == "longintrepr.h":
        return
    line = line_of(match)
    if name == "Python.h":
        yield from _install(["python3-dev"], name, line)
        return
    if distribution := next((d for start, d in _PYTHON_HEADERS.items() if name.startswith(start)), None):
        declared = reading.context.survey.values("build-requirement")
        yield Repair(
            f"build-requirement:{distribution}",
            f"{name} comes with {distribution}: {line}",
            changes.build_without_isolation(declared, distribution),
        )
        return
    yield from _install([find(reading.context.lookup.header, name)], name, line)


def _library(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    if (name := names.library(match["name"])) is None:
        return
    if re.fullmatch(r"python3(\.\d+)?", name):
        yield from _install(["python3-dev"], name, line_of(match))
        return
    lookup = reading.context.lookup
    package = find(lookup.library, name) or find(lookup.pkg_config, name, f"lib{name}")
    yield from _install([package], name, line_of(match))


def _described(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """Asked for through pkg-config or meson."""
    if (name := names.library(match["name"])) is None:
        return
    yield from _install([by_any_name(name, reading.context.lookup)], name, line_of(match))


def by_any_name(name: str, lookup: Lookup) -> str | None:
    """A development package for a name that may be a pkg-config module, a library or a CMake package."""
    plain = name.lower()
    if plain in _CMAKE:
        return _CMAKE[plain]
    return find(lookup.pkg_config, name, plain, f"lib{plain}", plain.removeprefix("lib")) or find(
        lookup.library, name, plain, plain.removeprefix("lib")
    )


def _one_of(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """Several pkg-config modules were tried in turn, and any one will do."""
    tried = re.findall(r"pkg-config --exists ([\w.+-]+)", match.string)
    found = [p for name in tried if (p := find(reading.context.lookup.pkg_config, name))]
    yield from _install(found[:1], " or ".join(tried[:5]), line_of(match))


def _named_in_words(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """ "Please make sure the X and Y development packages are installed"."""
    for name in (match["first"], match["second"]):
        if name and names.library(name):
            yield from _install([by_any_name(name, reading.context.lookup)], name, line_of(match))


def _program(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    name = names.program(match["name"].rpartition("/")[2])
    if name is None or ("/" in match["name"] and not match["name"].startswith(("/usr/", "/bin/", "/sbin/"))):
        return
    line = line_of(match)
    if name in _TOOLCHAIN:
        yield from _install(["build-essential"], name, line)
    elif name in {"cargo", "rustc"}:
        yield from _rust(match, reading)
    elif re.fullmatch(r"python(\d(\.\d+)?)?|pytest|pip\d?|uv", name):
        return
    else:
        known = _PROGRAM_PACKAGES.get(name)
        yield from _install([known or find(reading.context.lookup.program, name)], name, line)


def _fortran(match: re.Match[str], _: Reading) -> Iterator[Repair]:
    yield from _install(["gfortran"], "a Fortran compiler", line_of(match))


def _compiler(match: re.Match[str], _: Reading) -> Iterator[Repair]:
    yield from _install(["build-essential"], "a compiler", line_of(match))


def _rust(match: re.Match[str], _: Reading) -> Iterator[Repair]:
    yield from _install(["cargo", "rustc"], "Rust", line_of(match))


def _newer_rust(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """Debian's stable Rust is often too old; a suite may have a newer one under another name."""
    lookup = reading.context.lookup
    newer = [
        p
        for name in ("rustc", "cargo")
        for p in lookup.program(name)
        if names.debian(p) and p not in {"rustc", "cargo"}
    ]
    if len(newer) >= 2:
        change = changes.both(changes.without_debian("rustc", "cargo"), changes.install_debian(*newer))
        yield Repair("newer-rust", f"a newer Rust is needed: {line_of(match)}", change)


def _skipped_program(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """Tests are skipped for want of a program: it is installed where exactly that program is in a package."""
    name = names.program(match["name"])
    if name is None or name.lower() in {"windows", "python", "network", "internet", "it", "module", "package", "this"}:
        return
    yield from _install([find(reading.context.lookup.program, name)], name, line_of(match))


def _loaded_by_name(match: re.Match[str], reading: Reading) -> Iterator[Repair]:
    """A shared library that a Python package loads by its plain name, when it is imported or used."""
    name = match["name"].removeprefix("lib")
    if names.library(name) is None:
        return
    lookup = reading.context.lookup
    runtime = [p for p in lookup.library(name) if names.debian(p) and not p.endswith(("-dev", "-dbg"))]
    yield from _install([runtime[0] if runtime else find(lookup.library, name)], name, line_of(match))


_QUOTE = r"[`'\"‘“]?"
_PROGRAM = r"(?P<name>[\w./+-]{1,100})"
_ENDQUOTE = r"['\"’”`]?"

RULES = (
    Rule(pattern(r"fatal error: (?P<name>[\w./+-]{1,120}): No such file or directory"), _header),
    Rule(pattern(r"fatal error: '(?P<name>[\w./+-]{1,120})' file not found"), _header),
    Rule(pattern(r"cannot find -l(?P<name>[\w.+-]{1,80})"), _library),
    Rule(
        pattern(r"\b(?P<name>lib[\w.+-]{1,80}\.so[\w.]*): cannot open shared object file"),
        _library,
        EVERY_STAGE,
        errors_and_captured,
    ),
    Rule(
        pattern(
            r"Package '?(?P<name>[\w.+-]{1,80})'?(?: was not found in the pkg-config search path"
            r"|, required by .*, not found)"
        ),
        _described,
    ),
    Rule(pattern(r"No package '(?P<name>[\w.+-]{1,80})' found"), _described),
    Rule(pattern(r"ERROR: (?:Dependency|Pkg-config binary .*) \"(?P<name>[\w.+-]{1,80})\" not found"), _described),
    Rule(
        pattern(r"ERROR: (?:C|C\+\+|Fortran) (?:shared or static )?library '(?P<name>[\w.+-]{1,80})' not found"),
        _library,
    ),
    Rule(pattern(r"Could NOT find (?P<name>[\w+-]{1,60}) \("), _described, BUILD_STAGES),
    Rule(
        pattern(r"Could not find a package configuration file provided by \"(?P<name>[\w+-]{1,60})\""),
        _described,
        BUILD_STAGES,
    ),
    Rule(pattern(r"Can ?not find valid pkg-config name"), _one_of, BUILD_STAGES),
    Rule(
        pattern(
            r"(?:the |that |install )(?:lib)?(?P<first>[\w.+-]{2,40})(?: and (?:lib)?(?P<second>[\w.+-]{2,40}))?"
            r" development (?:packages?|headers?|files|librar(?:y|ies))"
        ),
        _named_in_words,
        BUILD_STAGES,
    ),
    Rule(
        pattern(r"The headers or library files could not be found for (?P<name>[\w-]{2,40})"), _described, BUILD_STAGES
    ),
    Rule(
        pattern(
            r"No CMAKE_Fortran_COMPILER could be found|Unknown compiler\(s\): \[\['gfortran'"
            r"|Unknown compiler\(s\): .*gfortran|no Fortran compiler found"
        ),
        _fortran,
        BUILD_STAGES,
    ),
    Rule(
        pattern(
            r"No CMAKE_(?:C|CXX)_COMPILER could be found|Unknown compiler\(s\): \[\['(?:cc|c\+\+)'"
            r"|C compiler cannot create executables|no acceptable C compiler found"
        ),
        _compiler,
        BUILD_STAGES,
    ),
    Rule(
        pattern(
            r"(?:can't find|could not find|needs? (?:a|the)|requires) Rust (?:compiler|toolchain)"
            r"|Cargo, the Rust package manager, is not installed|^Rust not found, installing into a temporary directory"
        ),
        _rust,
        BUILD_STAGES,
    ),
    Rule(
        pattern(
            r"requires? rustc \d+\.\d+[^\n]{0,60}(?:newer|later|while)"
            r"|lock file version `?\d`? (?:requires|was found)|this version of Cargo is older than the `\d+` edition"
            r"|feature `edition2024` is required|rustc \d[\d.]+ is not supported by the following"
        ),
        _newer_rust,
        BUILD_STAGES,
    ),
    Rule(pattern(rf"^error: command {_QUOTE}{_PROGRAM}{_ENDQUOTE} failed: No such file or directory"), _program),
    Rule(pattern(rf"unable to execute {_QUOTE}{_PROGRAM}{_ENDQUOTE}: No such file"), _program),
    Rule(
        pattern(
            rf"^(?:\w*Error|error|ConfigurationError|Error|E"
            rf"|FileNotFoundError): (?:Could not run [\w.-]+: )?\[Errno 2\] No such file or directory:"
            rf" '{_PROGRAM}'"
        ),
        _program,
    ),
    Rule(
        pattern(rf"^(?:/bin/)?(?:ba|da)?sh: (?:line )?\d+: {_PROGRAM}: (?:command )?not found"),
        _program,
        EVERY_STAGE,
        errors_and_captured,
    ),
    Rule(
        pattern(rf"^(?:/usr/bin/)?env: {_QUOTE}{_PROGRAM}{_ENDQUOTE}: No such file or directory"),
        _program,
        EVERY_STAGE,
        errors_and_captured,
    ),
    Rule(pattern(rf"^make(?:\[\d+\])?: {_PROGRAM}: No such file or directory"), _program),
    Rule(pattern(rf"ERROR: Program '{_PROGRAM}' not found or not executable"), _program, BUILD_STAGES),
    Rule(pattern(rf"^(?:\w*Error: |Error: )?{_QUOTE}{_PROGRAM}{_ENDQUOTE} (?:executable )?not found\.?$"), _program),
    Rule(
        pattern(rf"^CMake Error: CMake was unable to find a build program corresponding to \"{_PROGRAM}\""),
        _program,
        BUILD_STAGES,
    ),
    Rule(
        pattern(
            r"(?P<name>cmake|ninja|swig|pkg-config|git|gperf|bison|flex|protoc)\b.{0,30}(?:must be installed"
            r"|is required|not installed|could not be found)"
        ),
        _program,
        BUILD_STAGES,
    ),
    Rule(pattern(r"^(?:ImportError|OSError|RuntimeError): failed to find (?P<name>lib\w+)"), _loaded_by_name),
    Rule(pattern(r"^OSError: (?P<name>[\w-]{2,40}) library not found"), _loaded_by_name),
    Rule(
        pattern(
            r"^OSError: (?:no library called"
            r"|cannot load library) \"?'?(?P<name>[\w.+-]{2,60}?)(?:\.so[\d.]*)?'?\"?(?: was found|:)"
        ),
        _loaded_by_name,
    ),
    Rule(
        pattern(
            r"^SKIPPED .*: (?:[Rr]equires |[Nn]eeds"
            r" )?[`'\"]?(?P<name>[a-z0-9][a-z0-9+._-]{1,30})[`'\"]?(?: (?:binary|command|executable"
            r"|program))? (?:is )?(?:not (?:installed|found|available|on (?:the )?PATH)|missing|required)"
        ),
        _skipped_program,
        TEST_STAGES,
        skips,
    ),
)
