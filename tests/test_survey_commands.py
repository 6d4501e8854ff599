"""The survey reads commands, and what they install and set, from CI, tox, nox, docs and build files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.records import Checkout, Survey
from ratchet.survey import survey
from ratchet.survey.commands import classify


def survey_of(root: Path, files: dict[str, str]) -> Survey:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return survey(Checkout(id="made-up", name="made-up", source="directory", path=str(root)))


def where(found: Survey, kind: str, value: str) -> list[tuple[str, int, str]]:
    """File, line and group of each fact of a kind with a value."""
    return [(fact.file, fact.line, fact.group) for fact in found.of(kind) if fact.value == value]


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("pytest -q", "test-command"),
        ("python -X dev -m pytest tests", "test-command"),
        ("poetry run pytest", "test-command"),
        ("coverage run --branch -m unittest discover", "test-command"),
        ("CI=1 python setup.py -q test", "test-command"),
        ("tox -e py311", "test-command"),
        ("make check", "test-command"),
        ("python manage.py test app", "test-command"),
        ("python runtests.py", "test-command"),
        ("python -m tornado.test", "test-command"),
        ("stestr run", "test-command"),
        ("uv run --group dev pytest tests/", "test-command"),
        ("cd build && ctest", "test-command"),
        ("tox -e docs", "docs-command"),
        ("sphinx-build docs out", "docs-command"),
        ("tox -e lint", "lint-command"),
        ("mypy src", "lint-command"),
        ("pre-commit run -a", "lint-command"),
        ("pip install pytest", "install-command"),
        ("sudo apt-get install -y libpq-dev", "install-command"),
        ("uv sync --group test", "install-command"),
        ("python setup.py develop", "install-command"),
        ("python setup.py build_ext --inplace", "build-command"),
        ("python -m build", "build-command"),
        ("make", "build-command"),
        ("uvicorn app:main", "launch-command"),
        ("docker compose up", "launch-command"),
        ("python script.py", "command"),
        ("python -c 'import pytest'", "command"),
    ],
)
def test_commands_are_classified(command: str, kind: str) -> None:
    assert classify(command) == kind


WORKFLOW = """\
env:
  LEVEL: top
jobs:
  tests:
    strategy:
      matrix:
        python-version: ["3.9", "3.10", 3.13]
        include:
          - python-version: pypy-3.10
    services:
      db:
        image: postgres:16
        env: {POSTGRES_PASSWORD: secret}
    steps:
      - uses: actions/checkout@v4
      - run: |
          sudo apt-get update && sudo apt-get install -y \\
            libxml2-dev libxslt1-dev
          pip install -r requirements/ci.txt 'pytest-xdist>=3' .[http]
      - name: Test
        env:
          TOKEN: ${{ secrets.TOKEN }}
          MODE: ${{ matrix.python-version }}
        run: pytest --python ${{ matrix.python-version }}
"""


def test_github_workflow(tmp_path: Path) -> None:
    found = survey_of(tmp_path, {".github/workflows/ci.yml": WORKFLOW, "requirements/ci.txt": "mock\n"})
    path = ".github/workflows/ci.yml"
    assert where(found, "ci", path)
    assert found.values("python-version") == ("3.9", "3.10", "3.13")
    assert where(found, "test-command", "pytest --python 3.13") == [(path, 24, "ci:tests")]
    assert where(found, "system-package", "libxslt1-dev") == [(path, 17, "ci:tests")]
    assert found.values("group-requirement", "ci:tests") == ("mock", "pytest-xdist>=3")
    assert where(found, "used-extra", "http") == [(path, 19, "ci:tests")]
    assert where(found, "service", "postgres:16") == [(path, 11, "ci:tests")]
    assert set(found.values("environment-variable")) == {"LEVEL=top", "MODE=3.13", "POSTGRES_PASSWORD=secret"}


def test_a_composite_action(tmp_path: Path) -> None:
    text = "runs:\n  using: composite\n  steps:\n    - run: sudo apt-get install libfoo-dev\n      shell: bash\n"
    found = survey_of(tmp_path, {".github/actions/prepare/action.yml": text})
    assert where(found, "system-package", "libfoo-dev") == [(".github/actions/prepare/action.yml", 4, "ci:prepare")]


def test_the_other_ci_services(tmp_path: Path) -> None:
    found = survey_of(
        tmp_path,
        {
            ".gitlab-ci.yml": "image: python:3.11\nvariables: {A: '1'}\nunit:\n  services: [redis:7]\n  script:\n    - pytest a\n",
            ".travis.yml": "python: ['3.8']\nservices: [mysql]\naddons: {apt: {packages: [libev-dev]}}\n"
                           "env: ['B=2 C=3']\nscript: pytest b\n",
            ".circleci/config.yml": "jobs:\n  unit:\n    docker:\n      - image: cimg/python:3.10\n      - image: mongo:6\n"
                                    "    steps:\n      - checkout\n      - run: {name: x, command: pytest c}\n",
            "azure-pipelines.yml": "jobs:\n- job: J\n  steps:\n  - task: UsePythonVersion@0\n    inputs: {versionSpec: '3.12'}\n"
                                   "  - script: |\n      pytest d\n",
        },
    )  # fmt: skip
    tests = {(fact.value, fact.line, fact.group) for fact in found.of("test-command")}
    assert tests == {("pytest a", 6, "ci:unit"), ("pytest b", 5, "ci:travis"), ("pytest c", 8, "ci:unit"),
                     ("pytest d", 7, "ci:azure")}  # fmt: skip
    assert set(found.values("python-version")) == {"3.8", "3.10", "3.11", "3.12"}
    assert set(found.values("service")) == {"redis:7", "mysql", "mongo:6"}
    assert found.values("system-package") == ("libev-dev",)
    assert set(found.values("environment-variable")) == {"A=1", "B=2", "C=3"}


TOX_INI = """\
[tox]
envlist = py{39,311}-{plain,db}, lint

