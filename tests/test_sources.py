"""Fetching sources: real directories, git repositories, archives and a package index, well-meant and hostile."""

import contextlib
import gzip
import hashlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.errors import MachineError, SourceError
from ratchet.records import Checkout
from ratchet.sources import archive as archive_module
from ratchet.sources import content, fetch
from ratchet.sources.index import index_url
from ratchet.store import Store

LFS_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12345\n"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small plain directory."""
    folder = tmp_path / "project"
    write(folder, {"README": "hello", "src/a.py": "a = 1", "run.sh": "#!/bin/sh"})
    (folder / "run.sh").chmod(0o755)
    return folder


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def listing(checkout: Checkout) -> set[str]:
    root = Path(checkout.path)
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_symlink() or not path.is_dir()}


def leftovers(store: Store) -> list[str]:
    return [path.name for path in store.scratch.directory.iterdir() if path.name != ".lock"]


# --------------------------------------------------------------------------- directories


def test_a_directory_is_copied_with_its_modes_and_described(store: Store, project: Path) -> None:
    os.utime(project / "README", (1_600_000_000, 1_600_000_000))
    for name in ("src/a.py", "run.sh"):
        os.utime(project / name, (1_500_000_000, 1_500_000_000))
    checkout = fetch(str(project), store)
    assert listing(checkout) == {"README", "src/a.py", "run.sh"}
    assert (checkout.name, checkout.commit, checkout.files, checkout.missing) == ("project", None, 3, ())
    assert checkout.size_bytes == len("hello" + "a = 1" + "#!/bin/sh")
    assert checkout.date == "2020-09-13T12:26:40+00:00"
    assert os.access(Path(checkout.path) / "run.sh", os.X_OK) and not os.access(Path(checkout.path) / "README", os.X_OK)
    assert store.get("checkout", checkout.id, Checkout) == checkout
    assert leftovers(store) == []


def test_the_id_depends_on_content_alone(store: Store, project: Path, tmp_path: Path) -> None:
    first = fetch(str(project), store)
    os.utime(project / "README", (0, 0))
    project.rename(tmp_path / "renamed")
    assert fetch(str(tmp_path / "renamed"), store).id == first.id


@pytest.mark.parametrize("change", ["content", "name", "mode", "link", "empty-folder"])
def test_every_part_of_the_content_changes_the_id(store: Store, project: Path, change: str) -> None:
    first = fetch(str(project), store)
    match change:
        case "content":
            (project / "README").write_text("hellO")
        case "name":
            (project / "README").rename(project / "README.md")
        case "mode":
            (project / "README").chmod(0o755)
        case "link":
            (project / "link").symlink_to("README")
        case _:
            (project / "empty").mkdir()
    assert fetch(str(project), store).id != first.id


def test_what_builders_write_instead_of_times_is_no_date(store: Store, project: Path) -> None:
    for name in ("README", "src/a.py", "run.sh"):
        os.utime(project / name, (1_580_601_600, 1_580_601_600))
    assert fetch(str(project), store).date is None


