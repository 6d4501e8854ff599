"""What the head of a GGUF file says of the model in it (the format: ggml's docs/gguf.md), read without loading it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ratchet.errors import UsageError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_PAIRS = 10_000
_MAX_HEAD_BYTES = 256 << 20  # the vocabularies of today's models take some 10 MiB
_KEPT_ITEMS = 4096  # of an array; vocabularies are read over
_KV_BYTES = 2  # per number in the cache of keys and values: half precision


@dataclass(frozen=True)
class Head:
    """What is known of a model before it is loaded; None where the file does not say."""

    architecture: str
    context_tokens: int | None  # what it was trained with
    cache_bytes_per_token: int | None  # of keys and values


def read_head(path: Path) -> Head:
    """UsageError when the file is missing, is no GGUF file, or its head is damaged."""
    try:
        with path.open("rb") as file:
            pairs = _Reader(file).pairs()
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}", remedy="ratchet model list shows the models here") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a directory", remedy="name the .gguf file in it") from None
    except (struct.error, ValueError, OverflowError) as error:
        raise UsageError(
            f"{path} is no GGUF file, or is damaged: {error}",
            remedy="only GGUF files can be served: ratchet model pull brings one",
        ) from error
    architecture = str(pairs.get("general.architecture", ""))
    trained = pairs.get(f"{architecture}.context_length")
    return Head(architecture, trained if isinstance(trained, int) else None, _cache_bytes(pairs, architecture))


def _cache_bytes(pairs: Mapping[str, Any], architecture: str) -> int | None:
    def number(name: str) -> int:
        value = pairs.get(f"{architecture}.{name}")
        return value if isinstance(value, int) else 0

    layers, heads = number("block_count"), number("attention.head_count")
    if not layers or not heads:
        return None
    width = number("embedding_length") // heads
    per_head = (number("attention.key_length") or width) + (number("attention.value_length") or width)
    shared = pairs.get(f"{architecture}.attention.head_count_kv", heads)  # one number, or one for each layer
    cached = sum(item for item in shared if isinstance(item, int)) if isinstance(shared, list) else layers * int(shared)
    return cached * per_head * _KV_BYTES


class _Reader:
    """Reads the pairs of names and values, and no more bytes than a head may have."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = _MAX_HEAD_BYTES

    def pairs(self) -> dict[str, Any]:
        if self._take(4) != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        version, _tensors, count = struct.unpack("<IQQ", self._take(20))
        if not 2 <= version <= 3 or count > _MAX_PAIRS:
            raise ValueError(f"version {version} with {count} entries is unknown")
        return {self._string(): self._value(self._number("I")) for _ in range(count)}

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._number(self._code(kind))
        item, count = self._number("I"), self._number("Q")
        if item == _STRING:
            for _ in range(count):  # ends by itself: each takes bytes, and they are limited
                self._take(self._number("Q"))
            return []
        code = self._code(item)
        data = self._take(count * struct.calcsize("<" + code))
        return list(struct.unpack(f"<{count}{code}", data)) if count <= _KEPT_ITEMS else []

    def _code(self, kind: int) -> str:
        if kind not in _SCALARS:
            raise ValueError(f"a value has the unknown type {kind}")
        return _SCALARS[kind]

    def _number(self, code: str) -> Any:
        return struct.unpack("<" + code, self._take(struct.calcsize("<" + code)))[0]

    def _string(self) -> str:
        return self._take(self._number("Q")).decode("utf-8", "replace")

    def _take(self, count: int) -> bytes:
        if count > self._left:
            raise ValueError("its head is too long")
        self._left -= count
        data = self._file.read(count)
        if len(data) != count:
            raise ValueError("it ends too early")
        return data
