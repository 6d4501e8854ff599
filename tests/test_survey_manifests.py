"""The survey reads what manifests of every kind ask for, and where they say it."""

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


def where(found: Survey, kind: str, value: str) -> list[tuple[str, int, str]]:
    """File, line and group of each fact of a kind with a value."""
    return [(fact.file, fact.line, fact.group) for fact in found.of(kind) if fact.value == value]


PEP_621 = """\
[build-system]
requires = ["hatchling>=1", "hatch-vcs"]
build-backend = "hatchling.build"

[project]
name = "made-up"
dynamic = ["version"]
requires-python = ">=3.9"
classifiers = ["Programming Language :: Python :: 3.12"]
dependencies = [
  "attrs>=22",
  "other @ git+https://example.org/other.git",
]

[project.optional-dependencies]
http = ["requests"]
all = ["made-up[http]", "rich"]

[project.scripts]
made = "made_up.cli:main"

[dependency-groups]
test = ["pytest>=8", "cloudpickle; platform_python_implementation == 'CPython'"]
dev = [{include-group = "test"}, "made-up[http]"]
"""


def test_pep_621_and_735_with_lines(tmp_path: Path) -> None:
    found = survey_of(tmp_path, {"pyproject.toml": PEP_621})
    assert found.first("build-backend") == "hatchling.build"
    assert found.values("build-requirement") == ("hatchling>=1", "hatch-vcs")
    assert found.values("version-source") == ("hatch-vcs",)
    assert found.first("requires-python") == ">=3.9"
    assert found.values("python-classifier") == ("3.12",)
    assert where(found, "requirement", "attrs>=22") == [("pyproject.toml", 11, "")]
    assert [value.replace(" ", "") for value in found.values("direct-requirement")] == [
        "other@git+https://example.org/other.git"
    ]
    assert found.values("console-script") == ("made=made_up.cli:main",)
    assert found.values("group-requirement", "group:dev") == (
        "pytest>=8",
        'cloudpickle; platform_python_implementation == "CPython"',
    )
    assert where(found, "group-requirement", "pytest>=8")[0] == ("pyproject.toml", 23, "group:test")


def test_an_extra_of_the_project_itself_is_no_requirement(tmp_path: Path) -> None:
    found = survey_of(tmp_path, {"pyproject.toml": PEP_621})
    assert found.values("extra-requirement", "extra:all") == ("rich", "requests")
    assert where(found, "used-extra", "http") == [("pyproject.toml", 24, "group:dev")]
    assert not [fact for fact in found.facts if "requirement" in fact.kind and fact.value.startswith("made-up")]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('"^1.2.3"', "made<2.0,>=1.2.3"),
        ('"^0.2.3"', "made<0.3,>=0.2.3"),
        ('"~1.2"', "made<1.3,>=1.2"),
        ('"*"', "made"),
        ('"1.2"', "made==1.2"),
        ('">=1,<3 || >=4"', "made>=4"),
        ('{version = "^2", extras = ["x"], markers = "sys_platform == \'linux\'"}',
         'made[x]<3.0,>=2; sys_platform == "linux"'),
        ('{version = "*", python = "<3.9"}', 'made; python_version < "3.9"'),
    ],
)  # fmt: skip
def test_poetry_versions_become_pep_508(tmp_path: Path, written: str, meant: str) -> None:
    text = f'[tool.poetry]\nname = "p"\n[tool.poetry.dependencies]\npython = "^3.9"\nmade = {written}\n'
    found = survey_of(tmp_path, {"pyproject.toml": text})
    assert found.values("requirement") == (meant,)
    assert found.first("requires-python") == ">=3.9,<4.0"


def test_poetry_groups_extras_and_direct_references(tmp_path: Path) -> None:
    text = """\
[tool.poetry]
name = "p"
version = "1.0"
[tool.poetry.dependencies]
redis = {version = ">=4", optional = true}
near = {path = "../near"}
[tool.poetry.extras]
cache = ["redis"]
[tool.poetry.group.test.dependencies]
pytest = "^8.0"
"""
    found = survey_of(tmp_path, {"pyproject.toml": text})
    assert found.values("extra-requirement", "extra:cache") == ("redis>=4",)
    assert found.values("direct-requirement") == ("../near",)
    assert where(found, "group-requirement", "pytest<9.0,>=8.0") == [("pyproject.toml", 10, "group:test")]