def test_an_empty_directory_is_a_checkout_without_files(store: Store, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    checkout = fetch(str(tmp_path / "nothing"), store)
    assert (checkout.files, checkout.size_bytes, checkout.date) == (0, 0, None)
    assert Path(checkout.path).is_dir()


def test_undecodable_and_strange_names_are_copied(store: Store, project: Path) -> None:
    for name in (b"caf\xe9", b"new\nline", b"-rf", "\u202egnp.exe".encode()):
        (Path(os.fsdecode(os.fsencode(project) + b"/" + name))).write_text("x")
    assert fetch(str(project), store).files == 7


def test_links_inside_stay_and_links_out_are_named_and_left_out(store: Store, project: Path) -> None:
    links = {
        "inside": "src/a.py",
        "src/up": "../README",
        "dangling": "nowhere",
        "absolute": "/etc/passwd",
        "out": "../outside",
        "sly": "src/../../x",
        "step": "src/..",  # leads to the root of the tree, so that `sneaky` is outside although its text is not
        "src/sneaky": "../step/../x",
        "circle": "circle",
    }
    for name, target in links.items():
        (project / name).symlink_to(target)
    checkout = fetch(str(project), store)
    assert {name for name in links if (Path(checkout.path) / name).is_symlink()} == {
        "inside",
        "src/up",
        "dangling",
        "step",
    }
    assert set(checkout.missing) == {
        "outside-link: absolute -> /etc/passwd",
        "outside-link: out -> ../outside",
        "outside-link: sly -> src/../../x",
        "outside-link: src/sneaky -> ../step/../x",
        "outside-link: circle -> circle",
    }


TARGETS = st.sampled_from([".", "..", "a", "b", "../b", "a/b", "a/..", "b/..", "a/b/..", "a/b/../..", "b/../../a"])
NAMES = st.sampled_from(["a", "b", "c", "a/a", "a/b", "b/a", "a/b/c"])  # few, so that links meet links


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(NAMES, TARGETS, min_size=2, max_size=5), st.sets(NAMES, max_size=2))
def test_whatever_links_there_are_none_leads_out(links: dict[str, str], files: set[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder).resolve() / "outer" / "tree"
        tree.parent.mkdir()
        entries = [content.Entry(path, content.Kind.FILE, [b"x"]) for path in sorted(files)]
        entries += [content.Entry(path, content.Kind.LINK, target=target) for path, target in links.items()]
        try:
            content.lay_out(entries, tree)
        except SourceError:
            return  # one name for a file and a folder
        made = [path for path in tree.rglob("*") if path.is_symlink()]
        assert all(Path(os.path.realpath(path)).is_relative_to(tree) for path in made)
        assert {path.name for path in tree.parent.iterdir()} == {"tree"}


def test_a_link_to_a_folder_is_not_walked_into(store: Store, project: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", {"secret": "x"})
    (project / "folder").symlink_to(tmp_path / "elsewhere")
    assert "folder/secret" not in listing(fetch(str(project), store))


def test_special_files_are_named_and_nothing_hangs(store: Store, project: Path) -> None:
    os.mkfifo(project / "pipe")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(project / "socket"))
        checkout = fetch(str(project), store)
    assert checkout.missing == ("special-file: pipe", "special-file: socket")
    assert checkout.files == 3


def test_caches_and_virtual_environments_are_left_out(store: Store, project: Path) -> None:
    tag = "Signature: 8a477f597d28d172789f06886806bc55\n"
    write(project, {".cache/CACHEDIR.TAG": tag, ".cache/x": "x", "src/__pycache__/a.pyc": "x"})
    write(project, {"venv/pyvenv.cfg": "home = /usr/bin", "venv/bin/python": "x", "data/CACHEDIR.TAG": "no tag"})
    assert listing(fetch(str(project), store)) == {"README", "src/a.py", "run.sh", "data/CACHEDIR.TAG"}


def test_the_store_itself_is_not_copied(project: Path) -> None:
    inside = Store(project / "state")
    inside.put("checkout", Checkout("x", "x", "x", "x"))
    assert fetch(str(project), inside).files == 3


def test_submodules_and_lfs_objects_that_are_missing_are_named(store: Store, project: Path) -> None:
    write(project, {"big.bin": LFS_POINTER, "full/x": "x"})
    modules = '[submodule "a"]\n\tpath = vendor/a\n\turl = x\n[submodule "b"]\n\tpath = full\n\turl = y\n'
    write(project, {".gitmodules": modules})
    (project / "vendor" / "a").mkdir(parents=True)
    assert fetch(str(project), store).missing == ("lfs-object: big.bin", "submodule: vendor/a")


@pytest.mark.parametrize(("limit", "value"), [("MAX_FILES", 3), ("MAX_TOTAL_BYTES", 10), ("MAX_FILE_BYTES", 6)])
def test_limits(store: Store, project: Path, limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, limit, value)
    with pytest.raises(SourceError, match="too large"):
        fetch(str(project), store)
    assert leftovers(store) == [] and not store.checkouts.exists()


def test_a_huge_sparse_file_is_refused_before_the_disk_is_full(store: Store, project: Path) -> None:
    with (project / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    started = time.monotonic()
    with pytest.raises(SourceError, match="too large"):
        fetch(str(project), store)
    assert time.monotonic() - started < 2


def test_folders_without_end_are_refused(store: Store, project: Path) -> None:
    here = os.open(project, os.O_RDONLY)
    for _ in range(300):  # few enough for pytest to remove
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    with pytest.raises(SourceError, match="deep"):
        fetch(str(project), store)


def test_several_processes_fetch_the_same_at_once(store: Store, project: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from ratchet.sources import fetch; from ratchet.store import Store\n"
    )
    program += "print(fetch(sys.argv[1], Store(Path(sys.argv[2]))).id)"
    command = [sys.executable, "-c", program, str(project), str(store.home)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    ids = {process.communicate()[0] for process in processes}
    assert len(ids) == 1 and {process.returncode for process in processes} == {0}
    assert len(list(store.checkouts.iterdir())) == 1 and leftovers(store) == []


def test_an_interrupt_leaves_nothing(store: Store, project: Path) -> None:
    with (project / "large").open("wb") as file:
        file.truncate(900 << 20)
    program = (
        "import signal, sys; from pathlib import Path; from ratchet.sources import fetch; from ratchet.store import Store\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs inherit that it is ignored
        "fetch(sys.argv[1], Store(Path(sys.argv[2])))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(project), str(store.home)], stderr=subprocess.DEVNULL
    )
    while not list(store.scratch.directory.glob("*/tree/large")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait() != 0
    assert leftovers(store) == [] and not store.checkouts.exists()


# --------------------------------------------------------------------------- git


@pytest.fixture
def git_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git without this machine's settings, and with a name to commit under."""
    settings = tmp_path / "gitconfig"
    settings.write_text("[user]\nname = A\nemail = a@example.org\n[init]\ndefaultBranch = main\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"):
        monkeypatch.setenv(name, "2021-02-03T04:05:06+01:00")


def git(folder: Path, *arguments: str) -> str:
    result = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return result.stdout.strip()


@pytest.fixture
def repository(project: Path, git_home: None) -> Path:
    """A git repository with a tag, a later commit on a branch with a slash, and an ignored file."""
    git(project, "init", "--quiet")
    write(project, {".gitignore": "*.log\n"})
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "one")
    git(project, "tag", "v1.0")
    git(project, "checkout", "--quiet", "-b", "feature/x")
    write(project, {"new.py": "x"})
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "two")
    git(project, "checkout", "--quiet", "main")
    write(project, {"build.log": "ignored"})
    return project


def test_a_clean_work_tree_is_its_commit(store: Store, repository: Path) -> None:
    checkout = fetch(str(repository), store)
    assert listing(checkout) == {".gitignore", "README", "src/a.py", "run.sh"}
    assert checkout.commit == git(repository, "rev-parse", "HEAD")
    assert (checkout.date, checkout.version) == ("2021-02-03T04:05:06+01:00", "v1.0")
    assert fetch(f"{repository}@HEAD", store).id == checkout.id


def test_changed_added_and_deleted_files_count_and_make_it_dirty(store: Store, repository: Path) -> None:
    write(repository, {"README": "changed", "extra.py": "x"})
    (repository / "src" / "a.py").unlink()
    checkout = fetch(str(repository), store)
    assert listing(checkout) == {".gitignore", "README", "run.sh", "extra.py"}
    assert (Path(checkout.path) / "README").read_text() == "changed"
    assert checkout.commit == git(repository, "rev-parse", "HEAD") + "-dirty"
    assert checkout.version == "v1.0-dirty"


@pytest.mark.parametrize("ref", ["v1.0", "main", "feature/x", "full", "short", "feature/x~1"])
@pytest.mark.parametrize("form", ["path", "bare", "file", "git+file", "filtered"])
def test_a_ref_of_any_kind_of_repository(store: Store, repository: Path, tmp_path: Path, ref: str, form: str) -> None:
    commit = git(repository, "rev-parse", {"full": "feature/x", "short": "feature/x"}.get(ref, ref))
    name = {"full": commit, "short": commit[:10]}.get(ref, ref)
    bare = tmp_path / "project.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), str(bare))
    if form == "filtered":
        git(bare, "config", "uploadpack.allowFilter", "true")
    places = {"path": repository, "bare": bare, "file": f"file://{bare}", "git+file": f"git+file://{bare}"}
    checkout = fetch(f"{places.get(form, f'file://{bare}')}@{name}", store)
    assert (checkout.commit, checkout.name) == (commit, "project")
    assert ("new.py" in listing(checkout)) == (ref in ("feature/x", "full", "short"))
    assert checkout.version == (git(repository, "describe", "--tags", commit))
    assert leftovers(store) == []


def test_without_a_ref_a_url_or_a_bare_repository_gives_its_head(
    store: Store, repository: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), str(bare))
    head = git(repository, "rev-parse", "HEAD")
    assert fetch(str(bare), store).commit == fetch(f"file://{bare}", store).commit == head


def test_a_remote_whose_head_leads_nowhere_still_has_its_branches(
    store: Store, repository: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), str(bare))
    git(bare, "symbolic-ref", "HEAD", "refs/heads/none")
    assert fetch(f"file://{bare}@main", store).commit == git(repository, "rev-parse", "main")
    with pytest.raises(SourceError, match="HEAD"):
        fetch(f"file://{bare}", store)


