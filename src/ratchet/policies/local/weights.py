"""Checkpoints: a folder as transformers saves it, made once from a GGUF file, or brought from the hub."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

from ratchet.errors import SourceError, UsageError
from ratchet.policies.local.templates import train_is_missing
from ratchet.scratch import Scratch

_MATTERS = re.compile(
    r".*\.safetensors|(?:config|generation_config|tokenizer|tokenizer_config|adapter_config)\.json|chat_template\.jinja"
)
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_BLOCK = 1 << 24


def is_checkpoint(path: Path) -> bool:
    return (path / "config.json").is_file() and any(path.glob("*.safetensors"))


def checkpoint_of(source: str, home: Path) -> Path:
    """The folder of a checkpoint: `source` is one, or a GGUF file, or the name of one that was pulled, or OWNER/NAME
    on the Hugging Face hub.

    A GGUF file is dequantised once, into `home/models/checkpoints`; an interrupted call leaves nothing that counts.
    Raises UsageError for what is none of these, SourceError where the hub does not give it.
    """
    path = Path(source).expanduser()
    if is_checkpoint(path):
        return path.absolute()
    pulled = home / "models" / f"{source}.gguf"
    if path.suffix == ".gguf" and path.is_file():
        return _dequantised(path, home)
    if pulled.is_file():
        return _dequantised(pulled, home)
    if _HUB_NAME.fullmatch(source) and not path.exists():
        return _from_hub(source)
    raise UsageError(
        f"{source!r} is no model: neither a folder with a checkpoint, nor a GGUF file, nor a name on the hub",
        remedy="`ratchet model list` shows what can be pulled by name; a checkpoint has config.json and *.safetensors",
    )


def _dequantised(file: Path, home: Path) -> Path:
    target = home / "models" / "checkpoints" / _sha256(file)[:32]
    if is_checkpoint(target):
        return target
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    except ImportError as error:
        raise train_is_missing() from error
    with Scratch(home / "tmp").temporary() as folder:
        made = folder / "checkpoint"
        model = AutoModelForCausalLM.from_pretrained(
            str(file.parent),
            gguf_file=file.name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.float32,
        )
        model.save_pretrained(made)
        AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name).save_pretrained(made)
        for weights in made.glob("*.safetensors"):
            weights.chmod(0o644)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            shutil.rmtree(target)
        made.rename(target)
    return target


def _from_hub(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError as error:
        raise train_is_missing() from error
    try:
        return Path(snapshot_download(name, allow_patterns=["*.safetensors", "*.json", "*.jinja", "*.model"]))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise SourceError(
            f"{name} could not be had from the Hugging Face hub: {str(error)[:300]}",
            remedy="check the name and the network, or use a file on this machine",
        ) from error


def weights_hash(checkpoint: Path) -> str:
    """The SHA-256 over names and contents of the files that decide what a checkpoint does."""
    digest = hashlib.sha256()
    for path in sorted(checkpoint.iterdir()):
        if path.is_file() and _MATTERS.fullmatch(path.name):
            digest.update(f"{path.name}\0{_sha256(path)}\n".encode())
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