[base]
deps = pytest

[testenv]
deps =
    {[base]deps}
    py39: typing-extensions
    db: psycopg2 ; implementation_name == "cpython"
    !db: mock
    -r requirements/test.txt
extras = http
setenv =
    DATA = {toxinidir}/data
    db: URL=postgres://localhost
commands =
    pytest {posargs:tests} \\
        --maxfail=1
    db: python -m pytest {env:MORE:-x}

[testenv:lint]
deps = ruff
skip_install = true
commands = ruff check .
"""


def test_tox_ini_factors_and_substitutions(tmp_path: Path) -> None:
    found = survey_of(tmp_path, {"tox.ini": TOX_INI, "requirements/test.txt": "coverage\n"})
    assert {fact.group for fact in found.of("test-command")} == {"tox:py311-plain", "tox:py311-db"}
    assert found.values("group-requirement", "tox:py311-db") == (
        "pytest", 'psycopg2; implementation_name == "cpython"', "coverage",
    )  # fmt: skip
    assert found.values("group-requirement", "tox:py311-plain") == ("pytest", "mock", "coverage")
    assert found.values("test-command", "tox:py311-db") == ("pytest tests --maxfail=1", "python -m pytest -x")
    assert found.values("environment-variable", "tox:py311-db") == ("DATA=./data", "URL=postgres://localhost")
    assert where(found, "used-extra", "http")[0] == ("tox.ini", 14, "tox:py311-plain")
    assert found.values("lint-command", "tox:lint") == ("ruff check .",)
    assert set(found.values("python-version")) == {"3.9", "3.11"}


def test_tox_in_toml_and_legacy_text(tmp_path: Path) -> None:
    native = """\
env_list = ["py312"]
[env_run_base]
dependency_groups = ["test"]
set_env = { MODE = "x" }
commands = [["pytest", "-v", { replace = "posargs", default = ["tests"], extend = true }]]
"""
    legacy = (
        '[tool.tox]\nlegacy_tox_ini = """\n[tox]\nenvlist = py310\n[testenv]\ndeps = nose2\ncommands = nose2 -v\n"""\n'
    )
    found = survey_of(tmp_path, {"tox.toml": native, "pyproject.toml": legacy})
    assert found.values("test-command") == ("pytest -v tests", "nose2 -v")
    assert where(found, "used-group", "test") == [("tox.toml", 3, "tox:py")]
    assert where(found, "group-requirement", "nose2") == [("pyproject.toml", 6, "tox:py310")]
    assert found.values("environment-variable") == ("MODE=x",)


def test_nox_sessions(tmp_path: Path) -> None:
    text = """\
import nox
VERSIONS = ["3.10", "3.12"]
DEPS = ["pytest", "hypothesis"]

@nox.session(python=VERSIONS)
def tests(session):
    session.install("-e", ".[http]", *DEPS)
    session.run("pytest", *session.posargs, env={"MODE": "nox"})

