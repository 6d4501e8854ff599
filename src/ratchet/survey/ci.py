"""Continuous integration: what a project's own machines install, set and run.

GitHub Actions, GitLab, Travis, CircleCI and Azure Pipelines, and the smaller ones that are one YAML script. A job
is the group `ci:JOB`. Expressions over the matrix are expanded for its newest entry; other expressions stay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from packaging.version import Version

from ratchet.survey.findings import Findings
from ratchet.survey.formats import UnreadableError, at, items, line_of, parse_yaml, strings, table, walk_yaml, word
from ratchet.survey.shell import note_script, note_variable
from ratchet.survey.tree import Tree

MAX_WORKFLOWS = 40
MAX_YAML = 600_000  # characters in all

_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_PYTHON = re.compile(r"(?<![\d.])(?:cp|py(?:thon)?[-:]?)?(3\.\d{1,2})(?![\d])")
_SCRIPT_KEYS = ("before_install", "install", "before_script", "script", "before_test")


def read(tree: Tree, found: Findings) -> None:
    readers = (
        (_github, (".github/workflows/*.yml", ".github/workflows/*.yaml")),
        (_github_action, (".github/actions/*/action.yml", ".github/actions/*/action.yaml")),
        (_gitlab, (".gitlab-ci.yml", ".gitlab-ci.yaml", ".gitlab/*.yml", ".gitlab-ci/*.yml")),
        (_travis, (".travis.yml",)),
        (_circle, (".circleci/config.yml", "circle.yml")),
        (_azure, ("azure-pipelines.yml", "azure-pipelines.yaml", ".azure-pipelines/*.yml", ".azure-pipelines.yml",
                  "azure-pipelines/*.yml")),
        (_plain, (".cirrus.yml", ".woodpecker.yml", ".builds/*.yml", "appveyor.yml", ".appveyor.yml",
                  ".semaphore/*.yml",
                  ".drone.yml", "bitbucket-pipelines.yml", ".readthedocs.yml", ".readthedocs.yaml")),
    )  # fmt: skip
    size = 0
    for reader, patterns in readers:
        for path in [name for name in tree.matching(*patterns, depth=3) if _at_top(name)][:MAX_WORKFLOWS]:
            found.add("ci", path, path)
            size += len(tree.text(path) or "")
            if size > MAX_YAML:
                found.add("unreadable", f"more than {MAX_YAML} characters of CI configuration before it", path)
                continue
            try:
                reader(tree, found, path, parse_yaml(tree.text(path) or ""))
            except UnreadableError as error:
                found.add("unreadable", str(error), path)


def _at_top(path: str) -> bool:
    return path.count("/") == 0 or path.startswith((".", "azure-pipelines/"))


# --------------------------------------------------------------------------- GitHub Actions


def _github(tree: Tree, found: Findings, path: str, data: Any) -> None:
    jobs = table(data, "jobs")
    for name, job in jobs.items():
        if not isinstance(job, dict):
            continue
        group = f"ci:{name}"
        matrix = table(job, "strategy", "matrix")
        _note_pythons(found, matrix, path, group)
        chosen = {key: newest(value) for key, value in matrix.items() if key not in ("include", "exclude")}
        for entry in items(matrix.get("include")):
            for key, value in table(entry).items():
                if word(value):
                    chosen.setdefault(key, value)
        scope = {f"matrix.{key}": value for key, value in chosen.items() if isinstance(value, str)}
        for env in (table(data, "env"), table(job, "env")):
            _note_env(found, env, path, group, scope)
        _note_services(found, table(job, "services"), path, group)
        folder = word(at(job, "defaults", "run", "working-directory"))
        for step in items(job.get("steps")):
            _github_step(tree, found, path, group, table(step), scope, folder)


def _github_action(tree: Tree, found: Findings, path: str, data: Any) -> None:
    """A composite action; its folder is the job's name."""
    for step in items(at(data, "runs", "steps")):
        _github_step(tree, found, path, f"ci:{path.split('/')[-2]}", table(step), {}, "")


