"""The install network: what passes the proxy, what does not, and what is written down about it."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ratchet.errors import SandboxError, UsageError
from ratchet.records import Network, SandboxSpec
from ratchet.sandbox import proxy as proxy_module
from ratchet.sandbox.clients import ClientSettings
from ratchet.sandbox.network import PORT, AllowlistNetwork, listen_in_namespace
from ratchet.sandbox.oci import OciBackend
from ratchet.sandbox.proxy import Destination, Origin, Proxy, ProxyRequest, permitted
from ratchet.sandbox.upstream import Upstream, from_environment

LARGE = os.urandom(1 << 20) * 8


class OriginHandler(BaseHTTPRequestHandler):
    """An origin with every way to end a body."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        if self.path == "/chunked":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nX-Trailer: 1\r\n\r\n")
        elif self.path == "/until-close":
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"until close")
            self.close_connection = True
        else:
            body = {"/large": LARGE, "/host": self.headers["Host"].encode()}.get(self.path, self.path.encode())
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def origin() -> Iterator[int]:
    with serving(OriginHandler) as port:
        yield port


class Client:
    """Speaks to a proxy that lets `localhost:origin` through, byte by byte."""

    def __init__(self, port: int, requests: list[ProxyRequest]) -> None:
        self.port = port
        self.requests = requests

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def exchange(self, data: bytes) -> bytes:
        """Send, end sending, and read to the end."""
        with self.connect() as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))

    def get(self, url: str) -> bytes:
        return self.exchange(f"GET {url} HTTP/1.1\r\nHost: ignored\r\n\r\n".encode())

    def logged(self, count: int = 1) -> list[ProxyRequest]:
        """The log, once it has `count` entries: an entry is written after its answer."""
        deadline = time.monotonic() + 5
        while len(self.requests) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.requests


@pytest.fixture
def proxied(origin: int) -> Iterator[Client]:
    with proxy_for([Destination("localhost", origin, Origin.CONFIGURED)]) as client:
        yield client


@contextlib.contextmanager
def proxy_for(destinations: list[Destination], upstream: Upstream | None = None) -> Iterator[Client]:
    requests: list[ProxyRequest] = []
    known = {(each.host, each.port): each for each in destinations}
    proxy = Proxy(lambda: known, upstream or Upstream({}), requests.append)
    listener = socket.create_server(("127.0.0.1", 0))
    with proxy.serving(listener, "box"):
        yield Client(listener.getsockname()[1], requests)


@pytest.mark.parametrize(("path", "body"), [("/plain", b"/plain"), ("/large", LARGE), ("/until-close", b"until close")])
def test_a_body_arrives_whole(proxied: Client, origin: int, path: str, body: bytes) -> None:
    head, _, received = proxied.get(f"http://localhost:{origin}{path}").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert received == body


def test_a_chunked_body_is_passed_on_as_it_is(proxied: Client, origin: int) -> None:
    answer = proxied.get(f"http://localhost:{origin}/chunked")
    assert answer.endswith(b"\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nX-Trailer: 1\r\n\r\n")


def test_pipelined_requests_are_answered_in_order_on_one_connection(proxied: Client, origin: int) -> None:
    asked = b"".join(f"GET http://localhost:{origin}/{n} HTTP/1.1\r\nHost: h\r\n\r\n".encode() for n in range(20))
    answers = proxied.exchange(asked).split(b"HTTP/1.1 200 OK")[1:]
    assert [answer.rpartition(b"\r\n\r\n")[2] for answer in answers] == [f"/{n}".encode() for n in range(20)]


def test_the_origin_sees_the_host_of_the_uri_and_not_of_the_header(proxied: Client, origin: int) -> None:
    assert proxied.get(f"http://localhost:{origin}/host").endswith(f"\r\n\r\nlocalhost:{origin}".encode())


def test_a_tunnel_carries_both_directions(proxied: Client, origin: int) -> None:
    with proxied.connect() as connection:
        connection.sendall(f"CONNECT localhost:{origin} HTTP/1.1\r\n\r\n".encode())
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"GET /inside HTTP/1.0\r\nHost: x\r\n\r\n")
        assert b"".join(iter(lambda: connection.recv(1 << 16), b"")).endswith(b"/inside")
    (entry,) = proxied.logged()
    assert (entry.method, entry.host, entry.port, entry.allowed) == ("CONNECT", "localhost", origin, True)
    assert entry.bytes_up == 33
    assert entry.bytes_down > len("/inside")


def test_a_request_is_logged_without_its_query(proxied: Client, origin: int) -> None:
    proxied.get(f"http://user:secret@localhost:{origin}/path?token=secret")
    (entry,) = proxied.logged()
    assert (entry.sandbox, entry.method, entry.path, entry.allowed) == ("box", "GET", "/path", True)
    assert "secret" not in repr(entry)