def test_a_commit_that_claims_an_impossible_date_is_fetched(store: Store, repository: Path) -> None:
    raw = git(repository, "cat-file", "commit", "HEAD").replace("1612321506", "99999999999999999")
    made = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--literally", "--stdin"],
        cwd=repository, input=raw + "\n", capture_output=True, text=True, check=True,
    )  # fmt: skip
    checkout = fetch(f"{repository}@{made.stdout.strip()}", store)
    assert checkout.files == 4


def test_a_shallow_clone_and_a_linked_work_tree(store: Store, repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--depth=1", "--branch=feature/x", f"file://{repository}", "shallow")
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "linked"), "feature/x")
    commit = git(repository, "rev-parse", "feature/x")
    assert fetch(str(tmp_path / "shallow"), store).commit == commit
    assert fetch(str(tmp_path / "linked"), store).commit == commit


def test_a_repository_without_commits_is_its_files(store: Store, project: Path, git_home: None) -> None:
    git(project, "init", "--quiet")
    checkout = fetch(str(project), store)
    assert (checkout.files, checkout.commit, checkout.version) == (3, None, None)
    with pytest.raises(SourceError, match="no branch, tag or commit HEAD"):
        fetch(f"{project}@HEAD", store)


def test_submodules_are_named_when_empty_and_copied_when_checked_out(
    store: Store, repository: Path, tmp_path: Path
) -> None:
    git(tmp_path, "init", "--quiet", "library")
    write(tmp_path / "library", {"lib.c": "x"})
    git(tmp_path / "library", "add", ".")
    git(tmp_path / "library", "commit", "--quiet", "-m", "x")
    git(
        repository,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        str(tmp_path / "library"),
        "vendor/lib",
    )
    git(repository, "commit", "--quiet", "-m", "submodule")
    assert "vendor/lib/lib.c" in listing(fetch(str(repository), store))
    assert fetch(f"{repository}@HEAD", store).missing == ("submodule: vendor/lib",)
    git(tmp_path, "clone", "--quiet", str(repository), "clone")
    assert fetch(str(tmp_path / "clone"), store).missing == ("submodule: vendor/lib",)