def _github_step(
    tree: Tree, found: Findings, path: str, group: str, step: dict[str, Any], scope: Mapping[str, str], folder: str
) -> None:
    _note_env(found, table(step, "env"), path, group, scope)
    if "setup-python" in word(step.get("uses")) or "setup-uv" in word(step.get("uses")):
        for each in str(at(step, "with", "python-version") or "").splitlines():
            _note_python(found, expand(each, scope), path, line_of(at(step, "with", "python-version")), group)
    run = step.get("run")
    if isinstance(run, str):
        cwd = (word(step.get("working-directory")) or folder).strip("./")
        note_script(tree, found, expand(run, scope), path, script_line(tree, path, run), group, cwd)


def script_line(tree: Tree, path: str, script: str) -> int:
    """The line of the first line of a script: a block scalar (`|`) begins one line below its mark."""
    line = line_of(script)
    lines = (tree.text(path) or "").splitlines()
    mark = lines[line - 1].split("#", 1)[0].rstrip() if 0 < line <= len(lines) else ""
    return line + 1 if re.search(r"[|>][-+\d]*$", mark) else line


def expand(text: str, scope: Mapping[str, str]) -> str:
    """`${{ matrix.x }}` with its value from `scope`; what is not there stays."""
    return _EXPRESSION.sub(lambda match: scope.get(match.group(1), match.group(0)), text)


def newest(values: Any) -> Any:
    """The newest version of a matrix axis; the first entry where they are no versions."""
    listed = [value for value in items(values) if isinstance(value, str)]
    best, best_version = (listed[0] if listed else None), None
    for value in listed:
        try:
            version = Version(value)
        except ValueError:  # no version, or a number with thousands of digits
            continue
        if not version.is_prerelease and (best_version is None or version > best_version):
            best, best_version = value, version
    return best


def _note_pythons(found: Findings, matrix: Any, path: str, group: str) -> None:
    for mapping in walk_yaml(matrix):
        for key, value in mapping.items():
            if key == "exclude":
                continue
            if re.search(r"py", key, re.IGNORECASE):
                for each in strings(value):
                    _note_python(found, each, path, line_of(each), group)


def _note_python(found: Findings, text: str, path: str, line: int, group: str) -> None:
    for match in _PYTHON.finditer(text) if "pypy" not in text.lower() else ():
        found.add("python-version", match.group(1), path, line, group)


def _note_env(found: Findings, env: dict[str, Any], path: str, group: str, scope: Mapping[str, str]) -> None:
    for name, value in env.items():
        if word(value):
            note_variable(found, name, expand(word(value), scope), path, line_of(name), group)


def _note_services(found: Findings, services: dict[str, Any], path: str, group: str) -> None:
    for name, service in services.items():
        image = word(at(service, "image")) or word(service) or name
        found.add("service", image, path, line_of(name), group)
        for variable, value in table(service, "env").items():
            note_variable(found, variable, word(value), path, line_of(variable), group)


# --------------------------------------------------------------------------- the others


def _note_keys(tree: Tree, found: Findings, path: str, group: str, job: dict[str, Any], keys: tuple[str, ...]) -> None:
    for key in keys:
        for script in _scripts(job.get(key)):
            note_script(tree, found, script, path, script_line(tree, path, script), group)


