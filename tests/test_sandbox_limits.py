"""Limits of real sandboxes: what goes too far is ended, typed, and leaves nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.protocols import Sandbox
from ratchet.records import CommandResult, LimitHit, Limits, SandboxSpec
from ratchet.sandbox.oci import OciBackend, OciSandbox

pytestmark = pytest.mark.sandbox

LIMITS = Limits(memory_bytes=256 << 20, processes=100, disk_bytes=256 << 20, time_s=60.0)
FORK_BOMB = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
DELETED = "import os\nfile = open('/data', 'wb'); os.unlink('/data')\nwhile True: file.write(bytes(1 << 20))\n"


@pytest.fixture
def sandbox(backend: OciBackend, base: str) -> Iterator[OciSandbox]:
    with backend.open(SandboxSpec((base,), limits=LIMITS)) as opened:
        yield opened


def ended(sandbox: OciSandbox, backend: OciBackend, result: CommandResult) -> LimitHit | None:
    """The limit; and that the sandbox is empty, and can be used again."""
    assert result.exit_status is None
    assert backend.cgroup(sandbox.name).pids() == set()
    assert sandbox.run("echo usable").output == "usable\n"
    return result.limit


@pytest.mark.parametrize("bomb", ["python3 /bomb.py", "while :; do (sleep 1000 &); done"])
def test_a_fork_bomb(sandbox: OciSandbox, backend: OciBackend, bomb: str) -> None:
    sandbox.write("/bomb.py", FORK_BOMB.encode())
    result = sandbox.run(bomb)
    assert result.seconds < 30
    assert ended(sandbox, backend, result) is LimitHit.PROCESSES


def test_a_command_that_failed_for_want_of_processes(sandbox: OciSandbox, backend: OciBackend) -> None:
    result = sandbox.run("for i in $(seq 200); do sleep 5 & done")
    assert ended(sandbox, backend, result) is LimitHit.PROCESSES


def test_a_memory_hog(sandbox: OciSandbox, backend: OciBackend) -> None:
    result = sandbox.run("python3 -c 'bytearray(1 << 30)'")
    assert ended(sandbox, backend, result) is LimitHit.MEMORY


def test_memory_of_a_file_system_in_memory_counts(sandbox: OciSandbox, backend: OciBackend) -> None:
    result = sandbox.run("head -c 500M /dev/zero > /dev/shm/file && exit 1; python3 -c 'bytearray(200 << 20)'")
    assert ended(sandbox, backend, result) is LimitHit.MEMORY


def test_a_command_that_outlives_a_killed_child_is_no_limit(sandbox: OciSandbox) -> None:
    result = sandbox.run("python3 -c 'bytearray(1 << 30)' || echo coped")
    assert (result.exit_status, result.limit) == (0, None)


def test_a_full_disk(sandbox: OciSandbox, backend: OciBackend) -> None:
    result = sandbox.run("i=0; while :; do i=$((i+1)); head -c 20M /dev/zero > /file$i; done")
    assert ended(sandbox, backend, result) is LimitHit.DISK
    assert sandbox.run("sleep 1; rm /file*; sleep 2").ok, "after the limit there must be a chance to clean up"
    assert sandbox.run("head -c 100M /dev/zero > /file; sleep 2").ok


def test_deleted_files_that_are_still_open_take_space(sandbox: OciSandbox, backend: OciBackend) -> None:
    sandbox.write("/deleted.py", DELETED.encode())
    assert ended(sandbox, backend, sandbox.run("python3 /deleted.py")) is LimitHit.DISK


def test_what_fills_the_disk_in_the_background_is_ended_too(sandbox: OciSandbox, backend: OciBackend) -> None:
    assert sandbox.run("(while :; do head -c 20M /dev/zero >> /file; done) > /dev/null 2>&1 &").ok
    deadline = time.monotonic() + 30
    while backend.cgroup(sandbox.name).pids() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert backend.cgroup(sandbox.name).pids() == set()


def test_a_hang(sandbox: OciSandbox, backend: OciBackend) -> None:
    result = sandbox.run("trap '' TERM INT HUP; echo begun; while :; do sleep 100; done", timeout_s=1)
    assert result.output == "begun\n"
    assert result.seconds < 5
    assert ended(sandbox, backend, result) is LimitHit.TIME


def test_a_process_in_the_background_stays_and_is_not_waited_for(sandbox: Sandbox) -> None:
    result = sandbox.run("(while :; do echo tick; sleep 0.05; done) & echo $!")
    assert result.seconds < 5
    pid = next(int(line) for line in result.output.splitlines() if line.isdigit())
    time.sleep(0.5)
    assert sandbox.run(f"kill -0 {pid}").ok, "it wrote to an output that nobody reads any more"


def test_orphans_are_reaped(sandbox: Sandbox) -> None:
    sandbox.run("for i in $(seq 20); do (sleep 0.1 &) ; done")
    time.sleep(0.5)
    assert sandbox.run("grep -l '^State:.Z' /proc/[0-9]*/status").output == ""


def test_killing_everything_inside_does_not_end_the_sandbox(sandbox: Sandbox) -> None:
    result = sandbox.run("kill -9 -1; sleep 5")
    assert result.exit_status == 137
    assert sandbox.run("echo usable").output == "usable\n"


def test_a_sandbox_that_took_its_own_shell_away(sandbox: Sandbox) -> None:
    result = sandbox.run("rm /bin/sh /usr/bin/sh /usr/bin/dash")
    assert result.exit_status in (0, 1)
    result = sandbox.run("true")
    assert result.exit_status == 126
    assert "/bin/sh" in result.output


def test_a_huge_output_keeps_its_ends(sandbox: Sandbox) -> None:
    seen = 0

    def count(chunk: bytes) -> None:
        nonlocal seen
        seen += len(chunk)

    result = sandbox.run("echo first; yes | head -c 100M; echo last", on_output=count)
    assert result.ok
    assert result.output_bytes == seen == (100 << 20) + 11
    assert result.output.startswith("first\n")
    assert result.output.endswith("last\n")
    assert len(result.output) < 1.1 * (1 << 20)
    assert f"[... {result.output_bytes - (1 << 20)} bytes cut ...]" in result.output


def test_output_that_is_no_text(sandbox: Sandbox) -> None:
    assert sandbox.run(r"printf '\377a\0b'").output == "\ufffda\0b"


def test_a_receiver_that_fails_ends_the_command(sandbox: OciSandbox, backend: OciBackend) -> None:
    def fail(chunk: bytes) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sandbox.run("echo begun; sleep 100", on_output=fail)
    assert backend.cgroup(sandbox.name).pids() == set()
    assert sandbox.run("true").ok


def test_the_cache_is_writable_for_every_user_and_counts_as_disk(
    backend: OciBackend, base: str, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    with backend.open(SandboxSpec((base,), limits=LIMITS, cache=str(cache))) as sandbox:
        assert sandbox.run("echo 1 > /var/cache/ratchet/file", user="nobody").ok
        assert (cache / "file").read_text() == "1\n"
        result = sandbox.run("head -c 600M /dev/zero > /var/cache/ratchet/big; sleep 20")
        assert result.limit is LimitHit.DISK


def test_cpu_is_limited(backend: OciBackend, base: str) -> None:
    with backend.open(SandboxSpec((base,), limits=Limits(cpus=0.2))) as sandbox:
        code = "import time; start = time.time()\nwhile time.time() - start < 2: pass\nprint(time.process_time())"
        assert float(sandbox.run(f'python3 -c "{code}"').output) < 1.0
