"""What this machine's package clients are configured to use: indexes, mirrors, certificates.

Sandboxes in the install phase reach the same places in the same way. Nothing here is written down as a literal: the
default index comes from a library that carries it, the rest from the clients. Index URLs may hold credentials; they
go into the environment of install commands and nowhere else.
"""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import requests
from pypi_simple import PYPI_SIMPLE_ENDPOINT, NoSuchProjectError, PyPISimple, UnsupportedContentTypeError

from ratchet.sandbox.client_files import AptSource, UvSettings, apt_sources, pip_settings, uv_settings, words
from ratchet.sandbox.local_indexes import LocalIndexes, local_path
from ratchet.sandbox.proxy import Destination, Origin

MAX_BUNDLE_BYTES = 16 << 20
USUAL_PORTS = {"http": 80, "https": 443}

_PROBE_PROJECT = "pip"  # the project whose page tells where an index keeps its files: every useful index has it
_PROBE_TIMEOUT_S = 20.0
_CLIENT_TIMEOUT_S = 20.0
_BUNDLE_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
_PIP_CARRIED = {"trusted-host": "PIP_TRUSTED_HOST", "no-index": "PIP_NO_INDEX", "timeout": "PIP_DEFAULT_TIMEOUT"}
_APT_CARRIED = ("Acquire::Check-Valid-Until", "Acquire::Check-Date")  # a mirror that is a snapshot needs them


@dataclass(frozen=True)
class ClientSettings:
    """What is carried into the install phase.

    `env` and `indexes` may hold credentials, so they are not shown. `indexes` are the Python indexes whose file hosts
    are still to be learnt. `mounts` are pairs of host path and sandbox path of local indexes. `apt` are the machine's
    sources, `apt_options` lines for an apt.conf. `notes` says what was left out, and why.
    """

    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    destinations: tuple[Destination, ...] = ()
    indexes: tuple[str, ...] = field(default=(), repr=False)
    mounts: tuple[tuple[str, str], ...] = ()
    ca_bundle: Path | None = None
    apt: tuple[AptSource, ...] = ()
    apt_options: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_clients(
    env: Mapping[str, str] | None = None, root: Path = Path("/"), home: Path | None = None
) -> ClientSettings:
    """The settings of this machine. `root` and `home` are where configuration files are looked for."""
    env = os.environ if env is None else env
    home = Path.home() if home is None else home
    pip = pip_settings(env, root, home)
    uv = uv_settings(env, root, home)
    local = LocalIndexes()
    carried = {**_pip_env(pip, local), **_uv_env(uv, pip, local)}
    configured = [url for name in _INDEX_VARIABLES for url in carried.get(name, "").split()]
    configured = [each.partition("=")[2] if each.partition("=")[2].startswith("http") else each for each in configured]
    indexes = [each for each in configured if each.startswith("http")]
    defaults = [] if {"PIP_INDEX_URL", "UV_DEFAULT_INDEX"} <= carried.keys() else [PYPI_SIMPLE_ENDPOINT]
    registry = _npm_registry(env)
    apt = apt_sources(root)
    destinations = [
        *_destinations([*indexes, *(each.uri for each in apt)], Origin.CONFIGURED),
        *_destinations(
            [*words(carried.get("PIP_FIND_LINKS")), *carried.get("UV_FIND_LINKS", "").split(",")], Origin.CONFIGURED
        ),
        *_destinations([*defaults, *([registry] if registry else [])], Origin.DEFAULT),
    ]
    return ClientSettings(
        env=carried | ({"npm_config_registry": registry} if registry else {}),
        destinations=tuple({(d.host, d.port): d for d in reversed(destinations)}.values()),
        indexes=tuple(dict.fromkeys([*indexes, *defaults])),
        mounts=tuple(local.mounts),
        ca_bundle=_ca_bundle(env, pip),
        apt=apt,
        apt_options=_apt_options(),
        notes=tuple(local.notes),
    )


_INDEX_VARIABLES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX")


def _pip_env(pip: Mapping[str, str], local: LocalIndexes) -> dict[str, str]:
    env = {variable: pip[option] for option, variable in _PIP_CARRIED.items() if option in pip}
    index = [local.index(each) if local_path(each) else each for each in words(pip.get("index-url"))]
    extra = [local.index(each) if local_path(each) else each for each in words(pip.get("extra-index-url"))]
    links = [local.wheels(each) if local_path(each) else each for each in words(pip.get("find-links"))]
    for variable, values in (("PIP_INDEX_URL", index[:1]), ("PIP_EXTRA_INDEX_URL", extra), ("PIP_FIND_LINKS", links)):
        kept = [each for each in values if each]
        if kept:
            env[variable] = " ".join(kept)
    return env


