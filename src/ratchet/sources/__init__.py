"""Where repositories come from: `fetch(source, store) -> Checkout`.

A source is one of

    DIRECTORY                   its files; in a git work tree, those that are not ignored
    DIRECTORY@REF, FILE_URL     a local git repository, bare or not, at a ref
    GIT_URL[@REF]               https, http, ssh, git and file URLs, `git+` before them, and `user@host:path`
    pypi:NAME[==VERSION]        the source distribution from the machine's package index
    ARCHIVE                     a local source distribution: tar (gzip, bzip2, xz) or zip

An existing directory wins over every other reading.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from ratchet.errors import SourceError
from ratchet.events import redact
from ratchet.records import Checkout
from ratchet.sources import archive, directory, git
from ratchet.sources.content import Content, lay_out, printable
from ratchet.sources.repository import Repository, borrow, is_repository
from ratchet.sources.repository import fetch as fetch_repository
from ratchet.store import Store

__all__ = ["fetch", "open_history"]

_GIT_URL = re.compile(r"(?:git\+)?((?:https?|ssh|git|file)://.+)", re.IGNORECASE)
_SCP_LIKE = re.compile(r"[A-Za-z0-9_.-]+@[A-Za-z0-9_.-]+:(?!//).+")
_PROJECT_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_FORMS = "give a directory, a git URL or repository (with @REF), or pypi:NAME[==VERSION]"


def fetch(source: str, store: Store) -> Checkout:
    """Copy what `source` names to `store.checkouts/ID`, and record it as the checkout ID.

    Fetching the same content again finds it there. Safe with several processes: a checkout appears complete or not
    at all. Nothing of the source is run. Raises SourceError when there is nothing to fetch or it is unsafe, and
    MachineError when git is needed and not installed.
    """
    if not source.strip():
        raise SourceError("there is no directory without a name", remedy=_FORMS)
    with store.shared():
        if source.lower().startswith("pypi:"):
            return _fetch_sdist(source, store)
        path = Path(source).expanduser()
        if path.is_dir():
            return _fetch_directory(path.resolve(), store)
        if archive.is_archive(path):
            return _fetch_archive(path.resolve(), store)
        return _fetch_git(source, store)


def open_history(source: str, scratch: Path) -> Repository:
    """The repository that a source names, with the whole history, as one of ours in `scratch`: borrowed where it is
    local, else fetched. Raises SourceError where there is no git repository."""
    path = Path(source).expanduser()
    without = source.lower().startswith("pypi:") or archive.is_archive(path)
    where = "" if without else str(path.resolve()) if path.is_dir() else _repository_and_ref(source)[0]
    if where and is_repository(Path(where)):
        return borrow(Path(where), scratch)
    if without or path.is_dir():
        raise SourceError(f"{redact(source)} has no history", remedy="install the project from its git repository")
    return fetch_repository("history.git", where, scratch, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")


# --------------------------------------------------------------------------- one function per form


def _fetch_directory(path: Path, store: Store) -> Checkout:
    name, source = printable(path.name) or "root", str(path)  # a relative path would mean nothing later
    if is_repository(path):
        return _fetch_repository(source, None, name, source, store, work_tree=(path / ".git").exists())
    with store.scratch.temporary() as scratch:
        content = lay_out(directory.read_entries(path, leave_out=(store.home,)), scratch / "tree")
        return _settle(store, content, Checkout("", name, source, "", date=_newest(content)))


def _fetch_archive(path: Path, store: Store) -> Checkout:
    stem = path.name
    for suffix in archive.SUFFIXES:
        stem = stem.removesuffix(suffix)
    name, _, version = stem.rpartition("-")
    with store.scratch.temporary() as scratch:
        content = lay_out(archive.read_entries(path), scratch / "tree", strip=True)
        about = Checkout(
            "", printable(name or stem), str(path), "", date=_newest(content), version=version if name else None
        )
        return _settle(store, content, about)


def _fetch_sdist(source: str, store: Store) -> Checkout:
    from ratchet.sources import pypi  # its HTTP client takes a second to load, and the other forms do without

    with pypi.Index() as index:
        sdist = index.find(source[len("pypi:") :])
        key = f"sdist-{sdist.sha256}"
        known = store.latest("checkout", key, Checkout)
        if known is not None and (store.checkouts / known.id).is_dir():
            os.utime(store.checkouts / known.id)
            return replace(known, path=str(store.checkouts / known.id))
        with store.scratch.temporary() as scratch:
            file = index.download(sdist, scratch)
            content = lay_out(archive.read_entries(file), scratch / "tree", strip=True)
            date = sdist.date or _newest(content)
            about = Checkout(
                "", sdist.name, f"pypi:{sdist.name}=={sdist.version}", "", date=date, version=sdist.version
            )
            checkout = _settle(store, content, about)
        store.link("checkout", key, checkout.id)
        return checkout


def _fetch_git(source: str, store: Store) -> Checkout:
    where, ref = _repository_and_ref(source)
    name = re.split(r"[/:]", where.rstrip("/").removesuffix("/.git"))[-1].removesuffix(".git")
    return _fetch_repository(where, ref, printable(name) or "repository", source, store, work_tree=False)


def _fetch_repository(url: str, ref: str | None, name: str, source: str, store: Store, *, work_tree: bool) -> Checkout:
    with store.scratch.temporary() as scratch:
        if work_tree:
            snapshot = git.copy_work_tree(Path(url), scratch, leave_out=(store.home,))
        else:
            snapshot = git.copy_commit(url, ref, scratch)
        date = snapshot.date or _newest(snapshot.content)
        about = Checkout("", name, source, "", commit=snapshot.commit, date=date, version=snapshot.version)
        return _settle(store, snapshot.content, about)


# --------------------------------------------------------------------------- reading a source


def _repository_and_ref(source: str) -> tuple[str, str | None]:
    match = _GIT_URL.fullmatch(source)
    if match is not None:
        url = match[1]
        authority = url.find("/", url.index("://") + 3)
        return _split_ref(url, authority if authority >= 0 else len(url))
    if _SCP_LIKE.fullmatch(source) and not Path(source.rpartition("@")[0]).exists():
        return _split_ref(source, source.index(":"))
    return _local_repository(source)


def _split_ref(url: str, start: int) -> tuple[str, str | None]:
    """Split URL@REF; the path begins at `start`. A path that has an @ itself is told apart by its `.git`."""
    path = url[start:]
    cut = path.find(".git@") + 4 if ".git@" in path else path.rfind("@")
    if cut < 0 or cut == len(path) - 1:
        return url.removesuffix("@"), None
    return url[:start] + path[:cut], path[cut + 1 :]


def _local_repository(source: str) -> tuple[str, str]:
    at = source.find("@")
    while at >= 0:  # both the path and the ref may hold an @
        path = Path(source[:at]).expanduser()
        if at > 0 and path.is_dir() and source[at + 1 :]:
            if is_repository(path):
                return str(path.resolve()), source[at + 1 :]
            raise SourceError(
                f"{path} is no git repository, so it has no {source[at + 1 :]}", remedy="leave away what follows the @"
            )
        at = source.find("@", at + 1)
    remedy = _FORMS
    if _PROJECT_NAME.fullmatch(source.partition("==")[0]):
        remedy = f"for the project on the package index write pypi:{source}; otherwise {_FORMS}"
    elif Path(source).expanduser().exists():
        remedy = f"{source} is a file, and no tar or zip archive: {_FORMS}"
    raise SourceError(f"there is no directory {redact(source)}", remedy=remedy)


# --------------------------------------------------------------------------- putting it into the store


def _settle(store: Store, content: Content, about: Checkout) -> Checkout:
    path = store.checkouts / content.id
    path.parent.mkdir(parents=True, exist_ok=True)
    content.root.chmod(0o755)
    try:
        content.root.rename(path)
    except OSError:
        if not path.is_dir():  # it is there already when another process, or an earlier fetch, made the same one
            raise
    os.utime(path)  # says to the garbage collection that it is wanted now
    checkout = Checkout(
        id=content.id,
        name=about.name,
        source=redact(printable(about.source)),
        path=str(path),
        commit=about.commit,
        date=about.date,
        version=about.version,
        missing=content.missing,
        files=content.files,
        size_bytes=content.size_bytes,
    )
    store.put("checkout", checkout)
    return checkout


# What builders write instead of times, so that archives are reproducible: the epochs of Unix and of zip, and the
# moments that maturin and Hatch chose.
_NO_TIMES = frozenset({0, 315_532_800, 1_153_704_088, 1_580_601_600})


def _newest(content: Content) -> str | None:
    if content.newest is None or int(content.newest) in _NO_TIMES:
        return None
    return datetime.fromtimestamp(content.newest, UTC).isoformat(timespec="seconds")
