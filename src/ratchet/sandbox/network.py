"""The network of the install phase: no interface but loopback, and on it the allowlist proxy.

A socket belongs to the network namespace that it was made in, wherever it is used. So a thread of ours enters the
sandbox's namespace, opens a listening socket on 127.0.0.1 there, and leaves; the proxy then serves that socket from the
host. Nothing runs inside the sandbox for it, and no program of the base is needed.

Everything that sandboxes need to use it (variables, CA bundle, apt configuration) comes with it, and is there in the
install phase only: no recipe and no export sees it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ratchet.errors import SandboxError, UsageError
from ratchet.sandbox.clients import ClientSettings, IndexUnreachableError, learn_file_hosts
from ratchet.sandbox.http_head import BadMessageError
from ratchet.sandbox.local_indexes import SETTINGS
from ratchet.sandbox.proxy import Destination, Origin, Proxy, ProxyRequest, split_authority
from ratchet.sandbox.upstream import from_environment

PORT = 3128
CACHE = "/var/cache/ratchet"  # where the sandbox has the download cache of its install

_ASK_AGAIN_S = 30.0
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1

# apt keeps lists, archives and its package cache in the download cache: attempts share them, and no layer grows by
# them. What says which packages are installed stays in the sandbox. `_apt` could not write to the cache, and needs
# no separation from a root that is none.
_APT_CONF = """\
Acquire::http::Proxy "http://127.0.0.1:{port}";
Acquire::https::Proxy "http://127.0.0.1:{port}";
Acquire::https::CAInfo "{settings}/ca.pem";
Acquire::Retries "3";
Acquire::Languages "none";
APT::Sandbox::User "root";
APT::Keep-Downloaded-Packages "true";
Binary::apt::APT::Keep-Downloaded-Packages "true";
Dir::Cache "{cache}";
Dir::Cache::archives "apt-archives/";
Dir::State "{cache}";
Dir::State::lists "apt-lists/";
Dir::State::extended_states "/var/lib/apt/extended_states";
"""


class AllowlistNetwork:
    """Gives sandboxes a way to the package registries that this machine's own clients use, and to nothing else.

    `home` is where the files that sandboxes see are kept. `extra_hosts` are further `HOST` (both usual ports) or
    `HOST:PORT`. `log` gets every request and `on_event` what the operator should know; both are called from other
    threads and must not raise.
    """

    def __init__(
        self,
        clients: ClientSettings,
        home: Path,
        extra_hosts: Sequence[str] = (),
        *,
        log: Callable[[ProxyRequest], None] = lambda _: None,
        on_event: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._clients = clients
        self._home = home
        self._on_event = on_event
        self._learning = threading.Lock()
        self._unasked = list(clients.indexes)
        self._ask_after = 0.0
        self._destinations = {(d.host, d.port): d for d in (*clients.destinations, *_extra(extra_hosts))}
        self._proxy = Proxy(self._known, from_environment(os.environ), log)

    @contextlib.contextmanager
    def attach(self, pid: int, sandbox: str) -> Iterator[None]:
        """Serve the network namespace of the process `pid` until the context ends."""
        listener = listen_in_namespace(pid, PORT)
        with self._proxy.serving(listener, sandbox):
            yield

    def env(self) -> Mapping[str, str]:
        """What every command in the install phase gets. May hold credentials of an index: never log or keep it."""
        proxy = f"http://127.0.0.1:{PORT}"
        ca = f"{SETTINGS}/ca.pem"
        variables = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), proxy)
        # A mirror on the operator's own loopback is reached through the proxy: its loopback is not the sandbox's.
        local = [host for host in ("localhost", "127.0.0.1", "::1") if not self._reaches(host)]
        variables |= dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(local))
        if self._clients.ca_bundle is not None:
            variables |= dict.fromkeys(
                (
                    "SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
                    "NODE_EXTRA_CA_CERTS", "npm_config_cafile", "CARGO_HTTP_CAINFO",
                ),
                ca,
            )  # fmt: skip
        return {
            **variables,
            "APT_CONFIG": f"{SETTINGS}/apt.conf",
            "UV_CACHE_DIR": f"{CACHE}/uv",
            "UV_LINK_MODE": "copy",  # the cache is another file system, and a link into it would dangle later
            "UV_HTTP_TIMEOUT": "120",
            "PIP_CACHE_DIR": f"{CACHE}/pip",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "npm_config_cache": f"{CACHE}/npm",
            **self._clients.env,
        }

    def mounts(self) -> Sequence[tuple[str, str]]:
        """Host path and sandbox path of what is bound read-only. The first holds the mount points of the others."""
        return [(str(self._settings()), SETTINGS), *self._clients.mounts]

    def _settings(self) -> Path:
        """The directory that sandboxes see at SETTINGS, named by its content; made when it is not there."""
        options = "".join(f"{line}\n" for line in self._clients.apt_options)
        files = {"apt.conf": (_APT_CONF.format(port=PORT, settings=SETTINGS, cache=CACHE) + options).encode()}
        if self._clients.ca_bundle is not None:
            files["ca.pem"] = self._clients.ca_bundle.read_bytes()
        else:
            files["apt.conf"] = b"".join(x for x in files["apt.conf"].splitlines(True) if b"CAInfo" not in x)
        points = [Path(inside).name for _, inside in self._clients.mounts]
        digest = hashlib.sha256(repr((sorted(files.items()), points)).encode()).hexdigest()[:16]
        target = self._home / "network" / digest
        if target.is_dir():
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=".new-"))
        for name, data in files.items():
            (scratch / name).write_bytes(data)
            (scratch / name).chmod(0o644)
        for name in points:
            (scratch / name).mkdir()
        scratch.chmod(0o755)
        try:
            scratch.rename(target)
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
            for each in scratch.iterdir():  # another process was first, with the same content
                each.rmdir() if each.is_dir() else each.unlink()
            scratch.rmdir()
        return target

    def _reaches(self, host: str) -> bool:
        return any(name == host for name, _ in self._destinations)

    def _known(self) -> Mapping[tuple[str, int], Destination]:
        """All destinations. The first request waits until the indexes have said where they keep their files; one
        that does not answer is told to the operator and asked again later."""
        if self._unasked and time.monotonic() >= self._ask_after:
            with self._learning:
                for index in [each for each in self._unasked if time.monotonic() >= self._ask_after]:
                    try:
                        learnt = learn_file_hosts(index, self._clients.ca_bundle)
                    except IndexUnreachableError as error:
                        self._on_event(str(error))
                        continue
                    self._unasked.remove(index)
                    self._destinations = {(d.host, d.port): d for d in learnt} | self._destinations
                self._ask_after = time.monotonic() + _ASK_AGAIN_S
        return self._destinations


def _extra(hosts: Sequence[str]) -> Iterator[Destination]:
    for text in hosts:
        for default_port in (443, 80):
            try:
                host, port = split_authority(text, default_port)
            except BadMessageError:
                raise UsageError(f"{text!r} is no host", remedy="give HOST or HOST:PORT, without a scheme") from None
            yield Destination(host, port, Origin.CONFIGURED)


def listen_in_namespace(pid: int, port: int) -> socket.socket:
    """A socket that listens on 127.0.0.1:port in the network namespace of the process `pid`.

    A thread enters the namespace for it and ends there, so no other thread is ever seen outside its own.
    """
    result: list[socket.socket | OSError] = []

    def enter() -> None:
        try:
            result.append(_enter_and_listen(pid, port))
        except OSError as error:
            result.append(error)

    thread = threading.Thread(target=enter, name=f"netns-{pid}")
    thread.start()
    thread.join()
    if isinstance(result[0], OSError):
        raise SandboxError(
            f"cannot open the install network inside the sandbox: {result[0]}",
            remedy="run as root; `ratchet doctor` says what this machine lacks",
        ) from result[0]
    return result[0]


def _enter_and_listen(pid: int, port: int) -> socket.socket:
    with Path(f"/proc/{pid}/ns/net").open("rb") as namespace:
        if os.fstat(namespace.fileno()).st_ino == Path("/proc/thread-self/ns/net").stat().st_ino:
            raise OSError(errno.EPERM, "the process shares the host's network")
        libc = ctypes.CDLL(None, use_errno=True)  # os.setns is there from Python 3.12 on
        if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack_from("h", fcntl.ioctl(listener, _SIOCGIFFLAGS, request), 16)
        if not flags & _IFF_UP:
            fcntl.ioctl(listener, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener
