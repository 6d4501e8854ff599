"""Installs with a model that are ended from outside: killed, or left by their server. The same command goes on."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

import unprepared
from model_server import ModelServer, Request, Turn, slow, text

pytestmark = pytest.mark.sandbox

LOOK, WORK, SUBMIT = (
    "```sh\nmkdir /opt/seen; cat README.md\n```",
    "```sh\npython tools/make_tables.py\n```",
    "```submit\n```",
)


def command(source: Path, url: str) -> list[str]:
    policy = ["--builder", f"rules+openai:tiny@{url}", "--max-attempts", "1", "--no-memory", "--base", "bookworm"]
    return [str(Path(sys.executable).with_name("ratchet")), "install", str(source), "--json", *policy]


def start(source: Path, url: str, home: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(source, url),
        env={**os.environ, "RATCHET_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def test_a_killed_install_goes_on_after_the_last_step_that_was_done(home: Path, base: str, tmp_path: Path) -> None:
    source = unprepared.write(unprepared.GENERATED | {"only-here": uuid.uuid4().hex}, tmp_path / "lookup")
    asked: list[str] = []

    def answer(request: Request) -> Turn:
        asked.append(request["messages"][-1]["content"])
        return [text(LOOK), text(WORK), slow(600, SUBMIT) if len(asked) == 3 else text(SUBMIT)][min(len(asked), 3) - 1]

    with ModelServer(answer) as server:
        process = start(source, server.url, home)
        deadline = time.monotonic() + 600
        while len(asked) < 3 and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.1)
        assert len(asked) == 3, process.communicate()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        again = start(source, server.url, home)
        output, errors = again.communicate(timeout=600)
    assert json.loads(output)["status"] == "verified", errors
    assert len(asked) == 4, "only the question that had no answer is asked again"
    assert asked[3] == asked[2], "and the model sees what it would have seen"
    assert json.loads(output)["usage"]["construction"]["calls"] == 3


def test_a_dead_server_is_one_clear_error_and_loses_nothing(home: Path, base: str, tmp_path: Path) -> None:
    source = unprepared.write(unprepared.CONFIGURED | {"only-here": uuid.uuid4().hex}, tmp_path / "greeter")
    port = free_port()
    url = f"http://127.0.0.1:{port}/v1"
    process = start(source, url, home)
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 1
    told = json.loads(output)
    assert url in told["error"]
    assert "ratchet serve" in told["remedy"]
    assert b"Traceback" not in errors

    copy = "```sh\ncp greeter/settings.example.ini greeter/settings.ini\n```"
    with ModelServer([text(copy), text(SUBMIT)], port=port):
        again = start(source, url, home)
        output, errors = again.communicate(timeout=600)
    assert json.loads(output)["status"] == "verified", errors
    assert b"construction" in errors
