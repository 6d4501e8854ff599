"""Makefile, justfile, Dockerfile, compose files, devcontainer, pre-commit, Python version files."""

from __future__ import annotations

import json
import re
from typing import Any

from ratchet.survey.findings import Findings
from ratchet.survey.formats import UnreadableError, at, items, line_of, parse_yaml, strings, table, word
from ratchet.survey.shell import note_script, note_variable
from ratchet.survey.tree import Tree, is_vendored

MAX_TARGETS = 120
_HOOK_TOOLS = (
    "ruff", "black", "flake8", "mypy", "isort", "pylint", "codespell", "bandit", "pyupgrade", "yapf", "prettier",
    "pyright",
)  # fmt: skip


def read(tree: Tree, found: Findings) -> None:
    for path in tree.matching("Makefile", "makefile", "GNUmakefile", depth=0):
        _read_recipes(tree, found, path, "make", "\t")
    for path in tree.matching("justfile", "Justfile", ".justfile", depth=0):
        _read_recipes(tree, found, path, "just", " ")
    for path in tree.matching("Dockerfile*", "*.Dockerfile", "Containerfile", depth=2)[:8]:
        if not is_vendored(path):
            _read_dockerfile(tree, found, path)
    for path in tree.matching("docker-compose*.y*ml", "compose*.y*ml", depth=2)[:8]:
        _read_yaml(tree, found, path, _read_compose)
    for path in tree.matching(".devcontainer/devcontainer.json", ".devcontainer.json", depth=2)[:3]:
        _read_devcontainer(tree, found, path)
    for path in tree.matching(".pre-commit-config.yaml", depth=0):
        found.add("tool", "pre-commit", path)
        _read_yaml(tree, found, path, _read_pre_commit)
    _read_python_versions(tree, found)


def _read_yaml(tree: Tree, found: Findings, path: str, reader: Any) -> None:
    try:
        reader(tree, found, path, parse_yaml(tree.text(path) or ""))
    except UnreadableError as error:
        found.add("unreadable", str(error), path)


# --------------------------------------------------------------------------- make and just


def _read_recipes(tree: Tree, found: Findings, path: str, program: str, margin: str) -> None:
    lines = (tree.text(path) or "").splitlines()
    variables: dict[str, str] = {}
    target = ""
    targets = 0
    script: list[str] = []
    first = 0
    for number, line in enumerate([*lines, "end:"], 1):
        if line.startswith(margin) and target:
            script.append(re.sub(r"^\s*[@+-]*", "", line))
            continue
        if script:
            note_script(tree, found, _expand("\n".join(script), variables), path, first, f"{program}:{target}")
            script = []
        assignment = re.match(r"^(?:export\s+)?([A-Za-z_]\w*)\s*(?:[:?+]{0,2}=)\s*(.*)$", line)
        rule = re.match(r"^([A-Za-z_][\w./-]*)(?:\s[^:=]*)?:(?!=)", line)
        if assignment:
            variables[assignment.group(1)] = assignment.group(2).strip()[:500]
        elif rule and targets < MAX_TARGETS:
            target, targets = rule.group(1), targets + 1
            first = number + 1


def _expand(script: str, variables: dict[str, str]) -> str:
    script = script.replace("$$", "\0")
    for _ in range(3):
        script = re.sub(
            r"\$[({](\w+)[)}]|\{\{\s*(\w+)\s*\}\}",
            lambda match: variables.get(match.group(1) or match.group(2), match.group(0)),
            script,
        )[:20_000]
    return script.replace("\0", "$")


# --------------------------------------------------------------------------- containers


