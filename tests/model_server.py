"""A real little HTTP server that speaks the protocol of chat completions, its faults included.

    with ModelServer([text("hello"), status(429, {"Retry-After": "2"}), tool("run", {"command": "ls"})]) as server:
        ... server.url, server.requests ...

Each request takes the next turn of the script. The script may be a function of the request (the parsed body) instead.
A request beyond the end of the script is answered with status 400, which no client tries again. What `ChatModel` sends
to see whether tools are called is answered by the server itself (`tools`), and is in no list.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

Request = dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """How one request is answered. `deltas` are what the message grows by; a plain answer is their sum."""

    deltas: tuple[Mapping[str, Any], ...] = ()
    finish: str | None = "stop"
    usage: tuple[int, int] | None = (7, 3)  # of the prompt, of the reply
    choice: Mapping[str, Any] = field(default_factory=dict)  # beside the message: logprobs, token_ids
    top: Mapping[str, Any] = field(default_factory=dict)  # beside the choices: prompt_token_ids
    wait_s: float = 0.0
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None  # instead of a completion, whatever it is
    end: str = "whole"  # "cut": the connection breaks after the deltas; "short": ends properly but too early; "none"


def text(content: str, **more: Any) -> Turn:
    """A reply, streamed word by word. `more` are fields of `Turn`."""
    return Turn(tuple({"content": word} for word in re.findall(r"\s*\S+\s*|\s+", content)), **more)


def tool(name: str, arguments: Mapping[str, Any] | str, *, say: str = "", call: str = "call_1") -> Turn:
    """A call of a tool, its arguments streamed in pieces; a string stands for arguments that are no JSON."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    start = {"index": 0, "id": call, "type": "function", "function": {"name": name, "arguments": ""}}
    pieces = [{"index": 0, "function": {"arguments": written[i : i + 7]}} for i in range(0, len(written), 7)]
    said = ({"content": say},) if say else ()
    return Turn((*said, *({"tool_calls": [piece]} for piece in (start, *pieces))), finish="tool_calls")


def status(code: int, headers: Mapping[str, str] | None = None, body: object = None) -> Turn:
    """A status, with an error body in the usual form when `body` is text, or with `body` itself."""
    error = {"error": {"message": body, "type": "error", "code": None}} if isinstance(body, str) else body
    return Turn(status=code, headers=headers or {}, body=json.dumps(error) if error is not None else "")


def cut(partial: str, *, abrupt: bool = True) -> Turn:
    """A stream that ends in the middle: the connection breaks, or (not `abrupt`) it ends as if all were well."""
    return text(partial, end="cut" if abrupt else "short")


def slow(seconds: float, content: str) -> Turn:
    return text(content, wait_s=seconds)


def garbage(body: str = '{"choices": [{"delta": {"content": "hel', *, stream: bool = True) -> Turn:
    """What is no JSON where JSON has to be."""
    return Turn(body=f"data: {body}\n\n" if stream else body, headers={"Content-Type": "text/event-stream"})


def empty() -> Turn:
    """A reply without any text."""
    return Turn(({"role": "assistant", "content": ""},))


def hang_up() -> Turn:
    """The connection is reset without an answer."""
    return Turn(end="none")


class ModelServer:
    """Serves `script` on 127.0.0.1. `models` is the answer to /v1/models, `props` to /props (llama.cpp's).

    `requests` are the parsed bodies in the order they came, `authorizations` the headers with the key.
    """

    def __init__(
        self,
        script: Iterable[Turn] | Callable[[Request], Turn] = (),
        *,
        models: Iterable[Mapping[str, Any]] = ({"id": "test", "object": "model"},),
        props: Mapping[str, Any] | None = None,
        tools: bool = False,
        port: int = 0,
    ) -> None:
        self._next = script if callable(script) else _one_by_one(script)
        self._lock = threading.Lock()
        self._probed = tool("ready", {}) if tools else text("I have no tools.")
        self.pages: dict[str, Any] = {"/v1/models": {"object": "list", "data": list(models)}, "/props": props}
        self.requests: list[Request] = []
        self.authorizations: list[str] = []
        self.closing = threading.Event()
        self._http = _Server(("127.0.0.1", port), _Handler)
        self._http.model = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def take(self, request: Request, authorization: str) -> Turn:
        if [offered["function"]["name"] for offered in request.get("tools", ())] == ["ready"]:
            return self._probed
        with self._lock:
            self.requests.append(request)
            self.authorizations.append(authorization)
            return self._next(request)

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def _one_by_one(script: Iterable[Turn]) -> Callable[[Request], Turn]:
    turns = iter(script)
    return lambda _: next(turns, status(400, body="the script has no more turns"))


class _Server(ThreadingHTTPServer):
    model: ModelServer
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that went away are what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        page = self.server.model.pages.get(self.path)
        self._send(404 if page is None else 200, json.dumps(page or {"error": {"message": "not found"}}), {})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        if self.path != "/v1/chat/completions":
            self._send(404, json.dumps({"error": {"message": f"no such path: {self.path}"}}), {})
            return
        turn = self.server.model.take(request, self.headers.get("Authorization", ""))
        if turn.wait_s:
            self.server.model.closing.wait(turn.wait_s)
        if turn.end == "none":
            self._reset()
        elif turn.body is not None or turn.status != 200:
            self._send(turn.status, turn.body or "", turn.headers)
        elif request.get("stream"):
            self._stream(turn, request)
        else:
            self._send(200, json.dumps(_whole(turn, request)), turn.headers)

    def _send(self, code: int, body: str, headers: Mapping[str, str]) -> None:
        data = body.encode("utf-8", "surrogatepass")
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", **headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, turn: Turn, request: Request) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i, delta in enumerate(turn.deltas):
            self._event(_chunk(request, {"delta": delta, "finish_reason": None}, turn.top if i == 0 else {}))
        if turn.end == "cut":  # without the chunk that says where the body ends
            self.close_connection = True
            return
        if turn.end == "whole":
            last = {"delta": {}, "finish_reason": turn.finish, **turn.choice}
            self._event(_chunk(request, last, {} if turn.deltas else turn.top))
            if turn.usage and (request.get("stream_options") or {}).get("include_usage"):
                self._event({**_chunk(request, None, {}), "usage": _usage(turn.usage)})
            self._write(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, chunk: Mapping[str, Any]) -> None:
        self._write(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    def _write(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


def _chunk(request: Request, choice: Mapping[str, Any] | None, top: Mapping[str, Any]) -> dict[str, Any]:
    choices = [] if choice is None else [{"index": 0, **choice}]
    made = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": request.get("model", "")}
    return {**made, "choices": choices, **top}


def _whole(turn: Turn, request: Request) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls: list[dict[str, Any]] = []
    for delta in turn.deltas:
        for name, value in delta.items():
            if name == "tool_calls":
                for piece in value:
                    if piece.get("id"):
                        calls.append(json.loads(json.dumps(piece)))
                    else:
                        calls[-1]["function"]["arguments"] += piece["function"]["arguments"]
            else:
                message[name] = (message.get(name) or "") + value
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": turn.finish, **turn.choice}
    answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": request.get("model", "")}
    usage = {"usage": _usage(turn.usage)} if turn.usage else {}
    return {**answer, "choices": [choice], **usage, **turn.top}


def _usage(counts: tuple[int, int]) -> dict[str, int]:
    return {"prompt_tokens": counts[0], "completion_tokens": counts[1], "total_tokens": sum(counts)}