def test_hatch_pdm_flit_uv_and_cibuildwheel(tmp_path: Path) -> None:
    text = """\
[tool.hatch.envs.test]
dependencies = ["pytest"]
features = ["http"]
[tool.hatch.envs.test.env-vars]
MODE = "test"
[tool.hatch.envs.test.scripts]
run = "pytest {args:tests}"
[tool.pdm.dev-dependencies]
lint = ["ruff"]
[tool.flit.metadata]
module = "made"
requires = ["idna"]
[tool.uv]
dev-dependencies = ["tox"]
constraint-dependencies = ["idna<4"]
[tool.cibuildwheel]
test-requires = "pytest psutil"
test-command = "pytest {project}/tests"
"""
    found = survey_of(tmp_path, {"pyproject.toml": text})
    assert found.values("group-requirement", "hatch:test") == ("pytest",)
    assert where(found, "used-extra", "http") == [("pyproject.toml", 3, "hatch:test")]
    assert found.values("environment-variable") == ("MODE=test",)
    assert set(found.values("test-command")) == {"pytest tests"}
    assert found.values("group-requirement", "group:lint") == ("ruff",)
    assert found.values("requirement") == ("idna",)
    assert found.values("group-requirement", "group:dev") == ("tox",)
    assert found.values("constraint") == ("idna<4",)
    assert found.values("group-requirement", "ci:cibuildwheel") == ("pytest", "psutil")


SETUP_PY = """\
import os, sys
from setuptools import setup, find_packages, Extension
here = os.path.abspath(os.path.dirname(__file__))

def read(*parts):
    with open(os.path.join(here, *parts)) as f:
        return f.read()

about = {}
exec(read("made", "_about.py"), about)
install = ["six>=1.9"] + [line for line in read("requirements.txt").splitlines() if not line.startswith("#")]
if sys.version_info < (3,):
    install.append("futures")
extras = {"test": ["pytest"], ":python_version<'3.8'": ["importlib_metadata"]}
extras["all"] = sum(extras.values(), [])
extras["dev"] = extras["test"] + ["tox"]
NAME = "made"

def main():
    setup(
        name=NAME,
        version=about["__version__"],
        packages=find_packages(exclude=["tests"]),
        python_requires=">=3.7",
        install_requires=install,
        extras_require=extras,
        tests_require=["nose"],
        setup_requires=["setuptools_scm"],
        entry_points={"console_scripts": ["%s = made.cli:main" % NAME]},
        ext_modules=[Extension("made._fast", ["made/_fast.c"]), Extension("made.quick", sources=["made/quick.pyx"])],
    )

main()
"""


def test_setup_py_is_understood_without_being_run(tmp_path: Path) -> None:
    found = survey_of(
        tmp_path,
        {
            "setup.py": SETUP_PY,
            "requirements.txt": "# comment\nidna>=2\n",
            "made/__init__.py": "",
            "made/_about.py": "__version__ = '3.1'\n",
        },
    )
    assert found.first("project-name") == "made"
    assert found.first("project-version") == "3.1"
    assert found.values("requirement") == ("six>=1.9", "idna>=2", 'importlib_metadata; python_version < "3.8"')
    assert where(found, "requirement", "six>=1.9") == [("setup.py", 11, "")]
    assert found.values("extra-requirement", "extra:dev") == ("pytest", "tox")
    assert found.values("group-requirement", "setup.py") == ("nose",)
    assert found.values("build-requirement") == ("setuptools_scm",)
    assert found.values("version-source") == ("setuptools-scm",)
    assert found.values("console-script") == ("made=made.cli:main",)
    assert where(found, "extension-module", "made._fast") == [("setup.py", 30, "c")]
    assert where(found, "extension-module", "made.quick") == [("setup.py", 30, "cython")]
    assert found.values("import-name") == ("made",)


def test_setup_py_that_would_do_harm_does_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    survey_of(
        tmp_path,
        {
            "setup.py": f"import os\nos.system('touch {marker}')\nopen({str(marker)!r}, 'w')\nfrom setuptools import setup\nsetup(name='x')\n"
        },
    )
    assert not marker.exists()


def test_broken_setup_py_is_named(tmp_path: Path) -> None:
    found = survey_of(tmp_path, {"setup.py": "from setuptools import setup\nsetup(name='x'\n"})
    (fact,) = found.of("unreadable")
    assert fact.file == "setup.py"
    assert "line 2" in fact.value


def test_setup_cfg(tmp_path: Path) -> None:
    text = """\
[metadata]
name = made
version = attr: made.__version__
classifiers =
    Programming Language :: Python :: 3.10
[options]
python_requires = >=3.8
install_requires =
    idna>=2
    # a comment
    importlib-metadata; python_version < "3.10"
packages = find:
package_dir =
    = src
[options.packages.find]
where = src
[options.extras_require]
test =
    pytest
    coverage[toml]
full =
    %(test)s
    tox
[options.entry_points]
console_scripts =
    made = made.cli:main
"""
    found = survey_of(tmp_path, {"setup.cfg": text, "setup.py": "import setuptools\nsetuptools.setup()\n",
                                 "src/made/__init__.py": "__version__ = '2.0'\n"})  # fmt: skip
    assert found.first("project-version") == "2.0"
    assert found.values("requirement") == ("idna>=2", 'importlib-metadata; python_version < "3.10"')
    assert where(found, "requirement", "idna>=2") == [("setup.cfg", 9, "")]
    assert found.values("extra-requirement", "extra:full") == ("pytest", "coverage[toml]", "tox")
    assert found.values("console-script") == ("made=made.cli:main",)
    assert where(found, "import-name", "made") == [("src/made", 1, "")]


