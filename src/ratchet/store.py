"""Content-addressed records under one home directory, safe for several processes at once.

    records/KIND/ID.json     one record each, with a checksum
    index/KIND/KEY           which record of a kind is the latest one for a key
    checkouts/ID/            the files of a checkout (written by `sources`)
    layers/ID/               root file systems (written by the sandbox backend)
    bases/NAME.json          bases (sandbox backend)
    sandboxes/NAME/          running sandboxes, each with a `lock` that its process holds (sandbox backend)
    caches/CHECKOUT[-N]/     private download caches of installs
    tmp/                     what is being made: renamed into place when complete, else swept
    lock                     shared by whoever uses checkouts and layers, exclusive for garbage collection

Nothing is made before the first write. Locks are `flock`s: they end with the process that holds them, however it ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from cattrs.errors import BaseValidationError, StructureHandlerNotFoundError
from platformdirs import user_data_dir

from ratchet.errors import StoreError, UsageError
from ratchet.records import content_id, from_json, to_json
from ratchet.scratch import Scratch, TakenError, locked

Record = TypeVar("Record")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}")
_FORMAT = 1


def default_home(environ: Mapping[str, str] = os.environ) -> Path:
    """`$RATCHET_HOME`, or the platform's data directory. Nothing is made."""
    chosen = environ.get("RATCHET_HOME")
    return Path(chosen).expanduser().absolute() if chosen else Path(user_data_dir("ratchet", appauthor=False))


