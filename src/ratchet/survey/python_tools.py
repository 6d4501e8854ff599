"""The [tool.…] tables of pyproject.toml with requirements and commands: Poetry, PDM, Hatch, Flit, uv, setuptools."""

from __future__ import annotations

import re
from typing import Any

from ratchet.survey.findings import Findings
from ratchet.survey.formats import Lines, at, items, strings, table, word
from ratchet.survey.python_manifests import FILE, load, note_classifier, note_requires_python
from ratchet.survey.requirements import as_requirement, note_file, note_requirement
from ratchet.survey.shell import note_script, note_variable
from ratchet.survey.tree import Tree


def read(tree: Tree, found: Findings) -> None:
    data = load(tree, found)
    tool = table(data, "tool")
    lines = Lines(tree.text(FILE) or "")
    _read_poetry(found, table(tool, "poetry"), lines)
    _read_flit(found, table(tool, "flit"), lines)
    _read_pdm(tree, found, table(tool, "pdm"), lines)
    _read_uv(found, table(tool, "uv"), lines)
    _read_hatch(tree, found, table(tool, "hatch"), FILE, lines, ("tool", "hatch"))
    if "hatch.toml" in tree:
        _read_hatch(
            tree, found, load(tree, found, "hatch.toml"), "hatch.toml", Lines(tree.text("hatch.toml") or ""), ()
        )
    _read_setuptools(tree, found, table(tool, "setuptools"))
    _read_runners(tree, found, tool, lines)


# --------------------------------------------------------------------------- Poetry


def _read_poetry(found: Findings, poetry: dict[str, Any], lines: Lines) -> None:
    if not poetry:
        return
    start = lines.section("tool", "poetry")
    found.add("project-name", word(poetry.get("name")), FILE, lines.key("name", start))
    found.add("project-version", word(poetry.get("version")), FILE, lines.key("version", start))
    for text in strings(poetry.get("classifiers")):
        note_classifier(found, text, FILE, lines.find(text, start))
    dependencies = table(poetry, "dependencies")
    start = lines.section("tool", "poetry", "dependencies")
    in_extras = {each: extra for extra, each_list in table(poetry, "extras").items() for each in strings(each_list)}
    for name, spec in dependencies.items():
        line = lines.key(name, start)
        if name.lower() == "python":
            note_requires_python(found, poetry_specifier(word(spec)), FILE, line)
        elif name in in_extras or at(spec, "optional") is True:
            for extra in [e for e, each in table(poetry, "extras").items() if name in strings(each)]:
                _note_poetry(found, name, spec, "extra-requirement", line, f"extra:{extra}")
        else:
            _note_poetry(found, name, spec, "requirement", line, "")
    groups = {"dev": table(poetry, "dev-dependencies")}
    groups |= {name: table(group, "dependencies") for name, group in table(poetry, "group").items()}
    for group, members in groups.items():
        start = lines.section("tool", "poetry", "group", group, "dependencies")
        if start == lines.section("tool", "poetry"):
            start = lines.section("tool", "poetry", "dev-dependencies")
        for name, spec in members.items():
            _note_poetry(found, name, spec, "group-requirement", lines.key(name, start), f"group:{group}")
    for name, target in table(poetry, "scripts").items():
        target = word(target) or word(at(target, "callable")) or word(at(target, "reference"))
        found.add(
            "console-script", f"{name}={target}", FILE, lines.key(name, lines.section("tool", "poetry", "scripts"))
        )


def _note_poetry(found: Findings, name: str, spec: Any, kind: str, line: int, group: str) -> None:
    for each in items(spec):
        details = each if isinstance(each, dict) else {"version": word(each)}
        for key in ("git", "path", "url", "file"):
            if word(details.get(key)):
                reference = f"git+{details[key]}" if key == "git" else word(details[key])
                tag = word(details.get("rev") or details.get("tag") or details.get("branch"))
                found.add("direct-requirement", reference + (f"@{tag}" if tag else ""), FILE, line, group)
                return
        extras = ",".join(strings(details.get("extras")))
        text = name + (f"[{extras}]" if extras else "") + poetry_specifier(word(details.get("version")))
        markers = [word(details.get("markers"))]
        python = poetry_specifier(word(details.get("python")))
        for part in filter(None, python.split(",")):
            match = re.match(r"([<>=!~]+)\s*([\d.]+)", part)
            if match:
                version = ".".join(match.group(2).split(".")[:2])
                markers.append(f"python_version {match.group(1)} '{version}'")
        marker = " and ".join(f"({each})" if " or " in each else each for each in markers if each)
        note_requirement(found, f"{text}; {marker}" if marker else text, kind, FILE, line, group)


