"""Running git without ever running what a hostile repository configures.

A repository can have git run commands, through its own `.git/config`: file-system monitors, filters, hooks, aliases,
lazy fetches. So our git commands run in a new bare repository of ours, which borrows the objects of a local
one (objects are only data) or fetches from a remote one. The one command that runs in a foreign repository is
`upload-pack`, to list its refs; git makes that one safe in repositories that are not trusted.

The machine's own git configuration (proxies, certificates, credentials) counts for fetching, and for nothing else.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from ratchet.errors import MachineError, SourceError
from ratchet.events import redact
from ratchet.sources.content import MAX_TOTAL_BYTES, printable

COMMAND_TIMEOUT_S = 600.0
FETCH_TIMEOUT_S = 1800.0
MAX_FETCH_BYTES = 2 * MAX_TOTAL_BYTES

_DEFAULTS = """
[core]
	sshCommand = ssh -o BatchMode=yes
"""
_OURS = """
[core]
	fsmonitor = false
	hooksPath = /dev/null
	attributesFile = /dev/null
[safe]
	directory = *
[protocol "ext"]
	allow = never
[http]
	lowSpeedLimit = 1000
	lowSpeedTime = 60
[gc]
	auto = 0
[maintenance]
	auto = false
[submodule]
	recurse = false
[fetch]
	recurseSubmodules = false