def test_attributes_do_not_alter_what_is_fetched(store: Store, repository: Path) -> None:
    write(
        repository, {".gitattributes": "* export-subst\nREADME export-ignore\nnote eol=crlf\n", "note": "$Format:%H$\n"}
    )
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "attributes")
    root = Path(fetch(f"{repository}@HEAD", store).path)
    assert (root / "note").read_bytes() == b"$Format:%H$\n" and (root / "README").exists()


def test_a_hostile_repository_runs_nothing(store: Store, repository: Path, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    script = tmp_path / "evil.sh"
    script.write_text(f'#!/bin/sh\necho ran "$0" >> {mark}\ncat\n')
    script.chmod(0o755)
    write(repository, {".gitattributes": "* filter=evil diff=evil\n"})
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "attributes")
    for setting in (
        "core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.alternateRefsCommand", "core.askPass",
        "filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "diff.evil.command", "diff.evil.textconv",
        "diff.external", "uploadpack.packObjectsHook", "remote.origin.uploadpack", "credential.helper", "gpg.program",
    ):  # fmt: skip
        git(repository, "config", setting, str(script))
    git(repository, "config", "core.hooksPath", str(tmp_path / "hooks"))
    git(repository, "config", "alias.ls-files", f"!{script}")
    git(repository, "config", "remote.origin.url", f"ext::sh -c {script}")
    git(repository, "config", "remote.origin.promisor", "true")
    git(repository, "config", "extensions.partialClone", "origin")
    git(repository, "config", "core.worktree", "/etc")
    (tmp_path / "hooks").mkdir()
    for hook in ("post-index-change", "reference-transaction", "post-checkout", "pre-auto-gc", "fsmonitor-watchman"):
        (tmp_path / "hooks" / hook).symlink_to(script)
    os.utime(repository / "README", (1, 1))  # so that git has to look into the file, with whatever filter
    dirty = fetch(str(repository), store)
    at_head = fetch(f"{repository}@HEAD", store)
    by_url = fetch(f"file://{repository}@HEAD", store)
    assert dirty.id == at_head.id == by_url.id and dirty.files == 5
    assert not mark.exists()
    subprocess.run(["git", "status"], cwd=repository, capture_output=True, check=False)
    assert mark.exists(), "the traps themselves do not work"