def poetry_specifier(text: str) -> str:
    """Poetry's carets, tildes and wildcards as a PEP 440 specifier; of alternatives (`||`) the last."""
    text = text.split("|")[-1].strip()
    parts = [_poetry_part(part.strip()) for part in re.split(r"\s*,\s*|\s+(?=[<>=!~^])", text) if part.strip()]
    return ",".join(part for part in parts if part)


def _poetry_part(part: str) -> str:
    match = re.match(r"(\^|~=|~|[<>=!]=?=?)?\s*v?([\w.*+!-]+)$", part)
    if not match or part == "*":
        return ""
    sign, version = match.group(1) or "", match.group(2)
    numbers = [int(n) for n in re.findall(r"\d+", re.split(r"[a-zA-Z+-]", version)[0])[:4] if len(n) < 9]
    if sign == "^" and numbers:
        at_index = next((n for n, number in enumerate(numbers) if number), len(numbers) - 1)
        upper = [*numbers[:at_index], numbers[at_index] + 1]
        return f">={version},<{'.'.join(map(str, upper if len(upper) > 1 else [*upper, 0]))}"
    if sign == "~" and numbers:
        upper = [numbers[0] + 1] if len(numbers) == 1 else [numbers[0], numbers[1] + 1]
        return f">={version},<{'.'.join(map(str, upper))}"
    return f"{sign if sign != '=' else '=='}{version}" if sign else f"=={version}"


# --------------------------------------------------------------------------- Flit, PDM, uv


def _read_flit(found: Findings, flit: dict[str, Any], lines: Lines) -> None:
    """The table of Flit before PEP 621."""
    metadata = table(flit, "metadata")
    start = lines.section("tool", "flit", "metadata")
    found.add("project-name", word(metadata.get("dist-name")) or word(metadata.get("module")), FILE, start)
    note_requires_python(found, word(metadata.get("requires-python")), FILE, lines.find("requires-python", start))
    for text in strings(metadata.get("classifiers")):
        note_classifier(found, text, FILE, lines.find(text, start))
    for text in strings(metadata.get("requires")):
        note_requirement(found, text, "requirement", FILE, lines.find(text, start))
    for extra, texts in table(metadata, "requires-extra").items():
        for text in strings(texts):
            note_requirement(found, text, "extra-requirement", FILE, lines.find(text, start), f"extra:{extra}")
    for name, target in table(flit, "scripts").items():
        found.add("console-script", f"{name}={word(target)}", FILE, lines.key(name, start))


def _read_pdm(tree: Tree, found: Findings, pdm: dict[str, Any], lines: Lines) -> None:
    start = lines.section("tool", "pdm", "dev-dependencies")
    for group, texts in table(pdm, "dev-dependencies").items():
        for text in strings(texts):
            text = re.sub(r"^-e\s+", "", text)
            note_requirement(found, text, "group-requirement", FILE, lines.find(text, start), f"group:{group}")
    start = lines.section("tool", "pdm", "scripts")
    for name, script in table(pdm, "scripts").items():
        _note_task(tree, found, script, FILE, lines.key(name, start), f"pdm:{name}")


def _read_uv(found: Findings, uv: dict[str, Any], lines: Lines) -> None:
    start = lines.section("tool", "uv")
    for text in strings(uv.get("dev-dependencies")):
        note_requirement(found, text, "group-requirement", FILE, lines.find(text, start), "group:dev")
    for key in ("constraint-dependencies", "override-dependencies"):
        for text in strings(uv.get(key)):
            note_requirement(found, text, "constraint", FILE, lines.find(text, start), f"file:{FILE}")
    for name, source in table(uv, "sources").items():
        for each in items(source):
            reference = word(at(each, "git")) or word(at(each, "path")) or word(at(each, "url"))
            if reference:
                prefix = "git+" if at(each, "git") else ""
                found.add("direct-requirement", f"{name} @ {prefix}{reference}", FILE, lines.key(name, start))


