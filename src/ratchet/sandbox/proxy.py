"""A forward HTTP proxy that reaches only listed destinations, and logs every request.

It serves `CONNECT` (a tunnel, for TLS) and plain `GET`/`HEAD` of absolute URIs (for apt). Whatever connects to it is
hostile: heads are limited in size and time, names match exactly, and what a name resolves to is checked as well.
A refusal answers 403 and says what was refused and how to allow it.

RFC 9110 section 7.6 (forwarding) and RFC 9112 section 6 (where a body ends) say what a proxy has to do.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from ratchet.sandbox.http_head import BadMessageError, Reader, RequestHead, relay_body, response_head
from ratchet.sandbox.upstream import Upstream, UpstreamError

HEAD_TIMEOUT_S = 60.0  # for a client to send its request, and between two requests of one connection
IDLE_TIMEOUT_S = 300.0  # for a tunnel or a response in which nothing moves
MAX_CONNECTIONS = 128  # of one sandbox, at once; further ones wait
MAX_REQUESTS = 50_000  # of one sandbox, in one start of it: each is a line in the log, which no limit of it bounds
CHUNK_BYTES = 256 << 10


class Origin(StrEnum):
    """Who named a destination; decides which addresses its name may resolve to."""

    CONFIGURED = "configured"  # the operator, in a client's configuration: any address, loopback too
    DEFAULT = "default"  # a client's built-in default: public and private addresses
    LEARNT = "learnt"  # an index, on its pages: public addresses only


@dataclass(frozen=True)
class Destination:
    """A host name (lower case, exact; never a pattern) and a port that sandboxes may reach."""

    host: str
    port: int
    origin: Origin


@dataclass(frozen=True)
class ProxyRequest:
    """One request to the proxy, logged when it has ended. `path` is empty for tunnels and never has a query.
    `why` says why it was refused or failed, and is empty otherwise."""

    time: float
    sandbox: str
    method: str
    host: str
    port: int
    path: str
    allowed: bool
    why: str
    bytes_up: int
    bytes_down: int
    seconds: float


Destinations = Callable[[], Mapping[tuple[str, int], Destination]]


class RefusedError(Exception):
    """The request is not allowed; the message is for the client."""


class Proxy:
    """Serves listening sockets. `destinations` is asked at every request, `log` gets every request and must not raise.

    Both are called from the threads that serve connections.
    """

    def __init__(self, destinations: Destinations, upstream: Upstream, log: Callable[[ProxyRequest], None]) -> None:
        self._destinations = destinations
        self._upstream = upstream
        self._log = log

    @contextlib.contextmanager
    def serving(self, listener: socket.socket, sandbox: str) -> Iterator[None]:
        """Accept connections from `listener` until the context ends; then every connection is closed."""
        service = _Service(self, listener, sandbox)
        thread = threading.Thread(target=service.accept, name=f"proxy-{sandbox}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            service.stop()
            thread.join(timeout=5)

    def check(self, host: str, port: int) -> Destination:
        """The destination that was asked for, or RefusedError."""
        destination = self._destinations().get((host, port))
        if destination is None:
            raise RefusedError(f"{host}:{port} is not among the hosts that this sandbox may reach")
        return destination

    def connect(self, destination: Destination) -> socket.socket:
        return self._upstream.connect(destination.host, destination.port, lambda ip: permitted(destination, ip))

    @property
    def upstream(self) -> Upstream:
        return self._upstream

    def record(self, request: ProxyRequest) -> None:
        self._log(request)


def permitted(destination: Destination, address: str) -> bool:
    """Whether a destination may live at an address. A name that an index gave must not lead into the operator's own
    network (server-side request forgery), and only names that the operator wrote down lead to this machine."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if ip.is_multicast or ip.is_unspecified or ip.is_link_local:
        return False
    if ip.is_loopback:
        return destination.origin is Origin.CONFIGURED
    return destination.origin is not Origin.LEARNT or ip.is_global


class _Service:
    """The connections of one sandbox."""

    def __init__(self, proxy: Proxy, listener: socket.socket, sandbox: str) -> None:
        self._proxy = proxy
        self._listener = listener
        self._listener.settimeout(0.5)  # to notice the end: closing a socket wakes no thread that waits in accept
        self._sandbox = sandbox
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._requests = _Requests()

    def accept(self) -> None:
        while not self._stopped.is_set():
            if not self._slots.acquire(timeout=0.5):
                continue
            try:
                client, _ = self._listener.accept()
            except OSError as error:
                self._slots.release()
                if not isinstance(error, TimeoutError):
                    self._stopped.wait(0.1)
                continue
            if self._requests.spent:
                client.close()
                self._slots.release()
                self._stopped.wait(0.1)
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        self._listener.close()
        with self._lock:
            sockets = list(self._sockets)
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def _tracked(self, connection: socket.socket) -> Iterator[socket.socket]:
        with self._lock:
            self._sockets.add(connection)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield connection
        finally:
            with self._lock:
                self._sockets.discard(connection)
            connection.close()

    def _serve(self, client: socket.socket) -> None:
        try:
            with self._tracked(client), contextlib.suppress(OSError):  # the client went away: nothing to tell it
                Conversation(self._proxy, self._sandbox, client, self._tracked, self._stopped, self._requests).run()
        finally:
            self._slots.release()