@pytest.mark.parametrize("text", ["gitdir: /nowhere", "gitdir: /dev/zero", "nonsense", ""])
def test_a_git_file_that_leads_nowhere_is_an_error(store: Store, project: Path, text: str) -> None:
    (project / ".git").write_text(text)
    with pytest.raises(SourceError, match="no git repository"):
        fetch(str(project), store)


def test_a_git_entry_that_would_block_is_an_error(store: Store, project: Path) -> None:
    os.mkfifo(project / ".git")
    with pytest.raises(SourceError, match="no git repository"):
        fetch(str(project), store)


def test_a_tracked_folder_that_became_a_link_is_not_followed(store: Store, repository: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", {"a.py": "secret"})
    (repository / "src" / "a.py").unlink()
    (repository / "src").rmdir()
    (repository / "src").symlink_to(tmp_path / "elsewhere")
    checkout = fetch(str(repository), store)
    assert not (Path(checkout.path) / "src").exists()


def test_without_git_the_error_says_what_to_install(
    store: Store, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "rm").symlink_to("/bin/rm")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(MachineError) as caught:
        fetch(f"{repository}@HEAD", store)
    assert "apt install git" in caught.value.remedy


# --------------------------------------------------------------------------- archives


def tar(path: Path, *members: tuple[str, str | bytes], **attributes: object) -> Path:
    """An archive of members: (name, bytes), or (name, what else it is)."""
    with tarfile.open(path, "w:" + path.suffix.removeprefix(".").replace("tar", "")) as archive:
        for name, body in members:
            info = tarfile.TarInfo(name)
            info.mtime = 1_600_000_000
            kind, _, target = body.partition(" ") if isinstance(body, str) else ("file", "", "")
            info.type = {"link": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE, "dir": tarfile.DIRTYPE,
                         "fifo": tarfile.FIFOTYPE, "device": tarfile.CHRTYPE, "file": tarfile.REGTYPE}[kind]  # fmt: skip
            info.linkname = target
            data = body if isinstance(body, bytes) else b""
            info.size = len(data)
            info.mode = int(attributes.get("mode", 0o644))  # type: ignore[call-overload]
            archive.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize("suffix", ["tar.gz", "tar.bz2", "tar.xz", "tar"])
def test_an_sdist_file_is_unpacked_without_its_top_folder(store: Store, tmp_path: Path, suffix: str) -> None:
    members = (("p-1.2/a.py", b"a"), ("p-1.2/s/b.py", b"b"), ("p-1.2/l", "link s/b.py"), ("p-1.2/h", "hard p-1.2/a.py"))
    checkout = fetch(str(tar(tmp_path / f"p-1.2.{suffix}", *members, mode=0o755)), store)
    assert (checkout.name, checkout.version, checkout.date) == ("p", "1.2", "2020-09-13T12:26:40+00:00")
    assert listing(checkout) == {"a.py", "s/b.py", "l", "h"}
    assert (Path(checkout.path) / "h").read_bytes() == b"a" and os.access(Path(checkout.path) / "a.py", os.X_OK)
    assert str((Path(checkout.path) / "l").readlink()) == "s/b.py"


def test_an_archive_and_a_directory_of_the_same_content_are_the_same_checkout(store: Store, tmp_path: Path) -> None:
    write(tmp_path / "d", {"a.py": "a", "s/b.py": "b"})
    archive = tar(tmp_path / "p-1.tar.gz", ("p-1/s/b.py", b"b"), ("p-1/a.py", b"a"))
    assert fetch(str(archive), store).id == fetch(str(tmp_path / "d"), store).id


def test_a_zip_file_is_unpacked_with_links_and_modes(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "p-1.2.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, mode, data in (
            ("p-1.2/run", 0o100755, "x"),
            ("p-1.2/l", 0o120777, "run"),
            ("p-1.2/out", 0o120777, "../../x"),
        ):
            info = zipfile.ZipInfo(name, (2020, 9, 13, 12, 26, 40))
            info.external_attr = mode << 16
            archive.writestr(info, data)
    checkout = fetch(str(path), store)
    assert listing(checkout) == {"run", "l"} and checkout.missing == ("outside-link: out -> ../../x",)
    assert os.access(Path(checkout.path) / "run", os.X_OK) and str((Path(checkout.path) / "l").readlink()) == "run"
    assert checkout.date == "2020-09-13T12:26:40+00:00"


@pytest.mark.parametrize(
    "members",
    [
        [("../evil", b"x")],
        [("p/../../evil", b"x")],
        [("/tmp/evil", b"x")],
        [("p/a", b"x"), ("p/b", "hard ../../etc/passwd")],
        [("p/a", b"x"), ("p/b", "hard /etc/passwd")],
        [("p/a", b"x"), ("p/b", "hard p/l"), ("p/l", "link /etc/passwd")],
        [("p/a", b"x"), ("p/a/b", b"x")],
        [("p/a/b", b"x"), ("p/a", b"x")],
        [("p/a/b", b"x"), ("p/a", "link .")],
        [("p/l", "link ."), ("p/l/sub", "link x")],
        [("p/" + "n" * 300, b"x")],
        [("/".join("d" * 200), b"x")],
    ],
)
def test_hostile_archives_are_refused(store: Store, tmp_path: Path, members: list[tuple[str, str | bytes]]) -> None:
    with pytest.raises(SourceError):
        fetch(str(tar(tmp_path / "p-1.tar.gz", *members)), store)
    assert leftovers(store) == [] and not store.checkouts.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"home", "p-1.tar.gz"}


