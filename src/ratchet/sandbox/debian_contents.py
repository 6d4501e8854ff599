"""Which Debian package ships a file: the suite's own contents index, reduced to what repairs ask for.

Fetched once per suite and architecture from the mirror that the suite's base was built from, and kept as a SQLite file
in `home/contents`. The format of the source is described in Debian's RepositoryFormat, section "Contents indices".
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import requests
from urllib3.exceptions import HTTPError

from ratchet.errors import SandboxError
from ratchet.records import Base
from ratchet.sandbox.bases import sources_of
from ratchet.sandbox.clients import ClientSettings, read_clients
from ratchet.sandbox.contents_ranking import Found, ranked

FORMAT = 1
MAX_DOWNLOAD_BYTES = 1 << 30

_TIMEOUT_S = 60.0
_ATTEMPTS = 3
_PROGRAM_FOLDERS = ("usr/bin", "usr/sbin", "bin", "sbin", "usr/games")
# Which lines are kept, decided before they are split. First by how they start, which is ten times faster than a
# pattern: nine tenths of an index is documentation and data.
_KEPT_FOLDERS = (b"usr/include/", b"usr/bin/", b"usr/sbin/", b"bin/", b"sbin/", b"usr/games/", b"usr/share/pkgconfig/")
_LIBRARY_FOLDERS = (b"usr/lib/", b"lib/")
_KEPT_LIBRARY_FILE = re.compile(rb"\S*(?:/include/\S*\.h|/lib[^/\s]*\.(?:so[^/\s]*|a)|\.pc|onfig\.cmake)\s")
_NO_PACKAGES = re.compile(r"-(?:cross|dbg|dbgsym|doc)$|-cross-|mingw|(?:^|-)(?:arm64|armhf|armel|i386|riscv64)-")


class ContentsIndex:
    """The contents index of a base's suite and architecture. Nothing is fetched before the first question.

    Answers are package names, the most canonical first; empty where no package of the suite ships such a file, and
    always empty for a base that is of no Debian suite. SandboxError where the index cannot be fetched.
    """

    def __init__(self, base: Base, home: Path, clients: ClientSettings | None = None) -> None:
        self._base = base
        self._home = home
        self._clients = clients
        self._database: sqlite3.Connection | None = None

    def header(self, name: str) -> tuple[str, ...]:
        """Packages with a header, named as in an `#include`: `ffi.h`, `libxml/xmlversion.h`."""
        found = [each for each in self._named(name) if "/include" in f"/{each.folder}"]
        return ranked(found, name)

    def library(self, name: str) -> tuple[str, ...]:
        """Packages to link with `-lNAME`, or that have the shared object of that very name (`libxslt.so.1`)."""
        if re.search(r"\.so(\.|$)|\.a$", name):
            return ranked(self._named(name), name)
        for file in (f"lib{name}.so", f"lib{name}.a"):
            found = ranked(self._named(file), file)
            if found:
                return found
        return ()

    def pkg_config(self, name: str) -> tuple[str, ...]:
        """Packages with the pkg-config module NAME (`libffi`)."""
        return ranked(self._named(f"{name}.pc"), name)

    def cmake_package(self, name: str) -> tuple[str, ...]:
        """Packages whose CMake configuration answers `find_package(NAME)`."""
        files = (f"{name}Config.cmake", f"{name.lower()}-config.cmake")
        return ranked([found for file in files for found in self._named(file)], name)

    def program(self, name: str) -> tuple[str, ...]:
        """Packages with a program of that name on the search path."""
        return ranked([each for each in self._named(name) if each.folder in _PROGRAM_FOLDERS], name)

    def _named(self, name: str) -> list[Found]:
        """The files whose path ends in `name`."""
        name = name.strip().lstrip("/")
        above, _, last = name.rpartition("/")
        if not last or "\0" in name or ".." in name.split("/"):
            return []
        database = self._opened()
        if database is None:
            return []
        rows = database.execute(
            "SELECT folders.path, packages.name, packages.section FROM files JOIN folders ON folders.id = folder"
            " JOIN packages ON packages.id = package WHERE files.name = ?",
            (last,),
        )
        found = []
        for folder, package, section in rows:
            if not above:
                found.append(Found(folder, package, section))
            elif f"/{folder}".endswith(f"/{above}"):
                found.append(Found(folder[: len(folder) - len(above)].rstrip("/"), package, section))
        return found

    def _opened(self) -> sqlite3.Connection | None:
        suite, architecture = self._base.suite, self._base.architecture
        if suite is None or not re.fullmatch(r"[a-z][a-z0-9-]*", suite) or not re.fullmatch(r"[a-z0-9]+", architecture):
            return None
        if self._database is None:
            path = self._home / "contents" / f"{suite}-{architecture}-{FORMAT}.sqlite"
            if not path.exists():
                clients = self._clients or read_clients()
                sources = sources_of(self._home, self._base, clients)
                build_index(path, [each.uri for each in sources if each.suite == suite], suite, architecture, clients)
            self._database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True, check_same_thread=False)
        return self._database


def build_index(path: Path, mirrors: list[str], suite: str, architecture: str, clients: ClientSettings) -> None:
    """Fetch the contents of a suite and write the index. Two processes that ask at once do it once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return
        scratch = path.with_suffix(".new")
        scratch.unlink(missing_ok=True)
        try:
            with contextlib.closing(sqlite3.connect(scratch, isolation_level=None)) as database:
                _fill(database, _contents(mirrors, suite, architecture, clients))
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)