@nox.session(name="style")
def lint(session: nox.Session) -> None:
    session.install("ruff")
    session.run("ruff", "check")
"""
    found = survey_of(tmp_path, {"noxfile.py": text})
    assert found.values("group-requirement", "nox:tests") == ("pytest", "hypothesis")
    assert where(found, "used-extra", "http") == [("noxfile.py", 7, "nox:tests")]
    assert where(found, "test-command", "pytest") == [("noxfile.py", 8, "nox:tests")]
    assert found.values("environment-variable", "nox:tests") == ("MODE=nox",)
    assert found.values("lint-command", "nox:style") == ("ruff check",)
    assert found.values("python-version", "nox:tests") == ("3.10", "3.12")


def test_readme_and_docs(tmp_path: Path) -> None:
    readme = """\
# Made

Run `pytest -x`, not `pytest`-like things.

```console
$ pip install -r dev.txt
Collecting lots
$ python -m pytest
```

```python
pip install nothing
```

```
tox -e py
some output
```
"""
    guide = """\
Testing
=======

First::

    $ sudo apt-get install libffi-dev \\
          libssl-dev
    # a comment
    $ make check

.. code-block:: bash

   export MODE=docs
   ./configure && make

.. code-block:: python

   pytest.main()
"""
    found = survey_of(tmp_path, {"README.md": readme, "docs/contributing.rst": guide, "dev.txt": "pytest\n"})
    assert where(found, "test-command", "python -m pytest") == [("README.md", 8, "readme")]
    assert where(found, "test-command", "pytest -x") == [("README.md", 3, "readme")]
    assert where(found, "test-command", "tox -e py") == [("README.md", 16, "readme")]
    assert where(found, "group-requirement", "pytest") == [("dev.txt", 1, "readme")]
    assert where(found, "test-command", "make check") == [("docs/contributing.rst", 9, "docs")]
    assert found.values("system-package") == ("libffi-dev", "libssl-dev")
    assert found.values("environment-variable") == ("MODE=docs",)
    assert where(found, "build-command", "make") == [("docs/contributing.rst", 14, "docs")]
    assert not [fact for fact in found.facts if "nothing" in fact.value or "output" in fact.value]


def test_make_just_docker_compose_and_devcontainer(tmp_path: Path) -> None:
    found = survey_of(
        tmp_path,
        {
            "Makefile": "PYTHON ?= python3\ntest: build\n\t@$(PYTHON) -m pytest \\\n\t  tests\n\nlint:\n\truff check\n",
            "justfile": "test:\n    pytest just\n",
            "Dockerfile": 'FROM python:3.12-slim\nENV MODE=image LEVEL="2"\nRUN apt-get update && \\\n'
                          "    apt-get install -y --no-install-recommends git libpq-dev && \\\n"
                          '    pip install gunicorn\nCMD ["gunicorn", "app:app"]\n',
            "docker-compose.yml": "services:\n  db:\n    image: mysql:8\n    environment: [MYSQL_ROOT_PASSWORD=x]\n",
            ".devcontainer/devcontainer.json": '{\n // note\n "image": "mcr.example/devcontainers/python:1-3.11",\n'
                                               ' "postCreateCommand": "pip install tox",\n}',
            ".python-version": "3.10.4\n",
            ".pre-commit-config.yaml": "repos:\n- repo: x\n  hooks:\n  - id: ruff-format\n",
        },
    )  # fmt: skip
    assert where(found, "test-command", "python3 -m pytest tests") == [("Makefile", 3, "make:test")]
    assert where(found, "lint-command", "ruff check") == [("Makefile", 7, "make:lint")]
    assert where(found, "test-command", "pytest just") == [("justfile", 2, "just:test")]
    assert found.values("system-package", "docker") == ("git", "libpq-dev")
    assert found.values("group-requirement", "docker") == ("gunicorn",)
    assert where(found, "launch-command", "gunicorn app:app") == [("Dockerfile", 6, "docker")]
    assert found.values("environment-variable", "docker") == ("MODE=image", "LEVEL=2")
    assert where(found, "service", "mysql:8") == [("docker-compose.yml", 3, "compose:db")]
    assert found.values("environment-variable", "compose:db") == ("MYSQL_ROOT_PASSWORD=x",)
    assert found.values("group-requirement", "devcontainer") == ("tox",)
    assert set(found.values("python-version")) == {"3.10", "3.11", "3.12"}
    assert {"make", "just", "pre-commit", "ruff"} <= set(found.values("tool"))
