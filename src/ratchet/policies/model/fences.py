"""Fenced blocks in a reply, as models write them: not always as the standard says."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

# Blocks whose content may hold fences of its own.
_CARRIERS = frozenset({"write", "edit"})


@dataclass(frozen=True)
class Block:
    """`language` is the first word after the fence, in lower case; `options` the rest of that line. `line` is the index
    of the line where it starts, `end` that of the first line after it; `closed` is whether its fence was."""

    language: str
    options: str
    body: str
    line: int
    end: int
    closed: bool = True


@dataclass(frozen=True)
class _Fence:
    mark: str
    info: str
    indent: int
    alone: bool  # nothing but white space stands before it


def blocks(text: str) -> list[Block]:
    """The fenced blocks of `text`, in order. The work grows with the length of the text only."""
    lines = text.split("\n")
    found: list[Block] = []
    index = 0
    while index < len(lines):
        if (short := _on_one_line(lines[index], index)) is not None:
            found.append(short)
        elif (fence := _fence(lines[index])) is not None:
            block = _block(lines, index, fence)
            if block.language or block.body:
                found.append(block)
            index = block.end
            continue
        index += 1
    return found


def _block(lines: list[str], start: int, opening: _Fence) -> Block:
    """The block that the fence on line `start` opens: up to its closing fence, a fence that opens the next block, or
    the end."""
    language, options = _words(opening.info)
    body: list[str] = []
    depth, carries = 1, language in _CARRIERS
    for index in range(start + 1, len(lines)):
        line, fence = lines[index], _fence(lines[index])
        if fence is not None and fence.alone and fence.mark.startswith(opening.mark):
            if fence.info and not carries:
                return Block(language, options, _text(body, opening), start, index)
            depth += 1 if fence.info else -1
            if not depth:
                return Block(language, options, _text(body, opening), start, index + 1)
        elif line.rstrip().endswith(opening.mark) and not carries:  # closed after text
            return Block(language, options, _text([*body, _before(line, opening)], opening), start, index + 1)
        body.append(line)
        carries = carries or "<<" in line  # a here-document, which may be Markdown
    closed = bool(body) and body[-1].rstrip().endswith(opening.mark)
    if closed:
        body[-1] = _before(body[-1], opening)
    return Block(language, options, _text(body, opening).rstrip("\n"), start, len(lines), closed)


def _before(line: str, opening: _Fence) -> str:
    return line.rstrip().removesuffix(opening.mark)


def _text(body: list[str], opening: _Fence) -> str:
    """The lines without the white space that stands before their fence too, or before each of them."""
    text = "\n".join(line[min(opening.indent, len(line) - len(line.lstrip(" \t"))) :] for line in body)
    return text if opening.alone else textwrap.dedent(text)


def _on_one_line(line: str, index: int) -> Block | None:
    """A block whose two fences stand on one line: ```sh ls```."""
    text = line.strip()
    start = text.find("```")
    inner = text[start + 3 : -3].strip("`") if start >= 0 and text.endswith("```") and len(text) >= start + 6 else ""
    if not inner or "`" in inner:
        return None
    language, rest = _words(inner)
    return Block(language, rest, "" if language in _CARRIERS else rest, index, index + 1)


def _fence(line: str) -> _Fence | None:
    """The fence at the start of `line`, or the last one in it after other text, if only its info follows."""
    stripped = line.strip()
    if "```" not in stripped and not stripped.startswith("~~~"):
        return None
    character = "~" if stripped.startswith("~~~") else "`"
    if stripped.startswith(character * 3):
        start = 0
    else:
        start = stripped.rfind("```")
        while stripped[start - 1] == "`":
            start -= 1
    rest = stripped[start:]
    info = rest.lstrip(character)
    if "`" in info:
        return None
    return _Fence(character * (len(rest) - len(info)), info.strip(), len(line) - len(line.lstrip()), start == 0)


def _words(info: str) -> tuple[str, str]:
    """The language and the options in what follows a fence."""
    language, _, options = info.strip().replace("\t", " ").partition(" ")
    return language.strip("{}.:").lower(), options.strip()
