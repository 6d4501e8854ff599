"""Reading archives: tar (plain, gzip, bzip2, xz) and zip, as a stream of entries.

`tarfile` and `zipfile` only decode; what is written where is decided by `content.py`. The decompressed bytes are
counted as they come, so a compression bomb ends at the limit, whatever the headers claim.
"""

from __future__ import annotations

import bz2
import calendar
import gzip
import io
import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ratchet.errors import SourceError
from ratchet.sources.content import CHUNK_BYTES, MAX_FILES, MAX_TOTAL_BYTES, Entry, Kind

SUFFIXES = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar", ".zip")

_MAX_STREAM_BYTES = MAX_TOTAL_BYTES + MAX_FILES * 2048  # the files, and the headers around them
_MAX_HEADER_BYTES = 16 << 20
_DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    gzip.BadGzipFile,
    UnicodeError,
    ValueError,  # tarfile and zipfile let these through for headers that make no sense
    OverflowError,
    IndexError,
    struct.error,
    NotImplementedError,  # a compression method of zip that Python does not have
    RuntimeError,  # an encrypted zip
)


def is_archive(path: Path) -> bool:
    return path.name.lower().endswith(SUFFIXES) and path.is_file()


def read_entries(path: Path) -> Iterator[Entry]:
    """The entries of an archive, in its order. SourceError when it is damaged or no archive."""
    with _reported():
        if path.name.lower().endswith(".zip"):
            yield from _zip_entries(path)
        else:
            yield from _tar_entries(path)


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except _DAMAGED as error:
        raise SourceError(
            f"the archive cannot be unpacked: {error or type(error).__name__}",
            remedy="the archive is damaged, cut off, or encrypted: get it again",
        ) from error


# --------------------------------------------------------------------------- tar


def _tar_entries(path: Path) -> Iterator[Entry]:
    with _decompressed(path) as stream, tarfile.open(fileobj=_Counted(stream), mode="r:") as archive:
        for member in archive:
            yield _tar_entry(archive, member)


def _tar_entry(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Entry:
    if member.isreg():
        file = archive.extractfile(member)
        assert file is not None  # it is a regular file
        executable, mtime = bool(member.mode & 0o100), float(member.mtime)
        return Entry(member.name, Kind.FILE, _chunks(file), executable, mtime=mtime, size_bytes=member.size)
    if member.issym():
        return Entry(member.name, Kind.LINK, target=member.linkname)
    if member.islnk():
        return Entry(member.name, Kind.HARD_LINK, target=member.linkname)
    return Entry(member.name, Kind.DIRECTORY if member.isdir() else Kind.SPECIAL)


def _decompressed(path: Path) -> io.BufferedIOBase:
    with path.open("rb") as file:
        magic = file.read(6)
    if magic.startswith(b"\x1f\x8b"):
        return gzip.open(path, "rb")
    if magic.startswith(b"BZh"):
        return bz2.open(path, "rb")
    if magic.startswith(b"\xfd7zXZ\0"):
        return lzma.open(path, "rb")
    return path.open("rb")


class _Counted(io.RawIOBase):
    """A stream that goes forward only, counts its bytes, and refuses what no honest tar header needs."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream = stream
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MAX_HEADER_BYTES:  # files are read in smaller pieces: this is a header
            raise tarfile.ReadError(f"a header claims {size} bytes")
        data = self._stream.read(size)
        self._position += len(data)
        if self._position > _MAX_STREAM_BYTES:
            raise SourceError(
                f"the archive unpacks to more than {_MAX_STREAM_BYTES >> 20} MiB",
                remedy="it is too large for a repository, or a compression bomb",
            )
        return data

    def seek(self, position: int, whence: int = 0) -> int:
        if whence != 0 or position < self._position:
            raise tarfile.ReadError("a header points backward")
        while self._position < position:
            if not self.read(min(CHUNK_BYTES, position - self._position)):
                break  # past the end, as files allow; the next read finds out
        return self._position


# --------------------------------------------------------------------------- zip


def _zip_entries(path: Path) -> Iterator[Entry]:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if len(members) > MAX_FILES:
            raise SourceError(f"{path.name} holds {len(members)} entries; the limit is {MAX_FILES}")
        for member in members:
            yield _zip_entry(archive, member)


def _zip_entry(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Entry:
    mode = member.external_attr >> 16 if member.create_system == 3 else 0  # 3: made on Unix
    if member.is_dir():
        return Entry(member.filename, Kind.DIRECTORY)
    if stat.S_ISLNK(mode):
        with archive.open(member) as file:
            return Entry(member.filename, Kind.LINK, target=file.read(4096).decode("utf-8", "surrogateescape"))
    if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        return Entry(member.filename, Kind.SPECIAL)
    chunks, executable = _zip_chunks(archive, member), bool(mode & 0o100)
    mtime = float(calendar.timegm((*member.date_time, 0, 0, 0)))
    return Entry(member.filename, Kind.FILE, chunks, executable, mtime=mtime, size_bytes=member.file_size)


def _zip_chunks(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    with _reported(), archive.open(member) as file:
        yield from _chunks(file)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    with _reported():  # whoever lays the file out pulls these, outside of `read_entries`
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
