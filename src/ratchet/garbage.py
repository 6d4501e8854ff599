"""Garbage collection: remove what nothing in the store refers to any more.

Kept is what can be reached from a root. Roots are the bases, and the records of every kind but those in
`COLLECTABLE`, environments first of all. A reference is any string in a record that is the id of something, so a new
kind of record is safe here from its first day. An install, discarded or not, keeps its record and its trajectories
while it is the latest one of its checkout; it keeps no files: a checkout can be fetched again.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.errors import StoreError, UsageError
from ratchet.scratch import TakenError, locked
from ratchet.store import Store

COLLECTABLE = ("install", "trajectory", "checkout")
MIN_AGE_S = 600.0

# An install with a model that was interrupted can go on for so long.
RUN_AGE_S = 14 * 86_400.0

_ID_LENGTH = 64
_START_LENGTH = 32


@dataclass(frozen=True)
class Garbage:
    """Something that nothing refers to. `kind` is "layer", "checkout", "cache", "interrupted install", "lock" (of an
    install that is gone) or "KIND record", `size_bytes` the disk space that it takes."""

    kind: str
    id: str
    path: Path
    size_bytes: int


def find_garbage(store: Store, *, min_age_s: float = MIN_AGE_S) -> tuple[Garbage, ...]:
    """What could be removed now. What changed in the last `min_age_s` seconds is left alone, as somebody may be about
    to use it.

    Raises StoreError when a record that may refer to something cannot be read: then nothing is known to be garbage.
    """
    records = {kind: set(store.ids(kind)) for kind in store.kinds()}
    live = _reach(store, records, _roots(store, records))
    remembered = _reach(store, records, store.links("install").values())
    unwanted: list[tuple[str, Path]] = []
    layers = _folders(store.layers)
    live_layers = _live_layers(layers, live)
    unwanted += [("layer", path) for path in layers if path.name not in live_layers]
    unwanted += [("checkout", path) for path in _folders(store.checkouts) if path.name not in live]
    unwanted += [("cache", path) for path in _folders(store.caches)]
    unwanted += [("interrupted install", path) for path in _folders(store.home / "runs") if _age_s(path) >= RUN_AGE_S]
    unwanted += [("lock", path) for path in _locks(store.home / "runs") if not path.with_suffix("").exists()]
    for kind in COLLECTABLE:
        kept = live if kind == "checkout" else live | remembered
        gone = records.get(kind, set()) - kept
        unwanted += [(f"{kind} record", store.record_file(kind, name)) for name in sorted(gone)]
    old = [(kind, path) for kind, path in unwanted if _age_s(path) >= min_age_s]
    sizes = _sizes([path for _, path in old])
    return tuple(Garbage(kind, path.name.removesuffix(".json"), path, sizes.get(path, 0)) for kind, path in old)


def collect_garbage(store: Store, *, min_age_s: float = MIN_AGE_S) -> tuple[Garbage, ...]:
    """Remove it, and return what was removed.

    Raises UsageError when an install, a shell or any sandbox uses the store.
    """
    with store.exclusive():
        _refuse_open_sandboxes(store)
        store.scratch.sweep()
        return tuple(each for each in find_garbage(store, min_age_s=min_age_s) if _remove(store, each))


def _remove(store: Store, garbage: Garbage) -> bool:
    """Whether it was there, and not in use."""
    path = garbage.path.with_suffix("") if garbage.kind == "lock" else garbage.path
    if garbage.kind not in ("cache", "interrupted install", "lock"):
        return _bury(store, path)
    lock = path.with_name(path.name + ".lock")
    try:
        with locked(lock, fcntl.LOCK_EX | fcntl.LOCK_NB):  # who waits for it finds it gone, and makes another
            if garbage.kind == "lock" and path.exists():
                return False
            removed = garbage.kind == "lock" or _bury(store, path)
            lock.unlink(missing_ok=True)
            return removed
    except TakenError:
        return False


def _bury(store: Store, path: Path) -> bool:
    """Out of its place at once, so that nobody ever finds a part of it; then away."""
    with store.scratch.temporary() as grave:
        try:
            path.rename(grave / "remains")
        except FileNotFoundError:
            return False
    return True


# --------------------------------------------------------------------------- what is reached


def _roots(store: Store, records: dict[str, set[str]]) -> Iterator[str]:
    for kind, names in records.items():
        if kind not in COLLECTABLE:
            yield from names
    for file in sorted((store.home / "bases").glob("*.json")):
        try:
            yield from _strings(json.loads(file.read_bytes()))
        except FileNotFoundError:
            continue
        except (ValueError, RecursionError) as error:
            raise StoreError(
                f"the base record {file} is damaged, so it cannot be told which layer it needs",
                remedy="remove that file, and build or import the base again",
            ) from error


def _reach(store: Store, records: dict[str, set[str]], roots: Iterable[str]) -> set[str]:
    """Every string in the records that can be reached, the ids among them."""
    reached: set[str] = set()
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name in reached:
            continue
        reached.add(name)
        for kind, names in records.items():
            if name in names:
                pending.extend(_strings(store.read_json(kind, name)))
    return reached


def _strings(data: Any) -> Iterator[str]:
    pending = [data]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            pending.extend(value)
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)


def _live_layers(layers: list[Path], live: set[str]) -> set[str]:
    """A layer is referred to by its id, or it is made from something that is (`checkout-` and the start of its id)."""
    starts = {name[:_START_LENGTH] for name in live if len(name) == _ID_LENGTH}
    return {layer.name for layer in layers if layer.name in live or layer.name.rpartition("-")[2] in starts}


# --------------------------------------------------------------------------- details


def _folders(parent: Path) -> list[Path]:
    return sorted(path for path in parent.glob("*") if path.is_dir() and not path.is_symlink())


def _locks(parent: Path) -> list[Path]:
    return sorted(path for path in parent.glob("*.lock") if path.is_file() and not path.is_symlink())


def _age_s(path: Path) -> float:
    """By the change time, which, unlike the modification time, nothing in a sandbox can set."""
    try:
        return time.time() - path.lstat().st_ctime
    except FileNotFoundError:
        return 0.0


def _sizes(paths: list[Path]) -> dict[Path, int]:
    if not paths:
        return {}
    names = b"".join(os.fsencode(path) + b"\0" for path in paths)
    command = ["du", "-sx", "--block-size=1", "--null", "--files0-from=-"]
    output = subprocess.run(command, input=names, capture_output=True, check=False).stdout
    lines = [line.split(b"\t", 1) for line in output.split(b"\0") if line]
    return {Path(os.fsdecode(name)): int(size) for size, name in lines}


def _refuse_open_sandboxes(store: Store) -> None:
    for lock in store.sandboxes.glob("*/lock"):
        with lock.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(
                    f"the sandbox {lock.parent.name} is open, and may use any layer",
                    remedy="wait until it has ended, and try again",
                ) from None