class Store:
    """The records and directories under `home`."""

    def __init__(self, home: Path) -> None:
        self.home = home.absolute()
        self.checkouts = self.home / "checkouts"
        self.layers = self.home / "layers"
        self.sandboxes = self.home / "sandboxes"
        self.caches = self.home / "caches"
        self.scratch = Scratch(self.home / "tmp")

    # ----------------------------------------------------------------------- records

    def put(self, kind: str, record: Any, *, id: str | None = None) -> str:  # noqa: A002 - what it is called everywhere
        """Store a record and return its id: the one given, else the record's own `id`, else its content's hash.

        A record that is there already under that id is replaced. Readers see the old one or the new one.
        """
        name = id or getattr(record, "id", None) or content_id(record)
        data = to_json(record)
        envelope = {"format": _FORMAT, "kind": kind, "id": name, "sha256": _checksum(data), "record": data}
        self.scratch.write_file(self._record_path(kind, name), json.dumps(envelope, indent=1).encode() + b"\n")
        return name

    def get(self, kind: str, record_id: str, record_type: type[Record]) -> Record:
        """The record with this id, or with the only id that starts so.

        Raises UsageError when there is none or more than one, StoreError when the file is damaged.
        """
        path = self._record_path(kind, self.resolve(kind, record_id))
        data = self.read_json(kind, path.stem)
        try:
            return from_json(data, record_type)
        except (BaseValidationError, StructureHandlerNotFoundError, ValueError, TypeError, KeyError) as error:
            raise _damaged(path, f"it does not fit {record_type.__name__} ({type(error).__name__})") from error

    def read_json(self, kind: str, record_id: str) -> Any:
        """The JSON data of the record with exactly this id. Raises as `get` does."""
        path = self._record_path(kind, record_id)
        try:
            envelope = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise UsageError(f"there is no {kind} {record_id}", remedy=_see(kind)) from None
        except (ValueError, RecursionError) as error:
            raise _damaged(path, "it is no JSON") from error
        if not isinstance(envelope, dict) or "record" not in envelope:
            raise _damaged(path, "it holds no record")
        if envelope.get("sha256") != _checksum(envelope["record"]):
            raise _damaged(path, "its content does not match its checksum")
        return envelope["record"]

    def resolve(self, kind: str, prefix: str) -> str:
        """The id that `prefix` is, or that alone starts with it. UsageError otherwise."""
        if self._record_path(kind, prefix).is_file():
            return prefix
        found = [known for known in self.ids(kind) if known.startswith(prefix)]
        if len(found) == 1:
            return found[0]
        if not found:
            raise UsageError(f"there is no {kind} {prefix}", remedy=_see(kind))
        some = ", ".join(known[: len(prefix) + 6] for known in found[:5])
        raise UsageError(f"{len(found)} {kind} ids start with {prefix}: {some}", remedy="give more of the id")

    def ids(self, kind: str) -> list[str]:
        """All ids of a kind, the oldest record first."""
        _check(kind)
        aged: list[tuple[int, str]] = []
        for path in (self.home / "records" / kind).glob("*.json"):
            try:
                aged.append((path.stat().st_mtime_ns, path.stem))
            except FileNotFoundError:  # another process removed it
                continue
        return [record_id for _, record_id in sorted(aged)]

    def kinds(self) -> list[str]:
        """The kinds of which there are or were records."""
        return sorted(path.name for path in (self.home / "records").glob("*") if path.is_dir())

    def remove(self, kind: str, record_id: str) -> None:
        """Remove the record with this id or unique prefix. What it refers to stays until garbage is collected."""
        self._record_path(kind, self.resolve(kind, record_id)).unlink(missing_ok=True)

    def record_file(self, kind: str, record_id: str) -> Path:
        """The file that holds (or would hold) the record with exactly this id."""
        return self._record_path(kind, record_id)

    # ----------------------------------------------------------------------- index

    def link(self, kind: str, key: str, record_id: str) -> None:
        """Make `id` the latest record of `kind` for `key` (for example the latest install of a checkout)."""
        self.scratch.write_file(self.home / "index" / _check(kind) / _check(key), _check(record_id).encode() + b"\n")

    def linked(self, kind: str, key: str) -> str | None:
        """The id of the latest record of `kind` for `key`; None when there is none, or it was removed."""
        try:
            record_id = (self.home / "index" / _check(kind) / _check(key)).read_text("ascii").strip()
        except FileNotFoundError:
            return None
        return record_id if _NAME.fullmatch(record_id) and self._record_path(kind, record_id).is_file() else None

    def latest(self, kind: str, key: str, record_type: type[Record]) -> Record | None:
        """The record that `linked` names, or None."""
        record_id = self.linked(kind, key)
        return None if record_id is None else self.get(kind, record_id, record_type)

    def links(self, kind: str) -> dict[str, str]:
        """Every key of the index of a kind, with the id that it names; links to removed records are left out."""
        keys = (path.name for path in (self.home / "index" / _check(kind)).glob("*") if _NAME.fullmatch(path.name))
        found = {key: self.linked(kind, key) for key in sorted(keys)}
        return {key: record_id for key, record_id in found.items() if record_id is not None}

    # ----------------------------------------------------------------------- directories and locks

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold this while checkouts or layers are used: nothing is collected meanwhile. May be nested.

        Waits for a garbage collection that is running.
        """
        with locked(self.home / "lock", fcntl.LOCK_SH):
            yield

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold this while things are removed. UsageError, at once, when somebody uses the store."""
        with ExitStack() as held:
            try:
                held.enter_context(locked(self.home / "lock", fcntl.LOCK_EX | fcntl.LOCK_NB))
            except TakenError:
                raise UsageError(
                    f"the store in {self.home} is in use by another ratchet process",
                    remedy="wait until running installs and shells have ended, and try again",
                ) from None
            yield

    @contextmanager
    def cache(self, checkout: str) -> Iterator[Path]:
        """A download cache for one install of a checkout, which nobody else uses meanwhile.

        The cache of the last install of the same checkout when that is free, else another one.
        """
        _check(checkout)
        for number in itertools.count():
            path = self.caches / (f"{checkout}-{number}" if number else checkout)
            with ExitStack() as held:
                try:
                    held.enter_context(self.cache_lock(path))
                except TakenError:
                    continue
                path.mkdir(exist_ok=True)
                os.utime(path)  # says to the garbage collection that it was used just now
                yield path
                return

    def cache_lock(self, path: Path) -> AbstractContextManager[None]:
        """The lock of one cache directory. TakenError when somebody uses it."""
        return locked(path.with_name(path.name + ".lock"), fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _record_path(self, kind: str, record_id: str) -> Path:
        return self.home / "records" / _check(kind) / f"{_check(record_id)}.json"


def _check(name: str) -> str:
    """`name` when it is fit to be a file name here: ids come from command lines."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:80]!r} is no id", remedy="ids are letters, digits and . _ + -, and start with a letter or digit"
        )
    return name


def _checksum(data: Any) -> str:
    # ASCII, unlike records.canonical: outputs and file names may hold lone surrogates, which UTF-8 cannot encode.
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _damaged(path: Path, why: str) -> StoreError:
    return StoreError(
        f"the record {path} is damaged: {why}",
        remedy="remove that file, and make the record again (for an environment: install its source again)",
    )


def _see(kind: str) -> str:
    known = {"environment": "`ratchet env list` shows the environments", "base": "`ratchet base list` shows the bases"}
    return known.get(kind, "check the id")
