"""Bases: the root file systems that sandboxes start from, built once by mmdebstrap or imported, then kept.

A base is a layer (`layers.py`) and a record in `home/bases/NAME.json`. Every base has the user `dev`, the `uv` program,
and the mount points that the sandbox uses; see `root_archive.py` for what an import adds to reach that.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import cattrs
import uv

from ratchet.errors import MachineError, SandboxError, UsageError
from ratchet.records import Base, from_json, to_json
from ratchet.sandbox.client_files import AptSource, apt_sources
from ratchet.sandbox.clients import ClientSettings
from ratchet.sandbox.images import fetch_root
from ratchet.sandbox.root_archive import BASE_USER, EPOCH, host_architecture, normalise

__all__ = [
    "BASE_USER",
    "SUITE_PYTHONS",
    "build_base",
    "ensure_base",
    "find_base",
    "import_base",
    "list_bases",
    "load",
    "save",
    "sources_of",
]

# Each was built and started once. The Python of a suite is the one that its `python3` package names.
SUITE_PYTHONS = {"bookworm": "3.11", "trixie": "3.13", "bullseye": "3.9", "forky": "3.14"}

# What nearly every Python project needs before the first repair, and little else:
# - a compiler, the interpreter's headers and pkg-config, so that an extension module without libraries just builds;
# - venv (with the pip that it carries), git (version schemes, git+ requirements), the certificates' place;
# - tzdata and netbase, without which time zones and service names are missing that every real machine has;
# - procps, for scripts that look at processes.
# No pip outside a virtual environment (Debian marks its interpreter as its own), no locales (C.UTF-8 is built in).
PACKAGES = (
    "python3", "python3-dev", "python3-venv", "build-essential", "pkg-config", "git", "ca-certificates", "tzdata",
    "netbase", "procps",
)  # fmt: skip

# Documentation is half of what a package unpacks. The folders of manual pages stay: some packages link into them when
# they are installed, and fail without. apt must not start services: a sandbox starts them when it wants them.
_DPKG_OPTIONS = (
    "path-exclude=/usr/share/man/*/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/lintian/*",
)
_HOOK = """set -eu
cd "$1"
rm -f etc/apt/apt.conf.d/99mmdebstrap etc/passwd- etc/group- etc/shadow- etc/gshadow- var/log/*.log var/log/apt/*
rm -rf var/lib/apt/lists/* var/cache/apt/* var/cache/debconf/*-old var/cache/ldconfig/*
mkdir -p usr/share/man/man1 usr/share/man/man5 usr/share/man/man7 usr/share/man/man8
printf '#!/bin/sh\\nexit 101\\n' > usr/sbin/policy-rc.d
chmod 755 usr/sbin/policy-rc.d
"""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,60}")
_SUITE = re.compile(r"[a-z][a-z0-9-]{1,30}")
_STOP_TIMEOUT_S = 30.0


class ArchiveStore(Protocol):
    """The part of the layer store that bases need."""

    def exists(self, layer_id: str) -> bool: ...

    def add_archive(self, archive: Path, layer_id: str) -> None: ...


def ensure_base(
    home: Path,
    layers: ArchiveStore,
    suite: str,
    clients: ClientSettings,
    *,
    on_output: Callable[[str], None] | None = None,
) -> Base:
    """The base of a suite, built when it is missing. Two processes that ask at once build it once."""
    with _lock(home, suite):
        known = load(home, suite)
        if known is not None and layers.exists(known.id):
            return known
        return build_base(home, layers, suite, clients, on_output=on_output)


def build_base(
    home: Path,
    layers: ArchiveStore,
    suite: str,
    clients: ClientSettings,
    *,
    name: str | None = None,
    include: Sequence[str] = (),
    on_output: Callable[[str], None] | None = None,
) -> Base:
    """Build and save the base of a Debian or Ubuntu suite. Takes a minute or two and about 300 MB of downloads.

    Byte-identical while the suite, the packages and uv are the same. `on_output` gets mmdebstrap's lines.
    """
    if not _SUITE.fullmatch(suite):
        raise UsageError(f"{suite!r} is no suite name", remedy=f"one of {', '.join(SUITE_PYTHONS)}, or another suite")
    tool = _program("mmdebstrap")
    mirrors = _mirrors(suite, clients.apt)
    with _scratch(home) as scratch:
        archive = scratch / "base.tar"
        hook = scratch / "hook.sh"
        hook.write_text(_HOOK)
        hook.chmod(0o644)
        options = [f"--include={','.join(dict.fromkeys([*PACKAGES, *include]))}"]
        options += [f"--dpkgopt={option}" for option in _DPKG_OPTIONS]
        options += [f"--aptopt={option}" for option in clients.apt_options]
        # A namespace of its own (users, mounts, processes): maintainer scripts cannot touch the host, and a kill
        # leaves no mounts. mmdebstrap takes lines of a sources.list as arguments as well as URIs.
        command = [tool, "--mode=unshare", "--variant=minbase", "--format=tar", *options]
        command += [f'--customize-hook=sh {hook} "$1"', suite, str(archive), *mirrors]
        _run(command, scratch, on_output)
        origin = f"mmdebstrap {suite}" + (f" with {', '.join(include)}" if include else "")
        return _keep(home, layers, archive, name or suite, origin)


def import_base(
    home: Path,
    layers: ArchiveStore,
    source: str,
    name: str,
    *,
    on_output: Callable[[str], None] | None = None,
) -> Base:
    """Import a root file system as the base `name`: a tar archive (also compressed), an OCI layout directory, an OCI
    or Docker archive, or an image reference (`docker://…` or any other that skopeo knows).

    The content is not trusted and nothing of it is run. The user `dev`, uv and the mount points are added.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no base name", remedy="use lower-case letters, digits, '.', '_' and '-'")
    with _lock(home, name), _scratch(home) as scratch:
        archive = fetch_root(source, scratch, lambda command: _run(command, scratch, on_output))
        return _keep(home, layers, archive, name, f"imported from {source}")


def list_bases(home: Path) -> tuple[Base, ...]:
    """The bases of this home, by name. A record that cannot be read is skipped: another release wrote it."""
    folder = home / "bases"
    names = sorted(file.stem for file in folder.glob("*.json")) if folder.is_dir() else []
    return tuple(base for name in names if (base := load(home, name)) is not None)


def load(home: Path, name: str) -> Base | None:
    """The record of a base; None when there is none."""
    if not _NAME.fullmatch(name):
        return None
    try:
        return from_json(json.loads((home / "bases" / f"{name}.json").read_text("utf-8")), Base)
    except (FileNotFoundError, json.JSONDecodeError, cattrs.BaseValidationError):
        return None


def save(home: Path, base: Base) -> None:
    """Write the record of a base; it replaces one of the same name."""
    folder = home / "bases"
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / f".{base.name}.{os.getpid()}"
    scratch.write_text(json.dumps(to_json(base), indent=2) + "\n", "utf-8")
    scratch.replace(folder / f"{base.name}.json")


def find_base(home: Path, python: str) -> Base | None:
    """A base of this machine's architecture that has the given Python ("3.11"); built suites before imports."""
    fitting = [each for each in list_bases(home) if python in each.pythons and each.architecture == host_architecture()]
    return min(fitting, key=lambda base: (SUITE_PYTHONS.get(base.name) != python, base.name), default=None)


def _keep(home: Path, layers: ArchiveStore, archive: Path, name: str, origin: str) -> Base:
    """Make a base of a root file system archive: its layer first, so that no record ever names a missing one."""
    prepared = home / "bases" / f".prepared-{os.getpid()}-{name}.tar"
    try:
        facts = normalise(archive, prepared, uv_program=Path(uv.find_uv_bin()))
        with prepared.open("rb") as stream:
            layer = f"base-{hashlib.file_digest(stream, 'sha256').hexdigest()[:32]}"
        layers.add_archive(prepared, layer)
        base = Base(
            id=layer,
            name=name,
            suite=facts.suite,
            architecture=facts.architecture,
            origin=origin,
            pythons=facts.pythons,
            size_bytes=prepared.stat().st_size,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )
    finally:
        prepared.unlink(missing_ok=True)
    save(home, base)
    return base


def _mirrors(suite: str, sources: Sequence[AptSource]) -> list[str]:
    """Lines of a sources.list for a suite, from the archives that this machine itself uses; empty where it uses none
    of the same distribution (mmdebstrap then takes its own default)."""
    if suite not in SUITE_PYTHONS:
        return []
    archive = next((each.uri for each in sources if each.suite in SUITE_PYTHONS), None)
    security = next((each.uri for each in sources if each.suite.removesuffix("-security") in SUITE_PYTHONS
                     and each.suite.endswith("-security")), None)  # fmt: skip
    lines = [f"deb {archive} {suite} main", f"deb {archive} {suite}-updates main"] if archive else []
    return lines + ([f"deb {security} {suite}-security main"] if archive and security else [])


def sources_of(home: Path, base: Base, clients: ClientSettings) -> tuple[AptSource, ...]:
    """Where the packages of a base come from: this machine's own sources for its suite, or those that mmdebstrap wrote
    into the base. What an imported base says is not asked: it must not choose where this machine connects to."""
    words = [line.split() for line in _mirrors(base.suite or "", clients.apt)]
    own = tuple(AptSource(uri, suite, tuple(components)) for _, uri, suite, *components in words)
    if own or not base.origin.startswith("mmdebstrap "):
        return own
    return apt_sources(home / "layers" / base.id)


@contextlib.contextmanager
def _lock(home: Path, name: str) -> Iterator[None]:
    """One process at a time makes the base of a name; the others wait."""
    folder = home / "bases"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{name}.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _scratch(home: Path) -> Iterator[Path]:
    """A working directory. Those of processes that died are removed on the way: each holds a lock while it lives."""
    folder = home / "bases"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(".build-*"):
        with contextlib.suppress(OSError), (old / "lock").open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(old)
    scratch = Path(tempfile.mkdtemp(dir=folder, prefix=".build-"))
    scratch.chmod(0o755)  # mmdebstrap works in it with shifted user ids
    try:
        with (scratch / "lock").open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run(command: Sequence[str], scratch: Path, on_output: Callable[[str], None] | None) -> None:
    """Run a program to its end, its lines given to `on_output`. Whatever interrupts us ends it, with its children."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH), "TMPDIR": str(scratch), "LC_ALL": "C.UTF-8"}
    process = subprocess.Popen(
        command,
        cwd=scratch,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    last: collections.deque[str] = collections.deque(maxlen=15)
    try:
        assert process.stdout is not None
        for raw in process.stdout:
            line = raw.decode("utf-8", "replace").rstrip()
            last.append(line)
            if on_output is not None:
                on_output(line)
        status = process.wait()
    finally:
        _stop(process)
    if status != 0:
        raise SandboxError(
            f"{Path(command[0]).name} failed with status {status}:\n" + "\n".join(last),
            remedy="the last lines say why; `ratchet doctor` checks the package registries and the tools",
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End what still runs: politely first, so that it can remove what it made."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_STOP_TIMEOUT_S)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise MachineError(f"{name} is not installed, and bases are built with it", remedy=f"apt-get install {name}")
    return found
