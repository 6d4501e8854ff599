"""The contract of `protocols.Sandbox` as tests, for every backend.

A test module subclasses `SandboxContract`, and gives the fixtures `backend` (a `SandboxBackend`) and `base` (the id of
a layer to open). The commands below are all that a backend has to understand; a scripted one answers them with
`SCRIPT`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

import pytest

from ratchet.errors import RatchetError, StoreError, UsageError
from ratchet.protocols import Sandbox, SandboxBackend
from ratchet.records import LimitHit, Limits, SandboxSpec
from ratchet.sandbox.fake import Answer, FakeCommand, Response

LIMITS = Limits(memory_bytes=512 << 20, processes=128, disk_bytes=1 << 30, time_s=60.0)


def _cat(command: FakeCommand) -> Answer:
    path = command.match["path"]
    if path in command.files:
        return Answer(command.files[path].decode())
    return Answer(f"cat: {path}: No such file or directory\n", 1)


def _remove(command: FakeCommand) -> Answer:
    command.files.pop(command.match["path"], None)
    return Answer()


def _sleep(command: FakeCommand) -> Answer:
    limit = LimitHit.TIME if float(command.match["seconds"]) > command.timeout_s else None
    return Answer(limit=limit)


SCRIPT: dict[str, Response] = {
    r"true": Answer(),
    r"exit (?P<status>\d+)": lambda command: Answer(exit_status=int(command.match["status"])),
    r"echo (?P<text>[a-z ]*)": lambda command: Answer(command.match["text"] + "\n"),
    r"echo out; echo err >&2": Answer("out\nerr\n"),
    r"echo \$(?P<name>[A-Z]+)": lambda command: Answer(command.env.get(command.match["name"], "") + "\n"),
    r"pwd": lambda command: Answer(command.cwd + "\n"),
    r"id -un": lambda command: Answer(command.user + "\n"),
    r"cat (?P<path>/\S+)": _cat,
    r"rm (?P<path>/\S+)": _remove,
    r"echo (?P<text>\w+) > (?P<path>/\S+)": lambda command: Answer(
        files={command.match["path"]: command.match["text"].encode() + b"\n"}
    ),
    r"sleep (?P<seconds>[\d.]+)": _sleep,
    r"cat": Answer(),
}


class SandboxContract:
    """What every sandbox does. See the docstrings of `protocols.Sandbox`."""

    @pytest.fixture
    def spec(self, base: str) -> SandboxSpec:
        return SandboxSpec((base,), limits=LIMITS)

    @pytest.fixture
    def sandbox(self, backend: SandboxBackend, spec: SandboxSpec) -> Iterator[Sandbox]:
        with backend.open(spec) as opened:
            yield opened

    def test_a_command_gives_its_status_and_output(self, sandbox: Sandbox) -> None:
        result = sandbox.run("echo hello")
        assert (result.command, result.exit_status, result.output, result.limit) == ("echo hello", 0, "hello\n", None)
        assert result.ok
        assert result.output_bytes == 6

    def test_a_failing_command_is_a_value(self, sandbox: Sandbox) -> None:
        result = sandbox.run("exit 7")
        assert result.exit_status == 7
        assert not result.ok

    def test_output_and_errors_come_in_one_stream(self, sandbox: Sandbox) -> None:
        chunks: list[bytes] = []
        result = sandbox.run("echo out; echo err >&2", on_output=chunks.append)
        assert result.output == "out\nerr\n"
        assert b"".join(chunks) == b"out\nerr\n"

    def test_standard_input_is_empty(self, sandbox: Sandbox) -> None:
        result = sandbox.run("cat", timeout_s=10)
        assert (result.exit_status, result.output) == (0, "")

    def test_folder_and_environment_of_a_command(self, sandbox: Sandbox) -> None:
        assert sandbox.run("pwd", cwd="/usr").output == "/usr\n"
        assert sandbox.run("echo $COLOUR", env={"COLOUR": "green"}).output == "green\n"

    def test_commands_run_as_root_unless_told_otherwise(self, sandbox: Sandbox) -> None:
        assert sandbox.run("id -un").output == "root\n"

    def test_a_user_that_does_not_exist_is_a_failed_command(self, sandbox: Sandbox) -> None:
        result = sandbox.run("true", user="nobody-of-that-name")
        assert not result.ok
        assert "nobody-of-that-name" in result.output

    def test_what_is_written_can_be_read(self, sandbox: Sandbox) -> None:
        sandbox.write("/some/new/folder/file", b"content\0\xff")
        assert sandbox.read("/some/new/folder/file") == b"content\0\xff"

    def test_written_files_are_seen_by_commands_and_the_other_way_round(self, sandbox: Sandbox) -> None:
        sandbox.write("/written", b"from outside\n")
        assert sandbox.run("cat /written").output == "from outside\n"
        sandbox.run("echo inside > /made")
        assert sandbox.read("/made") == b"inside\n"

    def test_writing_replaces(self, sandbox: Sandbox) -> None:
        sandbox.write("/file", b"a longer first content")
        sandbox.write("/file", b"second")
        assert sandbox.read("/file") == b"second"

    def test_reading_stops_at_the_bound(self, sandbox: Sandbox) -> None:
        sandbox.write("/file", b"0123456789")
        assert sandbox.read("/file", max_bytes=4) == b"0123"

    @pytest.mark.parametrize("path", ["/absent", "/absent/below", "/"])
    def test_reading_what_is_no_file(self, sandbox: Sandbox, path: str) -> None:
        with pytest.raises(FileNotFoundError):
            sandbox.read(path)

    def test_writing_as_a_user_that_does_not_exist_is_misuse(self, sandbox: Sandbox) -> None:
        with pytest.raises(UsageError):
            sandbox.write("/file", b"", user="nobody-of-that-name")

    def test_a_command_over_its_time(self, sandbox: Sandbox) -> None:
        sandbox.write("/before", b"1")
        result = sandbox.run("sleep 50", timeout_s=0.3)
        assert (result.exit_status, result.limit) == (None, LimitHit.TIME)
        assert not result.ok
        assert sandbox.read("/before") == b"1"
        assert sandbox.run("echo still there").output == "still there\n"

    def test_the_time_of_the_spec_is_a_limit_too(self, backend: SandboxBackend, spec: SandboxSpec) -> None:
        short = dataclasses.replace(spec, limits=dataclasses.replace(LIMITS, time_s=0.3))
        with backend.open(short) as sandbox:
            assert sandbox.run("sleep 50").limit is LimitHit.TIME
            assert sandbox.run("sleep 40", timeout_s=45).limit is LimitHit.TIME

    def test_rollback_brings_back_the_files_of_the_snapshot(self, sandbox: Sandbox) -> None:
        sandbox.write("/kept", b"1")
        sandbox.write("/removed", b"1")
        snapshot = sandbox.snapshot()
        sandbox.write("/kept", b"2")
        sandbox.write("/new", b"2")
        sandbox.run("rm /removed")
        sandbox.rollback(snapshot)
        assert sandbox.read("/kept") == b"1"
        assert sandbox.read("/removed") == b"1"
        assert sandbox.run("cat /removed").output == "1"
        with pytest.raises(FileNotFoundError):
            sandbox.read("/new")

    def test_rollback_goes_back_over_several_snapshots_and_can_be_repeated(self, sandbox: Sandbox) -> None:
        first = sandbox.snapshot()
        sandbox.write("/file", b"1")
        second = sandbox.snapshot()
        sandbox.write("/file", b"2")
        sandbox.rollback(second)
        assert sandbox.read("/file") == b"1"
        sandbox.rollback(first)
        with pytest.raises(FileNotFoundError):
            sandbox.read("/file")
        sandbox.write("/file", b"3")
        sandbox.rollback(first)
        with pytest.raises(FileNotFoundError):
            sandbox.read("/file")

    def test_a_snapshot_of_what_did_not_change_is_the_last_one(self, sandbox: Sandbox) -> None:
        sandbox.write("/kept", b"one")
        first = sandbox.snapshot()
        sandbox.run("cat /kept")
        assert sandbox.snapshot() == first
        sandbox.write("/kept", b"two")
        assert sandbox.snapshot() != first

    def test_a_snapshot_later_than_the_one_gone_back_to_is_gone(self, sandbox: Sandbox) -> None:
        first = sandbox.snapshot()
        sandbox.write("/file", b"1")
        second = sandbox.snapshot()
        sandbox.rollback(first)
        with pytest.raises(UsageError):
            sandbox.rollback(second)

    def test_rollback_to_something_that_is_no_snapshot_is_misuse(self, sandbox: Sandbox) -> None:
        with pytest.raises(UsageError):
            sandbox.rollback("no-such-snapshot")
        assert sandbox.run("true").ok

    def test_a_fork_starts_from_the_present_files_and_goes_its_own_way(self, sandbox: Sandbox) -> None:
        sandbox.write("/shared", b"1")
        with sandbox.fork() as fork:
            assert fork.read("/shared") == b"1"
            fork.write("/shared", b"2")
            sandbox.write("/own", b"3")
            assert fork.run("cat /shared").output == "2"
            with pytest.raises(FileNotFoundError):
                fork.read("/own")
        assert sandbox.run("cat /shared").output == "1"

    def test_a_fork_outlives_the_sandbox_that_it_came_from(self, backend: SandboxBackend, spec: SandboxSpec) -> None:
        with backend.open(spec) as parent:
            parent.write("/shared", b"1")
            fork = parent.fork()
        with fork:
            assert fork.run("cat /shared").output == "1"
            with fork.fork() as second:
                assert second.read("/shared") == b"1"

    def test_a_kept_layer_outlives_the_sandbox(self, backend: SandboxBackend, spec: SandboxSpec) -> None:
        with backend.open(spec) as sandbox:
            sandbox.write("/early", b"1")
            sandbox.write("/changed", b"1")
            sandbox.snapshot()
            sandbox.write("/changed", b"2")
            sandbox.write("/late", b"3")
            layer = sandbox.keep()
            assert re.fullmatch(r"[0-9a-zA-Z_-]+", layer)
            assert sandbox.read("/late") == b"3"
        with backend.open(dataclasses.replace(spec, layers=(*spec.layers, layer))) as again:
            assert [again.read(path) for path in ("/early", "/changed", "/late")] == [b"1", b"2", b"3"]

    def test_sandboxes_do_not_see_each_other(self, backend: SandboxBackend, spec: SandboxSpec) -> None:
        with backend.open(spec) as one, backend.open(spec) as other:
            assert one.name != other.name
            one.write("/file", b"1")
            with pytest.raises(FileNotFoundError):
                other.read("/file")

    def test_a_closed_sandbox_cannot_be_used(self, backend: SandboxBackend, spec: SandboxSpec) -> None:
        sandbox = backend.open(spec)
        sandbox.close()
        sandbox.close()
        with pytest.raises(UsageError):
            sandbox.run("true")
        with pytest.raises(UsageError):
            sandbox.read("/etc/passwd")

    def test_a_layer_that_is_not_there(self, backend: SandboxBackend) -> None:
        with pytest.raises(StoreError):
            backend.open(SandboxSpec(("no-such-layer",), limits=LIMITS))

    def test_a_sandbox_needs_a_layer(self, backend: SandboxBackend) -> None:
        with pytest.raises(UsageError):
            backend.open(SandboxSpec((), limits=LIMITS))

    def test_a_command_with_a_nul_character_is_misuse(self, sandbox: Sandbox) -> None:
        with pytest.raises(RatchetError):
            sandbox.run("echo \0")
