"""Names taken from logs. A log is written by strangers: a name passes only where it fits its grammar."""

from __future__ import annotations

import re

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

_DISTRIBUTION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}(?:\.[A-Za-z_][A-Za-z0-9_]{0,79}){0,9}")
_DEBIAN = re.compile(r"[a-z0-9][a-z0-9+.-]{1,79}")
_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9+._-]{0,49}")
_LIBRARY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9+._-]{0,79}")
_HEADER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9+_-]*(?:[./][A-Za-z0-9+_-]+){0,8}")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{1,79}")

# Variables that decide what is run: no log may set them.
_POWERFUL_VARIABLE = re.compile(r"(LD_|DYLD_|PYTHON|PIP_|UV_|GIT_|BASH|SUDO_|APT_|DEB|NODE_).*|PATH|ENV|IFS|SHELL|HOME")

# What ends like a file is no program, whatever the log says.
_FILE_ENDING = re.compile(
    r"\.(txt|rst|md|toml|cfg|ini|json|ya?ml|xml|html?|csv|pyc?|so|c|h|log|png|jpe?g|gif|pdf|zip|gz|tar|db|pem|crt|key)$"
)


def distribution(text: str) -> str | None:
    """A distribution name as PEP 508 has it, or None."""
    return text if _DISTRIBUTION.fullmatch(text) else None


def requirement(text: str) -> str | None:
    """A PEP 508 requirement on a release of an index (no URL, no path), in one line, or None."""
    try:
        parsed = Requirement(text)
    except InvalidRequirement:
        return None
    if parsed.url is not None or distribution(parsed.name) is None or "\n" in text or len(text) > 300:
        return None
    return str(parsed)


def canonical(requirement_text: str) -> str:
    """The normalised distribution name of a requirement; the empty string where it is none."""
    try:
        return canonicalize_name(Requirement(requirement_text).name)
    except InvalidRequirement:
        return ""


def module(text: str) -> str | None:
    return text if _MODULE.fullmatch(text) else None


def debian(text: str) -> str | None:
    """A Debian package name (Debian Policy 5.6.7), or None."""
    return text if _DEBIAN.fullmatch(text) else None


def program(text: str) -> str | None:
    return text if _PROGRAM.fullmatch(text) and not _FILE_ENDING.search(text) else None


def library(text: str) -> str | None:
    return text if _LIBRARY.fullmatch(text) else None


def header(text: str) -> str | None:
    return text if len(text) < 120 and _HEADER.fullmatch(text) else None


def variable(text: str) -> str | None:
    """An environment variable that a log may ask for, or None."""
    return text if _VARIABLE.fullmatch(text) and not _POWERFUL_VARIABLE.fullmatch(text) else None
