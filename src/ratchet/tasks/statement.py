"""What a task says: what is wanted and how to see it, as an honest report of an issue does, and never how to do it.

All of it comes from the repository (signatures, docstrings, names of tests, messages of commits): it is data, and
cleaned of what could steer a terminal. The same candidate always gives the same text. Whether the text tells the
solution is looked at again by `traces.told`; here lines of the solution are left out where they are met.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from inspect import cleandoc
from typing import TYPE_CHECKING

from ratchet.errors import ContextOverflowError
from ratchet.patches import added_lines, removed_lines
from ratchet.policies.model.prompts import DATA_RULE, as_data, cleaned
from ratchet.records import Message, TestCase
from ratchet.task_records import FileChange, Task, TaskKind
from ratchet.tasks.traces import told

if TYPE_CHECKING:
    from ratchet.protocols import Model
    from ratchet.tasks.candidates import Candidate, Definition

EVIDENCE = "## What fails"
_HOW_TO_SEE = "## How to see it"

_MOST_SAYINGS = 12
_MOST_DEFINITIONS = 8
_MOST_DOCUMENTED = 4  # of what a commit touched
_LONGEST_DOCSTRING = 1500
_LONGEST_BODY = 2000
_LONGEST_SAYING = 200
# A shorter line says nothing of a solution by being part of a longer one.
_TELLING_LENGTH = 10


def statement(candidate: Candidate, failing: Sequence[TestCase], *, command: str = "python -m pytest") -> str:
    """What is asked of a policy: the `failing` tests of the candidate are to pass. `command` runs tests
    that are named after it."""
    failing = sorted(failing, key=lambda case: case.id)
    secrets = frozenset(removed_lines(candidate.changes) + added_lines(candidate.changes))
    match candidate.kind:
        case TaskKind.BUG:
            parts = _bug(candidate, len(failing), secrets)
        case TaskKind.FEATURE:
            parts = _feature(candidate)
        case TaskKind.HISTORY:
            parts = _history(candidate, secrets)
    hidden = {change.path for change in candidate.hidden}
    parts += [EVIDENCE, _sayings(failing, secrets), _HOW_TO_SEE, _how_to_see(failing, hidden, command)]
    return cleaned("\n\n".join(parts)).strip() + "\n"


# --------------------------------------------------------------------------- one for each kind


def _bug(candidate: Candidate, failing: int, secrets: frozenset[str]) -> list[str]:
    names, one = _names(candidate.about), len(candidate.about) == 1
    title = f"# {names} {'does' if one else 'do'} not do what {'it' if one else 'they'} should" if names else ""
    about = [_described(definition, secrets) for definition in candidate.about[:_MOST_DEFINITIONS]]
    return [
        title or f"# Wrong results from {_files(candidate.changes)}",
        f"{'A test fails' if failing == 1 else f'{failing} tests fail'} because of it. "
        "Find out why and mend the code; the tests are right.",
        *(["## What it should do", *about] if about else []),
    ]


def _feature(candidate: Candidate) -> list[str]:
    # The documentation of what is missing is the task: it is shown, though it was removed with the rest.
    about = [_described(definition, frozenset()) for definition in candidate.about[:_MOST_DEFINITIONS]]
    left_out = len(candidate.about) - len(about)
    one = len(candidate.about) == 1
    return [
        f"# Implement {_names(candidate.about) or _files(candidate.changes)}",
        f"{'This is' if one else 'These are'} missing and wanted. "
        "The rest of the project, and the tests below, rely on it.",
        *about,
        *([f"And {left_out} more that the tests below use."] if left_out else []),
        *_uses(candidate),
    ]


def _history(candidate: Candidate, secrets: frozenset[str]) -> list[str]:
    message = f"{candidate.origin.get('subject', '')}\n\n{candidate.origin.get('body', '')}"
    subject, body = message_without_traces(message, secrets)
    files, names = _files(candidate.changes), _names(candidate.about)
    # The tests are not there to be read, so the documentation that came with the commit says what is wanted.
    about = [_described(each, frozenset()) for each in candidate.about if each.docstring][:_MOST_DOCUMENTED]
    return [
        f"# {subject or f'A change to {files}'}",
        *([body] if body else []),
        f"The change belongs in {files}{f' and concerns {names}' if names else ''}.",
        *(["## What is documented", *about] if about else []),
    ]


# --------------------------------------------------------------------------- parts


def _described(definition: Definition, secrets: frozenset[str]) -> str:
    """Where a definition is, its signature and its docstring, less the lines that are `secrets`."""
    lines = [f"`{definition.name}` ({definition.kind}) in `{definition.path}`"]
    signature = cleandoc(definition.signature)
    if signature and not any(line.strip().rstrip(":") in _bare(secrets) for line in signature.splitlines()):
        lines.append(_fenced(signature))
    kept = [line for line in cleandoc(definition.docstring).splitlines() if not _tells(line, secrets)]
    if docstring := "\n".join(kept).strip():
        lines.append(_fenced(_cut(docstring, _LONGEST_DOCSTRING), "text"))
    return "\n\n".join(lines)


def _bare(secrets: frozenset[str]) -> frozenset[str]:
    return frozenset(line.rstrip(":").strip() for line in secrets)


def _uses(candidate: Candidate) -> list[str]:
    """The other files out of which lines with the name of a removed definition went: exports, registrations."""
    home = {definition.path for definition in candidate.about}
    names = {definition.name.rpartition(".")[2] for definition in candidate.about}
    word = re.compile(r"\b(?:" + "|".join(map(re.escape, sorted(names))) + r")\b") if names else None
    used = [
        change.path
        for change in candidate.changes
        if change.path not in home and word and any(map(word.search, removed_lines([change])))
    ]
    return [f"It is also to be had from {_listed(f'`{path}`' for path in used)}, as before."] if used else []


def _sayings(failing: Sequence[TestCase], secrets: frozenset[str]) -> str:
    """The failing tests with the line that says why, where that line tells nothing. Those of one file that say the same
    are said once."""
    alike: dict[tuple[str, str], list[str]] = {}
    for case in failing:
        alike.setdefault((case.id.partition("::")[0], _said(case.message, secrets)), []).append(case.id)
    lines = []
    for (_, said), (first, *others) in list(alike.items())[:_MOST_SAYINGS]:
        count = f" and {len(others)} more of this file" if others else ""
        lines.append(f"- `{first}`{count}" + (f": {said}" if said else ""))
    if rest := sum(len(tests) for tests in list(alike.values())[_MOST_SAYINGS:]):
        lines.append(f"- and {rest} more")
    return "\n".join(lines)


def _said(message: str, secrets: frozenset[str]) -> str:
    """The line of a failure's message that names the exception: the first that pytest marks with `E`, else the last."""
    lines = [line for line in cleaned(message).splitlines() if line.strip()]
    marked = [line[1:] for line in lines if re.match(r"E\s", line)]
    line = " ".join((marked[0] if marked else lines[-1] if lines else "").split())
    return "" if _tells(line, secrets) else _cut(line, _LONGEST_SAYING)


