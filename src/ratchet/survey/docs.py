"""README and docs: the shell commands that people are told to type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ratchet.survey.commands import classify, unwrapped
from ratchet.survey.findings import Findings
from ratchet.survey.formats import names
from ratchet.survey.shell import note_script
from ratchet.survey.tree import Tree, is_vendored

MAX_FILES = 60
MAX_LINES = 8_000

_SHELL = names(
    """
    sh bash shell zsh console shell-session shellsession terminal sh-session ps1con bat
    """
)
_PLAIN = frozenset(("", "text", "none", "txt", "::", "plaintext", "default"))
_README = ("README*", "readme*", "Readme*")
_TOPICS = (
    "*CONTRIBUT*", "*contribut*", "*Contribut*", "*INSTALL*", "*install*", "*HACKING*", "*hacking*", "*DEVELOP*",
    "*develop*", "*TESTING*", "*testing*", "*BUILD*", "*building*", "*getting*started*", "*quickstart*", "*setup*",
    "AGENTS.md",
)  # fmt: skip
_DOC_FOLDERS = names("docs doc documentation .github website dev site man doc-src docsource")
_SUFFIXES = (".md", ".rst", ".txt", ".markdown", ".mdx", "")
_FENCE = re.compile(r"^\s*(```+|~~~+)\s*\{?\.?([\w+-]*)")
_DIRECTIVE = re.compile(r"^(\s*)\.\.\s+(?:code-block|code|sourcecode|prompt|parsed-literal)::\s*([\w+-]*)")
_PROMPT = re.compile(
    r"^\s*(?:\([\w .-]+\)\s*)?(?:\[[^\]]*\]\s*)?(?:[\w.-]+@[\w.-]+[:~\w/ ]*)?(?:\$|%|#)\s+(?=[\w./~({-])"
)
_PROGRAM = re.compile(
    r"^(?:sudo |env |[A-Z_]+=\S+ )*(?:pip3?|python[\d.]*|py|pytest|py\.test|tox|nox|make|just|poetry|pdm|hatch|flit|uv"
    r"|uvx|pipenv|conda|mamba|apt|apt-get|git|cd|docker|docker-compose|coverage|pre-commit|nosetests|trial|stestr|npm|yarn"
    r"|cmake|meson|cargo|maturin|\./[\w./-]+)\s+[\w./<$\"'-]|^(?:pytest|tox|nox|make)$"
)
_INLINE = re.compile(r"(?<!`)(``?)([^`\n]{3,120})\1(?!`)")


@dataclass
class _Block:
    language: str
    line: int
    lines: list[str]


def read(tree: Tree, found: Findings) -> None:
    readmes = tree.matching(*_README, depth=0)
    for path in readmes:
        found.add("readme", path, path)
    for path in tree.matching("LICENSE*", "LICENCE*", "COPYING*", "LICENSES/*", depth=1)[:8]:
        found.add("license", path, path)
    topics = [path for path in tree.matching(*_TOPICS, depth=3) if _is_doc(path)]
    for path in list(dict.fromkeys((*readmes, *topics)))[:MAX_FILES]:
        _read_document(tree, found, path, "readme" if path in readmes else "docs")


def _is_doc(path: str) -> bool:
    suffix = "." + path.rsplit(".", 1)[-1].lower() if "." in path.rsplit("/", 1)[-1] else ""
    if path.count("/") > 1 and path.split("/")[0].lower() not in _DOC_FOLDERS:
        return False
    requirements = suffix == ".txt" and "requirement" in path.lower()
    return suffix in _SUFFIXES and not requirements and not is_vendored(path) and "egg-info" not in path


def _read_document(tree: Tree, found: Findings, path: str, group: str) -> None:
    text = tree.text(path)
    if not text:
        return
    lines = text.splitlines()[:MAX_LINES]
    is_rst = path.lower().endswith(".rst")
    for block in _blocks(lines, markdown=not is_rst):
        script = _script(block)
        if script:
            note_script(tree, found, script, path, block.line, group)
    for number, line in enumerate(lines, 1):
        for match in _INLINE.finditer(line):
            command = _PROMPT.sub("", match.group(2)).strip()
            if is_rst and match.group(1) == "`":  # a role or a link
                continue
            if _is_inline_command(command):
                note_script(tree, found, command, path, number, group)


def _is_inline_command(command: str) -> bool:
    """In running text only what tests, builds or installs counts, and only when it is spelled as a whole."""
    if not _PROGRAM.match(command) or command.startswith(("git ", "cd ", "docker ")):
        return False
    kind = classify(command)
    if kind not in ("test-command", "build-command", "install-command"):
        return False
    return " " in command or unwrapped(command) in ("pytest", "tox", "nox")


def _script(block: _Block) -> str:
    """The commands of a block with its output left out, one line for each line of the block."""
    dollars = any(re.match(r"^\s*(?:\(\w+\)\s*)?\$\s", line) for line in block.lines)
    prompted = dollars or block.language == "console"
    if block.language not in _SHELL and block.language not in _PLAIN:
        return ""
    kept: list[str] = []
    continued = False
    for line in block.lines:
        is_command = (
            bool(_PROMPT.match(line)) if prompted else block.language in _SHELL or bool(_PROGRAM.match(line.strip()))
        )
        if dollars and line.lstrip().startswith("#"):  # a comment, not root's prompt
            is_command = False
        if prompted and not dollars and not is_command:
            is_command = bool(_PROGRAM.match(line.strip()))
        text = _PROMPT.sub("", line) if is_command and prompted else line
        kept.append(re.sub(r"^\s*>\s+", "", text) if is_command or continued else "")
        continued = (is_command or continued) and line.rstrip().endswith("\\")
    return "\n".join(kept)


def _blocks(lines: list[str], *, markdown: bool) -> Iterator[_Block]:
    """Fenced and indented blocks of Markdown, code directives and literal blocks of reStructuredText."""
    number = 0
    while number < len(lines):
        line = lines[number]
        fence = _FENCE.match(line)
        directive = _DIRECTIVE.match(line)
        if fence:
            block, number = _fenced(lines, number, fence.group(1), fence.group(2).lower())
        elif directive:
            block, number = _indented(lines, number + 1, len(directive.group(1)), directive.group(2).lower())
        elif line.rstrip().endswith("::") and not line.lstrip().startswith(".. "):
            block, number = _indented(lines, number + 1, len(line) - len(line.lstrip()), "")
        elif markdown and line.startswith(("    ", "\t")) and (number == 0 or not lines[number - 1].strip()):
            block, number = _indented(lines, number, 0, "")
        else:
            number += 1
            continue
        if block.lines:
            yield block


def _fenced(lines: list[str], start: int, mark: str, language: str) -> tuple[_Block, int]:
    end = start + 1
    while end < len(lines) and not lines[end].strip().startswith(mark):
        end += 1
    return _Block(language, start + 2, lines[start + 1 : end]), end + 1


def _indented(lines: list[str], start: int, indent: int, language: str) -> tuple[_Block, int]:
    """The lines from `start` that are blank or indented by more than `indent`, without directive options."""
    end = start
    while end < len(lines):
        text = lines[end].expandtabs(4)
        if text.strip() and len(text) - len(text.lstrip()) <= indent:
            break
        end += 1
    first = start
    while first < end and (not lines[first].strip() or re.match(r"^\s+:[\w-]+:", lines[first])):
        first += 1
    body = [line.expandtabs(4) for line in lines[first:end]]
    margin = min((len(line) - len(line.lstrip()) for line in body if line.strip()), default=0)
    return _Block(language, first + 1, [line[margin:] for line in body]), max(end, start)
