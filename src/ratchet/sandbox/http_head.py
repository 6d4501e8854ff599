"""Reading HTTP/1 messages from a socket as a proxy must: strictly, and within limits.

Only what forwarding needs: the head of a request, the head of a response, and where a response body ends (RFC 9112).
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MAX_HEAD_BYTES = 64 << 10
MAX_CHUNK_LINE_BYTES = 4 << 10
RECEIVE_BYTES = 256 << 10

# Headers that speak about one connection and not about the message (RFC 9110 section 7.6.1).
HOP_BY_HOP = frozenset(
    ["connection", "proxy-connection", "keep-alive", "proxy-authorization", "proxy-authenticate", "te", "upgrade"]
)

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")


class BadMessageError(Exception):
    """The peer does not speak HTTP/1 as it should."""


class Reader:
    """Buffered reading from a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray()

    @property
    def empty(self) -> bool:
        return not self._buffer

    def take(self) -> bytes:
        """What was read beyond the last message."""
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    def until(self, end: bytes, limit: int) -> bytes:
        """Up to and with `end`. b"" when the peer closed before it sent anything."""
        start = 0
        while (found := self._buffer.find(end, start)) < 0:
            if len(self._buffer) > limit:
                raise BadMessageError(f"more than {limit} bytes in a message head")
            start = max(0, len(self._buffer) - len(end))
            data = self._connection.recv(RECEIVE_BYTES)
            if not data and not self._buffer:
                return b""
            if not data:
                raise BadMessageError("the message was cut off")
            self._buffer += data
        if found > limit:
            raise BadMessageError(f"more than {limit} bytes in a message head")
        line = bytes(self._buffer[: found + len(end)])
        del self._buffer[: found + len(end)]
        return line

    def head(self) -> bytes:
        raw = self.until(b"\r\n\r\n", MAX_HEAD_BYTES)
        if not raw:
            raise BadMessageError("the connection was closed without an answer")
        return raw

    def request_head(self) -> RequestHead | None:
        """The next request; None when the client has closed."""
        raw = self.until(b"\r\n\r\n", MAX_HEAD_BYTES)
        return request_head(raw) if raw else None

    def some(self, limit: int | None) -> bytes:
        """At most `limit` bytes (None: any number); b"" at the end."""
        if self._buffer:
            data = bytes(self._buffer[:limit])
            del self._buffer[: len(data)]
            return data
        return self._connection.recv(RECEIVE_BYTES if limit is None else min(limit, RECEIVE_BYTES))


@dataclass(frozen=True)
class RequestHead:
    method: str
    target: str
    version: str
    headers: tuple[tuple[str, str], ...]

    @property
    def has_body(self) -> bool:
        lengths = [value for name, value in self.headers if name.lower() == "content-length"]
        return any(value != "0" for value in lengths) or any(n.lower() == "transfer-encoding" for n, _ in self.headers)

    @property
    def keeps_alive(self) -> bool:
        return self.version == "HTTP/1.1" and not _closes(self.headers)

    def forwarded(self, target: str, host: str, extra: Mapping[str, str]) -> bytes:
        """The request for the next server. Host comes from the URI: it must not name another site."""
        headers = [(n, v) for n, v in self.headers if n.lower() not in _hop_by_hop(self.headers) | {"host"}]
        return _render(f"{self.method} {target} {self.version}", [("Host", host), *headers, *extra.items()])


@dataclass(frozen=True)
class ResponseHead:
    """`length` is the size of the body in bytes; None where chunks or the end of the connection delimit it."""

    line: str
    status: int
    headers: tuple[tuple[str, str], ...]
    length: int | None
    chunked: bool
    keeps_alive: bool

    @property
    def informational(self) -> bool:
        return 100 <= self.status < 200

    def forwarded(self) -> bytes:
        headers = [(n, v) for n, v in self.headers if n.lower() not in _hop_by_hop(self.headers)]
        if not self.keeps_alive and not self.informational:
            headers.append(("Connection", "close"))
        return _render(self.line, headers)