def _read_dockerfile(tree: Tree, found: Findings, path: str) -> None:
    lines = (tree.text(path) or "").splitlines()
    number = 0
    while number < len(lines):
        first, text = number, lines[number]
        while text.rstrip().endswith("\\") and number + 1 < len(lines):
            number += 1
            if not lines[number].lstrip().startswith("#"):
                text = text.rstrip()[:-1] + " " + lines[number].strip()
        number += 1
        instruction, _, rest = text.strip().partition(" ")
        line = first + 1
        match instruction.upper():
            case "FROM":
                version = re.search(r"python:(3\.\d+)", rest)
                if version:
                    found.add("python-version", version.group(1), path, line, "docker")
            case "RUN":
                rest = re.sub(r"^(?:--\w+=\S+\s+)+", "", rest.strip())
                note_script(tree, found, _exec_form(rest), path, line, "docker")
            case "CMD" | "ENTRYPOINT":
                note_script(tree, found, _exec_form(rest), path, line, "docker")
            case "ENV":
                for name, value in _pairs(rest):
                    note_variable(found, name, value, path, line, "docker")


def _exec_form(text: str) -> str:
    """`["a", "b"]` as `a b`."""
    try:
        listed = json.loads(text) if text.strip().startswith("[") else None
    except (ValueError, RecursionError):
        listed = None
    return " ".join(strings(listed)) if listed else text


def _pairs(text: str) -> list[tuple[str, str]]:
    pairs = re.findall(r"""(\w+)=("[^"]*"|'[^']*'|\S*)""", text)
    if pairs:
        return [(name, value) for name, value in pairs]
    name, _, value = text.strip().partition(" ")
    return [(name, value)]


def _read_compose(_tree: Tree, found: Findings, path: str, data: Any) -> None:
    for name, service in table(data, "services").items():
        group = f"compose:{name}"
        image = word(at(service, "image"))
        if image:
            found.add("service", image, path, line_of(at(service, "image")), group)
        environment = at(service, "environment")
        pairs = table(environment).items() or [each.partition("=")[::2] for each in strings(environment)]
        for variable, value in pairs:
            note_variable(found, variable, word(value), path, line_of(value, line_of(name)), group)


def _read_devcontainer(tree: Tree, found: Findings, path: str) -> None:
    text = re.sub(r"^\s*//.*$", "", tree.text(path) or "", flags=re.MULTILINE)
    text = re.sub(r",(\s*[}\]])", r"\1", text)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        found.add("unreadable", f"not JSON: {str(error)[:200]}", path)
        return
    version = re.search(r"python:(?:\d-)?(3\.\d+)", word(at(data, "image")))
    if version:
        found.add("python-version", version.group(1), path, 1, "devcontainer")
    for key in ("onCreateCommand", "updateContentCommand", "postCreateCommand", "postStartCommand"):
        value = at(data, key)
        commands = list(table(value).values()) or [value]
        for command in commands:
            script = " ".join(strings(command)) if isinstance(command, list) else word(command)
            note_script(tree, found, script, path, 1, "devcontainer")
    for mapping in (table(data, "containerEnv"), table(data, "remoteEnv")):
        for name, value in mapping.items():
            note_variable(found, name, value, path, 1, "devcontainer")


def _read_pre_commit(_tree: Tree, found: Findings, path: str, data: Any) -> None:
    for repository in items(at(data, "repos")):
        for hook in items(at(repository, "hooks")):
            name = word(at(hook, "id"))
            tool = next((each for each in _HOOK_TOOLS if each in name), "")
            found.add("tool", tool, path, line_of(at(hook, "id")), "pre-commit")


# --------------------------------------------------------------------------- Python versions


def _read_python_versions(tree: Tree, found: Findings) -> None:
    for path in (".python-version", "runtime.txt", ".tool-versions", "mise.toml", ".mise.toml"):
        for number, line in enumerate((tree.text(path) or "").splitlines()[:40], 1):
            if path in (".tool-versions", "mise.toml", ".mise.toml") and not line.startswith("python"):
                continue
            match = re.search(r"(?<![\d.])(3\.\d{1,2})(?:\.\d+)?\b", line)
            if match:
                found.add("python-version", match.group(1), path, number)
