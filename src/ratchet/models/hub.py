"""GGUF files of the Hugging Face hub, checked against the SHA-256 that the hub itself gives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ratchet.errors import SourceError
from ratchet.events import redact
from ratchet.models.catalog import HubFile

_SHA256 = re.compile(r"[0-9a-f]{64}")
_TIMEOUT_S = 10.0  # until the hub has said what the file is


class HubError(SourceError):
    """The hub cannot be used for this file: not reached, its client not installed, no such file, or another one."""


@dataclass(frozen=True)
class HubEntry:
    """What the hub says of one file."""

    file: HubFile
    commit: str
    sha256: str
    size_bytes: int


def describe(file: HubFile, endpoint: str | None = None) -> HubEntry:
    """Ask the hub what `file` is now; nothing of it is downloaded. HubError when it cannot be had.

    `endpoint` is the hub's address, by default the client library's (`HF_ENDPOINT`). A token that gated files need
    is the library's matter too (`HF_TOKEN`).
    """
    with _reported(file):
        from huggingface_hub import get_hf_file_metadata, hf_hub_url

        url = hf_hub_url(file.repo, file.path, revision=file.revision, endpoint=endpoint)
        metadata = get_hf_file_metadata(url, timeout=_TIMEOUT_S, endpoint=endpoint)
    digest = metadata.etag or ""  # of large files, which weights always are; small ones have git's digest here
    if not _SHA256.fullmatch(digest) or metadata.commit_hash is None or metadata.size is None:
        raise HubError(
            f"the hub gives no SHA-256 and size for {file}", remedy="name a file that is stored as a large file there"
        )
    return HubEntry(file, metadata.commit_hash, digest, metadata.size)


def download(entry: HubEntry, folder: Path, endpoint: str | None = None) -> Path:
    """The file, somewhere below `folder`, unchecked. The library shows its own progress on standard error."""
    with _reported(entry.file):
        from huggingface_hub import hf_hub_download

        path = hf_hub_download(
            entry.file.repo, entry.file.path, revision=entry.commit, local_dir=folder, endpoint=endpoint
        )
    return Path(path)


@contextmanager
def _reported(file: HubFile) -> Iterator[None]:
    try:
        from httpx2 import HTTPError, InvalidURL  # what the hub's client is built on
        from huggingface_hub.errors import (
            FileMetadataError,
            GatedRepoError,
            LocalEntryNotFoundError,
            RemoteEntryNotFoundError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )
    except ImportError as error:
        raise HubError(
            f"the client of the Hugging Face hub is not installed ({error.name} is missing)",
            remedy="pip install 'ratchet-rl[models]'",
        ) from error
    try:
        yield
    except GatedRepoError as error:
        raise HubError(
            f"the hub gives {file} only to those who accepted its terms",
            remedy="accept them on the hub's page of the model, and set HF_TOKEN",
        ) from error
    except RepositoryNotFoundError as error:
        raise HubError(
            f"the hub has no repository {file.repo}, or it is private",
            remedy="check the spelling; for a private one set HF_TOKEN",
        ) from error
    except (RevisionNotFoundError, RemoteEntryNotFoundError) as error:
        raise HubError(f"the hub has no {file}", remedy="check the file's name and the revision") from error
    except (HTTPError, InvalidURL, FileMetadataError, LocalEntryNotFoundError, ConnectionError, RuntimeError) as error:
        raise HubError(
            f"the Hugging Face hub cannot be reached: {redact(str(error))[:200] or type(error).__name__}",
            remedy="check the network, HF_ENDPOINT and HF_HUB_OFFLINE",
        ) from error
