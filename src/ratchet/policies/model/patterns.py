"""Regular expressions that a model wrote: which may be searched for, and which say nothing.

Python's engine backtracks, and the lines that it searches are a repository's to choose. A pattern is taken when the
work for one line grows with at most the square of the line's length, which judging bounds.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass

_MOST_CHARACTERS = 200
_MOST_DEGREE = 2
_CHOICES_PER_DEGREE = 4  # two ways each: four of them multiply the work by 16

_TOKEN = re.compile(
    r"(?P<place>[\^$]|\\[bBAZ])"
    r"|(?P<one>\\[^\dkg]|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\\[\]()|*+?{}])"
    r"|(?P<repeat>[*+?]\??|\{\d*,?\d*\}\??)"
    r"|(?P<open>\((?:\?:|(?!\?)))|(?P<close>\))|(?P<or>\|)",
    re.DOTALL,
)
_ALPHABET = (*map(chr, range(256)), "文", "\u2009")

# Lines that have nothing to do with anything.
_NONSENSE = ("", "qzx vwk: 7 jqy.", *map(chr, range(32, 127)), *(40 * c for c in "xX07 .-_="))


def simplified(pattern: str) -> str:
    """The pattern less what matches anything at its ends: a search finds the same lines, and sooner."""
    return re.sub(r"(?<!\\)\.\*\$?$", "", re.sub(r"^(\(\?i\))?\^?\.\*(?![?+])", r"\1", pattern))


def pattern_problem(pattern: str) -> str:
    """Why `pattern` is not taken; empty where it is."""
    if len(pattern) > _MOST_CHARACTERS:
        return f"it has more than {_MOST_CHARACTERS} characters"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(pattern)
    except (re.error, Warning, OverflowError, RecursionError) as error:
        return f"it is no regular expression: {error}"
    tokens = _tokens(pattern.removeprefix("(?i)"))
    if tokens is None:
        return "only groups, classes, `|` and plain repetitions are allowed in it"
    if any(token.kind == "repeat" and token.before == "close" and token.text[0] != "?" for token in tokens):
        return "a group is repeated in it"
    return "it repeats too much (one `.*` is enough)" if _degree(tokens) > _MOST_DEGREE else ""


def is_trivial(pattern: str) -> bool:
    """Whether a pattern (one without a problem) is found in nothing at all, in one character, or in nonsense."""
    return any(re.search(pattern, line) for line in _NONSENSE)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    before: str  # the kind of the token before it


def _tokens(pattern: str) -> list[_Token] | None:
    """The parts of a pattern; None where it has others than these."""
    tokens: list[_Token] = []
    place = 0
    while place < len(pattern):
        match = _TOKEN.match(pattern, place)
        if match is None:
            return None
        token = _Token(match.lastgroup or "", match.group(), tokens[-1].kind if tokens else "")
        if token.kind == "repeat" and token.before not in ("one", "close"):
            return None
        tokens.append(token)
        place = match.end()
    return tokens


def _degree(tokens: list[_Token]) -> int:
    """The power of a line's length that bounds the work for the line.

    Each repetition may try every length, from every place where a search may begin. One that has to end at a
    character that it cannot match itself has one length only, found in as many steps as it is long. Nothing can fail
    after one at the very end.
    """
    settled: list[bool] = []  # of each repetition, whether it has one length only
    choices = depth = 0
    last: str | None = None  # what the repetition before matches, as long as its end is not settled
    for number, token in enumerate(tokens):
        depth += (token.kind == "open") - (token.kind == "close")
        choices += token.kind == "or" or (token.kind == "repeat" and token.text[0] == "?")
        if last is not None and token.kind == "one" and not depth and not _optional(tokens[number + 1 : number + 2]):
            settled[-1] = _apart(last, token.text)
            last = None if settled[-1] else last
        if token.kind == "or":
            last = None
        if token.kind == "repeat" and not re.fullmatch(r"\?\??|\{\d+\}\??", token.text) and number + 1 < len(tokens):
            settled.append(False)
            last = tokens[number - 1].text
    degree = 0
    for one_length in reversed(settled):
        degree = max(1, degree) if one_length else degree + 1
    anchored = tokens[:1] and tokens[0].text in ("^", r"\A") and not any(token.kind == "or" for token in tokens)
    return degree + (not anchored) + choices // _CHOICES_PER_DEGREE


def _optional(following: list[_Token]) -> bool:
    """Whether a part may be absent, by what follows it."""
    return bool(following) and following[0].kind == "repeat" and following[0].text[0] != "+"


def _apart(one: str, other: str) -> bool:
    """Whether no character matches both."""
    first, second = (re.compile(text, re.IGNORECASE | re.DOTALL) for text in (one, other))
    return not any(first.fullmatch(character) and second.fullmatch(character) for character in _ALPHABET)
