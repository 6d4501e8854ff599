"""Git: a work tree as it is, or a repository at a ref. How git is run safely is in `repository.py`.

Files of a commit are read with `ls-tree` and `cat-file`, never with a checkout or `git archive`: no filter, no LFS,
no line-ending and no `export-subst` attribute changes them. Submodules are named, not fetched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO

from ratchet.errors import SourceError
from ratchet.events import redact
from ratchet.sources import directory, repository
from ratchet.sources.content import CHUNK_BYTES, Content, Entry, Kind, lay_out, printable
from ratchet.sources.repository import GitError, Repository

_ALL_REFS = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
_REMOTE_HEAD = "refs/ratchet/head"
_SHOWN_REFS = ("refs/heads", "refs/tags", "refs/remotes")


@dataclass(frozen=True)
class Snapshot:
    """Files from a repository, and what git says about them. `commit` ends in "-dirty" where the files differ from
    it; `version` is what `git describe --tags` says, None without tags; `date` is the commit's, in ISO 8601."""

    content: Content
    commit: str | None
    date: str | None
    version: str | None


def copy_work_tree(work_tree: Path, scratch: Path, leave_out: tuple[Path, ...]) -> Snapshot:
    """The files as they are now: tracked ones, and those that are neither tracked nor ignored."""
    ours = repository.borrow(work_tree, scratch)
    listing = _list_work_tree(ours)
    entries = directory.read_entries(work_tree, wanted=listing.wanted, leave_out=leave_out)
    content = lay_out(entries, scratch / "tree")
    try:
        commit = _find_commit(ours, "HEAD")
    except GitError:
        return Snapshot(content, None, None, None)  # nothing is committed yet
    # Without looking into submodules: git would then run inside them, with their configuration.
    dirty = ours.run("status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=all")
    date, version = _describe(ours, commit)
    suffix = "-dirty" if dirty else ""
    return Snapshot(content, commit + suffix, date, version and version + suffix)


def copy_commit(url: str, ref: str | None, scratch: Path) -> Snapshot:
    """The files of a ref (HEAD when None) of a local repository, given by its path, or of a remote one.

    From a remote one come first the commits and tags alone, which find any ref (an abbreviated id as well) and the
    version, and then the files of that one commit. A server that cannot do so sends everything at once.
    """
    local = Path(url)
    if repository.is_repository(local):
        history = content = repository.borrow(local, scratch)
        commit = _resolve(history, ref or "HEAD", url)
    else:
        from_head = ref is None or ref.startswith("HEAD")  # else not asked for: it may lead nowhere
        refs = [*_ALL_REFS, *([f"+HEAD:{_REMOTE_HEAD}"] if from_head else [])]
        history = content = repository.fetch("history.git", url, scratch, "--filter=tree:0", *refs)
        if from_head:
            history.set_head(_find_commit(history, _REMOTE_HEAD))
        commit = _resolve(history, ref or "HEAD", url)
        if not history.holds(f"{commit}^{{tree}}"):
            content = repository.fetch("content.git", url, scratch, "--depth=1", "--no-tags", commit)
    date, version = _describe(history, commit)
    entries = _read_commit(content, commit, _timestamp(date))
    return Snapshot(lay_out(entries, scratch / "tree"), commit, date, version)


# --------------------------------------------------------------------------- commits


def _find_commit(ours: Repository, ref: str) -> str:
    return ours.run("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}").decode("ascii").strip()


def _resolve(ours: Repository, ref: str, where: str) -> str:
    if not ref.startswith("-"):
        for candidate in (ref, f"origin/{ref}"):
            try:
                return _find_commit(ours, candidate)
            except GitError:
                continue
    refs = os.fsdecode(
        ours.run("for-each-ref", "--sort=-creatordate", "--count=6", "--format=%(refname:short)", *_SHOWN_REFS)
    )
    raise SourceError(
        f"{redact(where)} has no branch, tag or commit {printable(ref)}",
        remedy=f"its newest refs are {printable(', '.join(refs.split()))}" if refs else "it has no commits at all",
    )


