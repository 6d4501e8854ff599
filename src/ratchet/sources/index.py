"""Which Python package index this machine's clients are configured to use.

uv's and pip's environment variables come first, then their configuration files, then the index that the
`pypi_simple` library knows.
"""

from __future__ import annotations

import configparser
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pypi_simple import PYPI_SIMPLE_ENDPOINT

from ratchet.errors import SourceError


def index_url(environ: Mapping[str, str] = os.environ) -> str:
    """The address of the simple API, with credentials if the configuration holds any."""
    for variable in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        value = environ.get(variable, "").strip()
        if value:
            return _without_name(value)
    for url in (*_from_uv(environ), *_from_pip(environ)):
        return url
    return PYPI_SIMPLE_ENDPOINT


def certificate_bundle(environ: Mapping[str, str] = os.environ) -> str | None:
    """The file with the certificate authorities that the machine's clients trust; None for the usual ones."""
    for variable in ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE"):
        value = environ.get(variable, "")
        if value and Path(value).exists():
            return value
    return None


def _without_name(value: str) -> str:
    """uv allows `NAME=URL`."""
    name, separator, url = value.partition("=")
    return url if separator and "://" not in name else value


def _from_uv(environ: Mapping[str, str]) -> Iterator[str]:
    for path in _files(environ, "UV_CONFIG_FILE", "uv/uv.toml"):
        try:
            settings: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SourceError(f"{path} cannot be read: {error}", remedy="correct uv's configuration file") from error
        for index in settings.get("index", []):
            if index.get("default") and index.get("url"):
                yield str(index["url"])
        if settings.get("index-url"):
            yield str(settings["index-url"])


def _from_pip(environ: Mapping[str, str]) -> Iterator[str]:
    home_file = Path(environ.get("HOME", "/nonexistent")) / ".pip" / "pip.conf"
    for path in (*_files(environ, "PIP_CONFIG_FILE", "pip/pip.conf"), home_file, Path("/etc/pip.conf")):
        if not path.is_file():
            continue
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(path.read_text("utf-8"))
        except (configparser.Error, UnicodeDecodeError) as error:
            raise SourceError(f"{path} cannot be read: {error}", remedy="correct pip's configuration file") from error
        for section in ("download", "install", "global"):
            url = parser.get(section, "index-url", fallback="").strip()
            if url:
                yield url


def _files(environ: Mapping[str, str], variable: str, name: str) -> Iterator[Path]:
    """The files of a client that exist: the one that a variable names, the user's, the system's."""
    home = Path(environ.get("HOME", "/nonexistent"))
    user = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    system = [Path(folder) for folder in (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":") if folder]
    named = [Path(environ[variable])] if environ.get(variable) else []
    candidates = [*named, user / name, *(folder / name for folder in system), Path("/etc") / name]
    return (path for path in candidates if path.is_file())
