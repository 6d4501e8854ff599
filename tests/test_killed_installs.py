"""`kill -9` at random moments of an install: the next install works, and nothing is left over."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ratchet.sandbox.oci import OciBackend

pytestmark = [pytest.mark.sandbox, pytest.mark.slow, pytest.mark.timeout(2400)]

FILES = {
    "pyproject.toml": '[project]\nname = "sturdy"\nversion = "1.0"\ndependencies = ["idna"]\n'
    '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    '[tool.setuptools]\npy-modules = ["sturdy"]\n',
    "sturdy.py": "import idna\n\ndef encode(text):\n    return idna.encode(text)\n",
    "tests/test_sturdy.py": "import pytest\nimport sturdy\n\n@pytest.mark.parametrize('n', range(40))\n"
    "def test_encode(n):\n    assert sturdy.encode('a' * (n + 1))\n",
}


def install(source: Path, home: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [Path(sys.executable).with_name("ratchet"), "install", str(source), "--json", "--fresh", "--base", "bookworm"],
        env={**os.environ, "RATCHET_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def left_over(home: Path) -> list[str]:
    """Mounts, processes, cgroups, and directories of sandboxes of this home that are there now."""
    backend = OciBackend(home)
    found = [str(p) for folder in ("sandboxes", "snapshots", "staging", "tmp") for p in (home / folder).glob("[!.]*")]
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    found += [line.split()[1] for line in mounts if line.split()[1].startswith(str(backend.run))]
    found += [str(cgroup) for cgroup in Path("/sys/fs/cgroup").rglob(f"{backend.prefix}*")]
    return found


def test_twenty_kills_leave_nothing_and_spoil_nothing(home: Path, base: str, tmp_path: Path) -> None:
    source = tmp_path / "sturdy"
    for path, content in FILES.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text(content)
    began = time.monotonic()
    first = install(source, home)
    assert first.wait(timeout=600) == 0
    whole_s = time.monotonic() - began
    moments = random.Random(2026)

    for _ in range(20):
        process = install(source, home)
        time.sleep(moments.uniform(0.2, whole_s))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    last = install(source, home)
    output, _ = last.communicate(timeout=600)
    assert last.returncode == 0
    assert json.loads(output)["status"] == "verified"
    assert left_over(home) == []
