"""Where a policy starts: the changes are there, and everything that would give them away is not."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.autoinstall.workshop import Workshop
from ratchet.errors import SandboxError
from ratchet.protocols import Sandbox
from ratchet.records import Environment
from ratchet.sandbox.oci import OciBackend
from ratchet.task_records import FileChange
from ratchet.tasks.prepare import apply_patch, sources_of, start_layers, task_layers
from ratchet.tasks.prepare import test_files as files_of_tests
from ratchet.tasks.project_files import checkout_root
from sample_project import PRICES, STOCK, WRONG_PRICES, sample_environment, sample_task

pytestmark = pytest.mark.sandbox

SITE = "/opt/venv/lib/python3.11/site-packages"
# What an install and runs of tests leave: an installed copy, bytecode, caches, built archives, and a history. The
# project has an archive of its own.
INSTALLED = f"""
set -e
mkdir -p {SITE} && cp -r /workspace/inventory {SITE}/
cd {SITE} && python3 -m compileall -q inventory
mkdir -p /opt/elsewhere && cp {SITE}/inventory/__pycache__/prices.*.pyc /opt/elsewhere/prices.pyc
mkdir -p /home/dev/.cache/pip/wheels && cp {SITE}/inventory/prices.py /home/dev/.cache/pip/wheels/
touch -d 2001-02-03 {SITE}/inventory
"""
BUILT = """
set -e
python3 -m compileall -q inventory && mkdir -p .pytest_cache dist build/lib
cp inventory/prices.py .pytest_cache/ && cp -r inventory build/lib/
tar -czf dist/inventory-1.0.tar.gz inventory && tar -czf data.tar.gz README.md
python3 -c 'import zipfile; zipfile.ZipFile("dist/inventory.whl", "w").write("inventory/prices.py")'
git init -q && git add -A && git -c user.name=a -c user.email=a@b commit -qm old
"""


@pytest.fixture(scope="module")
def workshop(home: Path, backend: OciBackend) -> Iterator[Workshop]:
    with Workshop.open(home) as workshop:
        yield workshop


@pytest.fixture(scope="module")
def used(workshop: Workshop) -> Iterator[Environment]:
    """The environment of a project that was installed as a copy, and whose tests ran."""
    environment = sample_environment(workshop)
    below = workshop.pristine_layers(environment.base, environment.checkout)
    with workshop.offline(below, environment.limits) as sandbox:
        for command, user in ((INSTALLED, "root"), (BUILT, "dev")):
            done = sandbox.run(command, user=user, cwd="/workspace")
            assert done.ok, done.output
        layer = sandbox.keep()
    identity = hashlib.sha256(f"used {environment.id}".encode()).hexdigest()
    yield replace(environment, id=identity, layer=layer)
    workshop.layers.remove(layer)


@pytest.fixture(scope="module")
def started(workshop: Workshop, used: Environment) -> Iterator[tuple[str, ...]]:
    layers, layer = start_layers(workshop, used, sample_task(used).changes)
    yield layers
    workshop.layers.remove(layer)


@pytest.fixture
def sandbox(workshop: Workshop, used: Environment, started: tuple[str, ...]) -> Iterator[Sandbox]:
    with workshop.offline(started, used.limits) as sandbox:
        yield sandbox


def said(sandbox: Sandbox, command: str, user: str = "dev") -> str:
    done = sandbox.run(command, user=user, cwd="/workspace")
    assert done.ok, done.output
    return done.output.strip()


def test_the_changes_are_there_and_look_old(workshop: Workshop, used: Environment, sandbox: Sandbox) -> None:
    assert sandbox.read("/workspace/inventory/prices.py").decode() == WRONG_PRICES
    mtime = int((checkout_root(workshop, used) / "inventory/prices.py").stat().st_mtime)
    assert said(sandbox, "stat -c '%U %a %Y' inventory/prices.py") == f"dev 644 {mtime}"
    assert said(sandbox, "stat -c '%U %Y' inventory") == f"dev {mtime}"


def test_installed_copies_follow_every_edit(sandbox: Sandbox) -> None:
    """Those of files that did not change too: else the one link would tell where the change is."""
    copies = said(
        sandbox, f"cd {SITE}/inventory && readlink *.py; readlink -f /workspace/build/lib/inventory/prices.py"
    )
    assert set(copies.split()) == {
        f"/workspace/inventory/{name}.py" for name in ("__init__", "cli", "prices", "stock", "text")
    }
    assert said(sandbox, f"stat -c %y {SITE}/inventory").startswith("2001-02-03")
    price = f"cd / && PYTHONPATH={SITE} python3 -c 'from inventory.prices import discount; print(discount(100, 100))'"
    assert said(sandbox, price) == "9000"
    apply_patch(sandbox, [FileChange("inventory/prices.py", WRONG_PRICES, PRICES)])
    assert said(sandbox, price) == "8000"


def test_bytecode_caches_and_built_archives_are_gone(sandbox: Sandbox) -> None:
    assert said(sandbox, "find / -xdev -name 'prices*.pyc' -not -path '/proc/*' 2>/dev/null; true") == ""
    # Of no other module of the project either: what is missing would tell where the change is.
    assert said(sandbox, "find . -name '*.pyc'") == ""
    assert said(sandbox, "ls -A . dist ~/.cache").split() == (
        [
            ".:",
            ".git",
            "README.md",
            "build",
            "data.tar.gz",
            "dist",
            "inventory",
            "pyproject.toml",
            "tests",
            "/home/dev/.cache:",
            "dist:",
        ]
    )


def test_the_history_is_one_commit(sandbox: Sandbox) -> None:
    assert said(sandbox, "git log --all --format='%an %s %ad' --date=short") == "start start 2000-01-01"
    assert said(sandbox, "git status --short --ignored && git fsck --unreachable --no-reflogs && git stash list") == ""


def test_what_the_project_has_of_sources_and_tests(workshop: Workshop, used: Environment) -> None:
    sources = sources_of(workshop, used)
    assert sources["inventory/stock.py"] == STOCK
    assert set(sources) == {f"inventory/{name}.py" for name in ("__init__", "cli", "prices", "stock", "text")}
    assert {"tests/conftest.py", "tests/test_stock.py", "pyproject.toml"} <= files_of_tests(workshop, used)
    assert not files_of_tests(workshop, used) & set(sources)


def test_a_file_that_the_solution_adds_is_gone_and_its_copy_with_it(workshop: Workshop, used: Environment) -> None:
    layers, layer = start_layers(workshop, used, [FileChange("inventory/prices.py", PRICES, None)])
    try:
        with workshop.offline(layers, used.limits) as sandbox:
            with pytest.raises(FileNotFoundError):
                sandbox.read(f"{SITE}/inventory/prices.py")
            apply_patch(sandbox, [FileChange("inventory/prices.py", None, PRICES)])
            assert sandbox.read(f"{SITE}/inventory/prices.py").decode() == PRICES
    finally:
        workshop.layers.remove(layer)


def test_a_task_has_its_layer_once(workshop: Workshop, used: Environment) -> None:
    task = replace(sample_task(used), id=hashlib.sha256(b"a task of this test").hexdigest())
    layers = task_layers(workshop, used, task)
    try:
        assert layers[-1] == f"task-{task.id[:32]}"
        made = workshop.layers.path(layers[-1]).stat()
        assert task_layers(workshop, used, task) == layers
        assert workshop.layers.path(layers[-1]).stat().st_ino == made.st_ino
    finally:
        workshop.layers.remove(layers[-1])


def test_a_patch_leads_nowhere_else(sandbox: Sandbox) -> None:
    """A workspace may hold links: what lies behind them is written as the user who may do no more than the policy."""
    said(sandbox, "rm -r inventory && ln -s /etc inventory")
    with pytest.raises(SandboxError):
        apply_patch(sandbox, [FileChange("inventory/prices.py", None, PRICES)])
