"""What leaves the sandbox of a rollout, and how its layer is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ratchet.autoinstall.workshop import Workshop
from ratchet.sandbox.oci import OciBackend
from ratchet.tasks import extraction, layer_changes
from ratchet.tasks.extraction import Extracted, extract
from ratchet.tasks.layer_changes import EntryKind, Stack, changes
from ratchet.tasks.prepare import task_layers
from sample_project import FILES, PRICES, STOCK, WRONG_PRICES, sample_environment, sample_task

pytestmark = pytest.mark.sandbox  # device nodes and trusted attributes are root's

# --------------------------------------------------------------------------- layers as directories


@pytest.fixture
def lower(tmp_path: Path) -> Path:
    root = tmp_path / "lower"
    for path in ("a/kept", "a/gone", "a/deep/x", "b/x", "c/x", "d"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"lower {path}")
    return root


@pytest.fixture
def upper(tmp_path: Path) -> Path:
    root = tmp_path / "upper"
    (root / "a").mkdir(parents=True)
    (root / "a/new").write_text("upper a/new")
    os.mknod(root / "a/gone", 0o600 | 0o020000, os.makedev(0, 0))
    (root / "b").mkdir()
    os.setxattr(root / "b", "trusted.overlay.opaque", b"y")
    (root / "b/y").write_text("upper b/y")
    (root / "c").symlink_to("/etc")
    os.mkfifo(root / "d")
    return root


def test_a_layer_is_listed_as_the_overlay_means_it(upper: Path) -> None:
    assert dict(changes(upper).entries) == {
        "a": EntryKind.FOLDER,
        "a/gone": EntryKind.REMOVED,
        "a/new": EntryKind.FILE,
        "b": EntryKind.NEW_FOLDER,
        "b/y": EntryKind.FILE,
        "c": EntryKind.LINK,
        "d": EntryKind.OTHER,
    }


@pytest.mark.parametrize(
    ("path", "became"),
    [
        ("a/kept", None),
        ("a/deep/x", None),
        ("a/gone", EntryKind.REMOVED),
        ("b/x", EntryKind.REMOVED),
        ("b/y", EntryKind.FILE),
        ("c/x", EntryKind.REMOVED),
        ("d", EntryKind.OTHER),
        ("e/f", None),
    ],
)
def test_what_became_of_a_path(upper: Path, path: str, became: EntryKind | None) -> None:
    assert changes(upper).of(path) == became


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a/kept", b"lower a/kept"),
        ("a/new", b"upper a/new"),
        ("a/gone", None),
        ("a/deep/x", b"lower a/deep/x"),
        ("b/x", None),
        ("b/y", b"upper b/y"),
        ("c/hostname", None),
        ("c", None),
        ("d", None),
        ("a", None),
        ("e/f", None),
        ("a/\0", None),
    ],
)
def test_a_stack_is_read_without_following_anything(lower: Path, upper: Path, path: str, text: bytes | None) -> None:
    assert Stack([lower, upper]).read(path, 100) == text


def test_no_more_is_read_than_was_asked_for(lower: Path) -> None:
    assert Stack([lower]).read("a/kept", 5) == b"lower"


def test_a_layer_is_looked_at_only_so_deep(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(400):
        os.mkdir("f", dir_fd=folder)
        inner = os.open("f", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    found = changes(tmp_path)
    assert not found.complete
    assert len(found.entries) < 100


def test_a_layer_is_looked_at_only_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_changes, "_MOST_ENTRIES", 10)
    for name in [*map(str, range(20)), "workspace"]:
        (tmp_path / name).touch()
    found = changes(tmp_path)
    assert (len(found.entries), found.complete) == (10, False)
    assert "workspace" in found.entries


# --------------------------------------------------------------------------- rollouts

Leave = Callable[..., Extracted]


@pytest.fixture(scope="module")
def leave(home: Path, backend: OciBackend) -> Iterator[Leave]:
    """What leaves after a command was run where the task starts."""
    with Workshop.open(home) as workshop:
        environment = sample_environment(workshop)
        task = sample_task(environment)
        layers = task_layers(workshop, environment, task)

        def run(command: str, user: str = "dev") -> Extracted:
            with workshop.offline(layers, environment.limits) as sandbox:
                done = sandbox.run(command, user=user, cwd="/workspace", env=environment.recipe.env)
                assert done.ok, done.output
                layer = sandbox.keep()
            try:
                return extract(workshop, layers, layer, environment, task)
            finally:
                workshop.layers.remove(layer)

        yield run
        workshop.layers.remove(layers[-1])


def _paths(extracted: Extracted) -> set[str]:
    return {change.path for change in extracted.patch}


def test_what_was_only_touched_does_not_leave(leave: Leave) -> None:
    left = leave("find . -type f -exec touch {} +; chmod 755 inventory/*.py; rm README.md; git checkout -q README.md")
    assert (left.patch, left.flags) == ((), ())
    assert [line for line in left.dropped if not line.startswith(".git:")] == []


def test_changed_new_and_deleted_sources_leave(leave: Leave) -> None:
    left = leave(
        "sed -i 's/count > 100/count >= 100/' inventory/prices.py; rm inventory/cli.py; chmod 755 inventory/prices.py\n"
        "mkdir -p inventory/sub/deeper; echo 'A = 1' | tee inventory/new.py inventory/sub/__init__.py inventory/sub/deeper/x.py"
    )
    found = {change.path: change for change in left.patch}
    assert set(found) == {
        "inventory/cli.py",
        "inventory/new.py",
        "inventory/prices.py",
        "inventory/sub/__init__.py",
        "inventory/sub/deeper/x.py",
    }
    assert (found["inventory/prices.py"].before, found["inventory/prices.py"].after) == (WRONG_PRICES, PRICES)
    assert (found["inventory/cli.py"].before, found["inventory/cli.py"].after) == (FILES["inventory/cli.py"], None)
    assert found["inventory/new.py"].before is None
    assert {change.mode for change in left.patch} == {0o644}
    assert (left.dropped, left.flags) == ((), ())


def test_a_package_that_was_made_anew_is_compared_file_by_file(leave: Leave) -> None:
    left = leave("cp -r inventory /tmp/i; rm -rf inventory; mkdir inventory; cp /tmp/i/[!c]*.py inventory")
    assert _paths(left) == {"inventory/cli.py"}


def test_a_package_that_was_removed_leaves_as_its_files(leave: Leave) -> None:
    left = leave("rm -rf inventory")
    assert _paths(left) == {path for path in FILES if path.startswith("inventory/")}
    assert left.dropped == ()


def test_a_source_that_is_no_utf8_leaves_as_it_is(leave: Leave) -> None:
    (change,) = leave("printf '# caf\\351\\n' >> inventory/stock.py").patch
    assert change.after is not None
    assert change.after.encode("utf-8", "surrogateescape") == STOCK.encode() + b"# caf\xe9\n"


_IN_THE_WORKSPACE = (
    ("module.py", ""),
    ("package/__init__.py", ""),
    ("inventory/data.json", ""),
    ("inventory/.hidden.py", ""),
    ("inventory/fast.so", ""),
    ("inventory/x.pyc", ""),
    ("inventory/tests/test_new.py", ""),
    ("tests/test_new.py", ""),
    ("tests/helpers.py", ""),
    ("docs/example.py", ""),
    ("conftest.py", "changed-tests"),
    ("inventory/conftest.py", "changed-tests"),
    ("tests/conftest.py", "changed-tests"),
    ("pyproject.toml", "changed-tests"),
    ("setup.cfg", "changed-tests"),
    ("inventory/pytest.ini", "changed-tests"),
    ("tests/test_text.py", "changed-tests"),
    ("pytest/__init__.py", "changed-runner"),
    ("unittest.py", "changed-runner"),
    ("usercustomize.py", "changed-interpreter"),
    ("inventory/sitecustomize.py", "changed-interpreter"),
    ("x.pth", "changed-interpreter"),
    ("inventory.egg-info/entry_points.txt", "changed-interpreter"),
    (".git/config", "changed-git"),
)


@pytest.mark.parametrize(("path", "flag"), _IN_THE_WORKSPACE)
def test_what_is_no_source_of_the_project_does_not_leave(everything: Extracted, path: str, flag: str) -> None:
    assert path not in _paths(everything)
    shown = ".git" if path.startswith(".git/") else path
    assert any(line.startswith(f"{shown}: ") for line in everything.dropped)
    flagged = {given.kind for given in everything.flags if shown in given.detail.split(", ")}
    assert flagged == ({flag} if flag else set())


@pytest.fixture(scope="module")
def everything(leave: Leave) -> Extracted:
    """What leaves after all of these were written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extraction, "_MOST_IN_FLAG", 100)
        return leave("".join(f"mkdir -p $(dirname {path}); echo '#' >> {path}\n" for path, _ in _IN_THE_WORKSPACE))


