"""The line of a failed command's output that says most, without what differs from one machine and run to the next.

Outputs are hostile: only a bounded part of them is looked at, line by line, with expressions whose parts are bounded.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

_MOST_TEXT = 60_000
_LONGEST_LINE = 400
_LONGEST_SIGNATURE = 200
_LONGEST_NAME = 100


@dataclass(frozen=True)
class Telling:
    """The normalised error, and what it says is missing or cannot be used (a module, a header, a library, a
    distribution, a program); empty where it names nothing."""

    signature: str
    package: str = ""


def telling_line(output: str) -> Telling | None:
    """The most telling error of `output`: the first kind that occurs in it, of several of a kind the one that occurs
    most often, then the first. None where no line looks like an error."""
    lines = [line for line in _lines(output) if _INTERESTING.search(line) and not _NOISE.search(line)]
    for expressions in _KINDS:
        found: Counter[Telling] = Counter()
        for line in lines:
            match = next((match for expression in expressions if (match := expression.search(line))), None)
            if match is not None and (text := _normalised(match["what"])):
                found[Telling(text, _clip(match.groupdict().get("name") or "", _LONGEST_NAME))] += 1
        if found:
            return found.most_common(1)[0][0]
    return None


def signature(output: str) -> str:
    """The error of `output`, normalised: without paths, versions, numbers, times, addresses and quotes. Empty where no
    line looks like one."""
    telling = telling_line(output)
    return telling.signature if telling else ""


def plain_name(name: str) -> str:
    """A name as it is compared: lower case, with "-" for whatever separates its parts."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


# --------------------------------------------------------------------------- which line

_NAME = r"(?P<name>[A-Za-z0-9][\w.+-]{0,98})"

_MISSING = tuple(
    re.compile(f"(?P<what>{expression})")
    for expression in (
        r"fatal error: (?P<name>[\w./+-]{1,100}): No such file or directory",
        r"cannot find -l(?P<name>[\w.+-]{1,100})",
        r"(?:ModuleNotFoundError|ImportError): No module named '?(?P<name>[\w.]{1,100})",
        r"(?P<name>\b[\w+-]{1,60}\.so[\w.]{0,20}): cannot open shared object file",
        r"\bE: Unable to locate package (?P<name>\S{1,100})",
        r"\bE: Package '?(?P<name>[^'\s]{1,100})'? has no installation candidate",
        rf"\b{_NAME} was not found in the package registry",
        rf"[Nn]o matching distribution found for {_NAME}",
        rf"there (?:is|are) no versions? of {_NAME}",
        rf"No package '?{_NAME}'? found",
        rf"Package '?{_NAME}'?,? (?:was not found|required by \S{{1,100}} not found)",
        rf"\b{_NAME} executable not found",
        rf"\b{_NAME}: (?:command )?not found",
        r"unrecognized arguments: (?P<name>--?\w[\w-]{0,60})",
        r"fixture '(?P<name>\w{1,100})' not found",
    )
)
_RAISED = (
    # An assertion is about one project's tests.
    re.compile(r"^(?:E +)?(?!Assertion)(?P<what>(?:\w{1,60}\.){0,8}\w{0,80}(?:Error|Exception|Exit|NotFound): \S.*)"),
    re.compile(r"^(?P<what>(?:CMake Error|configure: error|[Ee]rror|ERROR|E): (?!Failed to )\S.*)"),
    re.compile(r"\b(?P<what>error: (?!Failed to )\S.*)"),
)
_VAGUE = (
    re.compile(r"(?P<what>Failed to (?:download and )?build `?(?P<name>[A-Za-z0-9][\w.-]{0,98}))"),
    re.compile(r"(?P<what>Permission denied.{0,100})"),
    re.compile(r"^(?P<what>make.{0,20}\*\*\* .*)"),
)
_KINDS = (_MISSING, _RAISED, _VAGUE)

_INTERESTING = re.compile(
    r"error|exception|exit|not found|notfound|cannot|unable|no |unrecognized|fail|denied|candidate|\*\*\*",
    re.IGNORECASE,
)
_NOISE = re.compile(
    r"subprocess-exited-with-error|metadata-generation-failed|Failed building wheel|Could not build wheels|usage: "
    r"|error: Command |error: command |ERROR: Failed to build|^FAILED |^ERROR tests|The build backend returned an error"
)
_ESCAPE = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]|\r(?!\n)")


def _lines(output: str) -> list[str]:
    text = output if len(output) <= _MOST_TEXT else f"{output[: _MOST_TEXT // 2]}\n{output[-_MOST_TEXT // 2 :]}"
    return [line.strip()[:_LONGEST_LINE] for line in _ESCAPE.sub("", text).split("\n")]


# --------------------------------------------------------------------------- what is left of it

_PLAIN = (
    (re.compile(r"[`'\"‘’“”]"), ""),
    (re.compile(r"\b[a-z]{1,10}://[^\s,)]{1,400}"), "URL"),
    # Of other places the last part says something: /usr/bin/pg_config.
    (re.compile(r"(?<![\w.])/(?:workspace|tmp|var/tmp|home|root|var/cache)(?:/[^\s:,;)]{0,300})?"), "PATH"),
    (re.compile(r"(?<![\w.])/(?:[^\s:,;)/]{1,100}/){1,30}"), ""),
    (re.compile(r"\b(?:0x[0-9a-f]+|(?=[a-f]{0,40}\d)[0-9a-f]{8,64})\b", re.IGNORECASE), "N"),
    (re.compile(r"\d{1,20}(?:\.\d{1,20}){1,6}(?:(?:a|b|rc|\.?dev|\.?post)\d{0,10})?"), "N"),
    (re.compile(r"(?<![A-Za-z\d_])\d{1,40}(?![A-Za-z\d_])"), "N"),
    (re.compile(r"N(?:[-:T., ]{1,2}N){1,20}"), "N"),
    (re.compile(r"\s+"), " "),
)


def _normalised(line: str) -> str:
    for expression, instead in _PLAIN:
        line = expression.sub(instead, line)
    return _clip(line, _LONGEST_SIGNATURE)


def _clip(text: str, most: int) -> str:
    return "".join(character for character in text if character.isprintable())[:most].strip()