@pytest.mark.parametrize(
    "request_line",
    [
        "CONNECT elsewhere.invalid:443",
        "CONNECT 127.0.0.1:{origin}",
        "CONNECT [::1]:{origin}",
        "CONNECT localhost:1",
        "CONNECT sub.localhost:{origin}",
        "GET http://elsewhere.invalid/",
        "GET http://localhost/",
        "GET http://localhost:{origin}@elsewhere.invalid/",
        "POST http://localhost:{origin}/",
    ],
)
def test_what_is_not_listed_is_refused_with_a_remedy_and_logged(
    proxied: Client, origin: int, request_line: str
) -> None:
    answer = proxied.exchange(f"{request_line.format(origin=origin)} HTTP/1.1\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"--allow-host" in answer
    (entry,) = proxied.logged()
    assert not entry.allowed
    assert entry.why


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"CONNECT localhost HTTP/1.1\r\n\r\n",
        b"CONNECT localhost:99999 HTTP/1.1\r\n\r\n",
        b"GET http://localhost/ HTTP/1.1\r\nA B: c\r\n\r\n",
        b"GET http://localhost/ HTTP/1.1\r\nX: a\nHost: b\r\n\r\n",
        b"GET http://[::1/ HTTP/1.1\r\n\r\n",
        b"GET http://localhost:x/ HTTP/1.1\r\n\r\n",
        b"GET http://localhost/ HTTP/1.1\r\n" + b"X: " + b"a" * 70_000 + b"\r\n\r\n",
        b"a" * 200_000,
    ],
)
def test_garbage_is_answered_and_does_not_end_the_service(proxied: Client, origin: int, garbage: bytes) -> None:
    assert proxied.exchange(garbage).startswith(b"HTTP/1.1 400 ")
    assert proxied.get(f"http://localhost:{origin}/after").endswith(b"/after")


def test_a_host_that_an_index_named_must_not_lead_to_this_machine(origin: int) -> None:
    with proxy_for([Destination("localhost", origin, Origin.LEARNT)]) as client:
        assert client.get(f"http://localhost:{origin}/").startswith(b"HTTP/1.1 403 ")
        assert not client.logged()[0].allowed


@pytest.mark.parametrize(
    ("origin_kind", "address", "expected"),
    [
        (Origin.LEARNT, "8.8.8.8", True),
        (Origin.LEARNT, "10.1.2.3", False),
        (Origin.LEARNT, "fd00::1", False),
        (Origin.LEARNT, "100.100.100.200", False),
        (Origin.DEFAULT, "10.1.2.3", True),
        (Origin.DEFAULT, "127.0.0.1", False),
        (Origin.DEFAULT, "::ffff:127.0.0.1", False),
        (Origin.CONFIGURED, "127.0.0.1", True),
        (Origin.CONFIGURED, "169.254.169.254", False),
        (Origin.CONFIGURED, "0.0.0.0", False),
    ],
)
def test_which_addresses_a_name_may_have(origin_kind: Origin, address: str, expected: bool) -> None:
    assert permitted(Destination("name", 443, origin_kind), address) is expected


def test_a_server_that_is_down_is_a_bad_gateway() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with proxy_for([Destination("localhost", port, Origin.CONFIGURED)]) as client:
        assert client.get(f"http://localhost:{port}/").startswith(b"HTTP/1.1 502 ")
        assert client.logged()[0].allowed


def test_the_hosts_own_proxy_is_used(origin: int) -> None:
    """Our proxy, behind another of ours that plays the operator's."""
    destination = Destination("localhost", origin, Origin.CONFIGURED)
    with proxy_for([destination]) as operators:
        upstream = from_environment({"https_proxy": f"http://127.0.0.1:{operators.port}"})
        with proxy_for([destination], upstream) as client:
            assert client.get(f"http://localhost:{origin}/far").endswith(b"/far")
        assert operators.logged()[0].method == "CONNECT"


def test_leaving_closes_open_tunnels(origin: int) -> None:
    with proxy_for([Destination("localhost", origin, Origin.CONFIGURED)]) as client:
        connection = client.connect()
        connection.sendall(f"CONNECT localhost:{origin} HTTP/1.1\r\n\r\n".encode())
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    with connection:
        assert connection.recv(1 << 16) == b""


def test_a_malformed_extra_host_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no host"):
        AllowlistNetwork(ClientSettings(), tmp_path, ["https://example.invalid"])