_ELSEWHERE = (
    ("/opt/venv/lib/python3.11/site-packages/x.pth", "changed-interpreter"),
    ("/opt/venv/lib/python3.11/site-packages/x-1.dist-info/entry_points.txt", "changed-interpreter"),
    ("/opt/venv/lib/python3.11/site-packages/other.py", "changed-packages"),
    ("/opt/venv/lib/python3.11/site-packages/_pytest/runner.py", "changed-runner"),
    ("/usr/lib/python3.11/unittest/case.py", "changed-runner"),
    ("/usr/lib/python3.11/statistics.py", "changed-interpreter"),
    ("/usr/local/bin/python", "changed-runner"),
    ("/home/dev/.local/lib/python3.11/site-packages/usercustomize.py", "changed-interpreter"),
    ("/etc/ld.so.preload", "changed-system"),
    ("/tmp/anything", ""),
    ("/home/dev/notes.txt", ""),
)


@pytest.mark.parametrize(("path", "flag"), _ELSEWHERE)
def test_what_lies_elsewhere_is_flagged_where_it_matters(elsewhere: Extracted, path: str, flag: str) -> None:
    assert elsewhere.patch == ()
    assert {given.kind for given in elsewhere.flags if path in given.detail.split(", ")} == ({flag} if flag else set())


@pytest.fixture(scope="module")
def elsewhere(leave: Leave) -> Extracted:
    return leave("".join(f"mkdir -p $(dirname {path}); echo '#' > {path}\n" for path, _ in _ELSEWHERE), user="root")
