"""Shell text from docs, CI and build files: split into commands, and mined for what they install."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from ratchet.survey.commands import classify, words
from ratchet.survey.findings import Findings
from ratchet.survey.formats import names
from ratchet.survey.requirements import join, note_file, note_local, note_requirement
from ratchet.survey.tree import Tree

MAX_COMMANDS = 400
MAX_SCRIPT = 60_000
MAX_COMMAND = 2_000

_CONTROL_WORDS = names(
    """
    if then else elif fi for do done while until case esac function set echo printf cd pwd ls cat exit return true
    false shopt trap } { ) [ [[ ! : # ;; local readonly unset sleep wait mkdir rm cp mv read
    """
)
_ASSIGNMENT = re.compile(r"""^(?:export\s+)?([A-Z_][A-Z0-9_]*)=("[^"]*"|'[^']*'|\S*)$""")
_LEADING = re.compile(r"""^(?:env\s+)?([A-Z_][A-Z0-9_]*)=("[^"]*"|'[^']*'|\S*)\s+""")
_PACKAGE = re.compile(r"^[a-z0-9][a-z0-9.+-]+$")


@dataclass(frozen=True)
class Command:
    text: str
    line: int  # counts from 0 inside the script


def split(script: str) -> list[Command]:
    """The commands of a script: continued lines joined, comments and control words left out, `&&` chains split
    unless they start by changing the folder."""
    commands: list[Command] = []
    for line, text in _logical_lines(script[:MAX_SCRIPT]):
        chained = text.startswith(("cd ", "pushd ", "(", "source ", ". "))
        for part in [text] if chained else re.split(r"\s+&&\s+|;\s+(?!then|do\b)", text):
            part = re.sub(r"^(?:then|else|do)\s+", "", part.strip().rstrip(";"))
            if part and len(part) <= MAX_COMMAND and (chained or not _is_control(part)):
                commands.append(Command(part, line))
        if len(commands) >= MAX_COMMANDS:
            break
    return commands


def _is_control(command: str) -> bool:
    first = re.split(r"[\s;)]", command, maxsplit=1)[0]
    return first in _CONTROL_WORDS or bool(re.match(r"\w+\s*\(\)", command)) or command.startswith("test -")


def _logical_lines(script: str) -> Iterator[tuple[int, str]]:
    pending, start, end = "", 0, ""
    for number, raw in enumerate(script.splitlines()):
        if end:  # inside a here-document
            end = "" if raw.strip() == end else end
            continue
        start = start if pending else number
        line = raw.strip()
        if line.startswith("#") and not pending:
            continue
        line = re.sub(r"\s+#\s.*$", "", line)
        if line.endswith(("\\", "&&")):
            pending += line.removesuffix("\\").rstrip() + " "
            continue
        here = re.search(r"<<-?\s*['\"]?(\w+)['\"]?", line)
        end = here.group(1) if here else ""
        yield start, (pending + line).strip()
        pending = ""
    if pending.strip():
        yield start, pending.strip()


# --------------------------------------------------------------------------- noting


def note_script(tree: Tree, found: Findings, script: str, file: str, line: int, group: str, cwd: str = "") -> None:
    """Note the commands of a script whose first line is `line` of `file`, and what they install and export."""
    for command in split(script):
        note_command(tree, found, command.text, file, line + command.line, group, cwd)


def note_command(tree: Tree, found: Findings, text: str, file: str, line: int, group: str, cwd: str = "") -> None:
    """Note one command. `cwd` is the folder of the checkout in which it runs."""
    assignment = _ASSIGNMENT.match(text)
    if assignment:
        note_variable(found, assignment.group(1), assignment.group(2), file, line, group)
        return
    kind = classify(text)
    found.add(kind, text, file, line, group)
    if kind == "test-command":
        rest = text
        while leading := _LEADING.match(rest):
            note_variable(found, leading.group(1), leading.group(2), file, line, group)
            rest = rest[leading.end() :]
    for part in re.split(r"\s*(?:&&|\|\||;|\|)\s*", text):
        _note_installs(tree, found, words(part), file, line, group, cwd)


def note_variable(found: Findings, name: str, value: object, file: str, line: int, group: str) -> None:
    """Note an environment variable, unless its value is computed, secret or about the CI machine."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z_]\w*", name):
        return
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    if name in ("PATH", "HOME", "PWD") or re.search(r"\$[({\w]|`|TOKEN|SECRET", value + name) or "\n" in value:
        return
    found.add("environment-variable", f"{name}={value}", file, line, group)


def _note_installs(
    tree: Tree, found: Findings, argv: list[str], file: str, line: int, group: str, cwd: str = ""
) -> None:
    while argv and (argv[0] in ("sudo", "env", "DEBIAN_FRONTEND=noninteractive", "-E", "-H") or "=" in argv[0]):
        argv = argv[1:]
    for at, each in enumerate(argv):
        program = re.sub(r"[\d.]+$", "", each.rsplit("/", 1)[-1])
        if program in ("apt", "apt-get", "aptitude", "eatmydata") and "install" in argv[at:]:
            _note_debian(found, argv[argv.index("install", at) + 1 :], file, line, group)
            return
        if program == "pip" and "install" in argv[at : at + 4]:
            start = argv.index("install", at) + 1
            _note_pip(tree, found, argv[start:], file, line, group, cwd)
            return
        if program in ("uv", "poetry", "pdm", "hatch") and at == 0 and not {"pip", "tool"} & set(argv[:3]):
            _note_groups(found, argv, file, line, group)
            return


def _note_debian(found: Findings, arguments: list[str], file: str, line: int, group: str) -> None:
    for each in arguments:
        if each in ("||", "&&", "|", ">", "2>&1") or each.startswith(">"):
            return
        name = each.split("=", 1)[0].split(":", 1)[0]
        if _PACKAGE.match(name) and not each.endswith((".deb", "-")):
            found.add("system-package", name, file, line, group)


_PIP_WITH_VALUE = names(
    """
    -i --index-url --extra-index-url -f --find-links -t --target --prefix --root --src --no-binary
    --only-binary --upgrade-strategy --progress-bar --timeout --retries --trusted-host --cache-dir -C
    --config-settings --config-setting --global-option --install-option --python -p --platform
    --python-version --abi --no-build --build-constraint -b --log --proxy --cert --exclude-newer
    --resolution --prerelease
    """
)


def _note_pip(tree: Tree, found: Findings, arguments: list[str], file: str, line: int, group: str, cwd: str) -> None:
    waiting = iter(arguments)
    for each in waiting:
        option, _, value = each.partition("=") if each.startswith("--") else (each, "", "")
        if option in ("-r", "--requirement", "-c", "--constraint", "-e", "--editable", "--group"):
            value = value or next(waiting, "")
            if option == "--group":
                found.add("used-group", value.rsplit(":", 1)[-1], file, line, group)
            elif option in ("-e", "--editable"):
                note_local(found, value, file, line, group)
            else:
                note_file(tree, found, join(f"{cwd}/x" if cwd else "x", value), group if option[-1] != "c" else "")
        elif re.match(r"-[rec]\S", each):
            inner = each[2:]
            note_file(tree, found, join(f"{cwd}/x" if cwd else "x", inner))
        elif option in _PIP_WITH_VALUE:
            value or next(waiting, "")
        elif each.startswith("-") or "$" in each or "{" in each:
            continue
        elif re.match(r"[|<>&]|\d>", each):
            return
        elif re.match(r"\.(?:/?$|/?\[)", each):
            note_local(found, each, file, line, group)
        elif not re.search(r"[*]|\.whl|\.tar|\.zip", each) and not each.startswith((".", "/")):
            note_requirement(found, each, "group-requirement", file, line, group, raw=True)


def _note_groups(found: Findings, argv: list[str], file: str, line: int, group: str) -> None:
    """`uv sync --extra a --group b`, `poetry install --with b -E a`, `pdm install -G b`."""
    for option, value in pairwise((*argv, "")):
        name, _, inline = option.partition("=")
        value = inline or value
        extra = name in ("--extra", "-E", "--extras")
        if extra or name in ("--group", "--with", "--only", "-G", "--only-group"):
            for each in re.split(r"[,\s]+", value):
                if re.fullmatch(r"[\w.-]+", each) and not each.startswith("-"):
                    found.add("used-extra" if extra else "used-group", each, file, line, group)
