"""Repositories that cannot work: each is discarded with the right reason, within limits, and harms nothing."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.autoinstall.options import Options
from ratchet.autoinstall.pipeline import autoinstall
from ratchet.autoinstall.workshop import Workshop
from ratchet.events import Event
from ratchet.records import Limits, Reason

pytestmark = pytest.mark.sandbox

LIMITS = Limits(memory_bytes=1 << 30, processes=200, disk_bytes=600 << 20, time_s=200.0)
SHORT = replace(LIMITS, time_s=30.0)  # for what would never end

MANIFEST = '[project]\nname = "broken"\nversion = "1.0"\n[build-system]\nrequires = ["setuptools"]\n'
SETUP = "from setuptools import setup\n{}\nsetup(name='broken', version='1.0', py_modules=['broken'])\n"
TEST = "import broken\n\ndef test_one():\n    assert broken.ONE == 1\n"

FORK_BOMB = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n"
FILLER = (
    "import os\nblock = os.urandom(1 << 20)\nnumber = 0\nwhile True:\n"
    "    with open(f'filler{number}', 'wb') as file:\n"
    "        for _ in range(50):\n            file.write(block)\n    number += 1\n"
)
LOG = "import sys\nfor _ in range(100):\n    print('x' * 79 + '\\n', end='')\nsys.stdout.write(('y' * 99 + '\\n') * 1_000_000)\nsys.exit(1)"


def project(setup: str | None = None, manifest: str | None = None, test: str | None = TEST) -> dict[str, str]:
    files = {"broken.py": "ONE = 1\n"}
    if setup is not None:
        files["setup.py"] = setup
    if manifest is not None:
        files["pyproject.toml"] = manifest
    if test is not None:
        files["tests/test_broken.py"] = test
    return files


CASES = {
    "syntax-error-in-setup-py": (
        project(setup="from setuptools import setup\nsetup(name='broken'\n"),
        Reason.BROKEN_BUILD_SCRIPT,
    ),
    "impossible-version-pin": (
        project(manifest=MANIFEST.replace("version", 'dependencies = ["attrs==999.0"]\nversion')),
        Reason.VERSION_NOT_FOUND,
    ),
    "dependency-that-does-not-exist": (
        project(manifest=MANIFEST.replace("version", 'dependencies = ["ratchet-no-such-distribution"]\nversion')),
        Reason.DEPENDENCY_NOT_FOUND,
    ),
    "no-tests": (project(manifest=MANIFEST, test=None), Reason.NO_TESTS),
    "empty-directory": ({}, Reason.EMPTY_CHECKOUT),
    "fork-bomb": (project(setup=SETUP.format(FORK_BOMB)), Reason.PROCESS_LIMIT),
    "log-of-100-megabytes": (project(setup=SETUP.format(LOG)), Reason.BUILD_FAILED),
    "endless-build": (project(setup=SETUP.format("import time\nwhile True: time.sleep(1)")), Reason.BUILD_TIMEOUT),
    "hanging-suite": (
        project(manifest=MANIFEST, test="import time\n\ndef test_one():\n    time.sleep(10_000)\n"),
        Reason.TEST_TIMEOUT,
    ),
    "build-that-fills-the-disk": (project(setup=SETUP.format(FILLER)), Reason.DISK_LIMIT),
}


OPENED: list[str] = []


@pytest.fixture(scope="module")
def workshop(home: Path, base: str) -> Iterator[Workshop]:
    def note(event: Event) -> None:
        if event.kind == "sandbox.opened":
            OPENED.append(event.data["sandbox"])

    with Workshop.open(home, on_event=note) as opened:
        yield opened


def leftovers(workshop: Workshop) -> list[str]:
    """What is left of the sandboxes that were opened here: mounts, control groups, directories."""
    mounts = Path("/proc/self/mounts").read_text()
    groups = {path.name for path in Path("/sys/fs/cgroup").rglob(f"{workshop.backend.prefix}*")}
    return [
        name
        for name in OPENED
        if name in mounts or workshop.backend.prefix + name in groups or (workshop.store.sandboxes / name).exists()
    ]


def occupied_bytes(folder: Path) -> int:
    """What a folder takes on the disk. The disk's free space would not do: others write to it at the same time."""
    return int(subprocess.run(["du", "-s", "-B1", folder], capture_output=True, text=True).stdout.split()[0])


@pytest.mark.parametrize("name", CASES)
def test_is_discarded_with_its_reason(name: str, tmp_path: Path, workshop: Workshop) -> None:
    files, reason = CASES[name]
    source = tmp_path / "broken"
    source.mkdir()
    for path, content in files.items():
        target = source / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    occupied_before = occupied_bytes(workshop.home)
    began = time.monotonic()

    endless = reason in (Reason.BUILD_TIMEOUT, Reason.TEST_TIMEOUT)
    limits = SHORT if endless else LIMITS
    install = autoinstall(str(source), workshop, Options(max_attempts=2, limits=limits, base="bookworm", fresh=True))

    assert install.environment is None
    assert (install.reason, bool(install.detail)) == (reason, True), install.detail
    assert time.monotonic() - began < 300
    assert leftovers(workshop) == []
    assert occupied_bytes(workshop.home) < occupied_before + (1 << 30)
