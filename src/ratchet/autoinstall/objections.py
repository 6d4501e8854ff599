"""Why a proposed goal would prove nothing, as far as its command shows.

No guard can see everything; what cannot be fooled is that the floor's whole suite is always a target. This keeps out
what a model that means well writes too: a command that installs what it then finds, or prints what is expected of it.
"""

from __future__ import annotations

import re

from ratchet.policies.model.judge import prose_only
from ratchet.records import Goal

_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")

# Where a command begins: at the start of a line or after an operator, with variables before it.
_START = r"(?:^|[;&|({`]|\b(?:then|do|else|exec|env|sudo|time|xargs)\s)\s*(?:[A-Za-z_]\w*=\S* +)*(?:[\w./-]*/)?"

_INSTALLS = re.compile(
    _START + r"(?:python[\d.]* +-m +)?(?:"
    r"(?:uv +)?pip[\d.]* +(?:-\S+ +)*(?:install|uninstall|download|sync)\b"
    r"|uv +(?:-\S+ +)*(?:sync|add|run|tool|venv|python)\b|uvx\b|pipx\b|tox\b|nox\b|venv\b|virtualenv\b|ensurepip\b"
    r"|(?:poetry|pdm|hatch|pipenv|rye|conda|mamba|micromamba) +(?:-\S+ +)*(?:install|add|sync|create|update|env|run)\b"
    r"|(?:apt|apt-get|aptitude|apk|dnf|yum|brew) +(?:-\S+ +)*(?:install|add|update|upgrade)\b"
    r"|(?:npm|pnpm|yarn|gem|cargo|go|bun) +(?:-\S+ +)*(?:install|i|ci|add|get)\b|yarn *$"
    r"|easy_install\b|dpkg +(?:-i|--install)\b|make +(?:\S+ +)*install\b|curl\b|wget\b|git +clone\b"
    r"|python[\d.]* +(?:-\S+ +)*(?:\./)?setup\.py +(?:\S+ +)*(?:install|develop)\b)",
    re.MULTILINE,
)
_CHANGES_FILES = re.compile(
    _START
    + r"(?:sed +(?:-\S+ +)*-i|tee|touch|mv|cp|rm|ln|patch|truncate|dd|git +(?:apply|checkout|reset|clean|stash))\b",
    re.MULTILINE,
)
_WRITES = re.compile(r"(?<![0-9<>=-])[0-9]?>>?(?!&) *(?!/dev/null\b|/dev/std|/tmp/|>)\S")

_GIVES_TO_SHELL = re.compile(
    r"\b(?:ba|da|z)?sh +(?:-\S+ +)*-\w*c\b|\beval\b|\b(?:ba|da|z)?sh\b[^\n;&|]*<<|\| *(?:ba|da|z)?sh\b"
)

# The exit status is that of the last command of a list or a pipeline, or of what follows a failure.
_HIDES_STATUS = re.compile(r"\|\||[;\n](?=\s*\S)|(?<!\|)\|(?!\|)|(?<!&)&(?![&>])(?<!>&)")
_PRINTS = re.compile(_START + r"(?:echo|printf)\b((?:[^;&|\n'\"]|'[^']*'|\"(?:[^\"\\]|\\.)*\")*)", re.MULTILINE)
_HERE_DOCUMENT = re.compile(r"\b(?:cat|tee)\b[^\n]*<<")


def objection(goal: Goal) -> str:
    """Why `goal` is not taken; empty where it may be."""
    command = goal.command.replace("\\\n", " ")
    scripts = _scripts(command)
    if any(_INSTALLS.search(script) for script in scripts):
        return "it installs something itself, where a goal only checks"
    if any(_CHANGES_FILES.search(script) or _WRITES.search(script) for script in scripts):
        return "it writes files itself, where a goal only checks"
    if prose_only(goal.expectation):
        hidden = any(_HIDES_STATUS.search(script) for script in scripts)
        return "its exit status is not that of what it checks" if hidden else ""
    patterns, printed = goal.expectation.matches, _printed(command)
    if goal.expectation.report is None and patterns and all(_found(pattern, printed) for pattern in patterns):
        return "the command itself prints what is expected of it"
    return ""


def _scripts(command: str) -> list[str]:
    """What a shell runs of a command, without what is quoted and without here-documents; and those that it gives to
    another shell."""
    shells = _GIVES_TO_SHELL.search(_QUOTED.sub("''", command)) is not None
    if not shells and (document := re.search(r"<<[^\n]*", command)):
        command = command[: document.end()]
    quoted = [text[1:-1] for text in _QUOTED.findall(command)] if shells else []
    return [_QUOTED.sub("''", command).strip(), *quoted]


def _found(pattern: str, lines: list[str]) -> bool:
    return any(re.search(pattern, line) for line in lines)


def _printed(command: str) -> list[str]:
    """The lines that a command prints whatever happens, as far as they stand in it."""
    lines = command.split("\n") if _HERE_DOCUMENT.search(command) else []
    for match in _PRINTS.finditer(command):
        text = re.sub(r"[\"']", "", match[1]).strip()
        lines += re.sub(r"^(?:-[neE]+ +)+", "", text).replace("\\n", "\n").split("\n")
    return [line[:1000].strip() for line in lines]