"""
_OBJECT_ID = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_MAX_SMALL_BYTES = 1 << 20
_MAX_INDEX_BYTES = 1 << 30
_KEPT_VARIABLES = ("GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_PROXY_COMMAND")


class GitError(SourceError):
    """A git command failed."""


@dataclass(frozen=True)
class Repository:
    """A bare repository of ours; its directory lies in a temporary one. `work_tree` and `index` (a copy) are those
    of the repository that it borrows from, where that has any."""

    git_dir: Path
    index: Path | None = None
    work_tree: Path | None = None

    def run(self, *arguments: str) -> bytes:
        """The output of one git command that reads. GitError where it fails."""
        return _run(self._command(*arguments), self._environment(), self.git_dir)

    def stream(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A git command with pipes to its input and from its output; the caller ends it."""
        return subprocess.Popen(
            self._command(*arguments),
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def holds(self, name: str) -> bool:
        """Whether the object is here."""
        try:
            self.run("cat-file", "-e", name)
        except GitError:
            return False
        return True

    def set_head(self, commit: str) -> None:
        (self.git_dir / "HEAD").write_text(f"{commit}\n")

    def _command(self, *arguments: str) -> list[str]:
        where = [f"--git-dir={self.git_dir}"]
        if self.work_tree is not None:
            where += [f"--work-tree={self.work_tree}", "-c", "core.bare=false"]
        return [_program(), "--no-pager", *where, *arguments]

    def _environment(self) -> dict[str, str]:
        config = self.git_dir / "ratchet-config"
        if not config.exists():
            config.write_text(_OURS)
        environment = _environment(config) | {"GIT_CONFIG_NOSYSTEM": "1"}
        environment["GIT_ALLOW_PROTOCOL"] = "none"  # nothing that reads may reach out, not even for missing objects
        if self.index is not None:
            environment["GIT_INDEX_FILE"] = str(self.index)
        return environment


def borrow(directory: Path, scratch: Path) -> Repository:
    """A repository of ours in `scratch` that borrows the objects, and copies refs and index, of a local one."""
    git_dir = _find_git_dir(directory)
    common = _find_common_dir(git_dir)
    refs = _list_refs(directory.absolute(), scratch)
    repository = _create(scratch / "borrowed.git", sha256=any(len(commit) == 64 for commit in refs.values()))
    ours = repository.git_dir
    (ours / "objects" / "info" / "alternates").write_bytes(os.fsencode(_quoted(str(common / "objects"))) + b"\n")
    for name in ("shallow", "info/exclude"):
        _copy(common / name, ours / name, _MAX_SMALL_BYTES)
    packed = "".join(f"{commit} {name}\n" for name, commit in refs.items() if name.startswith("refs/"))
    (ours / "packed-refs").write_bytes(os.fsencode(packed))
    if "HEAD" in refs:
        repository.set_head(refs["HEAD"])
    if git_dir == directory:
        return repository
    index = ours / "index"
    _copy(git_dir / "index", index, _MAX_INDEX_BYTES)
    for part in git_dir.glob("sharedindex.*"):
        _copy(part, index.with_name(part.name), _MAX_INDEX_BYTES)
    return Repository(ours, index, directory.absolute())


def fetch(name: str, url: str, scratch: Path, *arguments: str) -> Repository:
    """A new repository of ours called `name`, after `git fetch` with these options and refspecs."""
    repository = _create(scratch / name)
    with (repository.git_dir / "config").open("ab") as config:  # not on a command line, which everybody can list
        config.write(os.fsencode(f'[remote "origin"]\n\turl = {_quoted(url)}\n'))
    environment = _fetching_environment(repository.git_dir / "fetch-config", "file:git:http:https:ssh")
    options = [argument for argument in arguments if argument.startswith("--")]
    refs = [argument for argument in arguments if not argument.startswith("--")]
    command = [_program(), f"--git-dir={repository.git_dir}", "fetch", "--quiet", "--update-shallow"]
    command += ["--no-write-fetch-head", *options, "origin", *refs]
    messages = repository.git_dir / "fetch-messages"
    with messages.open("wb") as log:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            _wait(process, repository.git_dir, url)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if process.returncode != 0:
        raise SourceError(
            f"{redact(url)} cannot be fetched: {_text(messages.read_bytes())}",
            remedy="check the address, the network, and that `git ls-remote` reaches it without asking for a password",
        )
    return repository


def is_repository(directory: Path) -> bool:
    """Whether the directory is the root of a work tree, or a bare repository."""
    return (directory / ".git").exists() or (
        (directory / "HEAD").is_file() and (directory / "objects").is_dir() and (directory / "refs").is_dir()
    )


# --------------------------------------------------------------------------- details


def _program() -> str:
    program = shutil.which("git")
    if program is None:
        raise MachineError("git is not installed, and the source is a git repository", remedy="apt install git")
    return program


def _run(command: list[str], environment: dict[str, str], directory: Path) -> bytes:
    try:
        result = subprocess.run(
            command,
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise GitError(
            f"git did not answer within {COMMAND_TIMEOUT_S:.0f} s", remedy="check the disk that the repository is on"
        ) from None
    if result.returncode != 0:
        raise GitError(f"git failed: {_text(result.stderr)}", remedy="check the repository with `git fsck`")
    return result.stdout


def _text(messages: bytes) -> str:
    return redact(printable(" ".join(os.fsdecode(messages).split())[-600:])) or "it gave no message"


def _environment(config: Path) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return environment | {
        "GIT_CONFIG_GLOBAL": str(config),
        "GIT_CEILING_DIRECTORIES": str(config.parent.parent),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_ATTR_NOSYSTEM": "1",
        "LC_ALL": "C.UTF-8",
    }


def _fetching_environment(config: Path, protocols: str) -> dict[str, str]:
    """Our defaults, over them the machine's configuration, and over that what has to be so."""
    home = os.environ.get("HOME", "")
    own = os.environ.get("GIT_CONFIG_GLOBAL")
    xdg = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    included = [own] if own is not None else [f"{xdg}/git/config", f"{home}/.gitconfig"]
    lines = "".join(f"[include]\n\tpath = {_quoted(path)}\n" for path in included if path)
    config.write_text(_DEFAULTS + lines + _OURS)
    return _environment(config) | {"GIT_ALLOW_PROTOCOL": protocols}


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _create(git_dir: Path, *, sha256: bool = False) -> Repository:
    git_dir.mkdir()
    repository = Repository(git_dir)
    repository.run("init", "--bare", "--quiet", "--template=", *(["--object-format=sha256"] if sha256 else []))
    for folder in ("info", "objects/info"):
        (git_dir / folder).mkdir(exist_ok=True)
    return repository


def _find_git_dir(directory: Path) -> Path:
    """Where the repository of a work tree lies. Read as data: asking git would read its configuration."""
    marker = directory / ".git"
    if marker.is_dir():
        return marker
    if not marker.exists():
        return directory  # a bare repository
    text = os.fsdecode(_head(marker)).strip() if marker.is_file() else ""
    if not text.startswith("gitdir: "):
        raise SourceError(f"{marker} is no git repository", remedy="remove it, or clone the repository again")
    return directory / text.removeprefix("gitdir: ")


def _find_common_dir(git_dir: Path) -> Path:
    marker = git_dir / "commondir"
    common = git_dir / os.fsdecode(_head(marker)).strip() if marker.is_file() else git_dir
    if not (common / "objects").is_dir():
        raise SourceError(f"{common} is no git repository", remedy="remove it, or clone the repository again")
    return common.resolve()


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4096)


def _copy(source: Path, target: Path, limit: int) -> None:
    if not source.is_file():
        return
    if source.stat().st_size > limit:
        raise SourceError(f"{source} has more than {limit >> 20} MiB", remedy="clone the repository again")
    shutil.copy2(source, target)  # with its times, by which git tells which files may have changed since


def _list_refs(directory: Path, scratch: Path) -> dict[str, str]:
    environment = _fetching_environment(scratch / "list-config", "file") | {"GIT_CEILING_DIRECTORIES": str(scratch)}
    outside = scratch / "outside"  # of any repository, so that none is asked how to reach this one
    outside.mkdir()
    output = _run([_program(), "ls-remote", "--", str(directory)], environment, outside)
    refs: dict[str, str] = {}
    for line in os.fsdecode(output).split("\n"):
        commit, _, name = line.partition("\t")
        if _OBJECT_ID.fullmatch(commit) and not name.endswith("^{}"):
            refs[name] = commit
    return refs


def _wait(process: subprocess.Popen[bytes], git_dir: Path, url: str) -> None:
    deadline = time.monotonic() + FETCH_TIMEOUT_S
    while True:
        try:
            process.wait(timeout=0.5)
            return
        except subprocess.TimeoutExpired:
            arrived = _size(git_dir / "objects" / "pack")
        if arrived > MAX_FETCH_BYTES or time.monotonic() > deadline:
            raise SourceError(
                f"{redact(url)} did not arrive within {FETCH_TIMEOUT_S:.0f} s and {MAX_FETCH_BYTES >> 20} MiB",
                remedy="clone it yourself (with --depth 1), and give the path of the clone",
            )


def _size(folder: Path) -> int:
    size = 0
    for file in folder.glob("*"):
        try:
            size += file.stat().st_size
        except FileNotFoundError:  # git renamed it just now
            continue
    return size
