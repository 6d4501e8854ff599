"""The survey knows what a project lets one import, which tests it holds, and which imports nobody declares."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.records import Checkout, Survey
from ratchet.survey import survey


def survey_of(root: Path, files: dict[str, str]) -> Survey:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return survey(Checkout(id="made-up", name="made-up", source="directory", path=str(root)))


def project(name: str, more: str = "") -> str:
    return f'[project]\nname = "{name}"\nversion = "1"\n{more}'


CODE = {"made/__init__.py": "", "made/__main__.py": "", "made/sub/mod.py": "", "tests/__init__.py": ""}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"pyproject.toml": project("made"), **CODE}, {"made": "made"}),
        ({"pyproject.toml": project("Made-Up"), "src/made_up/__init__.py": "", "src/_made.py": ""},
         {"made_up": "src/made_up"}),
        ({"pyproject.toml": project("made"), "made.py": "", "conftest.py": ""}, {"made": "made.py"}),
        ({"pyproject.toml": project("ns.made"), "src/ns/made/__init__.py": ""}, {"ns.made": "src/ns/made"}),
        ({"setup.py": "from setuptools import setup\nsetup(name='x', package_dir={'': 'lib'}, packages=['a', 'a.b'],"
                      " py_modules=['one'])\n", "lib/a/__init__.py": "", "lib/a/b/__init__.py": "", "lib/one.py": ""},
         {"a": "lib/a", "one": "lib/one.py"}),
        ({"setup.py": "from setuptools import setup, find_packages\nsetup(name='x', packages=find_packages('code'))\n",
          "code/inner/__init__.py": "", "other/__init__.py": ""}, {"inner": "code/inner"}),
        ({"pyproject.toml": project("x", '[tool.setuptools.packages.find]\nwhere = ["py"]\ninclude = ["good*"]\n'),
          "py/good/__init__.py": "", "py/bad/__init__.py": ""}, {"good": "py/good"}),
        ({"pyproject.toml": '[tool.poetry]\nname = "x"\npackages = [{include = "real", from = "code"}]\n',
          "code/real/__init__.py": ""}, {"real": "code/real"}),
        ({"pyproject.toml": project("x", '[build-system]\nrequires = []\nbuild-backend = "flit_core.buildapi"\n'
                                         '[tool.flit.module]\nname = "flat"\n'), "flat.py": ""}, {"flat": "flat.py"}),
        ({"pyproject.toml": project("x", '[tool.hatch.build.targets.wheel]\nonly-include = ["src"]\nsources = ["src"]\n'),
          "src/one/__init__.py": "", "src/two/__init__.py": ""}, {"one": "src/one", "two": "src/two"}),
        ({"setup.cfg": "[metadata]\nname = x\n[files]\npackages =\n    pbr_made\n", "pbr_made/__init__.py": ""},
         {"pbr_made": "pbr_made"}),
        ({"src/zope/__init__.py": "__import__('pkg_resources').declare_namespace(__name__)\n",
          "src/zope/made/__init__.py": "", "setup.py": "from setuptools import *\nsetup(name='zope.made',"
          " package_dir={'': 'src'}, packages=find_packages('src'))\n"}, {"zope.made": "src/zope/made"}),
    ],
    ids=["flat", "src", "module", "namespace", "package-dir", "find-where", "find-include", "poetry", "flit", "hatch",
         "pbr", "declared-namespace"],
)  # fmt: skip
def test_import_names(tmp_path: Path, files: dict[str, str], expected: dict[str, str]) -> None:
    found = survey_of(tmp_path, files)
    assert expected.items() <= {fact.value: fact.file for fact in found.of("import-name")}.items()
    assert not {"tests", "other", "bad", "conftest"} & set(found.values("import-name"))


def test_modules_and_main_modules(tmp_path: Path) -> None:
    found = survey_of(tmp_path, {"pyproject.toml": project("made"), **CODE})
    assert set(found.values("module")) == {"made", "made.sub.mod"}
    assert found.values("main-module") == ("made",)


def test_extension_modules_of_other_build_systems(tmp_path: Path) -> None:
    rust = project("made", '[build-system]\nrequires = ["maturin"]\nbuild-backend = "maturin"\n'
                           '[tool.maturin]\nmodule-name = "made._core"\n')  # fmt: skip
    assert survey_of(tmp_path / "rust", {"pyproject.toml": rust, "made/__init__.py": ""}).values(
        "extension-module"
    ) == ("made._core",)
    meson = project("made", '[build-system]\nrequires = ["meson-python"]\nbuild-backend = "mesonpy"\n')
    found = survey_of(tmp_path / "meson", {"pyproject.toml": meson, "src/made/__init__.py": "",
                                           "src/made/meson.build": "py3.extension_module(\n  '_fast', 'fast.cpp')\n"})  # fmt: skip
    assert [(fact.value, fact.file, fact.line) for fact in found.of("extension-module")] == [
        ("made._fast", "src/made/meson.build", 1)
    ]
    cffi = "from setuptools import setup\nsetup(name='made', packages=['made'], cffi_modules=['build_made.py:ffi'])\n"
    found = survey_of(tmp_path / "cffi", {"setup.py": cffi, "made/__init__.py": "",
                                          "build_made.py": "ffi.set_source(\n    'made._native', '')\n"})  # fmt: skip
    assert [(fact.value, fact.group) for fact in found.of("extension-module")] == [("made._native", "cffi")]


PYTEST_STYLE = """\
import pytest
def test_one(): ...
async def test_two(): ...
@pytest.fixture
def test_data(): ...
def helper(): ...
class TestThings:
    def test_a(self): ...
    class TestInner:
        def test_b(self): ...