def test_requirements_files(tmp_path: Path) -> None:
    found = survey_of(
        tmp_path,
        {
            "requirements/base.txt": "idna==3.4 \\\n    --hash=sha256:aaaa \\\n    --hash=sha256:bbbb\n",
            "requirements/test.txt": (
                "--index-url https://example.org/simple\n-r base.txt\n-c ../constraints.txt\n-e .[http]\n"
                "pytest  # the runner\ngit+https://example.org/x.git#egg=x\nold (>=1.0)\n./vendor/thing\n"
            ),
            "constraints.txt": "urllib3<2\n",
            "tests/requirements.txt": "six\n",
            "tests/data/requirements.txt": "not-wanted\n",
        },
    )
    assert where(found, "requirement-file", "requirements/test.txt") == [("requirements/test.txt", 1, "test")]
    assert where(found, "requirement-file", "requirements/base.txt") == [("requirements/base.txt", 1, "runtime")]
    assert found.values("group-requirement", "file:requirements/test.txt") == ("idna==3.4", "pytest", "old>=1.0")
    assert ("requirements/base.txt", 1, "file:requirements/test.txt") in where(found, "group-requirement", "idna==3.4")
    assert where(found, "constraint", "urllib3<2")[0] == ("constraints.txt", 1, "file:constraints.txt")
    assert found.values("direct-requirement") == ("git+https://example.org/x.git#egg=x", "./vendor/thing")
    assert where(found, "used-extra", "http") == [("requirements/test.txt", 4, "file:requirements/test.txt")]
    assert where(found, "requirement-file", "tests/requirements.txt") == [("tests/requirements.txt", 1, "test")]
    assert "not-wanted" not in found.values("group-requirement")


def test_pkg_info_adds_what_manifests_leave_open(tmp_path: Path) -> None:
    metadata = """\
Metadata-Version: 2.1
Name: made
Version: 4.2
Requires-Python: >=3.8
Requires-Dist: idna>=2
Requires-Dist: pytest; extra == "test"
Requires-Dist: mock; (python_version < "3.4") and extra == 'test'
"""
    found = survey_of(tmp_path, {"PKG-INFO": metadata, "setup.py": "from setuptools import setup\nsetup(**meta)\n"})
    assert where(found, "project-version", "4.2") == [("PKG-INFO", 3, "")]
    assert found.values("requirement") == ("idna>=2",)
    assert found.values("extra-requirement", "extra:test") == ("pytest", 'mock; python_version < "3.4"')


def test_requires_txt_of_an_old_sdist(tmp_path: Path) -> None:
    text = "idna\n\n[:python_version<'3.4']\nenum34\n\n[test]\npytest\n"
    found = survey_of(
        tmp_path, {"made.egg-info/requires.txt": text, "made.egg-info/top_level.txt": "made\n", "made.py": ""}
    )
    assert found.values("requirement") == ("idna", 'enum34; python_version < "3.4"')
    assert found.values("extra-requirement", "extra:test") == ("pytest",)
    assert where(found, "import-name", "made") == [("made.py", 1, "")]


def test_conda_and_pixi(tmp_path: Path) -> None:
    found = survey_of(
        tmp_path,
        {
            "environment.yml": "dependencies:\n  - python=3.12\n  - conda-forge::numpy=1.26=py312\n  - gcc\n"
                               "  - pytables>=3\n  - pip:\n    - sniffio\n",
            "pixi.toml": '[feature.test.dependencies]\npytest = ">=8"\n[feature.test.tasks]\ntest = "pytest -n 2"\n',
        },
    )  # fmt: skip
    assert found.values("group-requirement", "conda") == ("numpy==1.26.*", "tables>=3", "sniffio")
    assert where(found, "python-version", "3.12") == [("environment.yml", 2, "conda")]
    assert where(found, "group-requirement", "pytest>=8") == [("pixi.toml", 2, "pixi:test")]
    assert where(found, "test-command", "pytest -n 2") == [("pixi.toml", 4, "pixi:test")]


def test_submodules_and_lfs_that_are_absent(tmp_path: Path) -> None:
    found = survey_of(
        tmp_path,
        {
            ".gitmodules": '[submodule "dep"]\n\tpath = lib/dep\n\turl = https://example.org/dep\n'
                           '[submodule "here"]\n\tpath = here\n',
            "here/file.c": "",
            ".gitattributes": "*.bin filter=lfs diff=lfs\n",
            "data/model.bin": "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
        },
    )  # fmt: skip
    assert {(fact.value, fact.group) for fact in found.of("missing")} == {
        ("lib/dep", "submodule"),
        ("data/model.bin", "lfs"),
    }


@pytest.mark.parametrize("script", ["setup(name='x'\n", "from setuptools import setup\nsetup(**computed())\n"])
def test_a_setup_py_makes_a_project_installable_whatever_can_be_read_of_it(tmp_path: Path, script: str) -> None:
    found = survey_of(tmp_path, {"setup.py": script, "x.py": ""})
    assert found.first("build-backend") == "setuptools.build_meta:__legacy__"
