"""The version of a checkout in the form that packaging tools take (PEP 440)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from packaging.version import Version

_DESCRIBED = re.compile(r"(?:.*?[-_/])??v?(?P<release>\d[\w.+!]*?)(?:-(?P<distance>\d+)-g[0-9a-f]+)?(?:-dirty)?")


def first_version(texts: Iterable[str | None]) -> str | None:
    """The first of `texts` that is a version, or that `git describe` made from one; normalised.

    `v1.2-3-gabc` is three commits after 1.2, so it becomes 1.2.post3: it has to sort after the release.
    """
    for text in texts:
        match = _DESCRIBED.fullmatch(text.strip()) if text else None
        if match is None:
            continue
        try:
            release = str(Version(match["release"]))
        except ValueError:  # none, or a number with thousands of digits
            continue
        return f"{release}.post{match['distance']}" if match["distance"] and "post" not in release else release
    return None