def _scripts(value: Any) -> list[str]:
    """Scripts in a value that may be text, a list (also nested) or a mapping with a command."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return _scripts(value.get("command"))
    return [each for part in items(value) for each in (_scripts(part) if not isinstance(part, str) else [part])]


def _gitlab(tree: Tree, found: Findings, path: str, data: Any) -> None:
    shared = table(data)
    for name, job in shared.items():
        if not isinstance(job, dict) or name in ("default", "variables", "workflow", "stages", "include", "cache"):
            continue
        group = f"ci:{name}"
        for env in (table(shared, "variables"), table(job, "variables")):
            _note_env(found, env, path, group, {})
        image = word(job.get("image")) or word(at(job, "image", "name")) or word(shared.get("image"))
        if "python" in image:
            _note_python(found, image, path, line_of(job.get("image"), line_of(shared.get("image"))), group)
        for service in items(job.get("services")) or items(shared.get("services")):
            found.add("service", word(service) or word(at(service, "name")), path, line_of(service), group)
        _note_pythons(found, at(job, "parallel", "matrix"), path, group)
        for part in (table(shared, "default"), {k: shared.get(k) for k in _SCRIPT_KEYS if k not in job}, job):
            _note_keys(tree, found, path, group, table(part), _SCRIPT_KEYS)


def _travis(tree: Tree, found: Findings, path: str, data: Any) -> None:
    group = "ci:travis"
    for each in strings(at(data, "python")):
        _note_python(found, each, path, line_of(each), group)
    stages = [table(data), *(table(each) for key in ("matrix", "jobs") for each in items(at(data, key, "include")))]
    for part in stages:
        _note_keys(tree, found, path, group, part, _SCRIPT_KEYS)
        for each in strings(part.get("python")):
            _note_python(found, each, path, line_of(each), group)
        for service in strings(part.get("services")):
            found.add("service", service, path, line_of(service), group)
        for package in strings(at(part, "addons", "apt", "packages")) + strings(at(part, "addons", "apt_packages")):
            found.add("system-package", package, path, line_of(package), group)
        env = part.get("env")
        entries = strings(env) if not isinstance(env, dict) else strings(env.get("global")) + strings(env.get("matrix"))
        for entry in entries:
            for name, value in re.findall(r"""(\w+)=("[^"]*"|'[^']*'|\S*)""", entry):
                note_variable(found, name, value, path, line_of(entry), group)


def _circle(tree: Tree, found: Findings, path: str, data: Any) -> None:
    for name, job in table(data, "jobs").items():
        group = f"ci:{name}"
        _note_env(found, table(job, "environment"), path, group, {})
        for at_index, image in enumerate(items(at(job, "docker"))):
            text = word(at(image, "image"))
            _note_env(found, table(image, "environment"), path, group, {})
            if at_index:
                found.add("service", text, path, line_of(at(image, "image")), group)
            elif "python" in text:
                _note_python(found, text, path, line_of(at(image, "image")), group)
        for step in items(at(job, "steps")):
            for script in _scripts(at(step, "run")):
                note_script(tree, found, script, path, script_line(tree, path, script), group)


def _azure(tree: Tree, found: Findings, path: str, data: Any) -> None:
    for mapping in walk_yaml(data):
        group = f"ci:{word(mapping.get('job')) or 'azure'}"
        matrix = table(mapping, "strategy", "matrix")
        _note_pythons(found, matrix, path, group)
        for key in ("script", "bash"):
            if isinstance(mapping.get(key), str):
                script = mapping[key]
                note_script(tree, found, script, path, script_line(tree, path, script), "ci:azure")
        if "UsePythonVersion" in word(mapping.get("task")):
            version = at(mapping, "inputs", "versionSpec")
            _note_python(found, word(version), path, line_of(version), "ci:azure")
        _note_env(found, table(mapping, "env"), path, "ci:azure", {})
        _note_env(found, table(mapping, "variables"), path, "ci:azure", {})


def _plain(tree: Tree, found: Findings, path: str, data: Any) -> None:
    """Services whose jobs are mappings with lists of commands."""
    for mapping in walk_yaml(data):
        keys = tuple(
            key for key in mapping
            if str(key).endswith(("script", "commands")) or key in ("install", "setup", "tasks")
        )  # fmt: skip
        _note_keys(tree, found, path, "ci:" + path.rsplit("/", 1)[-1].split(".")[-2], mapping, keys)
        for package in strings(mapping.get("apt_packages")) + strings(mapping.get("packages")):
            if re.fullmatch(r"[a-z0-9][a-z0-9.+-]+", package):
                found.add("system-package", package, path, line_of(package), "ci:" + path.rsplit("/", 1)[-1])
