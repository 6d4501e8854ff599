"""How the host itself reaches the network: directly, or through the proxies that its environment names."""

from __future__ import annotations

import base64
import socket
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from ratchet.errors import MachineError

CONNECT_TIMEOUT_S = 15.0
RETRY_DELAYS_S = (0.2, 1.0, 3.0)
MAX_ANSWER_BYTES = 64 << 10


class UpstreamError(Exception):
    """The server could not be reached; `refused`: because its name resolves to addresses that are not permitted."""

    def __init__(self, what: str, *, refused: bool = False) -> None:
        super().__init__(what)
        self.refused = refused


@dataclass(frozen=True)
class Upstream:
    """Proxies by scheme ("http" for plain requests, "https" for tunnels), and the hosts that bypass them."""

    proxies: Mapping[str, str]
    no_proxy: str = ""

    def connect(self, host: str, port: int, permitted: Callable[[str], bool]) -> socket.socket:
        """A connection on which to speak to host:port. Addresses that are not `permitted` are never connected to;
        behind an upstream proxy that is the proxy's to decide."""
        scheme = "http" if port == 80 else "https"
        proxy = self._proxy(scheme, host, port)
        if proxy is None:
            return _connect(host, port, permitted)
        connection = _connect(str(proxy.hostname), proxy.port or 80, lambda _: True)
        if scheme == "https":
            try:
                _open_tunnel(connection, f"{host}:{port}", _credentials(proxy))
            except OSError as error:
                connection.close()
                raise UpstreamError(f"the upstream proxy gave no tunnel to {host}:{port}: {error}") from error
        return connection

    def request_target(self, host: str, port: int, origin_form: str) -> str:
        """The target of a plain request: a proxy gets the absolute URI."""
        if port == 80 and self._proxy("http", host, port) is not None:
            return f"http://{host}{origin_form}"
        return origin_form

    def proxy_headers(self, host: str, port: int) -> Mapping[str, str]:
        proxy = self._proxy("http", host, port) if port == 80 else None
        return _credentials(proxy) if proxy is not None else {}

    def _proxy(self, scheme: str, host: str, port: int) -> SplitResult | None:
        url = self.proxies.get(scheme)
        if not url or urllib.request.proxy_bypass_environment(f"{host}:{port}", {"no": self.no_proxy}):  # type: ignore[attr-defined]
            return None
        return urlsplit(url)


def from_environment(env: Mapping[str, str]) -> Upstream:
    """The upstream that `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy` name, as curl reads them."""
    proxies = {}
    for scheme in ("http", "https"):
        # HTTP_PROXY in capitals is left out, as in curl: a CGI client can set it with a header.
        names = [f"{scheme}_proxy", *(["HTTPS_PROXY"] if scheme == "https" else []), "all_proxy", "ALL_PROXY"]
        url = next((env[name] for name in names if env.get(name)), "")
        if not url:
            continue
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            raise MachineError(
                f"{scheme}_proxy names a {parts.scheme or 'nameless'} proxy, and only http:// proxies are supported",
                remedy=f"set {scheme}_proxy to an http:// URL, or unset it",
            )
        proxies[scheme] = parts.geturl()
    return Upstream(proxies, env.get("no_proxy") or env.get("NO_PROXY") or "")


def _connect(host: str, port: int, permitted: Callable[[str], bool]) -> socket.socket:
    problem: OSError | None = None
    for delay_s in (*RETRY_DELAYS_S, None):
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            problem = error
        else:
            allowed = [each for each in found if permitted(str(each[4][0]))]
            if not allowed:
                raise UpstreamError(f"{host} resolves to {found[0][4][0]}, which it may not", refused=True)
            for family, kind, protocol, _, address in allowed:
                connection = socket.socket(family, kind, protocol)
                connection.settimeout(CONNECT_TIMEOUT_S)
                try:
                    connection.connect(address)
                    return connection
                except OSError as error:
                    connection.close()
                    problem = error
        if delay_s is not None:
            time.sleep(delay_s)
    raise UpstreamError(f"{host}:{port} cannot be reached: {problem}")


def _credentials(proxy: SplitResult) -> Mapping[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def _open_tunnel(connection: socket.socket, authority: str, headers: Mapping[str, str]) -> None:
    extra = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    connection.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{extra}\r\n".encode("ascii"))
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)  # one by one: what follows the head belongs to the tunnel
        if not byte or len(answer) > MAX_ANSWER_BYTES:
            raise ConnectionError("it closed the connection")
        answer += byte
    words = answer.split(None, 2)
    if len(words) < 2 or not words[1].startswith(b"2"):
        raise ConnectionError(f"it answered {answer.splitlines()[0][:100].decode('latin-1')}")
