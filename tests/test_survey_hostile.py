"""Nothing that a repository holds makes the survey raise, hang, leave the checkout or run code."""

from __future__ import annotations

import gc
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.policies.rules.versions import first_version
from ratchet.records import Checkout, Survey, canonical, to_json
from ratchet.survey import survey
from ratchet.survey.ci import newest
from ratchet.survey.findings import KINDS
from ratchet.survey.formats import UnreadableError, parse_yaml
from ratchet.survey.python_syntax import parse
from ratchet.survey.static_python import Script
from ratchet.survey.static_values import UNKNOWN

NAMES = (
    "pyproject.toml", "setup.cfg", "setup.py", "tox.ini", "tox.toml", "noxfile.py", "requirements.txt", "PKG-INFO",
    "x.egg-info/requires.txt", "x.egg-info/top_level.txt", ".github/workflows/a.yml", ".gitlab-ci.yml", ".travis.yml",
    ".circleci/config.yml", "azure-pipelines.yml", "appveyor.yml", "Makefile", "justfile", "Dockerfile", "compose.yml",
    ".devcontainer/devcontainer.json", ".pre-commit-config.yaml", "environment.yml", "pixi.toml", ".python-version",
    "pytest.ini", "README.md", "CONTRIBUTING.rst", "tests/test_a.py", "pkg/__init__.py", ".gitmodules", ".gitattributes",
    "hatch.toml", "meson.build", "conftest.py",
)  # fmt: skip


def look_at(root: Path) -> Survey:
    return survey(Checkout(id="made-up", name="made-up", source="directory", path=str(root)))


def look_at_files(contents: dict[str, bytes]) -> Survey:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in contents.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return look_at(Path(folder))


PIECES = st.sampled_from(
    [
        "[", "]", "{", "}", "(", ")", '"', "'", "\n", "\n\t", "\n  ", " ", ":", "=", "==", ",", "#", "\\", "\\\n", "- ", "&a ",
        "*a", "<<: ", "!!python/object:os.system ", "|\n", "%", "%s", "%(x)s", "{posargs}", "${{ matrix.x }}", "${x", "$(",
        "\x00", "\ufeff", "\ud7ff", "é", "[project]\n", "name", "dependencies", "[tool.poetry]\n", "[tox]\n", "[testenv]\n",
        "deps", "commands", "setup(", "install_requires", "jobs:\n", "steps:\n", "run: ", "env:\n", "matrix:\n", "script:\n",
        "FROM ", "RUN ", "pip install ", "-r ", "-r requirements.txt", "-e .", ".[x]", "pytest", "test:\n\t", "```\n", "$ ",
        "::\n\n", "[pytest]\n", "addopts", "python_files", "import ", "def test_", "class Test", "null", "true", "1e999",
        "9" * 50, "extends", "include", "[metadata]\n", "[options]\n", "packages = find:", "<html>", "&&", ">=1", "@",
    ]
)  # fmt: skip
GARBAGE = st.one_of(
    st.binary(max_size=400),
    st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(PIECES, max_size=40).map(lambda pieces: "".join(pieces).encode("utf-8", "surrogatepass")),
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), GARBAGE, min_size=1, max_size=6))
def test_garbage_in_any_file_is_survived(contents: dict[str, bytes]) -> None:
    found = look_at_files(contents)
    assert all(fact.kind in KINDS and fact.value and fact.line >= 1 for fact in found.facts)
    canonical(to_json(found)).encode()


SHAPES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text(max_size=6), st.sampled_from(["pytest", "a==1", "-r x"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(
        st.sampled_from(["jobs", "a", "steps", "run", "env", "strategy", "matrix", "services", "script", "docker", "image",
                         "dependencies", "pip", "repos", "hooks", "id", "include", "with", "python-version", "addons"]),
        inner, max_size=4)),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(SHAPES)
def test_data_of_any_shape_is_survived(data: object) -> None:
    text = canonical(data).encode("utf-8", "replace")  # JSON is YAML
    look_at_files(dict.fromkeys([name for name in NAMES if name.endswith((".yml", ".yaml", ".json"))], text))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(
    st.sampled_from(["build-system", "project", "dependency-groups", "tool.poetry", "tool.poetry.dependencies", "tool.pdm",
                     "tool.hatch", "tool.hatch.envs.a", "tool.uv", "tool.setuptools", "tool.tox", "tool.pytest.ini_options",
                     "tool.flit", "tool.maturin", "tool.cibuildwheel", "tool.pixi"]),
    st.sampled_from(["name", "requires", "dependencies", "scripts", "packages", "group", "envs", "env", "dynamic", "sources",
                     "optional-dependencies", "build-backend", "addopts", "testpaths", "extras", "commands", "ext-modules"]),
    st.sampled_from(["1", "true", '""', '"x"', "[1, [2]]", '[{a = 1}, "b"]', '{x = "y"}', '{x = [{y = {z = 1}}]}', "[]",
                     "1979-05-27", '["a[b]>=1", "(("]']),
), max_size=6, unique_by=lambda each: each[0]))  # fmt: skip
def test_toml_of_any_shape_is_survived(entries: list[tuple[str, str, str]]) -> None:
    text = "\n".join(f"[{section}]\n{key} = {value}" for section, key, value in entries)
    look_at_files(
        {"pyproject.toml": text.encode(), "setup.py": b"", "pixi.toml": text.encode(), "tox.toml": text.encode()}
    )


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000,
        "x = " + "-" * 50_000 + "1",
        "x = " + "+".join(["1"] * 20_000),
        "x = " + "[" * 150 + "]" * 150,
        "if 1:\n" + "".join(" " * depth + "if 1:\n" for depth in range(1, 95)) + " " * 95 + "pass\n",
        "a = 'x' * 10**9\nb = '%999999999d' % 1\nc = '{:>999999999}'.format(1)\n",
        "a = [0]\n" + "a = a + a\n" * 60 + "s = 'x'\n" + "s = s + s\n" * 60,
        "def f():\n    return f()\nf()\n",
        "def f(x):\n    for a in x:\n        for b in x:\n            for c in x:\n                g = f(x)\nf(list('abcdefgh' * 50))\n",
        "a = []\na.append(a)\nsetup(install_requires=a, ext_modules=a, extras_require={'x': a})\n",
        "d = {}\nd['d'] = d\nsetup(**d)\nsetup(package_dir=d, entry_points=d, extras_require=d)\n",
        "setup(name='\\ud800', version=1e400, install_requires=[0, None, 'a\\x00b'])\n",
    ],
)
def test_a_hostile_script_ends_soon(tmp_path: Path, text: str) -> None:
    for name in ("setup.py", "noxfile.py", "tests/test_a.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    start = time.process_time()
    canonical(to_json(look_at(tmp_path))).encode()
    assert time.process_time() - start < 10


def test_an_alias_bomb_is_refused() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(UnreadableError):
        parse_yaml(bomb)


def test_yaml_that_would_construct_objects_constructs_none() -> None:
    assert parse_yaml("a: !!python/object/apply:os.system ['true']\nb: 3.10\n") == {"a": ["true"], "b": "3.10"}


def test_links_out_fifos_and_large_files_are_left_alone(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("stolen>=1\n")
    root = tmp_path / "checkout"
    (root / "sub").mkdir(parents=True)
    (root / "requirements.txt").symlink_to(outside / "secret.txt")
    (root / "test-requirements.txt").symlink_to("/proc/self/environ")
    (root / "linked").symlink_to(outside)
    (root / "loop").symlink_to(root)
    (root / "sub" / "dev.txt").write_text("inside\n")
    (root / "requirements-dev.txt").symlink_to("sub/dev.txt")
    os.mkfifo(root / "setup.cfg")
    os.mkfifo(root / "README.md")
    (root / "setup.py").write_bytes(b"# " + b"x" * (2 << 20))
    (root / os.fsdecode(b"\xff\xfe")).mkdir()
    found = look_at(root)
    assert found.values("group-requirement") == ("inside",)
    assert not found.of("readme")


def test_a_requirements_file_cannot_lead_out_or_round_in_circles(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("stolen\n")
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "requirements.txt").write_text(
        f"-r ../secret.txt\n-r {tmp_path}/secret.txt\n-r requirements.txt\n-r b-requirements.txt\n"
    )
    (root / "b-requirements.txt").write_text("-r requirements.txt\nidna\n")
    assert look_at(root).values("group-requirement") == ("idna",)


def test_a_tree_without_end_is_cut(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(60):
        deep /= "d"
    deep.mkdir(parents=True)
    (deep / "test_deep.py").write_text("def test_x(): ...\n")
    (tmp_path / "test_near.py").write_text("def test_x(): ...\n")
    assert look_at(tmp_path).values("test-file") == ("test_near.py",)


def test_what_cannot_be_known_is_unknown() -> None:
    script = Script(record=frozenset({"setup"}), read_file=lambda _: None)
    script.run(parse("import os\nsetup(a=os.environ['X'], b=open('no').read(), c=['k', os.getcwd() + x])\n"))
    (call,) = script.calls
    assert call.kwargs == {"a": UNKNOWN, "b": UNKNOWN, "c": ["k", UNKNOWN]}


def test_a_manifest_past_the_limits_is_named_and_costs_little(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "".join(f"[tool.poetry.group.g{n}.dependencies]\na = '*'\n" for n in range(9000))
    )
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup(name='made')\n")
    start = time.process_time()
    found = look_at(tmp_path)
    assert time.process_time() - start < 5
    assert [fact.file for fact in found.of("unreadable")] == ["pyproject.toml"]
    assert found.first("project-name") == "made"


def test_groups_that_include_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "made"\n[project.optional-dependencies]\na = ["made[b]", "x"]\nb = ["made[a]", "y"]\n'
        '[dependency-groups]\nc = [{include-group = "d"}, "p"]\nd = [{include-group = "c"}, "q"]\n'
    )
    found = look_at(tmp_path)
    assert set(found.values("extra-requirement", "extra:a")) == {"x", "y"}
    assert set(found.values("group-requirement", "group:d")) == {"p", "q"}


def test_numbers_of_thousands_of_digits_are_no_versions() -> None:
    digits = "1" * 5000
    assert newest([digits, f"3.{digits}", "3.11"]) == "3.11"
    assert first_version([f"v{digits}", "1.2"]) == "1.2"


def test_syntax_trees_are_made_in_many_threads() -> None:
    text = "\n".join(f"def f{n}(a):\n    return [a, (a, [a, {n}])]" for n in range(300))

    def switch(_phase: str, _info: dict[str, int]) -> None:
        time.sleep(0)  # as finalizers do: another thread goes on in the middle of a tree

    gc.callbacks.append(switch)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert {len(tree.body) for tree in threads.map(parse, [text] * 48)} == {300}
    finally:
        gc.callbacks.remove(switch)
