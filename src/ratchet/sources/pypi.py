"""Source distributions from the machine's Python package index."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import requests
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pypi_simple import (
    DigestMismatchError,
    DistributionPackage,
    NoDigestsError,
    NoSuchProjectError,
    PyPISimple,
    UnsupportedContentTypeError,
    UnsupportedRepoVersionError,
)
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from ratchet.errors import SourceError
from ratchet.events import redact
from ratchet.sources.archive import SUFFIXES
from ratchet.sources.content import MAX_TOTAL_BYTES
from ratchet.sources.index import certificate_bundle, index_url

_TIMEOUT_S = (15.0, 120.0)  # to connect, and between two pieces
_SPECIFICATION = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:==\s*([^\s=*]+))?\s*")


@dataclass(frozen=True)
class Sdist:
    """One source distribution as the index lists it."""

    name: str
    version: str
    package: DistributionPackage

    @property
    def sha256(self) -> str:
        return self.package.digests["sha256"]

    @property
    def date(self) -> str | None:
        """When it was uploaded, in ISO 8601; None where the index does not say."""
        return self.package.upload_time.isoformat() if self.package.upload_time else None


class Index:
    """A client of the machine's package index. A context manager."""

    def __init__(self, url: str | None = None) -> None:
        self.url = url or index_url()
        session = requests.Session()
        session.mount("https://", HTTPAdapter(max_retries=_RETRIES))
        session.mount("http://", HTTPAdapter(max_retries=_RETRIES))
        bundle = certificate_bundle()
        if bundle:
            session.verify = bundle
        self._client = PyPISimple(self.url, session=session)

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.s.close()

    def find(self, specification: str) -> Sdist:
        """The sdist of `NAME` (its newest final release that is not yanked) or of `NAME==VERSION`."""
        match = _SPECIFICATION.fullmatch(specification)
        if match is None:
            raise SourceError(
                f"{specification!r} is no NAME or NAME==VERSION", remedy="for example pypi:attrs or pypi:attrs==24.2.0"
            )
        name, wanted = match[1], match[2]
        with self._reported(name):
            page = self._client.get_project_page(name, timeout=_TIMEOUT_S)
        releases = _by_version(page.packages)
        version = _given(name, wanted, releases) if wanted else _newest(name, releases)
        sdists = [package for package in releases[version] if package.package_type == "sdist"]
        if not sdists:
            raise _no_sdist(name, version, releases)
        package = min(sdists, key=lambda sdist: (not sdist.filename.endswith(".tar.gz"), sdist.filename))
        if "sha256" not in package.digests or not package.filename.endswith(SUFFIXES):
            raise SourceError(
                f"the index lists {package.filename} without a SHA-256 digest, or in an unknown format",
                remedy="use an index that gives digests, or download the file and give its path",
            )
        return Sdist(canonicalize_name(name), str(version), package)

    def download(self, sdist: Sdist, folder: Path) -> Path:
        """The file, in `folder`, with the digest that the index promised."""
        path = folder / ("sdist" + next(s for s in SUFFIXES if sdist.package.filename.endswith(s)))
        with self._reported(sdist.name):
            self._download(sdist.package, path, _Limit().update)
        return path

    def _download(self, package: DistributionPackage, path: Path, update: Callable[[int], None]) -> None:
        """`update` is told of the bytes of each piece as it comes, and may end the download by raising."""
        self._client.download_package(package, path, progress=lambda _: _Progress(update), timeout=_TIMEOUT_S)

    @contextmanager
    def _reported(self, name: str) -> Iterator[None]:
        where = redact(self.url)
        try:
            yield
        except NoSuchProjectError as error:
            raise SourceError(
                f"there is no project {name} on {where}",
                remedy=f"check the spelling; if you mean a directory, write ./{name}",
            ) from error
        except DigestMismatchError as error:
            raise SourceError(
                f"the downloaded file is not the one that {where} promised: {redact(str(error))}",
                remedy="try again; if it stays so, the index or a proxy in between alters files: do not use it",
            ) from error
        except (requests.RequestException, UnsupportedContentTypeError, UnsupportedRepoVersionError) as error:
            raise SourceError(
                f"the package index {where} cannot be used: {redact(str(error))[:300]}",
                remedy="check the network, and the index that PIP_INDEX_URL, UV_DEFAULT_INDEX or pip.conf name",
            ) from error
        except NoDigestsError as error:
            raise SourceError(
                f"the package index {where} gives no digest for {name}", remedy="use an index that gives digests"
            ) from error


class _Progress:
    """As the client wants to be told it: a context, with an `update`."""

    def __init__(self, update: Callable[[int], None]) -> None:
        self.update = update

    def __enter__(self) -> _Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class _Limit:
    """Ends a download that is larger than any checkout may be."""

    def __init__(self) -> None:
        self._bytes = 0

    def update(self, increment: int) -> None:
        self._bytes += increment
        if self._bytes > MAX_TOTAL_BYTES:
            raise SourceError(
                f"the sdist has more than {MAX_TOTAL_BYTES >> 20} MiB", remedy="install the project from its repository"
            )


_RETRIES = Retry(total=3, backoff_factor=0.5, status_forcelist=(429, 500, 502, 503, 504), allowed_methods=("GET",))
_Releases = dict[Version, list[DistributionPackage]]


def _by_version(packages: Sequence[DistributionPackage]) -> _Releases:
    releases: _Releases = {}
    for package in packages:
        try:
            releases.setdefault(Version(package.version or ""), []).append(package)
        except InvalidVersion:
            continue  # a file from before versions had rules: no version can be asked for that names it
    return releases


def _given(name: str, wanted: str, releases: _Releases) -> Version:
    known = [str(version) for version in sorted(releases, reverse=True)]
    try:
        version = Version(wanted)
    except InvalidVersion:
        raise SourceError(f"{wanted!r} is no version", remedy=f"{name} has {_some(known)}") from None
    if version not in releases:
        close = difflib.get_close_matches(wanted, known, n=5, cutoff=0.5) or known
        raise SourceError(f"{name} has no version {wanted}", remedy=f"use one that it has: {_some(close)}")
    return next(known for known in releases if known == version)  # as the project writes it: 1.9, when asked for 1.9.0


def _newest(name: str, releases: _Releases) -> Version:
    usable = [version for version, packages in releases.items() if not all(package.is_yanked for package in packages)]
    final = [version for version in usable if not version.is_prerelease]
    if not usable:
        raise SourceError(f"{name} has no release that is not yanked", remedy="name a version: pypi:NAME==VERSION")
    return max(final or usable)  # as pip does: a pre-release only where nothing else was ever released


def _no_sdist(name: str, version: Version, releases: _Releases) -> SourceError:
    have = sorted(
        (v for v, packages in releases.items() if any(p.package_type == "sdist" for p in packages)), reverse=True
    )
    remedy = f"these have one: {_some([str(v) for v in have])}" if have else "install it from its git repository"
    return SourceError(f"{name} {version} has no source distribution on the index", remedy=remedy)


def _some(versions: Sequence[str]) -> str:
    return ", ".join(versions[:5]) or "none"