def _fill(database: sqlite3.Connection, lines: Iterator[bytes]) -> None:
    database.executescript(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
        "CREATE TABLE folders (id INTEGER PRIMARY KEY, path TEXT NOT NULL);"
        "CREATE TABLE packages (id INTEGER PRIMARY KEY, name TEXT NOT NULL, section TEXT NOT NULL);"
        "CREATE TABLE files (name TEXT, folder INTEGER, package INTEGER,"
        " PRIMARY KEY (name, folder, package)) WITHOUT ROWID; BEGIN"
    )
    folders: dict[str, int] = {}
    packages: dict[tuple[str, str], int] = {}
    rows: set[tuple[str, int, int]] = set()
    for line in lines:
        path, _, owners = line.decode("utf-8", "replace").rstrip().rpartition(" ")
        folder, _, name = path.rstrip().rpartition("/")
        for owner in owners.split(","):
            section, _, package = owner.rpartition("/")
            if package and not _NO_PACKAGES.search(package):
                key = (package, section.rpartition("/")[2])
                folder_id = folders.setdefault(folder, len(folders))
                rows.add((name, folder_id, packages.setdefault(key, len(packages))))
    database.executemany("INSERT INTO folders VALUES (?, ?)", ((number, path) for path, number in folders.items()))
    database.executemany("INSERT INTO packages VALUES (?, ?, ?)", ((n, *key) for key, n in packages.items()))
    database.executemany("INSERT INTO files VALUES (?, ?, ?)", sorted(rows))
    database.execute("COMMIT")


def _contents(mirrors: list[str], suite: str, architecture: str, clients: ClientSettings) -> Iterator[bytes]:
    """The lines to keep of the suite's index files: one per architecture, or one for all (Ubuntu)."""
    if not mirrors:
        raise SandboxError(
            f"no mirror of {suite} is known, so its contents index cannot be fetched",
            remedy="build the base with `ratchet base build`, or add the suite's mirror to this machine's apt sources",
        )
    root = f"{mirrors[0].rstrip('/')}/dists/{suite}"
    with requests.Session() as session:
        if clients.ca_bundle is not None:
            session.verify = str(clients.ca_bundle)
        per_component = [f"{root}/main/Contents-{architecture}.gz", f"{root}/main/Contents-all.gz"]
        first = _lines(session, per_component[0])
        if first is not None:
            yield from first
            yield from _lines(session, per_component[1]) or ()
            return
        whole = _lines(session, f"{root}/Contents-{architecture}.gz")
        if whole is None:
            raise SandboxError(f"the mirror of {suite} has no contents index for {architecture}")
        yield from whole


def _lines(session: requests.Session, url: str) -> list[bytes] | None:
    """The lines to keep of one index file; None where the mirror has no such file."""
    problem: Exception | None = None
    for _ in range(_ATTEMPTS):
        try:
            with session.get(url, stream=True, timeout=_TIMEOUT_S) as response:
                if response.status_code == 404:
                    return None
                response.raise_for_status()
                return _kept(response.raw.read)
        except (requests.RequestException, HTTPError, zlib.error, EOFError) as error:
            problem = error
    raise SandboxError(
        f"the contents index of the suite cannot be fetched: {problem}",
        remedy="check the network; `ratchet doctor` says which registries this machine reaches",
    )


def _kept(read: Callable[[int], bytes]) -> list[bytes]:
    """Unpack a gzip stream and keep the lines that repairs need. EOFError where it is cut off."""
    unpack = zlib.decompressobj(wbits=31)
    kept: list[bytes] = []
    rest = b""
    total = 0
    while not unpack.eof:
        data = read(1 << 20)
        total += len(data)
        if not data or total > MAX_DOWNLOAD_BYTES:
            raise EOFError("it is cut off" if not data else "it is too large to be one")
        *lines, rest = (rest + unpack.decompress(data)).split(b"\n")
        kept += [line for line in lines if line.startswith(_KEPT_FOLDERS)]
        kept += [line for line in lines if line.startswith(_LIBRARY_FOLDERS) and _KEPT_LIBRARY_FILE.match(line)]
        kept += [line for line in lines if b"onfig.cmake " in line and line.startswith(b"usr/share/")]
    return kept