class TestWithInit:
    def __init__(self): ...
    def test_c(self): ...
class Base:
    def test_d(self): ...
    def test_e(self): ...
class TestDerived(Base):
    def test_f(self): ...
"""
UNITTEST_STYLE = """\
import unittest
class Mixin:
    def test_shared(self): ...
class Case(Mixin, unittest.TestCase):
    def test_x(self): ...
    def setUp(self): ...
class More(Case):
    def test_y(self): ...
"""


def test_tests_are_counted_as_their_runners_would(tmp_path: Path) -> None:
    found = survey_of(
        tmp_path,
        {
            "tests/test_pytest.py": PYTEST_STYLE,
            "tests/test_unit.py": UNITTEST_STYLE,
            "app/tests.py": UNITTEST_STYLE,
            "tests/helpers.py": PYTEST_STYLE,
            "tests/test_empty.py": "x = 1\n",
        },
    )
    counts = {fact.file: (fact.value, fact.group) for fact in found.of("test-count")}
    assert counts == {
        "tests/test_pytest.py": ("7", "pytest"),
        "tests/test_unit.py": ("5", "unittest"),
        "app/tests.py": ("5", "unittest"),
    }
    assert set(found.values("test-file")) == set(counts)


def test_the_pytest_configuration_in_force_decides_what_counts(tmp_path: Path) -> None:
    found = survey_of(
        tmp_path,
        {
            "pytest.ini": "[pytest]\npython_files = check_*.py\npython_functions = check_\npython_classes = *Suite\n"
                          "testpaths = checks\naddopts = -ra -p made.plugin --strict-markers\nrequired_plugins = pytest-xdist\n",
            "setup.cfg": "[tool:pytest]\naddopts = --not-in-force\n",
            "checks/check_a.py": "def check_x(): ...\ndef test_y(): ...\nclass ASuite:\n    def check_z(self): ...\n",
            "elsewhere/check_b.py": "def check_x(): ...\n",
            "conftest.py": "pytest_plugins = ['pytester', 'checks.local']\n",
        },
    )  # fmt: skip
    assert {fact.file: fact.value for fact in found.of("test-count")} == {"checks/check_a.py": "2"}
    assert found.values("pytest-option") == ("-ra", "-p", "made.plugin", "--strict-markers")
    assert "testpaths=checks" in found.values("pytest-setting")
    plugins = {(fact.value, fact.group) for fact in found.of("pytest-plugin")}
    assert plugins == {("made.plugin", "-p"), ("pytest-xdist", "required_plugins"), ("pytester", "pytest_plugins")}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("pyproject.toml", '[tool.pytest.ini_options]\ntestpaths = ["t"]\naddopts = "-q --tb=short"\n'),
        ("pyproject.toml", '[tool.pytest]\ntestpaths = ["t"]\naddopts = ["-q", "--tb=short"]\n'),
        ("pytest.toml", '[pytest]\ntestpaths = ["t"]\naddopts = ["-q", "--tb=short"]\n'),
        (".pytest.ini", "[pytest]\ntestpaths = t\naddopts = -q --tb=short\n"),
        ("tox.ini", "[pytest]\ntestpaths = t\naddopts =\n    -q\n    # no\n    --tb=short\n"),
        ("setup.cfg", "[tool:pytest]\ntestpaths = t\naddopts = -q --tb=short\n"),
    ],
)
def test_pytest_is_configured_in_many_places(tmp_path: Path, path: str, text: str) -> None:
    found = survey_of(tmp_path, {path: text})
    assert found.values("pytest-option") == ("-q", "--tb=short")
    assert [(fact.value, fact.file) for fact in found.of("pytest-setting")] == [("testpaths=t", path)]


def test_imports_that_nobody_declares(tmp_path: Path) -> None:
    package = """\