def test_nothing_is_written_through_a_link(store: Store, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    members = [("p/l", f"link {tmp_path}/victim"), ("p/l/x", b"x"), ("p/m", f"link {tmp_path}/victim/y"), ("p/m", b"y")]
    checkout = fetch(str(tar(tmp_path / "p-1.tar.gz", *members)), store)
    assert list((tmp_path / "victim").iterdir()) == []
    assert listing(checkout) == {"l/x", "m"}


def test_links_out_and_devices_in_an_archive_are_named(store: Store, tmp_path: Path) -> None:
    members = [("p/a", b"x"), ("p/etc", "link /etc"), ("p/up", "link ../x"), ("p/f", "fifo"), ("p/d", "device")]
    checkout = fetch(str(tar(tmp_path / "p-1.tar.gz", *members)), store)
    assert listing(checkout) == {"a"}
    assert checkout.missing == (
        "outside-link: etc -> /etc",
        "outside-link: up -> ../x",
        "special-file: d",
        "special-file: f",
    )


def test_a_git_directory_in_an_archive_is_left_out(store: Store, tmp_path: Path) -> None:
    archive = tar(tmp_path / "p-1.tar.gz", ("p/a", b"x"), ("p/.git/config", b"[core]"), ("p/s/.git", b"gitdir: x"))
    assert listing(fetch(str(archive), store)) == {"a"}


def test_a_compression_bomb_ends_at_the_limit(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "p-1.tar.gz"
    info = tarfile.TarInfo("p/zeros")
    info.size = 1 << 42
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(info.tobuf())
        file.write(bytes(64 << 20))
    started = time.monotonic()
    with pytest.raises(SourceError, match="too large"):
        fetch(str(path), store)
    assert time.monotonic() - started < 5


def test_a_bomb_in_a_header_takes_no_memory(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "p-1.tar.gz"
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 4 << 30
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(info.tobuf(tarfile.USTAR_FORMAT))
        file.write(bytes(1 << 20))
    with pytest.raises(SourceError, match="header claims"):
        fetch(str(path), store)


@pytest.mark.parametrize("name", ["p-1.tar.gz", "p-1.tar.xz", "p-1.tar.bz2", "p-1.tar", "p-1.zip"])
@pytest.mark.parametrize(
    "data", [b"", b"garbage" * 1000, b"\x1f\x8b\x08\x00garbage", b"PK\x03\x04garbage", b"\xfd7zXZ\x00garbage"]
)
def test_what_is_no_archive_is_an_error(store: Store, tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SourceError, match="cannot be unpacked"):
        fetch(str(tmp_path / name), store)


def test_an_archive_that_was_cut_off_is_an_error(store: Store, tmp_path: Path) -> None:
    path = tar(tmp_path / "p-1.tar.gz", ("p/a", os.urandom(100_000)), ("p/b", os.urandom(100_000)))
    path.write_bytes(path.read_bytes()[:150_000])
    with pytest.raises(SourceError, match="cannot be unpacked"):
        fetch(str(path), store)
    assert leftovers(store) == []


# --------------------------------------------------------------------------- the package index


class Index:
    """A package index of one project, on loopback."""

    def __init__(self, folder: Path) -> None:
        self.files: list[dict[str, object]] = []
        self.bodies: dict[str, bytes] = {}
        self.requests: list[str] = []
        self._folder = folder

        class Handler(BaseHTTPRequestHandler):
            def do_GET(handler) -> None:  # noqa: N805
                self.answer(handler)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/simple"

    def add(self, filename: str, text: str = "x", **about: object) -> None:
        stem = filename.removesuffix(".tar.gz")
        body = (
            tar(self._folder / filename, (f"{stem}/setup.py", text.encode())).read_bytes() if stem != filename else b""
        )
        digests = {"sha256": hashlib.sha256(body).hexdigest()}
        self.bodies[f"/files/{filename}"] = body
        entry = {
            "filename": filename,
            "url": f"/files/{filename}",
            "hashes": digests,
            "upload-time": "2022-01-02T03:04:05Z",
        }
        self.files.append(entry | about)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.requests.append(handler.path)
        page = {"meta": {"api-version": "1.1"}, "name": "demo", "versions": [], "files": self.files}
        body = json.dumps(page).encode() if handler.path == "/simple/demo/" else self.bodies.get(handler.path)
        handler.send_response(200 if body is not None else 404)
        handler.send_header("Content-Type", "application/vnd.pypi.simple.v1+json")
        handler.send_header("Content-Length", str(len(body or b"")))
        handler.end_headers()
        handler.wfile.write(body or b"")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    (tmp_path / "index").mkdir()
    index = Index(tmp_path / "index")
    thread = threading.Thread(target=index.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    yield index
    index.server.shutdown()
    thread.join()
    index.server.server_close()


def test_the_newest_final_release_that_is_not_yanked_is_taken(store: Store, index: Index) -> None:
    for version in ("1.9", "1.10", "2.0rc1"):
        index.add(f"demo-{version}.tar.gz", version)
    index.add("demo-1.11.tar.gz", yanked="broken")
    checkout = fetch("pypi:Demo", store)
    assert (checkout.name, checkout.version, checkout.source) == ("demo", "1.10", "pypi:demo==1.10")
    assert checkout.date == "2022-01-02T03:04:05+00:00"
    assert (Path(checkout.path) / "setup.py").read_text() == "1.10"


@pytest.mark.parametrize("version", ["1.9", "1.9.0", "2.0rc1", "1.11"])
def test_a_version_can_be_asked_for_also_yanked_or_before_its_release(store: Store, index: Index, version: str) -> None:
    for name in ("1.9", "1.10", "2.0rc1"):
        index.add(f"demo-{name}.tar.gz", name)
    index.add("demo-1.11.tar.gz", yanked=True)
    assert fetch(f"pypi:demo=={version}", store).version == version.removesuffix(".0")


def test_an_sdist_that_is_there_is_not_downloaded_again(store: Store, index: Index) -> None:
    index.add("demo-1.0.tar.gz")
    assert fetch("pypi:demo", store) == fetch("pypi:demo==1.0", store)
    assert index.requests.count("/files/demo-1.0.tar.gz") == 1


def test_a_file_that_is_not_what_was_promised_is_refused(store: Store, index: Index) -> None:
    index.add("demo-1.0.tar.gz")
    index.bodies["/files/demo-1.0.tar.gz"] += b"more"
    with pytest.raises(SourceError, match="not the one that"):
        fetch("pypi:demo", store)
    assert not store.checkouts.exists() and leftovers(store) == []


def test_a_file_without_a_digest_is_refused(store: Store, index: Index) -> None:
    index.add("demo-1.0.tar.gz", hashes={})
    with pytest.raises(SourceError, match="without a SHA-256"):
        fetch("pypi:demo", store)


def test_errors_of_the_index_say_what_else_there_is(store: Store, index: Index) -> None:
    index.add("demo-1.0.tar.gz")
    index.add("demo-2.0-py3-none-any.whl")
    for source, what, remedy in (
        ("pypi:other", "no project other", "spelling"),
        ("pypi:demo==1.1", "no version 1.1", "1.0"),
        ("pypi:demo==x", "is no version", "2.0, 1.0"),
        ("pypi:demo", "2.0 has no source distribution", "1.0"),
        ("pypi:demo>=1", "no NAME or NAME==VERSION", "pypi:attrs"),
        ("pypi:../x", "no NAME or NAME==VERSION", "pypi:attrs"),
    ):
        with pytest.raises(SourceError) as caught:
            fetch(source, store)
        assert what in caught.value.what and remedy in caught.value.remedy, source


def test_an_index_that_does_not_answer_is_an_error_without_its_password(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://me:hunter2@127.0.0.1:1/simple")
    with pytest.raises(SourceError, match="cannot be used") as caught:
        fetch("pypi:demo", store)
    assert "hunter2" not in str(caught.value)


def test_the_index_is_the_one_that_the_clients_use(tmp_path: Path) -> None:
    write(tmp_path, {".config/pip/pip.conf": "[global]\nindex-url = http://pip.conf/simple\n"})
    from_file = {"HOME": str(tmp_path)}
    assert index_url(from_file) == "http://pip.conf/simple"
    assert index_url(from_file | {"PIP_INDEX_URL": "http://pip/simple"}) == "http://pip/simple"
    assert index_url({"PIP_INDEX_URL": "http://pip/", "UV_DEFAULT_INDEX": "own=http://uv/"}) == "http://uv/"
    write(tmp_path, {".config/uv/uv.toml": '[[index]]\nurl = "http://uv.toml/simple"\ndefault = true\n'})
    assert index_url(from_file) == "http://uv.toml/simple"


# --------------------------------------------------------------------------- reading a source


@pytest.mark.parametrize(
    ("source", "what", "remedy"),
    [
        ("attrs", "no directory attrs", "pypi:attrs"),
        ("attrs==1.0", "no directory attrs==1.0", "pypi:attrs==1.0"),
        ("/no/such/place", "no directory /no/such/place", "give a directory"),
        ("", "no directory", "give a directory"),
        ("http://me:hunter2@127.0.0.1:1/x.git@v1", "cannot be fetched", "git ls-remote"),
        ("file:///no/such/repository.git", "cannot be fetched", "git ls-remote"),
        ("ext::sh -c true", "no directory", "give a directory"),
    ],
)
def test_a_source_that_leads_nowhere_is_a_clear_error(store: Store, source: str, what: str, remedy: str) -> None:
    with pytest.raises(SourceError) as caught:
        fetch(source, store)
    assert what in caught.value.what and remedy in caught.value.remedy
    assert "hunter2" not in str(caught.value)


def test_a_ref_of_a_plain_directory_or_an_unknown_ref_is_an_error(store: Store, project: Path, git_home: None) -> None:
    with pytest.raises(SourceError, match="no git repository, so it has no v1"):
        fetch(f"{project}@v1", store)
    git(project, "init", "--quiet")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "one")
    for ref in ("nope", "--help", "-x", "HEAD:README"):
        with pytest.raises(SourceError, match="no branch, tag or commit") as caught:
            fetch(f"{project}@{ref}", store)
        assert "main" in caught.value.remedy


def test_an_existing_directory_wins_even_with_an_at_in_its_name(store: Store, project: Path) -> None:
    odd = project.rename(project.with_name("project@v1"))
    assert fetch(str(odd), store).name == "project@v1"


def test_credentials_of_a_source_are_not_stored(store: Store, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    index.add("demo-1.0.tar.gz")
    monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("//", "//me:hunter2@"))
    checkout = fetch("pypi:demo", store)
    assert "hunter2" not in store.record_file("checkout", checkout.id).read_text()


def test_damaged_zip_files_are_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "p-1.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/b.py", "x")
        archive.writestr("c/", "")
    whole = path.read_bytes()
    for position in range(len(whole)):
        for value in (0, 255):
            path.write_bytes(whole[:position] + bytes([value]) + whole[position + 1 :])
            with contextlib.suppress(SourceError), tempfile.TemporaryDirectory() as folder:
                content.lay_out(archive_module.read_entries(path), Path(folder) / "tree")


def test_a_path_that_would_not_fit_into_every_folder_of_ours_is_refused(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "p-1.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("/".join(["a" * 200] * 12)))
    with pytest.raises(SourceError, match="a path of more than"):
        fetch(str(path), store)
