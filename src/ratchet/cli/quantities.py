"""Times and sizes as people write them on a command line."""

from __future__ import annotations

import re

from ratchet.errors import UsageError

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_seconds(text: str) -> float:
    """ "90", "90s", "30m", "1.5h" in seconds. UsageError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip().lower())
    if match is None or float(match[1]) == 0:
        raise UsageError(f"{text!r} is no time.", remedy="give seconds, or a number with s, m or h, such as 30m")
    return float(match[1]) * _SECONDS[match[2]]


def parse_size(text: str) -> int:
    """ "8G", "512M", "1.5GiB" in bytes (powers of 1024). UsageError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", text.strip().upper())
    if match is None or float(match[1]) == 0:
        raise UsageError(f"{text!r} is no size.", remedy="give a number with K, M, G or T, such as 8G")
    return int(float(match[1]) * _BYTES[match[2]])
