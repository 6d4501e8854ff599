"""Which base an install starts from."""

from __future__ import annotations

from pathlib import Path

from ratchet.autoinstall.workshop import Workshop
from ratchet.records import Base
from ratchet.sandbox.bases import save
from ratchet.sandbox.root_archive import host_architecture


def test_a_built_suite_is_taken_before_an_import_and_one_by_name_always(tmp_path: Path) -> None:
    for name, architecture in (("alien", "other"), ("alpine", host_architecture()), ("bookworm", host_architecture())):
        save(tmp_path, Base(f"base-{name}", name, None, architecture, "test", ("3.11",)))
        (tmp_path / "layers" / f"base-{name}").mkdir(parents=True)
    with Workshop.open(tmp_path) as workshop:
        assert workshop.base_for("3.11").name == "bookworm"
        assert workshop.base_for("3.11", "alpine").name == "alpine"
