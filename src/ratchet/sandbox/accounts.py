"""Users and groups as a sandbox's own /etc/passwd and /etc/group name them. Damaged lines are passed over."""

from __future__ import annotations

from collections.abc import Iterator

from ratchet.sandbox.kernel import ID_COUNT
from ratchet.sandbox.runtime import ROOT, User

_ALL_GROUPS_MAX = 64


def find_user(name: str, passwd: bytes, group: bytes) -> User | None:
    """The user of that name or number; None where there is none. Root is there whatever the files say."""
    for account, _, uid, gid, _, home, *_ in _lines(passwd, fields=6):
        if name in (account, uid) and _is_id(uid) and _is_id(gid) and "\0" not in account + home:
            groups = tuple(
                int(number)
                for _, _, number, members, *_ in _lines(group, fields=4)
                if account in members.split(",") and _is_id(number)
            )
            return User(account, int(uid), int(gid), home or "/", groups[:_ALL_GROUPS_MAX])
    return ROOT if name in ("root", "0") else None


def _lines(text: bytes, *, fields: int) -> Iterator[list[str]]:
    for line in text.decode(errors="replace").splitlines():
        parts = line.split(":")
        if len(parts) >= fields:
            yield parts


def _is_id(number: str) -> bool:
    return number.isascii() and number.isdigit() and len(number) < 6 and int(number) < ID_COUNT