def _how_to_see(failing: Sequence[TestCase], hidden: set[str], command: str) -> str:
    ids = [case.id for case in failing]
    files = list(dict.fromkeys(test_id.partition("::")[0] for test_id in ids))
    few = len(ids) <= 3 and all(len(test_id) < 120 for test_id in ids)
    shown = _fenced(f"{command} {' '.join(map(shlex.quote, ids if few else files[:8]))}", "sh")
    if hidden & set(files):
        return f"{shown}\n\nSome of these tests are not in the project yet: they come with the change."
    return shown


def _tells(line: str, secrets: frozenset[str]) -> bool:
    line = line.strip()
    return line in secrets or any(secret in line for secret in secrets if len(secret) >= _TELLING_LENGTH)


def _names(about: Sequence[Definition]) -> str:
    named = [f"`{definition.name}`" for definition in about]
    return _listed(named) if len(named) <= 3 else f"{', '.join(named[:2])} and {len(named) - 2} more"


def _files(changes: Sequence[FileChange]) -> str:
    paths = sorted({f"`{change.path}`" for change in changes})
    return _listed(paths) if len(paths) <= 5 else f"{', '.join(paths[:5])} and {len(paths) - 5} more"


def _listed(items: Iterable[str]) -> str:
    """ "a, b and c"; of nothing, nothing."""
    *first, last = [*items] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _fenced(text: str, language: str = "python") -> str:
    """`text` in a block whose fence does not occur in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most].rstrip() + " …"


# --------------------------------------------------------------------------- messages of commits

_TRAILER = re.compile(
    r"^(?:[A-Z][\w-]*-by|Change-Id|Cc|Link|Reviewed-on|Bug|Co-authored-by|git-svn-id|PiperOrigin-RevId)\s*:", re.I
)
_DIFF = re.compile(r"^(?:diff --git|index [0-9a-f]{6,}|@@ |\+\+\+ |--- [ab/]|[+](?! )|-(?![ -])|Merge (?:pull|branch))")
_REFERENCE = re.compile(
    r"\s*\(?(?:\b(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?|refs?|see|via|pr|pull request|issue)\b:?\s*)?"
    r"(?:(?<![\w&])#\d+|\bGH-\d+|https?://[^\s)>\]]+)\)?",
    re.I,
)
_HASH = re.compile(r"\s*\(?\b(?:commit )?(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b\)?")


def message_without_traces(message: str, secrets: frozenset[str] = frozenset()) -> tuple[str, str]:
    """Subject and body of a commit's message, without trailers, hashes, links and numbers of issues, text that looks
    like a diff, and lines that hold one of `secrets`."""
    lines = []
    for line in cleaned(message).splitlines():
        if _TRAILER.match(line) or _DIFF.match(line) or _tells(line, secrets):
            line = ""
        lines.append(_HASH.sub("", _REFERENCE.sub("", line)).rstrip())
    subject, _, body = "\n".join(lines).strip().partition("\n")
    return _cut(subject.strip(), _LONGEST_SAYING), _cut(re.sub(r"\n{3,}", "\n\n", body).strip(), _LONGEST_BODY)


# --------------------------------------------------------------------------- rewritten by a model

_REWRITE = """\
You are given the description of a task in a software project. Write it again in your own words, as somebody who uses \
the project would report it: a title in one line that starts with "# ", then two or three short paragraphs. Keep all \
names of functions, classes and files, and what is expected of them. Do not say how to do it, and write no code.
{rule}"""
_MOST_REPLY_TOKENS = 700


def rewrite(model: Model, text: str, task: Task) -> str:
    """The statement `text` in a model's words. The plain one stays where the reply is no statement, leaves out the
    name that the title has, or tells of the solution; the tests and the command that runs them always stay.

    Raises as `Model.reply` does, but for a prompt that is too long.
    """
    prose, mark, rest = text.partition(EVIDENCE)
    prompt = (Message("system", _REWRITE.format(rule=DATA_RULE)), Message("user", as_data(prose, "task")))
    try:
        reply = model.reply(prompt, stage="rewrite", max_tokens=_MOST_REPLY_TOKENS)
    except ContextOverflowError:
        return text
    written = cleaned(reply.text).strip()
    names = re.findall(r"`([^`\n]+)`", prose.partition("\n")[0])
    whole = reply.finish == "stop" and written.startswith("# ") and len(written) > 40
    if not whole or not all(name in written for name in names) or told(written, task):
        return text
    return f"{written}\n\n{mark}{rest}"
