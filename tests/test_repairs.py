"""Every kind of repair, made from a real failing log (tests/data/logs).

A log is what today's tool printed for a small broken project; long ones are cut in the middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ratchet.policies.rules.plan import Plan
from ratchet.policies.rules.repairs import Context, Failure, Repair, apply, propose
from ratchet.records import Checkout, Fact, LimitHit, Survey

LOGS = Path(__file__).parent / "data" / "logs"
PLAN = Plan(python="3.11", requirements=("pytest",))
DATE = "2024-03-01"


_HEADERS = {"lber.h": "libldap-dev"}
_LIBRARIES = {
    "sodium": "libsodium-dev",
    "archive": "libarchive-dev",
    "libportaudio.so.2": "libportaudio2",
    "magic": "libmagic1",
    "libhdf5.so": "libhdf5-dev",
}
_MODULES = {
    "cairo": "libcairo2-dev",
    "dbus-1": "libdbus-1-dev",
    "fuse3": "libfuse3-dev",
    "libxml2": "libxml2-dev",
    "libxslt": "libxslt1-dev",
    "mariadb": "libmariadb-dev",
}
_PROGRAMS = {
    "swig": "swig",
    "pg_config": "libpq-dev",
    "mysql_config": "libmariadb-dev-compat",
    "mariadb_config": "libmariadb-dev",
    "curl-config": "libcurl4-openssl-dev",
    "gperf": "gperf",
    "cowsay": "cowsay",
    "sl": "sl",
    "ffmpeg": "ffmpeg",
    "ruby": "ruby",
}


class Contents:
    """A lookup that knows the few Debian files that the logs ask for."""

    def header(self, name: str) -> tuple[str, ...]:
        return _found(_HEADERS, name)

    def library(self, name: str) -> tuple[str, ...]:
        return _found(_LIBRARIES, name)

    def pkg_config(self, name: str) -> tuple[str, ...]:
        return _found(_MODULES, name)

    def program(self, name: str) -> tuple[str, ...]:
        return (name, f"{name}-web") if name in {"rustc", "cargo"} else _found(_PROGRAMS, name)


def _found(table: dict[str, str], name: str) -> tuple[str, ...]:
    return (table[name],) if name in table else ()


def log(name: str) -> str:
    return (LOGS / f"{name}.log").read_text("utf-8")


def context(*facts: tuple[str, str] | tuple[str, str, str], path: str = "/nonexistent", **checkout: Any) -> Context:
    """What is known of a checkout; a fact is (kind, value) or (kind, value, group)."""
    found = [Fact(f[0], f[1], "pyproject.toml", 1, f[2] if len(f) > 2 else "") for f in facts]
    known = {"date": DATE, "version": "1.2", **checkout}
    return Context(
        Survey("id", tuple(found)),
        Checkout("id", "project", "here", path, **known),
        ("3.9", "3.11", "3.12", "3.13"),
        Contents(),
    )


@dataclass(frozen=True)
class Case:
    """A log, the keys of the repairs that it must lead to, and fields of the plan after them."""

    log: str
    stage: str
    keys: tuple[str, ...]
    after: dict[str, Any]
    facts: Sequence[tuple[str, ...]] = ()
    plan: Plan = PLAN


def python(version: str) -> Plan:
    return replace(PLAN, python=version)


def debian(*packages: str) -> dict[str, Any]:
    return {"debian": packages}


def requires(*requirements: str) -> dict[str, Any]:
    return {"requirements": ("pytest", *requirements)}


MODULES = [
    Case(
        "missing-modules-collect",
        "collect",
        ("missing-module:yaml", "missing-module:PIL", "missing-module:google.protobuf.message"),
        requires("PyYAML", "Pillow", "protobuf"),
    ),
    Case(
        "missing-modules-collect",
        "collect",
        ("missing-module:yaml", "missing-module:PIL", "missing-module:google.protobuf.message"),
        requires("pyyaml<7,>=6", "Pillow", "protobuf"),
        [("group-requirement", "pyyaml>=6,<7", "group:test")],
    ),
    Case("missing-module-test", "test", ("missing-module:dateutil",), requires("python-dateutil")),
    Case(
        "missing-module-test",
        "test",
        ("missing-module:dateutil", "missing-module:hypothesis"),
        requires("python-dateutil", "hypothesis"),
        [("group-requirement", "hypothesis", "group:test")],
    ),
    Case(
        "advised-extra",
        "test",
        ("extra:http2",),
        requires("h2<5,>=3"),
        [("project-name", "httpx"), ("extra-requirement", "h2<5,>=3", "extra:http2")],
    ),
    Case("advised-extra", "test", ("advised:httpx[http2]",), requires("httpx[http2]")),
    Case("conftest-import", "collect", ("missing-module:freezegun",), requires("freezegun")),
    Case("import-nose", "collect", ("missing-module:nose",), requires("pynose")),
    Case("distutils-missing", "test", ("missing-module:distutils",), requires("setuptools"), plan=python("3.12")),
    Case(
        "own-extension-missing",
        "collect",
        ("in-place",),
        {"in_place": True, "requirements": ("pytest",)},
        [("import-name", "fastlib"), ("extension-module", "fastlib._speed", "c")],
    ),
    Case("import-file-mismatch", "collect", ("import-mode",), {"pytest_options": ("--import-mode=importlib",)}),
    Case("submodule-missing", "collect", ("time-travel",), {"exclude_newer": DATE}),
    Case(
        "submodule-missing",
        "collect",
        ("bound:werkzeug",),
        {"constraints": ("Werkzeug<2.1",), "exclude_newer": None},
        [("requirement", "Werkzeug<2.1")],
    ),
]

PLUGINS = [
    Case(
        "option-many",
        "collect",
        ("plugin:pytest-cov", "plugin:pytest-timeout", "plugin:pytest-asyncio", "plugin:pytest-xdist"),
        requires("pytest-cov", "pytest-timeout", "pytest-asyncio", "pytest-xdist"),
    ),
    Case(
        "option-mypy",
        "collect",
        ("plugin:pytest-mypy",),
        requires("pytest-mypy~=0.10"),
        [("extra-requirement", "pytest-mypy~=0.10", "extra:dev")],
    ),
    Case(
        "option-frobnicate",
        "collect",
        ("drop-addopts",),
        {"pytest_options": ("-o", "addopts=")},
        [("pytest-option", "--frobnicate")],
    ),
    Case(
        "required-plugins",
        "collect",
        ("plugin:pytest-django", "plugin:pytest-xdist"),
        requires("pytest-django", "pytest-xdist>=2"),
    ),
    Case(
        "async-not-supported",
        "test",
        ("plugin:pytest-django", "plugin:pytest-asyncio", "plugin:pytest-timeout"),
        requires("pytest-django", "pytest-asyncio", "pytest-timeout"),
        [("pytest-setting", "asyncio_mode=auto")],
    ),
    Case("async-fixture", "test", ("plugin:pytest-trio",), requires("pytest-trio"), [("test-import", "trio")]),
    Case("strict-config", "collect", ("plugin:pytest-asyncio",), requires("pytest-asyncio")),
    Case("strict-markers", "collect", ("plugin:pytest-asyncio",), requires("pytest-asyncio")),
    Case("plugin-p", "collect", ("plugin:pytest-httpserver",), requires("pytest-httpserver")),
    Case(
        "fixtures",
        "test",
        ("plugin:pytest-mock", "plugin:pytest-benchmark", "plugin:pytest-httpserver", "plugin:requests-mock"),
        requires("pytest-mock", "pytest-benchmark", "pytest-httpserver", "requests-mock"),
    ),
    Case(
        "event-loop-fixture",
        "test",
        ("plugin:pytest-asyncio",),
        {"requirements": ("pytest", "pytest-asyncio"), "constraints": ("pytest-asyncio<1",)},
        plan=replace(PLAN, requirements=("pytest", "pytest-asyncio")),
    ),
]

PYTEST = [
    Case("nose-setup", "test", ("older-pytest:8",), {"constraints": ("pytest<8",)}),
    Case(
        "nose-setup",
        "test",
        ("older-pytest:8",),
        {"constraints": ("pytest<7",)},
        [("group-requirement", "pytest<7", "tox:py")],
    ),
    Case("yield-tests", "collect", ("time-travel",), {"exclude_newer": DATE}),
    Case("hook-py-path", "collect", ("older-pytest:9",), {"constraints": ("pytest<9",)}),
    Case("marks-on-fixture", "collect", ("older-pytest:9",), {"constraints": ("pytest<9",)}),
    Case("pytest-removed-api", "test", ("older-pytest:8",), {"constraints": ("pytest<8",)}),
    Case("node-fspath", "collect", ("older-pytest:6",), {"constraints": ("pytest<6",)}),
    Case("pytest-private", "collect", ("older-pytest:8",), {"constraints": ("pytest<8",)}),
    Case("pytest-removed-warning", "collect", ("warnings-as-errors",), {"pytest_options": ("-W", "default")}),
    Case(
        "pytest-minversion",
        "collect",
        ("newer-pytest",),
        {"constraints": ()},
        plan=replace(PLAN, constraints=("pytest<7",)),
    ),
]

SYSTEM_PACKAGES = [
    Case("header-missing", "install", ("debian:libldap-dev",), debian("libldap-dev")),
    Case("python-ldap", "install", ("debian:libldap-dev",), debian("libldap-dev")),
    Case("python-h-missing", "install", ("debian:python3-dev",), debian("python3-dev")),
    Case(
        "library-missing",
        "install",
        ("debian:libsodium-dev", "debian:libarchive-dev"),
        debian("libsodium-dev", "libarchive-dev"),
    ),
    Case("compiler-missing", "install", ("debian:build-essential",), debian("build-essential")),
    Case("swig-missing", "install", ("debian:swig",), debian("swig")),
    Case("pg-config-missing", "install", ("debian:libpq-dev",), debian("libpq-dev")),
    Case("mysql-config-missing", "install", ("debian:libmariadb-dev",), debian("libmariadb-dev")),
    Case(
        "mysql-config-old",
        "install",
        ("debian:libmariadb-dev-compat", "debian:libmariadb-dev"),
        debian("libmariadb-dev-compat", "libmariadb-dev"),
    ),
    Case(
        "lxml-source",
        "install",
        ("debian:libxml2-dev", "debian:libxslt1-dev"),
        debian("libxml2-dev", "libxslt1-dev"),
    ),
    Case("meson-dependency", "install", ("debian:libcairo2-dev",), debian("libcairo2-dev")),
    Case("dbus-python", "install", ("debian:libdbus-1-dev",), debian("libdbus-1-dev")),
    Case("pycurl", "install", ("debian:libcurl4-openssl-dev",), debian("libcurl4-openssl-dev")),
    Case("h5py", "install", ("debian:libhdf5-dev",), debian("libhdf5-dev")),
    Case("cmake-find", "install", ("debian:libhdf5-dev",), debian("libhdf5-dev")),
    Case("cmake-pkgconfig", "install", ("debian:libfuse3-dev",), debian("libfuse3-dev")),
    Case("cmake-fortran", "install", ("debian:gfortran",), debian("gfortran")),
    Case("meson-fortran", "install", ("debian:gfortran",), debian("gfortran")),
    Case("meson-program", "install", ("debian:gperf",), debian("gperf")),
    Case(
        "runtime-programs",
        "test",
        ("debian:libportaudio2", "debian:sl", "debian:cowsay", "debian:ffmpeg"),
        debian("libportaudio2", "sl", "cowsay", "ffmpeg"),
    ),
    Case("runtime-libmagic", "test", ("debian:libmagic1",), debian("libmagic1")),
    Case("env-program", "test", ("debian:ruby",), debian("ruby")),
    Case("rust-missing", "install", ("debian:cargo", "debian:rustc"), debian("cargo", "rustc")),
    Case("rust-missing-setuptools", "install", ("debian:cargo", "debian:rustc"), debian("cargo", "rustc")),
    *(
        Case(
            name,
            "install",
            ("newer-rust",),
            debian("rustc-web", "cargo-web"),
            plan=replace(PLAN, debian=("cargo", "rustc")),
        )
        for name in ("rust-too-old", "rust-edition", "rust-lock")
    ),
    Case(
        "apt-missing",
        "apt",
        ("drop-debian:no-such-package-zz9",),
        debian("git"),
        plan=replace(PLAN, debian=("no-such-package-zz9", "git")),
    ),
]

BUILDS = [
    Case(
        "build-module-numpy",
        "install",
        ("build-requirement:numpy",),
        {"build_isolation": False, "build_requirements": ("numpy<2", "flit_core", "setuptools", "wheel")},
        [("build-requirement", "flit_core"), ("requirement", "numpy<2")],
    ),
    Case(
        "build-module-cython",
        "install",
        ("build-requirement:Cython",),
        {"build_isolation": False, "build_requirements": ("Cython", "setuptools", "wheel")},
    ),
    Case(
        "setup-imports-own-requirement",
        "install",
        ("build-requirement:requests",),
        {"build_isolation": False, "build_requirements": ("requests", "setuptools", "wheel")},
    ),
    Case(
        "backend-missing-poetry",
        "install",
        ("build-requirement:poetry",),
        {"build_isolation": False, "build_requirements": ("poetry-core", "setuptools", "wheel")},
    ),
    Case("backend-poetry-masonry", "install", ("not-editable",), {"editable": False}),
    Case("build-pkg-resources", "install", ("build-setuptools:81",), {"build_constraints": ("setuptools<81",)}),
    Case("use-2to3", "install", ("build-setuptools:58",), {"build_constraints": ("setuptools<58",)}),
    Case("setuptools-command-test", "install", ("build-setuptools:72",), {"build_constraints": ("setuptools<72",)}),
    Case("dash-separated", "install", ("build-setuptools:78",), {"build_constraints": ("setuptools<78",)}),
    Case("license-classifier", "install", ("build-setuptools:77",), {"build_constraints": ("setuptools<77",)}),
    Case("pyyaml-cython3", "install", ("build-cython:3",), {"build_constraints": ("Cython<3",)}, plan=python("3.12")),
    Case("flat-layout", "install", ("no-project",), {"install_project": False, "env": {"PYTHONPATH": "/workspace"}}),
    Case(
        "setup-missing-file",
        "install",
        ("no-project",),
        {"install_project": False, "requirements": ("pytest", "attrs>=20")},
        [("requirement", "attrs>=20")],
    ),
    Case("cargo-missing", "install", ("wheel:rpds-py",), {"only_binary": ("rpds-py",)}),
    Case(
        "license-string-old-setuptools",
        "install",
        ("no-project",),
        {"install_project": False},
    ),
]

PYTHONS = [
    Case("requires-python-own", "install", ("python:3.13",), {"python": "3.13"}),
    Case("python-collections", "test", ("python:3.9",), {"python": "3.9"}),
    Case("python-asyncio-coroutine", "collect", ("python:3.9",), {"python": "3.9"}),
    Case("python-removed-module", "collect", ("python:3.11",), {"python": "3.11"}, plan=python("3.12")),
    Case(
        "python-removed-module",
        "collect",
        ("missing-module:asyncore",),
        {"python": "3.12", "requirements": ("pytest", "pyasyncore")},
        [("requires-python", ">=3.12")],
        python("3.12"),
    ),
    Case("python312-removed", "test", ("python:3.11",), {"python": "3.11"}, plan=python("3.12")),
    Case("build-imp", "install", ("python:3.11",), {"python": "3.11"}, plan=python("3.12")),
    Case("safe-config-parser", "install", ("python:3.11",), {"python": "3.11"}, plan=python("3.12")),
    Case("numpy-python312", "install", ("python:3.11",), {"python": "3.11"}, plan=python("3.12")),
    Case("longintrepr", "install", ("python:3.9",), {"python": "3.9"}, plan=python("3.12")),
    Case("no-wheels-abi", "install", ("python:3.12",), {"python": "3.12"}, plan=python("3.13")),
    Case("python-new-syntax", "collect", ("python:3.11",), {"python": "3.11"}, plan=python("3.9")),
    Case(
        "python-new-syntax",
        "collect",
        ("python:3.13",),
        {"python": "3.13"},
        [("python-version", "3.13")],
        python("3.9"),
    ),
    Case("python-new-module", "collect", ("python:3.11",), {"python": "3.11"}, plan=python("3.9")),
    Case("python-new-typing", "collect", ("python:3.11",), {"python": "3.11"}, plan=python("3.9")),
    Case("python-new-union", "collect", ("python:3.11",), {"python": "3.11"}, plan=python("3.9")),
]

SCM = "SETUPTOOLS_SCM_PRETEND_VERSION"
VERSIONS = [
    Case(
        "setuptools-scm",
        "install",
        ("version:setuptools-scm",),
        {"env": {SCM: "1.2", f"{SCM}_FOR_B_SCM": "1.2"}},
        [("project-name", "b.scm")],
    ),
    Case("hatch-vcs", "install", ("version:setuptools-scm",), {"env": {SCM: "1.2", f"{SCM}_FOR_PROJECT": "1.2"}}),
    Case("pbr", "install", ("version:pbr",), {"env": {"PBR_VERSION": "1.2"}}),
    Case("pdm-scm", "install", ("version:pdm-backend",), {"env": {"PDM_BUILD_SCM_VERSION": "1.2"}}),
    Case("dunamai", "install", ("version:git",), {"git_version": "1.2", "debian": ("git",)}),
    Case("versioningit", "install", ("version:git",), {"git_version": "1.2"}),
    Case("git-describe", "install", ("version:git",), {"git_version": "1.2"}),
    Case("git-repository", "test", ("version:git",), {"git_version": "1.2"}),
]

RESOLUTION = [
    Case(
        "conflict-beside",
        "install",
        ("relax:urllib3",),
        requires("types-requests>=2.31.0.20240101", "urllib3"),
        plan=replace(PLAN, requirements=("pytest", "types-requests>=2.31.0.20240101", "urllib3>=2.2")),
    ),
    Case(
        "not-in-registry",
        "install",
        ("drop:this-distribution-does-not-exist-anywhere-77",),
        {"requirements": ("pytest",), "left_out": ("this-distribution-does-not-exist-anywhere-77",)},
        plan=replace(PLAN, requirements=("pytest", "this-distribution-does-not-exist-anywhere-77")),
    ),
    Case("conflict", "install", ("time-travel",), {"exclude_newer": DATE}),
    Case(
        "newer-cut",
        "install",
        ("time-return",),
        {"exclude_newer": None},
        plan=replace(PLAN, exclude_newer="2015-01-01"),
    ),
    Case(
        "git-requirement",
        "install",
        ("release-of:foo",),
        requires("foo"),
        plan=replace(PLAN, requirements=("pytest", "foo @ git+https://git.invalid/example/foo@v1")),
    ),
]

DRIFT = [
    Case("drift-import", "collect", ("time-travel",), {"exclude_newer": DATE}),
    Case("drift-import-name", "collect", ("time-travel",), {"exclude_newer": DATE}),
    Case("drift-attribute", "test", ("time-travel",), {"exclude_newer": DATE}),
    Case(
        "drift-import",
        "collect",
        ("bound:werkzeug",),
        {"constraints": ("werkzeug==2.0.3",), "exclude_newer": None},
        [("constraint", "werkzeug==2.0.3", "file:constraints.txt")],
    ),
    Case(
        "drift-import",
        "collect",
        ("time-travel:earlier",),
        {"exclude_newer": "2023-09-03"},
        plan=replace(PLAN, exclude_newer=DATE),
    ),
    Case("warning-as-error", "test", ("warnings-as-errors",), {"pytest_options": ("-W", "default")}),
]

STATE = [
    Case(
        "environ-keyerror",
        "collect",
        ("variable:SERVICE_API_TOKEN",),
        {"env": {"SERVICE_API_TOKEN": "from-ci"}},
        [("environment-variable", "SERVICE_API_TOKEN=from-ci", "ci:test")],
    ),
    Case(
        "environ-keyerror",
        "collect",
        ("variable:SERVICE_API_TOKEN",),
        {"env": {"SERVICE_API_TOKEN": "test"}},
        [("environment-variable", "SERVICE_API_TOKEN=${{ secrets.TOKEN }}", "ci:test")],
    ),
    Case("environ-message", "test", ("variable:SERVICE_URL",), {"env": {"SERVICE_URL": "http://localhost"}}),
    Case(
        "django-settings",
        "collect",
        ("variable:DJANGO_SETTINGS_MODULE",),
        {"env": {"DJANGO_SETTINGS_MODULE": "tests.settings", "PYTHONPATH": "/workspace"}},
        [("module", "site.settings"), ("module", "tests.settings")],
    ),
    Case("locale-missing", "test", ("locale:de_DE.UTF-8",), {"locale": "de_DE.UTF-8", "debian": ("locales",)}),
    Case(
        "timezone-missing",
        "test",
        ("time-zones", "missing-module:tzdata"),
        {"debian": ("tzdata",), "requirements": ("pytest", "tzdata")},
    ),
    Case("user-variable", "test", ("user-name",), {"env": {"USER": "dev", "LOGNAME": "dev"}}),
    Case("ascii-locale", "test", ("utf-8",), {"env": {"LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}}),
    Case("display-missing", "test", ("display",), {"debian": ("xvfb",), "requirements": ("pytest", "pytest-xvfb")}),
]

CASES = [*MODULES, *PLUGINS, *PYTEST, *SYSTEM_PACKAGES, *BUILDS, *PYTHONS, *VERSIONS, *RESOLUTION, *DRIFT, *STATE]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.log}-{c.keys[0]}")
def test_a_failing_log_leads_to_its_repairs(case: Case) -> None:
    repairs = propose(Failure(case.stage, "command", log(case.log)), case.plan, context(*case.facts))  # type: ignore[arg-type]
    plan = apply(case.plan, repairs)
    assert tuple(repair.key for repair in repairs) == case.keys
    assert {name: getattr(plan, name) for name in case.after} == case.after
    assert all(repair.note and "\n" not in repair.note for repair in repairs)


def test_git_gets_a_name_where_commits_are_made() -> None:
    plan = apply(PLAN, propose(Failure("test", "pytest", log("git-identity")), PLAN, context()))
    assert plan.env["GIT_COMMITTER_EMAIL"] == "dev@localhost"


def test_modules_of_the_checkout_are_made_importable(tmp_path: Path) -> None:
    (tmp_path / "lib" / "mypkg").mkdir(parents=True)
    (tmp_path / "lib" / "mypkg" / "__init__.py").touch()
    (tmp_path / "tests").mkdir()
    for name, paths in {"own-package-missing": "/workspace/lib", "tests-package-missing": "/workspace"}.items():
        repairs = propose(Failure("collect", "pytest", log(name)), PLAN, context(path=str(tmp_path)))
        assert apply(PLAN, repairs) == replace(PLAN, env={"PYTHONPATH": paths})


def test_a_link_out_of_the_checkout_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside" / "yaml"
    outside.mkdir(parents=True)
    (outside / "__init__.py").touch()
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "yaml").symlink_to(outside)
    failure = Failure("collect", "pytest", "E   ModuleNotFoundError: No module named 'yaml'\n")
    keys = [r.key for r in propose(failure, PLAN, context(path=str(checkout)))]
    assert keys == ["missing-module:yaml"]


@pytest.mark.parametrize(
    "name", ["mentions-only", "plain-keyerror", "python2-module", "python2-source", "conflict-own"]
)
def test_what_no_repair_can_mend_changes_nothing(name: str) -> None:
    stage = "install" if name == "conflict-own" else "test"
    assert propose(Failure(stage, "command", log(name)), PLAN, context(date=None)) == []


def test_a_project_that_cannot_be_reached_or_parsed_is_not_repaired() -> None:
    for name in ("setup-syntax-error", "setup-python2", "impossible-pin-own", "not-in-registry-own", "proxy-denied"):
        assert propose(Failure("install", "command", log(name)), PLAN, context()) == [], name


def test_the_tests_package_is_never_taken_from_the_index() -> None:
    repairs = propose(Failure("collect", "pytest", log("tests-package-missing")), PLAN, context())
    assert repairs == []


def test_a_limit_is_no_repair() -> None:
    failure = Failure("install", "command", log("header-missing"), None, LimitHit.TIME)
    assert propose(failure, PLAN, context()) == []


def test_a_suite_that_ran_out_of_time_gets_a_limit_for_each_test() -> None:
    failure = Failure("test", "python -m pytest tests", "tests/test_a.py .", None, LimitHit.TIME)
    plan = apply(PLAN, propose(failure, PLAN, context()))
    assert plan.requirements == ("pytest", "pytest-timeout")
    assert plan.pytest_options == ("--timeout=60",)
    assert propose(failure, PLAN, context(), applied={"hanging-test"}) == []


def test_a_repair_that_was_made_is_not_made_again() -> None:
    failure = Failure("install", "command", log("library-missing"))
    keys = [r.key for r in propose(failure, PLAN, context(), applied={"debian:libsodium-dev"})]
    assert keys == ["debian:libarchive-dev"]


def test_what_the_plan_has_already_is_not_proposed() -> None:
    plan = replace(PLAN, requirements=("pytest", "PyYAML==6.0", "pillow", "protobuf"))
    assert propose(Failure("collect", "pytest", log("missing-modules-collect")), plan, context()) == []


def test_a_requirement_left_out_on_purpose_stays_out() -> None:
    plan = replace(PLAN, left_out=("pyyaml", "pillow"))
    after = apply(plan, propose(Failure("collect", "pytest", log("missing-modules-collect")), plan, context()))
    assert after.requirements == ("pytest", "protobuf")


HOSTILE = [
    "ModuleNotFoundError: No module named '{}'",
    "E   ModuleNotFoundError: No module named '{}'",
    "m.c:1:1: fatal error: {}: No such file or directory",
    "/usr/bin/ld: cannot find -l{}: No such file or directory",
    "/bin/sh: 1: {}: not found",
    "OSError: lib{}.so.1: cannot open shared object file: No such file",
    "FileNotFoundError: [Errno 2] No such file or directory: '{}'",
    "ERROR: Missing required plugins: {}",
    'ERROR: Error importing plugin "{}": No module named x',
    "pytest: error: unrecognized arguments: --cov={} {}",
    "RuntimeError: environment variable {} is not set",
    "error: No solution found when resolving dependencies\n  cause: Because {} was not found in the package registry",
    "error: Failed to build `{}==1.0`",
    "No package '{}' found",
]
PAYLOADS = [
    "../../x; rm -rf /",
    "-r/etc/passwd",
    "foo @ https://example.org/x",
    "x$(touch /tmp/x)",
    "a`id`",
    "x\ty",
    "--index-url=http://example.org",
    "LD_PRELOAD",
    "PYTHONSTARTUP",
    "yaml'; import os",
    "A" * 300,
]


class Everything:
    """A lookup that finds a hostile package for any name."""

    def header(self, name: str) -> tuple[str, ...]:
        return ("x; rm -rf /", "-o=evil")

    library = pkg_config = program = header


@pytest.mark.parametrize("message", HOSTILE)
def test_names_from_a_log_never_reach_a_command_unchecked(message: str) -> None:
    known = replace(context(), lookup=Everything())
    for payload in PAYLOADS:
        for stage in ("apt", "install", "collect", "test"):
            failure = Failure(stage, "command", message.format(payload, payload))
            plan = apply(PLAN, propose(failure, PLAN, known))
            words = (*plan.requirements, *plan.constraints, *plan.build_requirements, *plan.debian, *plan.only_binary)
            assert not any(set(word) & set(" ;$`|&'\"()/@\t\n") or word.startswith("-") for word in words), words
            assert plan.env.keys().isdisjoint({"LD_PRELOAD", "PYTHONSTARTUP"})


def test_the_hostile_log_of_a_real_suite_changes_nothing() -> None:
    assert propose(Failure("test", "pytest", log("hostile-names")), PLAN, replace(context(), lookup=Everything())) == []


@pytest.mark.parametrize(
    "filler", ["E " * 200_000, "a" * 2_000_000, "error: " * 100_000, "\x1b[" * 300_000, "'" * 500_000]
)
def test_an_enormous_log_is_read_in_a_moment(filler: str) -> None:
    output = f"{filler}\nE   ModuleNotFoundError: No module named 'yaml'\n"
    keys = [r.key for r in propose(Failure("collect", "pytest", output), PLAN, context())]
    assert keys == ["missing-module:yaml"]


def test_many_different_missing_modules_are_bounded() -> None:
    output = "\n".join(f"E   ModuleNotFoundError: No module named 'm{n}'" for n in range(5000))
    repairs: list[Repair] = propose(Failure("collect", "pytest", output), PLAN, context())
    assert 1 < len(repairs) <= 100
