"""Requirements: clean PEP 508 text from what projects write, and requirements files.

Requirements files are read as pip reads them: includes, constraints, hashes, options, editable and direct
references. What an included file asks for is noted under the including file's group too, so that a group holds
all that installing it would install.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ratchet.survey.findings import Findings
from ratchet.survey.tree import Tree, is_vendored

MAX_LINES = 4_000
MAX_INCLUDES = 12
MAX_FILES = 60

_URL = re.compile(r"^(?:[a-z]+\+)?(?:https?|ssh|git|file|svn|hg|bzr)://|^(?:git|hg|svn)\+|^git@", re.IGNORECASE)
_OPTION = re.compile(r"\s+--(?:hash|global-option|install-option|config-settings?)[ =]\S+")
_EXTRA = re.compile(r"""\s*(?:\band\s+)?\bextra\s*==\s*['"]([^'"]+)['"]\s*$""")
_FILE_NAMES = (
    "*requirements*.txt", "*requirements*.in", "*requirements/*.txt", "*requirements/*.in", "requires*.txt",
    "*reqs*.txt", "reqs/*.txt", "*constraints*.txt", "deps/*.txt", "test-deps.txt", "dev-deps.txt",
)  # fmt: skip
_PURPOSES = (
    ("constraint", re.compile(r"constraint|\block\b|pins?\b")),
    ("test", re.compile(r"test|(?<![a-z])ci(?![a-z])|(?<![a-z])cov")),
    ("docs", re.compile(r"doc|rtd|sphinx|mkdocs")),
    ("lint", re.compile(r"lint|style|flake|black|mypy|typing|type-?check|pre-?commit|quality|format")),
    ("build", re.compile(r"build|packag|release|wheel|dist")),
    ("dev", re.compile(r"dev|local|contrib")),
)


def as_requirement(text: str) -> Requirement | None:
    """The requirement that `text` states, old spellings mended; None where it states none."""
    text = _OPTION.sub("", text).strip().rstrip(",;").strip()
    text = _unquoted(re.sub(r"(?:^|\s)#.*$", "", text).strip())
    for form in (text, _legacy(text)):
        try:
            return Requirement(form)
        except InvalidRequirement:
            continue
    return None


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _legacy(text: str) -> str:
    """`pkg (>=1.0)` without its brackets, `>=1.0.*` without its star, `pkg >=1 <2` with its comma."""
    text, _, marker = text.partition(";")
    text = re.sub(r"\(([^()]*)\)", r" \1", text)
    text = re.sub(r"((?:>=|<=|>|<|~=)\s*[\d.]+?)\.\*", r"\1", text)
    text = re.sub(r"(\d)\s+([<>=!~])", r"\1,\2", text)
    return f"{text};{marker}" if marker else text


def note_requirement(
    found: Findings, text: str, kind: str, file: str, line: int = 1, group: str = "", *, raw: bool = False
) -> None:
    """Note one requirement as clean PEP 508. One with a URL or a path, or that cannot be parsed, becomes a
    `direct-requirement` (with `raw`, one that cannot be parsed is dropped: the text came from a shell)."""
    text = text.strip()
    if not text or "\n" in text:
        return
    if _URL.match(text) or text.startswith((".", "/", "~")):
        found.add("direct-requirement", text, file, line, group)
        return
    requirement = as_requirement(text)
    if requirement is None:
        if not raw:
            found.add("direct-requirement", text, file, line, group)
    elif requirement.url:
        found.add("direct-requirement", str(requirement), file, line, group)
    else:
        found.add(kind, str(requirement), file, line, group)


def split_extra(text: str) -> tuple[str, str]:
    """A `Requires-Dist` value without its `extra == "x"`, and that extra."""
    requirement, _, marker = text.partition(";")
    match = _EXTRA.search(marker)
    if not match:
        return text.strip(), ""
    rest = marker[: match.start()].strip()
    if rest.startswith("(") and rest.endswith(")") and rest.count("(") == 1:
        rest = rest[1:-1]
    return f"{requirement.strip()}; {rest}" if rest else requirement.strip(), match.group(1)


def distribution(text: str) -> str:
    """The normalised distribution name of a PEP 508 string; empty where it has none."""
    match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", text)
    return canonicalize_name(match.group(1)) if match else ""


def settle_own(found: Findings) -> None:
    """What asks for the project itself: `own[test]` means the extra of this checkout, not a release of it."""
    own = distribution(found.first("project-name") or "")
    asked = [
        fact for fact in found.of("group-requirement", "extra-requirement", "requirement")
        if own and distribution(fact.value) == own
    ]  # fmt: skip
    found.drop(asked)
    for fact in asked:
        requirement = as_requirement(fact.value)
        for extra in sorted(requirement.extras) if requirement else ():
            if fact.kind != "extra-requirement":
                found.add("used-extra", extra, fact.file, fact.line, fact.group)
                continue
            for each in found.of("extra-requirement"):
                if canonicalize_name(each.group.removeprefix("extra:")) == canonicalize_name(extra):
                    found.add(each.kind, each.value, each.file, each.line, fact.group)


# --------------------------------------------------------------------------- requirements files


@dataclass(frozen=True)
class _Entry:
    """One logical line: `option` is "", "r", "c" or "e"."""

    option: str
    text: str
    line: int


def purpose(path: str) -> str:
    """What a requirements file is for, judged by its name, then by its folder."""
    where = PurePosixPath(path.lower())
    folder = str(where.parent) if str(where.parent) != "." else ""
    for part in (where.name, folder):
        for name, pattern in _PURPOSES:
            if pattern.search(part.replace("requirements", "")):
                return name
    return "runtime"


def read(tree: Tree, found: Findings) -> None:
    """Every requirements file at most two folders down, outside vendored code."""
    for path in tree.matching(*_FILE_NAMES, depth=2)[:MAX_FILES]:
        if not is_vendored(path) and not _is_fixture(path) and ".egg-info/" not in path:
            note_file(tree, found, path)


def note_file(tree: Tree, found: Findings, path: str, group: str = "") -> None:
    """Note a requirements file and what it asks for; `group` also gets it, where a tox environment or a CI job
    installs the file."""
    entries = _entries(tree.text(path) or "")
    if not entries:
        return
    found.add("requirement-file", path, path, 1, purpose(path))
    _note_entries(tree, found, path, group or f"file:{path}", {path})


def _note_entries(tree: Tree, found: Findings, path: str, group: str, seen: set[str]) -> None:
    constrains = purpose(path) == "constraint"
    for entry in _entries(tree.text(path) or ""):
        if entry.option in ("r", "c"):
            included = join(path, entry.text)
            if included in seen or len(seen) > MAX_INCLUDES or included not in tree:
                continue
            if entry.option == "c":
                _note_constraints(tree, found, included)
            else:
                _note_entries(tree, found, included, group, seen | {included})
        elif entry.option == "e":
            note_local(found, entry.text, path, entry.line, group)
        elif constrains:
            note_requirement(found, entry.text, "constraint", path, entry.line, group)
        elif entry.text.startswith((".", "/")):
            note_local(found, entry.text, path, entry.line, group)
        else:
            note_requirement(found, entry.text, "group-requirement", path, entry.line, group)


def _note_constraints(tree: Tree, found: Findings, path: str) -> None:
    found.add("requirement-file", path, path, 1, "constraint")
    for entry in _entries(tree.text(path) or ""):
        if not entry.option:
            note_requirement(found, entry.text, "constraint", path, entry.line, f"file:{path}")


def note_local(found: Findings, text: str, file: str, line: int, group: str) -> None:
    """`.`, `-e .[test]`: the project itself, of which only the extras are news; anything else is direct."""
    match = re.fullmatch(r"(?:file:)?\.(?:/)?\s*(?:\[([^\]]*)\])?", text.strip().strip("'\""))
    if not match:
        found.add("direct-requirement", text, file, line, group)
        return
    for extra in (match.group(1) or "").split(","):
        found.add("used-extra", extra, file, line, group)


def join(path: str, reference: str) -> str:
    """A reference inside `path`, as a path of the tree; it cannot match anything when it leads out."""
    parts: list[str] = []
    for part in (*PurePosixPath(path).parent.parts, *PurePosixPath(reference).parts):
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _entries(text: str) -> list[_Entry]:
    entries: list[_Entry] = []
    pending, start = "", 1
    for number, line in enumerate(text.splitlines()[:MAX_LINES], 1):
        if not pending:
            start = number
        comment = line.lstrip().startswith("#")
        pending += "" if comment else re.sub(r"\s#.*$", "", line).rstrip()
        if pending.endswith("\\") and not comment:
            pending = pending[:-1] + " "
            continue
        entry = _entry(pending.strip(), start)
        if entry:
            entries.append(entry)
        pending = ""
    return entries


def _entry(text: str, line: int) -> _Entry | None:
    if not text or text.startswith("#"):
        return None
    match = re.match(r"(?:-(r|c|e)\s*|--(requirement|constraint|editable)[ =]\s*)(\S.*)$", text)
    if match:
        option = match.group(1) or match.group(2)[0]
        return _Entry(option, match.group(3).strip().strip("'\""), line)
    return None if text.startswith("-") else _Entry("", text, line)


def _is_fixture(path: str) -> bool:
    """Requirements files that tests use as their input."""
    folders = PurePosixPath(path.lower()).parts[:-1]
    return any(part in ("data", "fixtures", "testdata", "samples", "examples", "example", "demo") for part in folders)
