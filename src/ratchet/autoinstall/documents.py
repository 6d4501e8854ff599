"""What a project's own documents say about setting it up, short enough for a prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ratchet.records import Checkout
from ratchet.survey.tree import Tree

_FILES = ("README*", "readme*", "Readme*", "CONTRIBUTING*", "INSTALL*", "HACKING*", "AGENTS.md", "Makefile", "justfile")
_ABOUT_SETUP = re.compile(
    r"\b(?:install|set ?up|tests?|build|generat\w+|copy|configur\w+|requir\w+|needs?|depend\w+|before|first|services?"
    r"|database|download|migrat\w+|pip|make|pytest|tox)\b",
    re.IGNORECASE,
)
_MOST_OF_ONE_CHARACTERS = 700


def setup_notes(checkout: Checkout, most_characters: int) -> str:
    """The paragraphs of README, CONTRIBUTING, Makefile and the like that speak of installing, building or testing, with
    the commands that follow them, in at most `most_characters`. Links are not followed out of the checkout."""
    tree = Tree(Path(checkout.path))
    parts: list[str] = []
    left = most_characters
    for path in tree.matching(*_FILES, depth=0):
        kept: list[str] = []
        for paragraph in _about_setup(tree.text(path) or ""):
            cost = len(paragraph) + 2 + (0 if kept else len(path) + 1)
            if cost > left:
                break
            left -= cost
            kept.append(paragraph)
        if kept:
            parts.append(f"{path}:\n" + "\n\n".join(kept))
    return "\n\n".join(parts)


def _about_setup(text: str) -> Iterator[str]:
    """The paragraphs that name a step of setting up; and the one after, where commands stand."""
    follows = False
    for paragraph in re.split(r"\n[ \t]*\n", text[:200_000]):
        short = paragraph.rstrip()[:_MOST_OF_ONE_CHARACTERS].strip("\n")
        if not short.strip():
            continue
        about = bool(_ABOUT_SETUP.search(short))
        if about or (follows and (short.startswith((" ", "\t", "```", "$")))):
            yield short
        follows = about
