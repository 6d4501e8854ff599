"""Bases: what an import makes of any root file system, the records, and (slow) that a build gives the same bytes."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from ratchet.errors import SandboxError, UsageError
from ratchet.records import Base, SandboxSpec
from ratchet.sandbox import bases
from ratchet.sandbox.bases import build_base, find_base, import_base, list_bases, load, save
from ratchet.sandbox.clients import read_clients
from ratchet.sandbox.layers import Layers
from ratchet.sandbox.oci import OciBackend
from ratchet.sandbox.root_archive import describe, host_architecture, normalise


def archive_of(path: Path, files: dict[str, str], links: dict[str, str] | None = None, mode: str = "w") -> Path:
    """A root file system archive with these files, in the `./` form of many tools."""
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, text in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size, member.mode = len(text.encode("latin-1")), 0o644
            tar.addfile(member, io.BytesIO(text.encode("latin-1")))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(f"./{name}")
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return path


SMALL = {
    "bin/sh": "#!",
    "usr/bin/python3.12": "",
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nubuntu:x:1000:1000::/home/ubuntu:/bin/sh",
    "etc/group": "root:x:0:\nubuntu:x:1000:",
    "etc/os-release": 'NAME="Some"\nVERSION_CODENAME=noble\n',
}


@pytest.fixture
def uv_program(tmp_path: Path) -> Path:
    program = tmp_path / "uv"
    program.write_text("program")
    return program


def contents(archive: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(archive) as tar:
        return {member.name: member for member in tar}


def text_in(archive: Path, name: str) -> str:
    with tarfile.open(archive) as tar:
        stream = tar.extractfile(name)
        assert stream is not None
        return stream.read().decode()


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_what_an_archive_holds(tmp_path: Path, mode: str) -> None:
    facts = describe(archive_of(tmp_path / "root.tar", SMALL, mode=mode))
    assert (facts.pythons, facts.suite, facts.architecture) == (("3.12",), "noble", host_architecture())


def test_the_architecture_is_read_from_a_program(tmp_path: Path) -> None:
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + (2).to_bytes(2, "little") + (0xB7).to_bytes(2, "little")
    files = {"usr/bin/true": head.decode("latin-1"), **SMALL}
    assert describe(archive_of(tmp_path / "root.tar", files)).architecture == "arm64"


def test_every_base_has_the_user_the_mount_points_and_uv(tmp_path: Path, uv_program: Path) -> None:
    prepared = tmp_path / "prepared.tar"
    normalise(archive_of(tmp_path / "root.tar", SMALL), prepared, uv_program=uv_program)
    assert text_in(prepared, "etc/passwd").splitlines()[1:] == [
        "ubuntu:x:1000:1000::/home/ubuntu:/bin/sh",
        "dev:x:1001:1001::/home/dev:/bin/sh",  # the number was taken
    ]
    assert text_in(prepared, "etc/group").splitlines()[-1] == "dev:x:1001:"
    members = contents(prepared)
    assert (members["home/dev"].uid, members["home/dev"].gid) == (1001, 1001)
    assert {"run/ratchet", "var/cache/ratchet", "usr/local/bin/uv"} <= members.keys()
    assert members["usr/local/bin/uv"].mode == 0o755


def test_the_same_archive_gives_the_same_bytes(tmp_path: Path, uv_program: Path) -> None:
    archive = archive_of(tmp_path / "root.tar", SMALL)
    for name in ("one", "two"):
        normalise(archive, tmp_path / name, uv_program=uv_program)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_devices_and_names_that_lead_out_are_left_out(tmp_path: Path, uv_program: Path) -> None:
    archive = archive_of(tmp_path / "root.tar", {**SMALL, "../out": "x", "a/../../out": "x", "/etc/absolute": "x"})
    with tarfile.open(archive, "a") as tar:
        device = tarfile.TarInfo("dev/sda")
        device.type = tarfile.BLKTYPE
        tar.addfile(device)
    prepared = tmp_path / "prepared.tar"
    normalise(archive, prepared, uv_program=uv_program)
    names = contents(prepared).keys()
    assert "etc/absolute" in names
    assert not [name for name in names if "out" in name or "sda" in name or name.startswith("/")]


@pytest.mark.parametrize("link", ["etc", "home", "usr/local", "var/cache"])
def test_a_link_where_a_base_needs_a_folder_is_refused(tmp_path: Path, uv_program: Path, link: str) -> None:
    archive = archive_of(tmp_path / "root.tar", {"bin/sh": ""}, {link: "/tmp"})
    with pytest.raises(UsageError, match=f"/{link} is no directory"):
        normalise(archive, tmp_path / "prepared.tar", uv_program=uv_program)


@pytest.mark.parametrize("data", [b"", b"no archive at all", b"\x1f\x8b\x08\x00broken"])
def test_what_is_no_root_file_system_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file.tar").write_bytes(data)
    with pytest.raises(UsageError):
        import_base(tmp_path, Layers(tmp_path), str(tmp_path / "file.tar"), "broken")
    assert list_bases(tmp_path) == ()


@pytest.mark.parametrize("name", ["../x", "", "A", ".hidden", "a/b"])
def test_a_base_needs_a_plain_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no base name"):
        import_base(tmp_path, Layers(tmp_path), "whatever", name)


def test_records_are_kept_and_a_base_is_found_by_its_python(tmp_path: Path) -> None:
    for name, python in (("other", "3.11"), ("bookworm", "3.11"), ("trixie", "3.13")):
        save(tmp_path, Base(f"base-{name}", name, None, host_architecture(), "test", (python,)))
    save(tmp_path, Base("base-foreign", "foreign", None, "other", "test", ("3.9",)))
    (tmp_path / "bases" / "broken.json").write_text(json.dumps({"id": 1}))
    assert [base.name for base in list_bases(tmp_path)] == ["bookworm", "foreign", "other", "trixie"]
    found = find_base(tmp_path, "3.11")
    assert found is not None
    assert found.name == "bookworm"
    assert find_base(tmp_path, "3.9") is None
    assert load(tmp_path, "broken") is None


def test_a_program_that_fails_is_told_with_its_last_lines(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="no such suite"):
        bases._run(["sh", "-c", "echo no such suite; exit 3"], tmp_path, None)


# --------------------------------------------------------------------------- with real tools and sandboxes


def sh(script: str, cwd: Path) -> None:
    subprocess.run(["sh", "-euc", script], check=True, capture_output=True, cwd=cwd, timeout=120)


@pytest.mark.sandbox
@pytest.mark.parametrize("form", ["layout", "oci-archive", "docker-archive"])
def test_an_oci_image_becomes_a_base_that_runs(
    base: str, backend: OciBackend, tmp_path: Path, home: Path, form: str
) -> None:
    """An image made here: a layer with a shell out of a real base, and one that takes a file away again."""
    if shutil.which("umoci") is None or shutil.which("skopeo") is None:
        pytest.skip("umoci and skopeo are not installed")
    sh("umoci init --layout image && umoci new --image image:base && umoci unpack --image image:base one", tmp_path)
    root, tree = backend.layers.path(base), tmp_path / "one" / "rootfs"
    programs = ["usr/bin/sh", *(str(each.relative_to(root)) for each in root.glob("usr/lib/*/libc.so.6"))]
    for name in [*programs, *(str(each.relative_to(root)) for each in root.glob("usr/lib*/ld-linux-*"))]:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, tree / name)
    sh("ln -s usr/bin bin; ln -s usr/lib lib; ln -s usr/lib64 lib64; mkdir etc; touch etc/gone etc/kept", tree)
    sh("umoci repack --image image:base one && umoci unpack --image image:base two", tmp_path)
    sh("rm two/rootfs/etc/gone && umoci repack --image image:base two", tmp_path)
    source = tmp_path / "image"
    if form != "layout":
        source = tmp_path / "image.tar"
        target = f"{form}:{source}" + (":sample:latest" if form == "docker-archive" else "")
        sh(f"skopeo --insecure-policy copy oci:image:base {target}", tmp_path)
    elif form == "layout":
        sh("umoci gc --layout image", tmp_path)
    name = f"test-{form}"
    try:
        imported = import_base(home, backend.layers, str(source), name)
        with backend.open(SandboxSpec((imported.id,))) as sandbox:
            result = sandbox.run("cd /etc && echo *", user="dev")
    finally:
        (home / "bases" / f"{name}.json").unlink(missing_ok=True)
    assert result.output.split() == ["group", "kept", "passwd"]
    assert imported.architecture == host_architecture()
    assert not list((home / "bases").glob(".build-*/root"))


@pytest.mark.slow
@pytest.mark.sandbox
def test_two_builds_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = (build_base(tmp_path, Layers(tmp_path), "bookworm", read_clients(), name=n) for n in ("a", "b"))
    assert first.id == second.id
    assert "3.11" in first.pythons
    assert not list((tmp_path / "bases").glob(".[bp]*-*"))


@pytest.mark.slow
@pytest.mark.sandbox
def test_an_interrupted_build_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(line: str) -> None:
        if "extracting" in line or "installing" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_base(tmp_path, Layers(tmp_path), "bookworm", read_clients(), on_output=interrupt)
    assert [each.name for each in (tmp_path / "bases").iterdir()] == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
