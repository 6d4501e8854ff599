"""What the doctor finds, on this machine and on one that lacks things."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.sandbox.doctor import checks


@pytest.mark.sandbox
def test_a_machine_that_runs_sandboxes_is_healthy_and_says_so_in_one_screen(home: Path, base: str) -> None:
    found = checks(home)
    assert [check for check in found if check.needed and not check.ok] == []
    assert next(check for check in found if check.name == "sandbox").detail.startswith("started")
    assert len(found) <= 24
    assert all("\n" not in check.detail for check in found)


def test_what_is_missing_comes_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = {check.name: check for check in checks(tmp_path / "home")}
    for name in ("runc", "mmdebstrap"):
        assert found[name].needed
        assert not found[name].ok
        assert found[name].remedy == f"apt-get install {name}"
    assert not found["skopeo"].needed
    assert not found["sandbox"].ok


def test_no_check_fails_without_a_remedy_and_nothing_is_left(tmp_path: Path) -> None:
    home = tmp_path / "home"
    found = checks(home)
    assert [check.name for check in found if not check.ok and not check.remedy] == []
    assert list(home.iterdir()) == []
    assert str(home) not in Path("/proc/mounts").read_text()