import os, declared, missing
import yaml
from . import sibling
try:
    import optional
except ImportError:
    optional = None
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import typed
def later():
    import lazy
"""
    tests = """\
import pytest, made, helper
import google.cloud.storage
from firm import thing
maybe = pytest.importorskip("maybe")
def test_it():
    import inside
"""
    found = survey_of(
        tmp_path,
        {
            "pyproject.toml": project(
                "made", 'dependencies = ["declared", "PyYAML"]\n[dependency-groups]\nt = ["pytest"]\n'
            ),
            "made/__init__.py": package,
            "made/sibling.py": "",
            "tests/test_made.py": tests,
            "tests/helper.py": "",
        },
    )
    undeclared = {(fact.value, fact.group) for fact in found.of("undeclared-import")}
    assert undeclared == {
        ("missing", "package"),
        ("google.cloud", "test"),
        ("firm", "test"),
        ("maybe", "test-optional"),
        ("inside", "test-optional"),
    }
    assert [(fact.file, fact.line) for fact in found.of("undeclared-import") if fact.value == "firm"] == [
        ("tests/test_made.py", 3)
    ]
    assert set(found.values("test-import", "")) == {"pytest", "google.cloud", "firm"}


def test_doctests_that_the_configuration_asks_for(tmp_path: Path) -> None:
    found = survey_of(
        tmp_path,
        {
            "pyproject.toml": project(
                "made", '[tool.pytest.ini_options]\naddopts = "--doctest-modules --doctest-glob=*.rst"\n'
            ),
            "made/__init__.py": '"""\n>>> 1\n1\n"""\n',
            "made/plain.py": "",
            "guide.rst": ">>> 2\n2\n",
        },
    )
    assert found.values("test-file", "doctest") == ("guide.rst", "made/__init__.py")


def test_tests_in_syntax_of_another_python_still_count(tmp_path: Path) -> None:
    found = survey_of(
        tmp_path, {"test_old.py": "import old\nprint 'x'\ndef test_a(): pass\nclass T:\n    def test_b(self): pass\n"}
    )
    assert found.values("test-count") == ("2",)
    assert found.values("undeclared-import", "test") == ("old",)


def test_extensions_that_setup_py_makes_conditionally(tmp_path: Path) -> None:
    text = """\
import os, platform, sys
from setuptools import setup
try:
    from Cython.Distutils.extension import Extension as CyExtension
    HAS = True
except ImportError:
    HAS = False
OFF = bool(os.environ.get("MADE_OFF"))
if HAS and platform.python_implementation() == "CPython" and not OFF:
    modules = [CyExtension(f"made.{name}", sources=[f"made/{name.replace('.', '/')}.pyx"]) for name in ("a", "b.c")]
elif sys.platform == "win32":
    modules = [CyExtension("made.win", ["made/win.c"])]
setup(name="made", ext_modules=modules)
"""
    found = survey_of(tmp_path, {"setup.py": text, "made/__init__.py": ""})
    assert [(fact.value, fact.group) for fact in found.of("extension-module")] == [
        ("made.a", "cython"),
        ("made.b.c", "cython"),
    ]
