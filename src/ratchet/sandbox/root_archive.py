"""Turning any root file system archive into one that sandboxes can start from.

The archive may be hostile: nothing of it is run or unpacked here. It is copied member by member, without devices and
without names that lead out, and what every base has is added: the user `dev`, the uv program, the mount points. The
same input gives the same bytes.
"""

from __future__ import annotations

import copy
import io
import platform
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ratchet.errors import UsageError

BASE_USER = "dev"
BASE_USER_ID = 1000  # where it is free
EPOCH = 1_704_067_200  # 2024-01-01: the time of what has no other; SOURCE_DATE_EPOCH of builds

MAX_TEXT_BYTES = 1 << 20
MAX_MEMBERS = 5_000_000

_ARCHITECTURES = {0x3E: "amd64", 0xB7: "arm64", 0x28: "armhf", 0x03: "i386", 0xF3: "riscv64", 0x15: "ppc64el"}
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "riscv64": "riscv64", "ppc64le": "ppc64el"}
_PYTHON = re.compile(r"usr/(?:local/)?bin/python(3\.[0-9]{1,2})")
_ACCOUNTS = ("etc/passwd", "etc/group", "etc/shadow")
_RELEASES = ("usr/lib/os-release", "etc/os-release")
# What is added lies in these; where one of them is a link, the archive is laid out in a way that we do not know.
_PARENTS = ("etc", "home", "run", "tmp", "usr", "usr/local", "usr/local/bin", "var", "var/cache")
_ADDED_FOLDERS = {"tmp": 0o1777, "run": 0o755, "run/ratchet": 0o755, "var/cache/ratchet": 0o755}


@dataclass
class RootFacts:
    """What an archive holds. `texts` are the account and release files, `kinds` the tar types of all its members."""

    pythons: tuple[str, ...] = ()
    architecture: str = ""
    suite: str | None = None
    texts: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, bytes] = field(default_factory=dict)


def host_architecture() -> str:
    """This machine's architecture, by Debian's name."""
    return _MACHINES.get(platform.machine(), platform.machine())


def describe(archive: Path) -> RootFacts:
    """Read an archive (tar, also compressed) once. UsageError where it is no root file system archive."""
    facts = RootFacts()
    with _opened(archive) as tar:
        for name, member in _members(tar):
            facts.kinds[name] = member.type
            if not member.isreg():
                continue
            if name in _ACCOUNTS or name in _RELEASES:
                facts.texts[name] = _read(tar, member, MAX_TEXT_BYTES).decode("utf-8", "surrogateescape")
            elif not facts.architecture and name.startswith(("bin/", "usr/bin/")):
                facts.architecture = _elf_architecture(_read(tar, member, 20))
    if not any(name in facts.kinds for name in ("bin", "usr/bin", "bin/sh", "usr/bin/sh")):
        raise UsageError(
            f"{archive.name} holds no root file system", remedy="give an archive with /etc, /usr and so on"
        )
    odd = [name for name in _PARENTS if facts.kinds.get(name, tarfile.DIRTYPE) != tarfile.DIRTYPE]
    if odd:
        raise UsageError(f"/{odd[0]} is no directory in {archive.name}: a base needs an ordinary root file system")
    found = {match[1] for name in facts.kinds if (match := _PYTHON.fullmatch(name))}
    facts.pythons = tuple(sorted(found, key=lambda version: int(version.partition(".")[2])))
    facts.architecture = facts.architecture or host_architecture()
    release = next((facts.texts[name] for name in _RELEASES if name in facts.texts), "")
    codename = re.search(r"^VERSION_CODENAME=[\"']?([a-z0-9-]{1,30})[\"']?\s*$", release, re.MULTILINE)
    facts.suite = codename[1] if codename else None
    return facts


