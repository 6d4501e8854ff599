#!/usr/bin/env python3
"""Measure the sandbox on this machine: start, exec, snapshot, rollback, and many made and destroyed.

    .venv/bin/python scripts/bench_sandbox.py [--rounds 20] [--many 200] [--suite bookworm] [--json]

`bare run` is `runc run` of the very bundle that a sandbox of ours has, with `true` in it: the floor for `start`, which
includes mounting, writing the bundle, and the checks before. Needs root; builds the base when it is not there.
Exit status 1 where a promise is not kept: start at most 1.5 times the bare run, rollback of 1 GB under 100 ms, and
nothing left after all are gone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from platformdirs import user_data_path

from ratchet.records import SandboxSpec
from ratchet.sandbox import cgroups
from ratchet.sandbox.bases import ensure_base
from ratchet.sandbox.clients import read_clients
from ratchet.sandbox.oci import OciBackend, OciSandbox

START_FACTOR, ROLLBACK_MS = 1.5, 100.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--many", type=int, default=200)
    parser.add_argument("--suite", default="bookworm")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    home = Path(os.environ.get("RATCHET_HOME") or user_data_path("ratchet"))
    backend = OciBackend(home)
    base = ensure_base(home, backend.layers, options.suite, read_clients()).id
    bench = Bench(backend, SandboxSpec((base,)), options.rounds)
    bare, start, close = bench.starts()
    execute = bench.executions()
    snapshot, rollback, back = bench.rollbacks(megabytes=1024)
    many_s, left = bench.many(options.many)
    results: dict[str, object] = {
        "bare_run_ms": bare,
        "start_ms": start,
        "start_factor": round(start / bare, 2),
        "close_ms": close,
        "exec_ms": execute,
        "snapshot_1gb_ms": snapshot,
        "rollback_1gb_ms": rollback,
        "rollback_1gb_and_first_command_ms": back,
        f"{options.many}_created_and_destroyed_s": round(many_s, 1),
        "left_over": left,
    }
    if options.json:
        print(json.dumps(results))
    else:
        for name, value in results.items():
            print(f"{name:40} {value}")
    return int(bool(left) or start > START_FACTOR * bare or rollback > ROLLBACK_MS)


class Bench:
    def __init__(self, backend: OciBackend, spec: SandboxSpec, rounds: int) -> None:
        self._backend = backend
        self._spec = spec
        self._rounds = rounds
        with backend.open(spec):  # the first one sweeps, and warms the caches
            pass

    def starts(self) -> tuple[float, float, float]:
        """Medians of a bare run, our start and our close, taken in turn so that all see the same machine."""
        bare, starts, closes = [], [], []
        with self._bare_bundle() as run:
            for _ in range(self._rounds):
                bare.append(milliseconds(run))
                before = time.perf_counter()
                sandbox = self._backend.open(self._spec)
                starts.append((time.perf_counter() - before) * 1e3)
                closes.append(milliseconds(sandbox.close))
        return median(bare), median(starts), median(closes)

    def executions(self) -> float:
        with self._backend.open(self._spec) as sandbox:
            return median([milliseconds(lambda: sandbox.run("true")) for _ in range(self._rounds)])

    def rollbacks(self, megabytes: int) -> tuple[float, float, float]:
        """Snapshot of an environment of that size, rollback of as much again, and rollback with a first command."""
        snapshots, rollbacks, backs = [], [], []
        for _ in range(3):
            with self._backend.open(self._spec) as sandbox:
                fill(sandbox, "/one", megabytes)
                before = time.perf_counter()
                snapshot = sandbox.snapshot()
                snapshots.append((time.perf_counter() - before) * 1e3)
                fill(sandbox, "/two", megabytes)
                before = time.perf_counter()
                sandbox.rollback(snapshot)
                rollbacks.append((time.perf_counter() - before) * 1e3)
                assert sandbox.run("test -d /one -a ! -e /two").ok
                backs.append((time.perf_counter() - before) * 1e3)
            self._backend.layers.trash.wait()
        return median(snapshots), median(rollbacks), median(backs)

    def many(self, count: int) -> tuple[float, list[str]]:
        """Seconds for making, using and destroying so many, and what is left of them."""
        names = set()
        start = time.perf_counter()
        for number in range(count):
            with self._backend.open(self._spec) as sandbox:
                names.add(sandbox.name)
                assert sandbox.run(f"echo {number} > /number").ok
        seconds = time.perf_counter() - start
        self._backend.layers.trash.wait()
        # others may be using the same home: what is theirs does not count
        return seconds, sorted(trace for trace in traces(self._backend) if any(name in trace for name in names))

    @contextlib.contextmanager
    def _bare_bundle(self) -> Iterator[Callable[[], object]]:
        """`runc run` of the bundle of a sandbox that is open, changed only in what it runs and in its name."""
        with self._backend.open(self._spec) as sandbox:
            bundle = self._backend.home / "sandboxes" / sandbox.name
            config = json.loads((bundle / "config.json").read_text())
            name = f"{self._backend.prefix}{sandbox.name}-bare"
            config["process"]["args"] = ["true"]
            config["linux"]["cgroupsPath"] = f"/{name}"
            bare = bundle / "bare"
            bare.mkdir()
            (bare / "config.json").write_text(json.dumps(config))
            runtime = self._backend.runtime
            command = [runtime.program, "--root", str(runtime.state), "run", "--bundle", str(bare), name]
            quiet = subprocess.DEVNULL
            yield lambda: subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, check=True)


def fill(sandbox: OciSandbox, directory: str, megabytes: int) -> None:
    """So much in files of a quarter megabyte, as an installed environment has."""
    script = f"mkdir {directory}; head -c {megabytes}M /dev/urandom | split -a 4 -b 256K - {directory}/"
    assert sandbox.run(script).ok


def traces(backend: OciBackend) -> set[str]:
    """Mounts, control groups, processes and directories of this home's sandboxes."""
    mounts = {line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(backend.run) in line}
    groups = set(cgroups.groups_named(backend.prefix, backend.trees))
    processes = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            if command and backend.prefix.encode() in (entry / "cgroup").read_bytes() + command:
                processes.add(f"process {entry.name}: {command!r} in {(entry / 'cgroup').read_text()}")
    places = [backend.run / "roots", backend.run / "runtime", backend.home / "sandboxes"]
    directories = {str(entry) for place in places for entry in place.iterdir()}
    return mounts | groups | processes | directories


def milliseconds(action: Callable[[], object]) -> float:
    before = time.perf_counter()
    action()
    return (time.perf_counter() - before) * 1e3


def median(values: list[float]) -> float:
    return round(statistics.median(values), 1)


if __name__ == "__main__":
    sys.exit(main())
