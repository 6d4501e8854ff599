"""What is read from the configuration of package clients, and what of it reaches a sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.sandbox.client_files import AptSource, apt_sources, pip_settings, uv_settings
from ratchet.sandbox.clients import ClientSettings, read_clients
from ratchet.sandbox.local_indexes import LocalIndexes
from ratchet.sandbox.proxy import Destination, Origin


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def read(tmp_path: Path, env: dict[str, str] | None = None) -> ClientSettings:
    return read_clients({"PATH": "", **(env or {})}, root=tmp_path / "root", home=tmp_path / "home")


def hosts(settings: ClientSettings) -> set[tuple[str, int, Origin]]:
    return {(each.host, each.port, each.origin) for each in settings.destinations}


def test_pip_reads_its_files_in_order_and_variables_last(tmp_path: Path) -> None:
    write(
        tmp_path / "etc/pip.conf",
        "[global]\nindex-url = https://system.invalid/\ntimeout = 1\n[install]\nretries = 9\n",
    )
    write(tmp_path / "home/.config/pip/pip.conf", "[global]\nindex_url = https://user.invalid/\nretries = 1\n")
    settings = pip_settings({"PIP_TIMEOUT": "7"}, tmp_path, tmp_path / "home")
    assert settings == {"index-url": "https://user.invalid/", "timeout": "7", "retries": "9"}
    assert pip_settings({"PIP_CONFIG_FILE": "/dev/null"}, tmp_path, tmp_path / "home") == {}


def test_uv_reads_named_and_default_indexes(tmp_path: Path) -> None:
    write(
        tmp_path / "home/.config/uv/uv.toml",
        '[[index]]\nname = "inner"\nurl = "https://inner.invalid/simple"\n'
        '[[index]]\nurl = "https://mirror.invalid/simple"\ndefault = true\n'
        '[[index]]\nname = "torch"\nurl = "https://torch.invalid/"\nexplicit = true\n',
    )
    settings = uv_settings({}, tmp_path, tmp_path / "home")
    assert settings.default_index == "https://mirror.invalid/simple"
    assert settings.indexes == ("inner=https://inner.invalid/simple",)
    assert (
        uv_settings({"UV_DEFAULT_INDEX": "https://x.invalid"}, tmp_path, tmp_path).default_index == "https://x.invalid"
    )


def test_apt_sources_of_both_forms(tmp_path: Path) -> None:
    write(
        tmp_path / "etc/apt/sources.list",
        "# deb http://no.invalid x main\ndeb-src http://src.invalid x main\n"
        "deb [arch=amd64 signed-by=/a/b] http://one.invalid/debian stable main contrib # why\n",
    )
    write(
        tmp_path / "etc/apt/sources.list.d/two.sources",
        "Types: deb deb-src\nURIs: https://two.invalid/debian\nSuites: stable\n stable-updates\n# x\nComponents: main\n\n"
        "Enabled: no\nTypes: deb\nURIs: http://off.invalid\nSuites: x\nComponents: main\n",
    )
    assert apt_sources(tmp_path) == (
        AptSource("http://one.invalid/debian", "stable", ("main", "contrib")),
        AptSource("https://two.invalid/debian", "stable", ("main",)),
        AptSource("https://two.invalid/debian", "stable-updates", ("main",)),
    )


@pytest.mark.parametrize("data", [b"\xff\xfe\x00[global", b"[global\nindex-url", b"[[index]", b"a" * 100_000])
def test_broken_files_are_as_good_as_none(tmp_path: Path, data: bytes) -> None:
    for name in ("etc/pip.conf", "etc/uv/uv.toml", "etc/apt/sources.list", "etc/apt/sources.list.d/x.sources"):
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    assert {each.origin for each in read(tmp_path).destinations} == {Origin.DEFAULT}


def test_an_unconfigured_machine_sets_no_index_and_reaches_the_default_one(tmp_path: Path) -> None:
    settings = read(tmp_path)
    assert settings.env == {}
    assert [(each.port, each.origin) for each in settings.destinations] == [(443, Origin.DEFAULT)]
    assert len(settings.indexes) == 1


def test_a_mirror_for_pip_is_a_mirror_for_uv(tmp_path: Path) -> None:
    env = {
        "PIP_INDEX_URL": "https://me:secret@mirror.invalid:8443/simple",
        "PIP_EXTRA_INDEX_URL": "https://x.invalid/s",
    }
    settings = read(tmp_path, env)
    assert settings.env["UV_DEFAULT_INDEX"] == settings.env["PIP_INDEX_URL"] == env["PIP_INDEX_URL"]
    assert settings.env["UV_INDEX"] == "https://x.invalid/s"
    assert hosts(settings) == {
        ("mirror.invalid", 8443, Origin.CONFIGURED),
        ("x.invalid", 443, Origin.CONFIGURED),
    }
    assert "secret" not in repr(settings)


def test_uvs_own_settings_win_over_pips(tmp_path: Path) -> None:
    settings = read(tmp_path, {"PIP_INDEX_URL": "https://pip.invalid/", "UV_DEFAULT_INDEX": "https://uv.invalid/"})
    assert settings.env["UV_DEFAULT_INDEX"] == "https://uv.invalid/"
    assert settings.env["PIP_INDEX_URL"] == "https://pip.invalid/"


def local_index(directory: Path, href: str = "../../files/sample-1.0.whl") -> Path:
    write(directory / "files/sample-1.0.whl", "wheel")
    write(directory / "simple/sample/index.html", f'<a href="{href}#sha256=0">sample</a>')
    return directory / "simple"


def test_a_local_index_is_bound_with_the_files_beside_it(tmp_path: Path) -> None:
    index = local_index(tmp_path / "index")
    settings = read(tmp_path, {"PIP_EXTRA_INDEX_URL": f"file://{index}", "PIP_FIND_LINKS": str(index.parent / "files")})
    (host, inside), (links, links_inside) = settings.mounts
    assert host == str(index.parent)
    assert settings.env["PIP_EXTRA_INDEX_URL"] == f"file://{inside}/simple"
    assert links == str(index.parent / "files")
    assert settings.env["PIP_FIND_LINKS"] == f"file://{links_inside}"
    assert "UV_INDEX" not in settings.env


@pytest.mark.parametrize(
    "href", ["../../files/absent.whl", "/etc/passwd", "file:///etc/passwd", "../../../../../../../etc/passwd"]
)
def test_a_local_index_that_is_broken_or_reaches_far_is_left_out_and_named(tmp_path: Path, href: str) -> None:
    settings = read(tmp_path, {"PIP_INDEX_URL": f"file://{local_index(tmp_path / 'index', href)}"})
    assert settings.mounts == ()
    assert "PIP_INDEX_URL" not in settings.env
    assert len(settings.notes) == 1


def test_an_absent_local_index_is_left_out(tmp_path: Path) -> None:
    settings = read(tmp_path, {"PIP_FIND_LINKS": str(tmp_path / "absent"), "PIP_EXTRA_INDEX_URL": "file:///absent"})
    assert settings.env == {}
    assert len(settings.notes) == 2


def test_a_wheel_directory_with_a_link_out_is_left_out(tmp_path: Path) -> None:
    outside = write(tmp_path / "secret", "")
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "a-1.whl").symlink_to(outside)
    local = LocalIndexes()
    assert local.wheels(str(tmp_path / "wheels")) is None
    assert local.notes


def test_a_destination_is_listed_once_with_the_most_trusted_origin(tmp_path: Path) -> None:
    (default,) = read(tmp_path).destinations
    settings = read(tmp_path, {"PIP_EXTRA_INDEX_URL": f"https://{default.host}/other/"})
    assert settings.destinations == (Destination(default.host, 443, Origin.CONFIGURED),)
