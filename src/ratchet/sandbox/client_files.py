"""Reading the configuration files of pip, uv and apt, in the order in which those programs read them."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True)
class AptSource:
    """One source of binary packages: an archive, one of its suites, and the components."""

    uri: str
    suite: str
    components: tuple[str, ...]


def pip_settings(env: Mapping[str, str], root: Path, home: Path) -> dict[str, str]:
    """Options by their long names. Later files win, `[install]` wins over `[global]`, variables win over files."""
    config_home = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path(each) / "pip" / "pip.conf" for each in _config_dirs(env, root)]
    files += [root / "etc" / "pip.conf", home / ".pip" / "pip.conf", config_home / "pip" / "pip.conf"]
    if env.get("VIRTUAL_ENV"):
        files.append(Path(env["VIRTUAL_ENV"]) / "pip.conf")
    if env.get("PIP_CONFIG_FILE"):  # pip reads no other file when it names the null device
        files = [] if env["PIP_CONFIG_FILE"] == os.devnull else [*files, Path(env["PIP_CONFIG_FILE"])]
    settings: dict[str, str] = {}
    for section in ("global", "install"):
        for file in files:
            settings |= _ini_section(file, section)
    for name, value in env.items():
        if name.startswith("PIP_") and name != "PIP_CONFIG_FILE" and value:
            settings[name.removeprefix("PIP_").lower().replace("_", "-")] = value
    return settings


def _ini_section(file: Path, section: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(_text(file))
    except configparser.Error:
        return {}  # pip itself would stop here; the operator hears it from pip
    if not parser.has_section(section):
        return {}
    return {name.lower().replace("_", "-"): value for name, value in parser.items(section) if value}


@dataclass(frozen=True)
class UvSettings:
    """uv's indexes as URLs or paths (`NAME=URL` where they have a name), and variables that are carried unchanged."""

    default_index: str | None
    indexes: tuple[str, ...]
    find_links: tuple[str, ...]
    variables: Mapping[str, str]


_UV_CARRIED = re.compile(r"UV_(INDEX_STRATEGY|NO_INDEX|INSECURE_HOST|INDEX_[A-Z0-9_]+_(USERNAME|PASSWORD))")


def uv_settings(env: Mapping[str, str], root: Path, home: Path) -> UvSettings:
    """Variables win over the user's uv.toml, which wins over the system's."""
    config_home = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    system = [Path(each) / "uv" / "uv.toml" for each in _config_dirs(env, root)] + [root / "etc" / "uv" / "uv.toml"]
    files = [next((f for f in system if f.is_file()), None), config_home / "uv" / "uv.toml"]
    if env.get("UV_CONFIG_FILE"):
        files = [Path(env["UV_CONFIG_FILE"])]
    if env.get("UV_NO_CONFIG"):
        files = []
    table: dict[str, Any] = {}
    for file in files:
        table |= _toml(file) if file is not None else {}
    entries = [each for each in table.get("index") or [] if isinstance(each, dict) and isinstance(each.get("url"), str)]
    usable = [each for each in entries if not each.get("explicit")]
    defaults = [each["url"] for each in usable if each.get("default")]
    named = [
        f"{each['name']}={each['url']}" if each.get("name") else each["url"]
        for each in usable
        if not each.get("default")
    ]
    default = (
        env.get("UV_DEFAULT_INDEX") or env.get("UV_INDEX_URL") or next(iter(defaults), None) or table.get("index-url")
    )
    further = env.get("UV_INDEX", "").split() + env.get("UV_EXTRA_INDEX_URL", "").split()
    find_links = [each for each in env.get("UV_FIND_LINKS", "").split(",") if each]
    variables = {name: value for name, value in env.items() if _UV_CARRIED.fullmatch(name) and value}
    if isinstance(table.get("index-strategy"), str):
        variables.setdefault("UV_INDEX_STRATEGY", table["index-strategy"])
    return UvSettings(
        default_index=str(default) if default else None,
        indexes=tuple(further or [*named, *_strings(table.get("extra-index-url"))]),
        find_links=tuple(find_links or _strings(table.get("find-links"))),
        variables=variables,
    )


def apt_sources(root: Path) -> tuple[AptSource, ...]:
    """The enabled sources of binary packages, from one-line and deb822 files."""
    folder = root / "etc" / "apt" / "sources.list.d"
    found = list(_one_line_sources(_text(root / "etc" / "apt" / "sources.list")))
    for file in sorted(folder.glob("*.list")) if folder.is_dir() else []:
        found += _one_line_sources(_text(file))
    for file in sorted(folder.glob("*.sources")) if folder.is_dir() else []:
        found += _deb822_sources(_text(file))
    return tuple(dict.fromkeys(found))


def _one_line_sources(text: str) -> Iterator[AptSource]:
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[[^\]]*\]\s*)?(\S+)\s+(\S+)((?:\s+[^\s#]+)*)", line)
        if match:
            yield AptSource(match[1], match[2], tuple(match[3].split()))


def _deb822_sources(text: str) -> Iterator[AptSource]:
    for stanza in re.split(r"\n[ \t]*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1] in {" ", "\t"} and name:
                fields[name] += " " + line.strip()
            elif ":" in line:
                name, _, value = line.partition(":")
                name = name.strip().lower()
                fields[name] = value.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in {"no", "false", "0"}:
            continue
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield AptSource(uri, suite, tuple(fields.get("components", "").split()))


def _config_dirs(env: Mapping[str, str], root: Path) -> list[str]:
    return (env.get("XDG_CONFIG_DIRS") or str(root / "etc" / "xdg")).split(os.pathsep)


def _strings(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_text(file))
    except tomllib.TOMLDecodeError:
        return {}  # uv itself would stop here; the operator hears it from uv


def _text(file: Path) -> str:
    """The text of a file; empty when it is absent, unreadable or no regular file."""
    try:
        if not file.is_file():
            return ""
        with file.open("rb") as stream:
            return stream.read(MAX_FILE_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def words(value: str | None) -> list[str]:
    """A configured list: separated by white space or lines, with shell quotes where an entry has blanks."""
    try:
        return shlex.split(value or "")
    except ValueError:
        return (value or "").split()
