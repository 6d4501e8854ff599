"""Fixtures that several test modules share: where sandboxes live, what they start from, and the backend."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from ratchet.errors import MachineError
from ratchet.sandbox import runtime
from ratchet.sandbox.bases import ensure_base
from ratchet.sandbox.clients import read_clients
from ratchet.sandbox.oci import OciBackend


def _require_machine() -> None:
    """Skip where this machine cannot run sandboxes; in continuous integration that is a failure."""
    try:
        runtime.find_program()
        if shutil.which("mmdebstrap") is None:
            raise MachineError("mmdebstrap is missing", remedy="apt-get install mmdebstrap")
    except MachineError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"no sandbox can be tested here: {error}")
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def home() -> Path:
    """The state of the tests' sandboxes. It stays from one run to the next, so that bases are built once."""
    given = os.environ.get("RATCHET_TEST_HOME")
    path = Path(given) if given else user_cache_path("ratchet-tests")
    path.mkdir(parents=True, exist_ok=True)
    return path


@pytest.fixture(scope="session")
def backend(home: Path) -> Iterator[OciBackend]:
    _require_machine()
    backend = OciBackend(home)
    yield backend
    backend.layers.trash.wait()


@pytest.fixture(scope="session")
def base(home: Path, backend: OciBackend) -> str:
    """The layer of a Debian base."""
    return ensure_base(home, backend.layers, "bookworm", read_clients()).id