def test_the_environment_gives_every_client_the_proxy_and_the_certificates(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("certificates")
    network = AllowlistNetwork(ClientSettings(ca_bundle=bundle), tmp_path)
    env = network.env()
    assert env["https_proxy"] == env["http_proxy"] == f"http://127.0.0.1:{PORT}"
    (settings, inside), *_ = network.mounts()
    assert env["SSL_CERT_FILE"] == env["PIP_CERT"] == f"{inside}/ca.pem"
    assert (Path(settings) / "ca.pem").read_text() == "certificates"
    assert (Path(settings) / "apt.conf").is_file()
    assert network.mounts() == network.mounts()


# --------------------------------------------------------------------------- in real namespaces and sandboxes


@pytest.fixture
def namespace() -> Iterator[int]:
    """A process in a network namespace of its own, whose loopback is still down."""
    process = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep 60"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.wait()


@pytest.mark.sandbox
def test_the_socket_listens_inside_and_not_here(namespace: int) -> None:
    with listen_in_namespace(namespace, PORT) as listener, pytest.raises(ConnectionRefusedError):
        assert listener.getsockname() == ("127.0.0.1", PORT)
        socket.create_connection(("127.0.0.1", PORT), timeout=5)


@pytest.mark.sandbox
def test_a_process_in_the_hosts_network_is_refused() -> None:
    with pytest.raises(SandboxError, match="shares the host's network"):
        listen_in_namespace(os.getpid(), PORT)


@pytest.mark.sandbox
def test_throughput_through_a_namespace(namespace: int, origin: int, tmp_path: Path) -> None:
    requests: list[ProxyRequest] = []
    network = AllowlistNetwork(ClientSettings(), tmp_path, [f"localhost:{origin}"], log=requests.append)
    with network.attach(namespace, "box"):
        program = (
            "import urllib.request as u\n"
            f"o = u.build_opener(u.ProxyHandler({{'http': 'http://127.0.0.1:{PORT}'}}))\n"
            f"print(sum(len(o.open('http://localhost:{origin}/large').read()) for _ in range(4)))\n"
        )
        command = ["nsenter", "--net", "--target", str(namespace), sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) == 4 * len(LARGE)
    assert sum(each.bytes_down for each in requests) == 4 * len(LARGE)


def _wheel() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("sample.py", "ANSWER = 42\n")
        archive.writestr("sample-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n")
        archive.writestr("sample-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("sample-1.0.dist-info/RECORD", "")
    return stream.getvalue()


class IndexHandler(BaseHTTPRequestHandler):
    """A package index with one project."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        file = "sample-1.0-py3-none-any.whl"
        page = f'<!DOCTYPE html><a href="/files/{file}">{file}</a>'.encode()
        found = {"/simple/sample/": ("text/html", page), f"/files/{file}": ("application/zip", _wheel())}
        kind, body = found.get(self.path, ("text/plain", b""))
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.sandbox
def test_a_sandbox_installs_from_the_operators_index_and_reaches_nothing_else(
    home: Path, base: str, backend: OciBackend, tmp_path: Path
) -> None:
    requests: list[ProxyRequest] = []
    with serving(IndexHandler) as port:
        url = f"http://localhost:{port}/simple"
        clients = ClientSettings(
            env={"UV_DEFAULT_INDEX": url, "PIP_INDEX_URL": url},
            destinations=(Destination("localhost", port, Origin.CONFIGURED),),
        )
        network = AllowlistNetwork(clients, home, log=requests.append)
        spec = SandboxSpec((base,), network=Network.INSTALL, cache=str(tmp_path / "cache"))
        with OciBackend(home, network=network).open(spec) as sandbox:
            installed = sandbox.run("uv venv /opt/v && uv pip install --python /opt/v sample", timeout_s=120)
            used = sandbox.run("/opt/v/bin/python -c 'import sample; print(sample.ANSWER)'")
            elsewhere = sandbox.run(
                "UV_HTTP_RETRIES=0 uv pip install --python /opt/v https://elsewhere.invalid/x-1.0.tar.gz"
            )
            direct = sandbox.run(f"python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 5)'")
    assert installed.ok, installed.output
    assert used.output.strip() == "42"
    assert not elsewhere.ok
    assert "ConnectionRefusedError" in direct.output
    refused = {(each.host, each.port) for each in requests if not each.allowed}
    assert refused == {("elsewhere.invalid", 443)}


def test_a_flood_of_requests_fills_no_log(proxied: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_module, "MAX_REQUESTS", 5)
    for _ in range(9):
        with contextlib.suppress(OSError):
            proxied.exchange(b"CONNECT elsewhere:443 HTTP/1.1\r\n\r\n")
    assert len(proxied.logged(5)) == 5
    assert "no more are served" in proxied.requests[-1].why