class _Requests:
    """Counts the requests of one sandbox."""

    def __init__(self) -> None:
        self._made = 0
        self._lock = threading.Lock()

    @property
    def spent(self) -> bool:
        return self._made >= MAX_REQUESTS

    def next(self) -> int:
        with self._lock:
            self._made += 1
            return self._made


Tracked = Callable[[socket.socket], contextlib.AbstractContextManager[socket.socket]]


class Conversation:
    """One client connection: requests one after another, until a tunnel or an error ends it."""

    def __init__(
        self,
        proxy: Proxy,
        sandbox: str,
        client: socket.socket,
        tracked: Tracked,
        stopped: threading.Event,
        requests: _Requests,
    ) -> None:
        self._proxy = proxy
        self._sandbox = sandbox
        self._client = client
        self._tracked = tracked
        self._stopped = stopped
        self._requests = requests
        self._reader = Reader(client)
        self._kept: tuple[Destination, socket.socket] | None = None  # the last server, when it can be asked again
        self._stack = contextlib.ExitStack()

    def run(self) -> None:
        with self._stack:
            self._client.settimeout(HEAD_TIMEOUT_S)
            while not self._stopped.is_set() and not self._requests.spent and self._one():
                self._client.settimeout(HEAD_TIMEOUT_S)

    def _one(self) -> bool:
        """Serve one request; True when the connection can carry another."""
        entry = _Entry(self._sandbox)
        try:
            head = self._reader.request_head()
            if head is None:
                return False
            entry.method = head.method
            self._client.settimeout(IDLE_TIMEOUT_S)
            if head.method == "CONNECT":
                self._tunnel(head, entry)
                return False
            return self._forward(head, entry)
        except BadMessageError as error:
            self._answer(entry, 400, "Bad Request", str(error))
        except RefusedError as error:
            self._answer(entry, 403, "Forbidden", str(error))
        except UpstreamError as error:
            entry.allowed = entry.allowed and not error.refused
            self._answer(entry, *((403, "Forbidden") if error.refused else (502, "Bad Gateway")), str(error))
        except OSError as error:
            entry.why = entry.why or f"the connection broke: {error}"
        finally:
            if entry.method:
                self._record(entry)
        return False

    def _record(self, entry: _Entry) -> None:
        number = self._requests.next()
        if number == MAX_REQUESTS:
            entry.why = f"the sandbox has made {MAX_REQUESTS} requests, and no more are served. {entry.why}".strip()
        if number <= MAX_REQUESTS:
            self._proxy.record(entry.finished())

    def _answer(self, entry: _Entry, status: int, phrase: str, why: str) -> None:
        entry.method = entry.method or "-"
        entry.why = why
        body = f"ratchet: {why}\n"
        if status == 403:
            body += f"remedy: allow it with --allow-host {entry.host}:{entry.port}\n"
        data = body.encode("utf-8", "replace")
        reason = re.sub(r"[^ -~]", "?", f"{phrase} by ratchet: {why}")[
            :200
        ]  # pip and git show the reason, never the body
        head = (
            f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        )
        with contextlib.suppress(OSError):
            self._client.sendall(head.encode("ascii") + (b"" if entry.method == "HEAD" else data))
            # A close with unread input resets the connection, and the client may lose the answer: drain a little.
            self._client.shutdown(socket.SHUT_WR)
            self._client.settimeout(1)
            for _ in range(16):
                if not self._client.recv(CHUNK_BYTES):
                    break

    def _tunnel(self, head: RequestHead, entry: _Entry) -> None:
        host, port = split_authority(head.target)
        entry.host, entry.port = host, port
        destination = self._proxy.check(host, port)
        entry.allowed = True
        with self._tracked(self._proxy.connect(destination)) as server:
            server.settimeout(IDLE_TIMEOUT_S)
            self._client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            early = self._reader.take()
            server.sendall(early)
            entry.bytes_up += len(early)

            def upload() -> None:
                entry.bytes_up += pump(self._client, server)

            thread = threading.Thread(target=upload, daemon=True)
            thread.start()
            entry.bytes_down += pump(server, self._client)
            thread.join(timeout=IDLE_TIMEOUT_S)
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)  # ends the upload where the client does not

    def _forward(self, head: RequestHead, entry: _Entry) -> bool:
        try:
            parts = urlsplit(head.target)
        except ValueError as error:
            raise BadMessageError("not a URI") from error
        if parts.scheme != "http" or not parts.hostname:
            raise BadMessageError("the proxy serves CONNECT, and GET of http:// URIs")
        host, port = split_authority(parts.netloc.rpartition("@")[2], default_port=80)
        entry.host, entry.port, entry.path = host, port, parts.path[:500]
        if head.method not in {"GET", "HEAD"}:
            raise RefusedError(f"{head.method} without TLS")
        if head.has_body:
            raise BadMessageError(f"a {head.method} with a body")
        destination = self._proxy.check(host, port)
        entry.allowed = True
        origin_form = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        message = head.forwarded(
            self._proxy.upstream.request_target(host, port, origin_form),
            host if port == 80 else f"{host}:{port}",
            self._proxy.upstream.proxy_headers(host, port),
        )
        server, reader, status = self._ask(destination, message)
        keep = self._relay(head, reader, status, entry)
        entry.bytes_up += len(message)
        self._kept = (destination, server) if keep and reader.empty else None
        return keep

    def _ask(self, destination: Destination, message: bytes) -> tuple[socket.socket, Reader, bytes]:
        """Send a request and read the head of the response; a kept connection that has died meanwhile is replaced."""
        if self._kept is not None and self._kept[0] == destination:
            server = self._kept[1]
            with contextlib.suppress(OSError, BadMessageError):
                server.sendall(message)
                reader = Reader(server)
                return server, reader, reader.head()
        server = self._stack.enter_context(self._tracked(self._proxy.connect(destination)))
        server.settimeout(IDLE_TIMEOUT_S)
        try:
            server.sendall(message)
            reader = Reader(server)
            return server, reader, reader.head()
        except (OSError, BadMessageError) as error:
            raise UpstreamError(f"{destination.host} gave no answer: {error}") from error

    def _relay(self, request: RequestHead, reader: Reader, raw: bytes, entry: _Entry) -> bool:
        """Pass a response on; True when both connections can carry another one."""
        try:
            response = response_head(raw, request)
            while response.informational:
                self._client.sendall(response.forwarded())
                response = response_head(reader.head(), request)
        except BadMessageError as error:
            raise UpstreamError(f"{entry.host} gave {error}") from error
        self._client.sendall(response.forwarded())
        try:
            for chunk in relay_body(reader, response):
                self._client.sendall(chunk)
                entry.bytes_down += len(chunk)
        except BadMessageError as error:  # too late for an answer of our own
            raise ConnectionError(str(error)) from error
        return response.keeps_alive