def _note_task(tree: Tree, found: Findings, task: Any, file: str, line: int, group: str) -> None:
    """A task of PDM, Poe or taskipy: text, a list, or a table with `cmd`, `shell` or `composite`."""
    if isinstance(task, dict):
        task = task.get("cmd") or task.get("shell") or task.get("composite") or task.get("script")
    listed = strings(task)
    if isinstance(task, list) and listed and not any(" " in each for each in listed):
        listed = [" ".join(listed)]
    for text in listed:
        note_script(tree, found, text, file, line, group)


# --------------------------------------------------------------------------- Hatch


def _read_hatch(
    tree: Tree, found: Findings, hatch: dict[str, Any], file: str, lines: Lines, prefix: tuple[str, ...]
) -> None:
    for name, env in table(hatch, "envs").items():
        group = f"hatch:{name}"
        start = lines.section(*prefix, "envs", name)
        for key in ("dependencies", "extra-dependencies"):
            for text in strings(at(env, key)):
                note_requirement(found, text, "group-requirement", file, lines.find(text, start), group)
        for key, kind in (("features", "used-extra"), ("dependency-groups", "used-group")):
            for text in strings(at(env, key)):
                found.add(kind, text, file, lines.find(key, start), group)
        for variable, value in table(env, "env-vars").items():
            note_variable(found, variable, value, file, lines.key(variable, start), group)
        for script in table(env, "scripts").values():
            for text in strings(script):
                expanded = re.sub(r"\{args(?::([^}]*))?\}", lambda match: match.group(1) or "", text)
                note_script(tree, found, expanded, file, lines.find(text, start), group)
        for matrix in items(at(env, "matrix")):
            for version in strings(at(matrix, "python")):
                if re.fullmatch(r"\d\.\d+", version):
                    found.add("python-version", version, file, lines.find(version, start), group)


# --------------------------------------------------------------------------- setuptools and task runners


def _read_setuptools(tree: Tree, found: Findings, setuptools: dict[str, Any]) -> None:
    """Dependencies that setuptools reads from requirements files."""
    dynamic = table(setuptools, "dynamic")
    _note_dynamic(tree, found, strings(at(dynamic, "dependencies", "file")), "requirement", "")
    for extra, source in table(dynamic, "optional-dependencies").items():
        _note_dynamic(tree, found, strings(at(source, "file")), "extra-requirement", f"extra:{extra}")


def _note_dynamic(tree: Tree, found: Findings, paths: list[str], kind: str, group: str) -> None:
    for path in paths:
        note_file(tree, found, path)
        for number, text in enumerate((tree.text(path) or "").splitlines(), 1):
            if as_requirement(text):
                note_requirement(found, text.split(" #")[0], kind, path, number, group)


def _read_runners(tree: Tree, found: Findings, tool: dict[str, Any], lines: Lines) -> None:
    for path, name in ((("poe", "tasks"), "poe"), (("taskipy", "tasks"), "taskipy")):
        start = lines.section("tool", *path)
        for task, definition in table(tool, *path).items():
            _note_task(tree, found, definition, FILE, lines.key(task, start), f"{name}:{task}")
    cibuildwheel = table(tool, "cibuildwheel")
    start = lines.section("tool", "cibuildwheel")
    for text in strings(cibuildwheel.get("test-requires")):
        for part in text.split():
            note_requirement(
                found, part, "group-requirement", FILE, lines.find(text, start), "ci:cibuildwheel", raw=True
            )
    for text in strings(cibuildwheel.get("test-command")):
        command = text.replace("{project}/", "").replace("{package}/", "")
        note_script(tree, found, command, FILE, lines.find("test-command", start), "ci:cibuildwheel")
    for extra in strings(cibuildwheel.get("test-extras")):
        found.add("used-extra", extra, FILE, lines.find("test-extras", start), "ci:cibuildwheel")
    for group in strings(cibuildwheel.get("test-groups")):
        found.add("used-group", group, FILE, lines.find("test-groups", start), "ci:cibuildwheel")
    for mapping in (table(cibuildwheel, "environment"), table(cibuildwheel, "linux", "environment")):
        for variable, value in mapping.items():
            note_variable(found, variable, value, FILE, lines.key(variable, start), "ci:cibuildwheel")
    for script in strings(at(cibuildwheel, "linux", "before-all")) + strings(cibuildwheel.get("before-test")):
        note_script(tree, found, script, FILE, lines.find(script, start), "ci:cibuildwheel")