def _uv_env(uv: UvSettings, pip: Mapping[str, str], local: LocalIndexes) -> dict[str, str]:
    """uv's own settings. uv does not read pip's, and on this machine it does without them; but where pip has been
    given a mirror, the default index is likely out of reach, so pip's remote indexes stand in for what uv has not."""
    env = dict(uv.variables)
    remote = {
        option: [each for each in words(pip.get(option)) if each.startswith(("http://", "https://"))]
        for option in ("index-url", "extra-index-url")
    }
    default = uv.default_index or next(iter(remote["index-url"]), None)
    if default and local_path(default):
        default = local.index(default)
    if default:
        env["UV_DEFAULT_INDEX"] = default
    indexes = []
    for each in uv.indexes:
        name, equals, url = each.rpartition("=") if not each.startswith(("http", "file", "/")) else ("", "", each)
        carried = local.index(url) if local_path(url) else url
        indexes += [f"{name}{equals}{carried}"] if carried else []
    if not uv.indexes and remote["extra-index-url"]:
        indexes = remote["extra-index-url"]
        env.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")  # pip's own: the best version of all indexes
    if indexes:
        env["UV_INDEX"] = " ".join(indexes)
    links = [local.wheels(each) if local_path(each) else each for each in uv.find_links]
    if any(links):
        env["UV_FIND_LINKS"] = ",".join(each for each in links if each)
    return env


def _destinations(urls: list[str], origin: Origin) -> Iterator[Destination]:
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme in USUAL_PORTS and parts.hostname:
            yield Destination(parts.hostname.rstrip("."), parts.port or USUAL_PORTS[parts.scheme], origin)


def _npm_registry(env: Mapping[str, str]) -> str | None:
    """npm's registry as npm itself says it; None where npm is not installed or does not say."""
    npm = shutil.which("npm", path=env.get("PATH"))
    if npm is None:
        return None
    try:
        done = subprocess.run(
            [npm, "config", "get", "registry"],
            cwd="/",  # not a project, whose own configuration would count
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_CLIENT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    url = done.stdout.strip()
    return url if done.returncode == 0 and urlsplit(url).scheme in USUAL_PORTS else None


def _ca_bundle(env: Mapping[str, str], pip: Mapping[str, str]) -> Path | None:
    paths = ssl.get_default_verify_paths()
    candidates = [*(env.get(name) for name in _BUNDLE_VARIABLES), pip.get("cert"), paths.cafile, paths.openssl_cafile]
    candidates.append("/etc/ssl/certs/ca-certificates.crt")  # an interpreter that was built elsewhere knows another
    for each in candidates:
        if each and Path(each).is_file() and 0 < Path(each).stat().st_size < MAX_BUNDLE_BYTES:
            return Path(each)
    return None


def _apt_options() -> tuple[str, ...]:
    tool = shutil.which("apt-config")
    if tool is None:
        return ()
    done = subprocess.run([tool, "dump"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return tuple(line for line in done.stdout.splitlines() if line.split(" ", 1)[0] in _APT_CARRIED)


def learn_file_hosts(index: str, ca_bundle: Path | None) -> tuple[Destination, ...]:
    """Where a Python index keeps its files: the hosts of the file URLs on one project's page.

    Raises IndexUnreachableError, whose text has no credentials.
    """
    host = urlsplit(index).hostname or ""
    session = requests.Session()
    if ca_bundle is not None:
        session.verify = str(ca_bundle)
    try:
        with PyPISimple(index, session=session) as client:
            page = client.get_project_page(_PROBE_PROJECT, timeout=_PROBE_TIMEOUT_S)
    except NoSuchProjectError as error:
        raise IndexUnreachableError(f"the package index {host} has no page for {_PROBE_PROJECT}") from error
    except (requests.RequestException, UnsupportedContentTypeError, ValueError) as error:
        what = f"the package index {host} cannot be asked where it keeps its files: {type(error).__name__}"
        raise IndexUnreachableError(what) from error
    sites = {f"{urlsplit(each.url).scheme}://{urlsplit(each.url).netloc.rpartition('@')[2]}" for each in page.packages}
    # An index in a private network keeps its files there, too; a public one has no business to lead into one.
    origin = Origin.DEFAULT if _is_private(host) else Origin.LEARNT
    return tuple(_destinations(sorted(sites), origin))


class IndexUnreachableError(Exception):
    """A Python index did not say where it keeps its files; the message is for the operator."""


def _is_private(host: str) -> bool:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False  # behind an upstream proxy names need not resolve here
    return all(ipaddress.ip_address(str(each[4][0]).partition("%")[0]).is_private for each in found)
