"""tox: tox.ini, setup.cfg, tox.toml, [tool.tox] and its legacy_tox_ini.

Factors and substitutions are resolved for one environment each; what a command line would add ({posargs}) is its
default, the environment's own folders become plain names.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

from ratchet.survey.findings import Findings
from ratchet.survey.formats import Lines, UnreadableError, at, items, parse_ini, parse_toml, strings, table, word
from ratchet.survey.requirements import join, note_file, note_local, note_requirement
from ratchet.survey.shell import note_command, note_variable
from ratchet.survey.tree import Tree

MAX_ENVIRONMENTS = 40

Sections = Mapping[str, Mapping[str, str]]

_FACTOR_LINE = re.compile(r"^\s*(!?[\w{},.!-]+)\s*:(?!\w*//|:)\s*(.*)$")
_SUBSTITUTION = re.compile(r"\{([^{}]*)\}")


def read(tree: Tree, found: Findings) -> None:
    for path in ("tox.ini", "setup.cfg"):
        text = tree.text(path)
        if text is not None and (path == "tox.ini" or "tox" in text):
            _read_ini_text(tree, found, path, text, Lines(text))
    for path, prefix in (("tox.toml", ()), ("pyproject.toml", ("tool", "tox"))):
        text = tree.text(path)
        if text is None:
            continue
        try:
            data = table(parse_toml(text), *prefix)
        except UnreadableError as error:
            if path == "tox.toml":
                found.add("unreadable", str(error), path)
            continue
        if isinstance(data.get("legacy_tox_ini"), str):
            _read_ini_text(tree, found, path, data["legacy_tox_ini"], Lines(text))
        _read_toml(tree, found, path, data, Lines(text), prefix)


# --------------------------------------------------------------------------- INI


def _read_ini_text(tree: Tree, found: Findings, path: str, text: str, lines: Lines) -> None:
    try:
        sections: Sections = parse_ini(text)
    except UnreadableError as error:
        if path == "tox.ini":
            found.add("unreadable", str(error), path)
        return
    core = dict(sections.get("tox:tox") or sections.get("tox") or {})
    listed = _environments(core.get("envlist") or core.get("env_list") or "")
    for name in listed:
        _note_python(found, name, path, lines.find("env"))
    for name in _chosen(sections, listed):
        _read_environment(tree, found, path, sections, name, lines)


def _environments(envlist: str) -> list[str]:
    """`py{39,310}-{a,b}, lint` as single names."""
    names: list[str] = []
    for part in re.split(r"[,\s]+(?![^{]*\})", envlist):
        part = part.strip()
        if not part:
            continue
        groups = [_alternatives(group) for group in re.findall(r"\{([^{}]*)\}", part)]
        template = re.sub(r"\{[^{}]*\}", "\0", part)
        for values in itertools.islice(itertools.product(*groups), 200):
            remaining = iter(values)
            names.append(re.sub("\0", lambda _, it=remaining: next(it).strip(), template))  # type: ignore[misc]
    return names[:400]


def _alternatives(group: str) -> list[str]:
    """`39,310` and the range `9-14`."""
    span = re.fullmatch(r"(\d{1,3})-(\d{1,3})", group.strip())
    if span:
        return [str(number) for number in range(int(span.group(1)), int(span.group(2)) + 1)]
    return group.split(",")


def _chosen(sections: Sections, listed: list[str]) -> list[str]:
    """The environments worth reading: those with a section of their own, and of the others the newest Python."""
    own = [name for title in sections if title.startswith("testenv:") for name in _environments(title[8:])]
    plain = [name for name in listed if name not in own]
    chosen: dict[str, str] = {}
    for name in plain:  # one for each set of factors beside the Python
        rest = "-".join(part for part in name.split("-") if not re.fullmatch(r"(?:py|pypy)[\d.]*", part))
        if rest not in chosen or _python(name) >= _python(chosen[rest]):
            chosen[rest] = name
    names = list(chosen.values()) or (["testenv"] if "testenv" in sections and not own else [])
    if "testenv" in sections and not chosen:
        names = names or ["py"]
    return list(dict.fromkeys([*names, *own]))[:MAX_ENVIRONMENTS]


def _python(name: str) -> tuple[int, int]:
    match = re.search(r"(?<!py)py(3)\.?(\d{1,2})", name)
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


def _note_python(found: Findings, name: str, path: str, line: int) -> None:
    major, minor = _python(name)
    if major:
        found.add("python-version", f"{major}.{minor}", path, line, f"tox:{name}")


def _read_environment(tree: Tree, found: Findings, path: str, sections: Sections, name: str, lines: Lines) -> None:
    group = f"tox:{name}"
    own = next((title for title in sections if title.startswith("testenv:") and name in _environments(title[8:])), "")
    settings = {**sections.get("testenv", {}), **sections.get(own, {})}
    start = lines.find(f"[{own or 'testenv'}")

    def value(*keys: str) -> list[str]:
        text = next((settings[key] for key in keys if key in settings), "")
        return _for_factors(_substituted(text, sections, settings, name), name)

    for text in value("deps"):
        note_dependency(tree, found, text, path, lines.find(_raw(text), start), group)
    for key, kind in (("extras", "used-extra"), ("dependency_groups", "used-group")):
        for text in value(key):
            for each in re.split(r"[,\s]+", text):
                found.add(kind, each, path, lines.find(key, start), group)
    for text in value("setenv", "set_env"):
        variable, _, content = text.partition("=")
        note_variable(found, variable.strip(), content.strip(), path, lines.find(variable.strip(), start), group)
    for text in value("basepython", "base_python"):
        _note_python(found, text.replace("python", "py"), path, lines.find("python", start))
    folder = " ".join(value("changedir", "change_dir")).removeprefix("./").strip("/").removeprefix(".tox")
    folder = "" if folder.startswith("/") else folder
    for key in ("commands_pre", "commands"):
        for text in _joined(value(key)):
            _note_tox_command(tree, found, text, path, lines, start, group, folder)


def _note_tox_command(
    tree: Tree, found: Findings, text: str, path: str, lines: Lines, start: int, group: str, folder: str
) -> None:
    command = re.sub(r"^[-!\s]+", "", text).strip()
    if not command:
        return
    line = lines.find(command, start)
    if line == start:
        line = lines.find(" ".join(command.split()[:2]), start)
    shown = f"cd {folder} && {command}" if folder and " " not in folder else command
    note_command(tree, found, shown, path, line, group, folder)


def note_dependency(tree: Tree, found: Findings, text: str, path: str, line: int, group: str) -> None:
    """One entry of `deps`: a requirement, `-r file`, `-c file`, `-e .`, or a path."""
    text = text.strip().replace("\\#", "#")
    match = re.match(r"(?:-([rce])\s*|--(requirement|constraint|editable)[ =]\s*)(\S.*)$", text)
    if match:
        option, value = match.group(1) or match.group(2)[0], match.group(3).strip()
        if option == "e":
            note_local(found, value, path, line, group)
        else:
            note_file(tree, found, join("x", value), group if option == "r" else "")
    elif text.startswith("."):
        note_local(found, text, path, line, group)
    elif not text.startswith("-"):
        note_requirement(found, text, "group-requirement", path, line, group)


def _raw(text: str) -> str:
    return text.split(";")[0].strip()


def _joined(entries: list[str]) -> list[str]:
    """Commands with their continuation lines joined."""
    joined: list[str] = []
    pending = ""
    for entry in entries:
        pending += entry
        if pending.endswith("\\"):
            pending = pending[:-1].rstrip() + " "
            continue
        joined.append(pending)
        pending = ""
    return [*joined, pending] if pending else joined


def _for_factors(text: str, name: str) -> list[str]:
    """The lines that hold for an environment, their factor conditions taken off."""
    factors = set(re.split(r"-", name)) | {name}
    kept: list[str] = []
    for line in text.splitlines():
        line = re.sub(r"(^|\s)#\s?.*$", "", line).rstrip()
        match = _FACTOR_LINE.match(line)
        if match and not re.match(r"\w+(\.\w+)*::|[A-Za-z]:\\", line.strip()):
            conditions = _environments(match.group(1))
            if any(_holds(condition, factors) for condition in conditions):
                kept.append(match.group(2).strip())
        elif line.strip():
            kept.append(line.strip())
    return [line for line in kept if line]


def _holds(condition: str, factors: set[str]) -> bool:
    """`py39-!windows`: all of the parts; `pyXYZ` without a version is the factor of any Python."""
    for part in condition.split("-"):
        wanted = part.lstrip("!")
        if (wanted in factors or condition in factors) == part.startswith("!"):
            return False
    return True


def _substituted(text: str, sections: Sections, settings: Mapping[str, str], name: str) -> str:
    """The text with its `{…}` replaced, at most a few levels deep. Factor groups such as {py39,py310} stay."""
    for _ in range(6):
        changed = _SUBSTITUTION.sub(lambda match: _substitute(match, sections, settings, name), text)
        if changed == text or len(changed) > 100_000:
            break
        text = changed
    return re.sub(r" +(?=\n|$)", "", text.replace("\\{", "{").replace("\\}", "}"))


def _substitute(match: re.Match[str], sections: Sections, settings: Mapping[str, str], name: str) -> str:
    inner = match.group(1)
    key, _, default = inner.partition(":")
    reference = re.fullmatch(r"\[([^\]]+)\](\w+)", inner)
    if reference:
        section = settings if reference.group(1) == f"testenv:{name}" else sections.get(reference.group(1), {})
        return section.get(reference.group(2), "")[:20_000]
    if key == "posargs":
        return default
    if key == "env":
        return default.partition(":")[2]
    fixed = {
        "toxinidir": ".", "tox_root": ".", "envtmpdir": ".tox/tmp", "env_tmp_dir": ".tox/tmp", "toxworkdir": ".tox",
        "work_dir": ".tox", "envdir": f".tox/{name}", "env_dir": f".tox/{name}", "envname": name, "env_name": name,
        "envpython": "python", "env_python": "python", "envbindir": "", "env_bin_dir": "", "distdir": "dist",
        "envlogdir": ".tox/log", "basepython": "python", "base_python": "python", "packages": ".", "opts": "", "/": "/",
        ":": ":", "distshare": "dist", "package_root": ".", "homedir": "~",
    }  # fmt: skip
    if inner in fixed:
        return fixed[inner]
    if inner in settings:
        return settings[inner][:20_000]
    return match.group(0)


# --------------------------------------------------------------------------- TOML


def _read_toml(
    tree: Tree, found: Findings, path: str, data: dict[str, Any], lines: Lines, prefix: tuple[str, ...]
) -> None:
    for name in strings(data.get("env_list") or data.get("envlist")):
        _note_python(found, name, path, lines.find("env_list"))
    base = table(data, "env_run_base")
    environments = table(data, "env")
    for name in dict.fromkeys(["py", *environments] if base else environments):
        settings = {**base, **table(environments, name)}
        section = (*prefix, "env", name) if name in environments else (*prefix, "env_run_base")
        _read_toml_environment(tree, found, path, settings, lines, lines.section(*section), f"tox:{name}", data)


def _read_toml_environment(
    tree: Tree,
    found: Findings,
    path: str,
    settings: dict[str, Any],
    lines: Lines,
    start: int,
    group: str,
    data: dict[str, Any],
) -> None:
    name = group.removeprefix("tox:")
    for text in _toml_words(settings.get("deps"), data, name):
        note_dependency(tree, found, text, path, lines.find(_raw(text), start), group)
    for key, kind in (("extras", "used-extra"), ("dependency_groups", "used-group")):
        for text in _toml_words(settings.get(key), data, name):
            found.add(kind, text, path, lines.find(key, start), group)
    variables = settings.get("set_env")
    for variable, value in table(variables).items():
        text = " ".join(_toml_words(at(value, "value") if isinstance(value, dict) else value, data, name))
        note_variable(found, variable, text, path, lines.find(variable, start), group)
    for text in strings(settings.get("base_python")):
        _note_python(found, f"py{text.removeprefix('python')}", path, lines.find("base_python", start))
    for key in ("commands_pre", "commands"):
        for command in items(settings.get(key)):
            text = " ".join(_toml_words(command, data, name))
            first = next(iter(strings(command)), "")
            note_command(tree, found, text.lstrip("- "), path, lines.find(f'"{first}"', start), group)


def _toml_words(value: Any, data: dict[str, Any], name: str) -> list[str]:
    """Strings with `{…}` replaced, and `{ replace = "posargs", default = […] }` with its default."""
    words: list[str] = []
    for each in items(value):
        if isinstance(each, dict):
            kind = word(each.get("replace"))
            if kind == "posargs":
                words += _toml_words(each.get("default"), data, name)
            elif kind == "ref":
                target = at(data, *strings(each.get("of"))) if strings(each.get("of")) else None
                words += _toml_words(target, {}, name)
            elif kind == "env":
                words += _toml_words(each.get("default"), data, name)
        elif word(each):
            words.append(_substituted(word(each), {}, {}, name))
    return words
