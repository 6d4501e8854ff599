"""The text protocol: one fenced block in a reply is its action, and everything else is thought."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from ratchet.policies.model import checked
from ratchet.policies.model.checked import Problem, noted, quoted, right_form
from ratchet.policies.model.fences import Block, blocks
from ratchet.policies.model.prompts import RIGHT_FORMS
from ratchet.records import Action, ActionKind, Edit

_SHELLS = frozenset({"sh", "bash", "shell", "console", "zsh", "shell-session", "terminal"})
_KINDS = {
    "write": ActionKind.WRITE,
    "edit": ActionKind.EDIT,
    "read": ActionKind.READ,
    "search": ActionKind.SEARCH,
    "lint": ActionKind.LINT,
    "rollback": ActionKind.ROLLBACK,
} | dict.fromkeys(_SHELLS, ActionKind.RUN)

_RANGE = re.compile(r"(?:^|[\s:])(?:lines?\s+)?L?(\d{1,9})(?:\s*[-:,–]\s*L?(\d{1,9})?|\s+(\d{1,9}))?$", re.IGNORECASE)
_SEARCH, _DIVIDE, _REPLACE = (
    re.compile(pattern) for pattern in (r"<{5,9} ?SEARCH\s*", r"={5,9}\s*", r">{5,9} ?REPLACE\s*")
)


def parse_text(
    text: str,
    allowed: frozenset[ActionKind],
    *,
    was_cut: bool = False,
    submit_blocks: Sequence[str] = ("submit",),
    user: str = "root",
) -> Action | Problem:
    """The action in `text`, or what is wrong with it. `was_cut` is whether the model had to stop in the middle."""
    found = blocks(text)
    whole = [block for block in found if block.closed or not was_cut]
    if tuple(submit_blocks) != ("submit",) and any(block.language in submit_blocks for block in whole):
        return Action(ActionKind.SUBMIT, content=text)
    if len(found) == 1 and not found[0].language and ActionKind.RUN in allowed:
        found = [replace(found[0], language="sh")]
    actions = [block for block in found if block.language in _KINDS or block.language in submit_blocks]
    if not actions:
        return Problem(_no_action(found, allowed, submit_blocks, was_cut))
    first = actions[0]
    if not first.closed and was_cut:
        return Problem("Your reply was cut off before its block ended. Say less, and write a shorter block.")
    kind = _KINDS.get(first.language, ActionKind.SUBMIT)
    if kind not in allowed:
        return Problem(f"A ```{first.language} block is not possible here. {right_forms(allowed, submit_blocks)}")
    action = _READERS[kind](first, user)
    if isinstance(action, Problem):
        return action
    lines = text.split("\n")
    thought = "\n".join(lines[: first.line]).strip() or "\n".join(lines[first.end :])
    return noted(action, thought, len(actions) - 1, "blocks")


# --------------------------------------------------------------------------- one function for each kind


def _run(block: Block, user: str) -> Action | Problem:
    timeout_s: float | None = None
    for option in block.options.split():
        name, _, value = option.partition("=")
        if name == "user":
            user = value
        elif name == "timeout":
            if not re.fullmatch(r"[0-9]{1,5}s?", value):
                return Problem(
                    f"timeout={quoted(value)} is no number of seconds. Write, for example: ```sh timeout=600"
                )
            timeout_s = float(value.rstrip("s"))
    return checked.run(_without_prompts(block.body), user, timeout_s)


def _without_prompts(body: str) -> str:
    """The commands alone, where a block shows a session: "$ " before each, and what they printed."""
    lines = body.split("\n")
    first = next((line for line in lines if line.strip()), "")
    if not first.lstrip().startswith("$ "):
        return body
    commands: list[str] = []
    for line in lines:
        if line.lstrip().startswith(("$ ", "> ")):
            commands.append(line.lstrip()[2:])
        elif commands and commands[-1].endswith("\\"):
            commands.append(line)
    return "\n".join(commands)


def _write(block: Block, user: str) -> Action | Problem:
    return checked.write(block.options, f"{block.body}\n" if block.body else "", user)


def _edit(block: Block, user: str) -> Action | Problem:
    edits: list[Edit] = []
    part: list[str] | None = None
    search: str | None = None
    for line in block.body.split("\n"):
        if part is None:
            if _SEARCH.fullmatch(line):
                part = []
        elif search is None and _DIVIDE.fullmatch(line):
            search, part = "\n".join(part), []
        elif search is not None and _REPLACE.fullmatch(line):
            # Without a replacement the lines go away, with their end.
            edits.append(Edit(search, "\n".join(part)) if part else Edit(f"{search}\n", ""))
            part = search = None
        else:
            part.append(line)
    if part is not None or not edits:
        return Problem(f"Your edit has no complete SEARCH and REPLACE part. {right_form(ActionKind.EDIT)}")
    return checked.edit(block.options, edits, user)


def _read(block: Block, _: str) -> Action | Problem:
    wanted = block.options or block.body.strip()
    if "\n" in wanted:
        return Problem(f"Read one file at a time. {right_form(ActionKind.READ)}")
    found = _RANGE.search(wanted[-60:])
    if found is None or not (path := wanted[: -len(found.group())].strip()):
        return checked.read(wanted, 1, 0)
    first, last = found.group(1), found.group(2) or found.group(3)
    return checked.read(path, int(first), int(last) if last else 0)


def _search(block: Block, user: str) -> Action | Problem:
    """The pattern in the block and where beside the fence; or the pattern alone, on the line of the fence."""
    if not block.body.strip() or block.end == block.line + 1:
        return checked.search(block.options, "", user)
    return checked.search(block.body.strip("\n"), block.options, user)


def _lint(block: Block, user: str) -> Action | Problem:
    wanted = block.options or block.body.strip()
    if "\n" in wanted:
        return Problem(f"Lint one file at a time. {right_form(ActionKind.LINT)}")
    return checked.lint(wanted, user)


def _rollback(block: Block, _: str) -> Action | Problem:
    wanted = (block.options or block.body).strip().lower()
    if wanted == "all":
        return checked.rollback(0)
    if wanted and not re.fullmatch(r"[0-9]{1,3}", wanted):
        form = 'Leave the block empty to undo one action, or write a number or "all" in it.'
        return Problem(f"{quoted(wanted)} is nothing to go back to. {form}\n{RIGHT_FORMS[ActionKind.ROLLBACK]}")
    return checked.rollback(int(wanted or 1))


def _submit(block: Block, _: str) -> Action:
    return checked.submit((block.body or block.options).strip())


_READERS: dict[ActionKind, Callable[[Block, str], Action | Problem]] = {
    ActionKind.RUN: _run,
    ActionKind.WRITE: _write,
    ActionKind.EDIT: _edit,
    ActionKind.READ: _read,
    ActionKind.SEARCH: _search,
    ActionKind.LINT: _lint,
    ActionKind.ROLLBACK: _rollback,
    ActionKind.SUBMIT: _submit,
}


# --------------------------------------------------------------------------- what is said of a wrong one


def _no_action(
    found: Sequence[Block], allowed: frozenset[ActionKind], submit_blocks: Sequence[str], was_cut: bool
) -> str:
    if was_cut:
        what = "Your reply was cut off before it had a complete block. Say less."
    elif found:
        names = ", ".join(dict.fromkeys(f"```{block.language[:20]}" for block in found[:4]))
        what = f"There is no action in your reply ({names} is none)."
        if any(block.language in ("python", "py", "python3") for block in found):
            what += " To run Python, write a ```sh block that starts with python3 - <<'EOF'."
    else:
        what = "There is no block in your reply."
    return f"{what} {right_forms(allowed, submit_blocks)}"


def right_forms(allowed: frozenset[ActionKind], submit_blocks: Sequence[str] = ("submit",)) -> str:
    """How to write the simplest action, and how to finish."""
    simplest = next((kind for kind in RIGHT_FORMS if kind in allowed and kind is not ActionKind.SUBMIT), None)
    forms = [f"Write one action like this:\n{RIGHT_FORMS[simplest]}"] if simplest is not None else []
    if ActionKind.SUBMIT in allowed:
        finish = RIGHT_FORMS[ActionKind.SUBMIT] if "submit" in submit_blocks else f"```{submit_blocks[0]}\n…\n```"
        forms.append(f"or, to finish:\n{finish}" if forms else f"Finish like this:\n{finish}")
    return "\n".join(forms)