def request_head(raw: bytes) -> RequestHead:
    line, headers = _parse(raw)
    words = line.split(" ")
    if len(words) != 3 or words[2] not in {"HTTP/1.0", "HTTP/1.1"} or not _TOKEN.fullmatch(words[0]):
        raise BadMessageError("not an HTTP/1 request")
    if not re.fullmatch(r"[!-~]+", words[1]) or len(words[0]) > 20:
        raise BadMessageError("not an HTTP/1 request")
    return RequestHead(words[0], words[1], words[2], headers)


def response_head(raw: bytes, request: RequestHead) -> ResponseHead:
    line, headers = _parse(raw)
    match = re.fullmatch(r"(HTTP/1\.[01]) ([1-5][0-9][0-9])(?: .*)?", line)
    if match is None:
        raise BadMessageError("not an HTTP/1 response")
    status = int(match[2])
    if status == 101:
        raise BadMessageError("the server switched protocols")
    codings = [value.strip().lower() for name, value in headers if name.lower() == "transfer-encoding"]
    lengths = {value.strip() for name, value in headers if name.lower() == "content-length"}
    bodiless = request.method == "HEAD" or status in {204, 304} or status < 200
    chunked = bool(codings) and not bodiless
    if codings and (codings != ["chunked"] or lengths):
        raise BadMessageError("a response with an ambiguous length")
    if len(lengths) > 1 or not all(re.fullmatch(r"[0-9]{1,18}", each) for each in lengths):
        raise BadMessageError("a response with an ambiguous length")
    length = 0 if bodiless else int(lengths.pop()) if lengths else None
    delimited = chunked or length is not None
    keeps_alive = delimited and match[1] == "HTTP/1.1" and request.keeps_alive and not _closes(headers)
    return ResponseHead(line, status, headers, length, chunked, keeps_alive)


def relay_body(reader: Reader, response: ResponseHead) -> Iterator[bytes]:
    """The body as it stands on the wire, piece by piece. BadMessageError where it ends too early."""
    if response.chunked:
        yield from _chunks(reader)
    elif response.length is None:
        while data := reader.some(None):
            yield data
    else:
        yield from _exactly(reader, response.length)


def _exactly(reader: Reader, size: int) -> Iterator[bytes]:
    while size:
        data = reader.some(size)
        if not data:
            raise ConnectionError("the server closed in the middle of a body")
        size -= len(data)
        yield data


def _chunks(reader: Reader) -> Iterator[bytes]:
    while True:
        line = reader.until(b"\r\n", MAX_CHUNK_LINE_BYTES)
        match = _CHUNK_SIZE.fullmatch(line)
        if match is None:
            raise ConnectionError("a body with a broken chunk")
        yield line
        size = int(match[1], 16)
        if size == 0:
            break
        yield from _exactly(reader, size + 2)
    total = 0
    while True:  # the trailer section
        line = reader.until(b"\r\n", MAX_CHUNK_LINE_BYTES)
        total += len(line)
        if total > MAX_HEAD_BYTES or not line:
            raise ConnectionError("a body with a broken end")
        yield line
        if line == b"\r\n":
            return


def _parse(raw: bytes) -> tuple[str, tuple[tuple[str, str], ...]]:
    line, *rest = raw.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    headers = []
    for each in rest:
        name, colon, value = each.partition(":")
        if not colon or not _TOKEN.fullmatch(name) or re.search(r"[\r\n\0]", value):
            raise BadMessageError("a broken header line")
        headers.append((name, value.strip(" \t")))
    if re.search(r"[\r\n\0]", line):
        raise BadMessageError("a broken first line")
    return line, tuple(headers)


def _hop_by_hop(headers: tuple[tuple[str, str], ...]) -> frozenset[str]:
    named = (word for name, value in headers if name.lower() == "connection" for word in value.lower().split(","))
    return HOP_BY_HOP | {word.strip() for word in named} - {"host", "content-length", "transfer-encoding"}


def _closes(headers: tuple[tuple[str, str], ...]) -> bool:
    return any(
        name.lower() in {"connection", "proxy-connection"}
        and "close" in (word.strip() for word in value.lower().split(","))
        for name, value in headers
    )


def _render(line: str, headers: list[tuple[str, str]]) -> bytes:
    return "".join([f"{line}\r\n", *(f"{name}: {value}\r\n" for name, value in headers), "\r\n"]).encode("latin-1")