@dataclass
class _Entry:
    """The log entry of a request that is being served."""

    sandbox: str
    method: str = ""
    host: str = ""
    port: int = 0
    path: str = ""
    allowed: bool = False
    why: str = ""
    bytes_up: int = 0
    bytes_down: int = 0

    def __post_init__(self) -> None:
        self._time = time.time()
        self._begin = time.monotonic()

    def finished(self) -> ProxyRequest:
        return ProxyRequest(
            time=self._time,
            sandbox=self.sandbox,
            method=self.method,
            host=self.host,
            port=self.port,
            path=self.path,
            allowed=self.allowed,
            why=self.why,
            bytes_up=self.bytes_up,
            bytes_down=self.bytes_down,
            seconds=round(time.monotonic() - self._begin, 4),
        )


_AUTHORITY = re.compile(
    r"(?:\[(?P<v6>[0-9a-fA-F:.]{2,45})\]|(?P<name>[A-Za-z0-9._-]{1,253}))(?::(?P<port>[0-9]{1,5}))?"
)


def split_authority(text: str, default_port: int | None = None) -> tuple[str, int]:
    """Host (lower case, no final dot) and port of `host:port`. BadMessageError where it is anything else."""
    match = _AUTHORITY.fullmatch(text)
    port = int(match["port"]) if match and match["port"] else default_port
    if match is None or port is None or not 0 < port < 65536:
        raise BadMessageError("not a host and a port")
    return (match["v6"] or match["name"]).lower().rstrip("."), port


def pump(source: socket.socket, sink: socket.socket) -> int:
    """Copy until `source` ends, then end `sink`; the bytes copied. A broken connection ends it as well."""
    copied = 0
    buffer = memoryview(bytearray(CHUNK_BYTES))
    try:
        while size := source.recv_into(buffer):
            sink.sendall(buffer[:size])
            copied += size
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
    return copied