def _describe(ours: Repository, commit: str) -> tuple[str | None, str | None]:
    """The commit's date, and its version by the tags."""
    log = ours.run("log", "-1", "--no-mailmap", "--no-show-signature", "--format=%cI", commit)
    date = log.decode("ascii", "replace").strip()
    try:
        version = printable(os.fsdecode(ours.run("describe", "--tags", commit)).strip())
    except GitError:
        version = None  # no tag comes before this commit
    return (None if _timestamp(date) is None else date), version


def _timestamp(date: str | None) -> float | None:
    """Seconds since 1970; None for what is no date: a commit may claim anything."""
    try:
        return datetime.fromisoformat(date or "").timestamp()
    except (ValueError, OverflowError):
        return None


def _read_commit(ours: Repository, commit: str, mtime: float | None) -> Iterator[Entry]:
    lines = _split(ours.run("ls-tree", "-r", "-z", "--full-tree", commit))
    process = ours.stream("cat-file", "--batch")
    assert process.stdin is not None and process.stdout is not None  # they are pipes
    try:
        for line in lines:
            about, path = line.split("\t", 1)
            mode, _, object_id = about.split(" ")
            if mode == "160000":
                yield Entry(path, Kind.SUBMODULE)
                continue
            process.stdin.write(object_id.encode("ascii") + b"\n")
            process.stdin.flush()
            blob = _read_blob(process.stdout, path)
            if mode == "120000":
                target = b"".join(chunk[:CHUNK_BYTES] for chunk in blob)
                yield Entry(path, Kind.LINK, target=os.fsdecode(target))
            else:
                yield Entry(path, Kind.FILE, blob, mode == "100755", mtime=mtime)
                for _ in blob:  # what was not wanted has to be read all the same
                    pass
    finally:
        process.kill()
        process.communicate()


def _read_blob(stream: IO[bytes], path: str) -> Iterator[bytes]:
    header = stream.readline().split()
    if len(header) != 3 or header[1] != b"blob":
        raise SourceError(
            f"the repository does not hold the content of {printable(path)[:200]}",
            remedy="it is damaged, or a partial clone: clone it again, in full",
        )
    left = int(header[2])
    while left:
        chunk = stream.read(min(left, CHUNK_BYTES))
        if not chunk:
            raise SourceError(
                f"git stopped in the middle of {printable(path)[:200]}", remedy="check it with `git fsck`"
            )
        left -= len(chunk)
        yield chunk
    stream.read(1)  # the newline after each object


# --------------------------------------------------------------------------- work trees


@dataclass(frozen=True)
class _Listing:
    """What of a work tree is copied. Of folders in `whole` everything is: git lists of submodules and of nested
    repositories only the folder."""

    files: frozenset[str]
    folders: frozenset[str]
    whole: frozenset[str]

    def wanted(self, path: str) -> bool:
        if path in self.files or path in self.folders or path in self.whole:
            return True
        return bool(self.whole) and any(parent in self.whole for parent in _parents(path))


def _list_work_tree(ours: Repository) -> _Listing:
    others = _split(ours.run("ls-files", "-z", "--others", "--exclude-standard"))
    tracked = [line.split("\t", 1) for line in _split(ours.run("ls-files", "-z", "--stage"))]
    whole = {path.rstrip("/") for path in others if path.endswith("/")}
    whole |= {path for about, path in tracked if about.startswith("160000")}
    files = {path for _, path in tracked} | {path for path in others if not path.endswith("/")}
    folders = {parent for path in (*files, *whole) for parent in _parents(path)}
    return _Listing(frozenset(files), frozenset(folders), frozenset(whole))


def _split(output: bytes) -> list[str]:
    return [os.fsdecode(line) for line in output.split(b"\0") if line]


def _parents(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path