def normalise(archive: Path, target: Path, *, uv_program: Path) -> RootFacts:
    """Write the archive of a base made from `archive` to `target`. uv is added where it fits the architecture."""
    facts = describe(archive)
    accounts, user, group = _with_user(facts)
    with _opened(archive) as source, tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as out:
        for name, member in _members(source):
            if name in accounts or member.ischr() or member.isblk() or member.isfifo():
                continue
            copied = copy.copy(member)
            copied.name = name
            copied.uname = copied.gname = ""
            copied.pax_headers = {k: v for k, v in member.pax_headers.items() if k.startswith("SCHILY.xattr.")}
            if member.islnk():
                copied.linkname = _clean(member.linkname) or member.linkname
            if member.isreg():
                copied.type = tarfile.REGTYPE  # a sparse member is read with its holes filled
            out.addfile(copied, source.extractfile(member) if member.isreg() else None)
        for name, text in accounts.items():
            _add_file(out, name, text.encode("utf-8", "surrogateescape"), 0o640 if name == "etc/shadow" else 0o644)
        for name, mode in _ADDED_FOLDERS.items():
            if name not in facts.kinds:
                _add_folder(out, name, mode)
        if f"home/{BASE_USER}" not in facts.kinds:
            _add_folder(out, f"home/{BASE_USER}", 0o755, user, group)
        if facts.architecture == host_architecture():
            _add_file(out, "usr/local/bin/uv", uv_program.read_bytes(), 0o755)
    return facts


def _with_user(facts: RootFacts) -> tuple[dict[str, str], int, int]:
    """The account files with the user `dev`, and its user and group id."""
    texts = {name: facts.texts.get(name, "") for name in _ACCOUNTS}
    users = dict(_ids(texts["etc/passwd"]))
    groups = dict(_ids(texts["etc/group"]))
    taken = set(users.values()) | set(groups.values())
    free = next(number for number in range(BASE_USER_ID, 60_000) if number not in taken)
    group = groups.get(BASE_USER, free)
    if BASE_USER in users:
        return {}, users[BASE_USER], group
    shell = "/bin/bash" if {"bin/bash", "usr/bin/bash"} & facts.kinds.keys() else "/bin/sh"
    if not users:
        texts["etc/passwd"] = _line(texts["etc/passwd"]) + f"root:x:0:0:root:/root:{shell}\n"
    texts["etc/passwd"] = _line(texts["etc/passwd"]) + f"{BASE_USER}:x:{free}:{group}::/home/{BASE_USER}:{shell}\n"
    if BASE_USER not in groups:
        texts["etc/group"] = _line(texts["etc/group"]) + f"{BASE_USER}:x:{group}:\n"
    if texts["etc/shadow"]:
        texts["etc/shadow"] = _line(texts["etc/shadow"]) + f"{BASE_USER}:*:{EPOCH // 86_400}:0:99999:7:::\n"
    else:
        del texts["etc/shadow"]
    return texts, free, group


def _ids(text: str) -> Iterator[tuple[str, int]]:
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[2].isascii() and fields[2].isdigit():
            yield fields[0], int(fields[2])


def _line(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _opened(archive: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(archive)
    except (tarfile.TarError, EOFError) as error:
        raise UsageError(f"{archive.name} is no tar archive: {error}") from error


def _members(tar: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """The members with clean names (no leading `./`), in order; those that lead out are left out."""
    try:
        for number, member in enumerate(tar):
            if number >= MAX_MEMBERS:
                raise UsageError(f"the archive has more than {MAX_MEMBERS} members")
            name = _clean(member.name)
            if name:
                yield name, member
            tar.members = []  # type: ignore[attr-defined]  # or it keeps every member in memory
    except (tarfile.TarError, EOFError, OSError) as error:
        raise UsageError(f"the archive is damaged: {error}") from error


def _clean(name: str) -> str | None:
    parts = [part for part in PurePosixPath(name).parts if part not in {"/", "."}]
    return None if ".." in parts or not parts else "/".join(parts)


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo, limit: int) -> bytes:
    stream = tar.extractfile(member)
    return stream.read(limit) if stream is not None else b""


def _elf_architecture(head: bytes) -> str:
    if head[:4] != b"\x7fELF" or len(head) < 20:
        return ""
    return _ARCHITECTURES.get(int.from_bytes(head[18:20], "little" if head[5] == 1 else "big"), "")


def _add_file(out: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(data), mode, EPOCH
    out.addfile(member, io.BytesIO(data))


def _add_folder(out: tarfile.TarFile, name: str, mode: int, user: int = 0, group: int = 0) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.mtime, member.uid, member.gid = tarfile.DIRTYPE, mode, EPOCH, user, group
    out.addfile(member)
