"""After a process was killed, the next start removes what it left, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.records import SandboxSpec
from ratchet.sandbox import cgroups, claims, kernel
from ratchet.sandbox.oci import OciBackend

pytestmark = pytest.mark.sandbox

_MS_BIND = 4096

OWNER = """
import sys, time
from pathlib import Path
from ratchet.records import SandboxSpec
from ratchet.sandbox.oci import OciBackend

backend = OciBackend(Path(sys.argv[1]))
while True:
    with backend.open(SandboxSpec((sys.argv[2],))) as sandbox:
        sandbox.write("/file", b"1")
        fork = sandbox.fork()
        fork.run("trap '' TERM; sleep 1000 & sleep 0.01")
        print(sandbox.name, fork.name, flush=True)
        if sys.argv[3] == "stay":
            fork.run("sleep 1000")
        fork.close()
"""


@pytest.fixture
def own_home(backend: OciBackend, base: str, tmp_path: Path) -> Path:
    """A home of its own, that borrows the base."""
    (tmp_path / "home" / "layers").mkdir(parents=True)
    (tmp_path / "home" / "layers" / "base").symlink_to(backend.layers.path(base))
    return tmp_path / "home"


@pytest.fixture
def own_backend(own_home: Path) -> Iterator[OciBackend]:
    backend = OciBackend(own_home)
    yield backend
    backend.layers.trash.wait()


def start_owner(home: Path, behaviour: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", OWNER, str(home), "base", behaviour]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert owner.stdout is not None
    assert owner.stdout.readline(), "the owner did not come so far"
    return owner


def traces(backend: OciBackend) -> list[str]:
    """All that is to be seen of a home's sandboxes."""
    mounts = [
        line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(backend.run) in line
    ]
    groups = list(cgroups.groups_named(backend.prefix, backend.trees))
    directories = [*(backend.run / "roots").glob("*"), *(backend.run / "runtime").glob("*")]
    directories += [*(backend.home / "sandboxes").glob("[!.]*"), *(backend.home / "snapshots").glob("[!.]*")]
    processes = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
            # without a command line it has ended, and only waits for the host's init to collect it or its children
            if command and backend.prefix.encode() in (entry / "cgroup").read_bytes() + command:
                processes.append(entry.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [*mounts, *groups, *map(str, directories), *processes]


def test_what_a_killed_process_left_is_swept(own_backend: OciBackend, own_home: Path) -> None:
    owner = start_owner(own_home, "stay")
    assert traces(own_backend)
    owner.kill()
    owner.wait()
    swept = own_backend.sweep()
    assert sum(text.startswith("sandbox ") for text in swept) == 2
    assert any(text.startswith("snapshot ") for text in swept)
    assert traces(own_backend) == []
    assert own_backend.sweep() == ()


def test_the_processes_of_a_killed_owner_end_by_themselves(own_backend: OciBackend, own_home: Path) -> None:
    owner = start_owner(own_home, "stay")
    names = list(cgroups.groups_named(own_backend.prefix, own_backend.trees))
    owner.kill()
    owner.wait()
    deadline = time.monotonic() + 15
    groups = [cgroups.Cgroup(name, own_backend.trees) for name in names]
    while any(group.pids() for group in groups) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(group.pids() for group in groups)
    own_backend.sweep()


def test_a_process_that_lives_is_left_alone(own_backend: OciBackend, own_home: Path) -> None:
    owner = start_owner(own_home, "stay")
    try:
        before = {trace for trace in traces(own_backend) if not trace.isdigit()}
        assert own_backend.sweep() == ()
        with own_backend.open(SandboxSpec(("base",))) as sandbox:
            assert sandbox.run("true").ok
        assert owner.poll() is None
        assert before <= set(traces(own_backend))
    finally:
        owner.kill()
        owner.wait()
        own_backend.sweep()


def test_killed_at_any_moment(own_backend: OciBackend, own_home: Path) -> None:
    """Six owners that open and close without end, killed at moments that cover a whole round."""
    for number in range(6):
        owner = start_owner(own_home, "go on")
        time.sleep(0.08 * number)
        os.killpg(owner.pid, signal.SIGKILL)
        owner.wait()
        own_backend.sweep()
        assert traces(own_backend) == []
    with own_backend.open(SandboxSpec(("base",))) as sandbox:
        assert sandbox.run("true").ok


def test_a_mount_that_the_killed_runtime_left_is_swept(own_backend: OciBackend, own_home: Path) -> None:
    """runc mounts a sealed copy of itself into its record of a container for a moment."""
    owner = start_owner(own_home, "stay")
    owner.kill()
    owner.wait()
    record = next((own_backend.run / "runtime").iterdir())
    copy = record / "runc.with a space"
    copy.touch()
    kernel.mount("/bin/true", copy, "", "", _MS_BIND)
    own_backend.sweep()
    assert traces(own_backend) == []
    assert Path("/bin/true").exists()


def test_remains_without_a_home_are_swept(own_backend: OciBackend, own_home: Path) -> None:
    """Somebody removed the home while a sandbox was open and its owner died."""
    owner = start_owner(own_home, "stay")
    owner.kill()
    owner.wait()
    subprocess.run(["rm", "-rf", str(own_home / "sandboxes")], check=True)
    assert own_backend.sweep()
    assert traces(own_backend) == []


def test_another_home_is_another_world(own_backend: OciBackend, backend: OciBackend, base: str) -> None:
    with backend.open(SandboxSpec((base,))) as theirs:
        assert own_backend.sweep() == ()
        with own_backend.open(SandboxSpec(("base",))) as ours:
            assert theirs.run("true").ok
            assert ours.run("true").ok


def test_several_sandboxes_at_once(own_backend: OciBackend) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def use(number: int) -> str:
        with own_backend.open(SandboxSpec(("base",))) as sandbox:
            sandbox.write("/number", str(number).encode())
            return sandbox.run("cat /number").output

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(use, range(12))) == [str(number) for number in range(12)]
    assert traces(own_backend) == []


def test_a_claim_is_dead_when_its_process_is(tmp_path: Path) -> None:
    living = claims.claim(tmp_path)
    dead = claims.claim(tmp_path)
    dead.close()
    (tmp_path / "never-locked").mkdir()
    assert {found.id for found in claims.claim_dead(tmp_path)} == {dead.id, "never-locked"}
    living.close()
