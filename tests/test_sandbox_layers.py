"""Layers: trees and untrusted archives come in whole, with the right owners, and lead nowhere else."""

from __future__ import annotations

import io
import os
import stat
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.errors import StoreError, UsageError
from ratchet.sandbox.kernel import ID_SHIFT
from ratchet.sandbox.layers import Layers

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="owners can only be set by root")
pytestmark = needs_root


@pytest.fixture
def layers(tmp_path: Path) -> Layers:
    return Layers(tmp_path / "home")


def archive(path: Path, fill: Callable[[tarfile.TarFile], None], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        fill(tar)
    return path


def add(tar: tarfile.TarFile, name: str, data: bytes = b"", **attributes: object) -> None:
    member = tarfile.TarInfo(name)
    for key, value in attributes.items():
        setattr(member, key, value)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def test_a_tree_becomes_a_layer(layers: Layers, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "below").mkdir(parents=True, mode=0o750)
    (source / "below" / "script").write_text("#!/bin/sh\n")
    (source / "below" / "script").chmod(0o755)
    os.utime(source / "below" / "script", (1_000_000_000, 1_000_000_000))
    (source / "link").symlink_to("/etc/passwd")
    os.mkfifo(source / "pipe")
    layers.add_tree(source, "checkout", "/srv/work", user_id=1234)

    tree = layers.path("checkout")
    script = tree / "srv/work/below/script"
    assert script.read_text() == "#!/bin/sh\n"
    assert (script.stat().st_uid, script.stat().st_gid) == (ID_SHIFT + 1234, ID_SHIFT + 1234)
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    assert script.stat().st_mtime == 1_000_000_000
    assert (tree / "srv/work/link").readlink() == Path("/etc/passwd")
    assert (tree / "srv/work/link").lstat().st_uid == ID_SHIFT + 1234
    assert not (tree / "srv/work/pipe").exists()
    assert (tree / "srv").stat().st_uid == ID_SHIFT
    assert (tree / "srv/work").stat().st_uid == ID_SHIFT + 1234
    assert tree.stat().st_uid == ID_SHIFT


def test_a_layer_that_is_there_stays_as_it_is(layers: Layers, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "file").touch()
    layers.add_tree(tmp_path / "one", "layer", "/at")
    layers.add_tree(tmp_path / "two", "layer", "/at")
    assert list((layers.path("layer") / "at").iterdir()) == []
    assert layers.ids() == ("layer",)


@pytest.mark.parametrize("name", ["", "..", "a/b", "../outside", "/etc"])
def test_ids_that_are_none(layers: Layers, name: str) -> None:
    with pytest.raises(UsageError):
        layers.path(name)


@pytest.mark.parametrize("at", ["workspace", "/../etc", "/a/../../b"])
def test_places_that_are_none(layers: Layers, tmp_path: Path, at: str) -> None:
    with pytest.raises(UsageError):
        layers.add_tree(tmp_path, "layer", at)


def test_owners_setuid_and_hard_links_of_an_archive(layers: Layers, tmp_path: Path) -> None:
    capability = struct.pack("<IIIII", 0x02000001, 0x2000, 0, 0, 0)  # version 2, effective: cap_net_raw

    def fill(tar: tarfile.TarFile) -> None:
        add(tar, "./bin/su", b"program", mode=0o4755, uid=0, gid=42)
        add(tar, "./bin/also-su", type=tarfile.LNKTYPE, linkname="./bin/su")
        add(tar, "./dev/sda", type=tarfile.BLKTYPE, devmajor=8)
        add(tar, "./dev/same", type=tarfile.LNKTYPE, linkname="./dev/sda")
        add(tar, "./home/user", type=tarfile.DIRTYPE, mode=0o700, uid=1000, gid=1000, mtime=1_000_000_000)
        add(tar, "./home/user/file", b"x", uid=1000, gid=4_000_000)
        pax = {"SCHILY.xattr.security.capability": capability.decode("utf-8", "surrogateescape")}
        add(tar, "./bin/ping", b"program", mode=0o755, pax_headers=pax)
        add(tar, "./odd", b"x", pax_headers={"SCHILY.xattr.trusted.overlay.opaque": "y"})

    layers.add_archive(archive(tmp_path / "root.tar", fill), "base")
    tree = layers.path("base")
    program = (tree / "bin/su").stat()
    assert (program.st_uid, program.st_gid, stat.S_IMODE(program.st_mode)) == (ID_SHIFT, ID_SHIFT + 42, 0o4755)
    assert (tree / "bin/also-su").stat().st_ino == program.st_ino
    assert not (tree / "dev/sda").exists()
    assert not (tree / "dev/same").exists()
    home = (tree / "home/user").stat()
    assert (home.st_uid, stat.S_IMODE(home.st_mode), home.st_mtime) == (ID_SHIFT + 1000, 0o700, 1_000_000_000)
    assert (tree / "home/user/file").stat().st_gid == ID_SHIFT + 65_534
    assert (tree / "bin").stat().st_uid == ID_SHIFT, "a folder that the archive does not name"
    stored = os.getxattr(tree / "bin/ping", "security.capability")
    assert struct.unpack("<I", stored[-4:])[0] == ID_SHIFT or len(stored) == 20
    assert os.listxattr(tree / "odd") == []


def test_an_archive_cannot_reach_out(layers: Layers, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("untouched")

    def fill(tar: tarfile.TarFile) -> None:
        add(tar, f"{outside}/absolute", b"x")
        add(tar, "../../../../outside/up", b"x")
        add(tar, "link", type=tarfile.SYMTYPE, linkname=str(outside))
        add(tar, "link/through", b"x")
        add(tar, "victim", type=tarfile.SYMTYPE, linkname=str(outside / "victim"))
        add(tar, "victim", b"overwritten")
        add(tar, "pipe", type=tarfile.FIFOTYPE)
        add(tar, "pipe", b"no pipe any more")

    try:
        layers.add_archive(archive(tmp_path / "evil.tar", fill), "evil")
    except StoreError:
        assert not layers.exists("evil")
    assert [entry.name for entry in outside.iterdir()] == ["victim"]
    assert (outside / "victim").read_text() == "untouched"


def test_later_members_replace_earlier_ones(layers: Layers, tmp_path: Path) -> None:
    def fill(tar: tarfile.TarFile) -> None:
        add(tar, "pipe", type=tarfile.FIFOTYPE)
        add(tar, "pipe", b"no pipe any more")
        add(tar, "usr/lib", type=tarfile.DIRTYPE, mode=0o755)
        add(tar, "lib", type=tarfile.SYMTYPE, linkname="usr/lib")
        add(tar, "lib/file", b"through the link")

    layers.add_archive(archive(tmp_path / "root.tar.gz", fill, "w:gz"), "base")
    assert (layers.path("base") / "pipe").read_bytes() == b"no pipe any more"
    assert (layers.path("base") / "usr/lib/file").read_bytes() == b"through the link"


@pytest.mark.parametrize("cut", [0, 700, 5000])
def test_a_damaged_archive_leaves_no_layer(layers: Layers, tmp_path: Path, cut: int) -> None:
    whole = archive(tmp_path / "root.tar", lambda tar: add(tar, "file", os.urandom(20_000)))
    whole.write_bytes(whole.read_bytes()[:cut])
    with pytest.raises(StoreError):
        layers.add_archive(whole, "base")
    assert not layers.exists("base")
    layers.trash.wait()
    assert layers.sweep() == ()


def test_removing_and_measuring(layers: Layers, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_bytes(os.urandom(1 << 20))
    layers.add_tree(source, "layer", "/at")
    assert 1 << 20 <= layers.size_bytes("layer") < 2 << 20
    layers.remove("layer")
    assert not layers.exists("layer")
    with pytest.raises(StoreError):
        layers.size_bytes("layer")
    layers.trash.wait()
    assert list((tmp_path / "home" / "trash").iterdir()) == []


def test_of_two_that_made_the_same_layer_the_first_one_stays(layers: Layers, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "who").write_text(name)
        layers.add_tree(tmp_path / name, name, "/srv")
        layers.rename(name, "task")
    assert layers.ids() == ("task",)
    assert (layers.path("task") / "srv/who").read_text() == "first"


def test_a_layer_that_is_not_there_cannot_be_renamed(layers: Layers) -> None:
    with pytest.raises(FileNotFoundError):
        layers.rename("gone", "task")
