"""Root file systems out of OCI images, with skopeo (which fetches) and umoci (which unpacks layers safely)."""

from __future__ import annotations

import re
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ratchet.errors import MachineError, UsageError

_TRANSPORT = re.compile(r"(docker|oci|oci-archive|docker-archive|dir|containers-storage|docker-daemon):.+")


def fetch_root(source: str, scratch: Path, run: Callable[[Sequence[str]], None]) -> Path:
    """The path of a root file system archive for what `source` names: the archive itself, or one made in `scratch`.

    `run` starts a program and raises where it fails.
    """
    reference = image_reference(source)
    if reference is None:
        return Path(source)
    skopeo, umoci = _tool("skopeo"), _tool("umoci")
    # The operator's signature policy holds for what comes over the network; a local file needs none.
    trusted = [] if reference.startswith("docker:") else ["--insecure-policy"]
    run([skopeo, *trusted, "copy", "--quiet", reference, f"oci:{scratch / 'image'}:base"])
    run([umoci, "raw", "unpack", "--image", f"{scratch / 'image'}:base", str(scratch / "root")])
    shutil.rmtree(scratch / "image")
    archive = scratch / "image.tar"
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as out:
        for entry in sorted((scratch / "root").iterdir()):
            out.add(entry, arcname=entry.name)  # names are sorted at every level, and links are not followed
    shutil.rmtree(scratch / "root")
    return archive


def image_reference(source: str) -> str | None:
    """What skopeo calls the image that `source` names; None where it is a root file system archive."""
    path = Path(source)
    if path.is_dir():
        if not (path / "oci-layout").is_file():
            raise UsageError(
                f"{source} is a directory, but no OCI image layout",
                remedy="give a tar archive of the root file system, an OCI layout or archive, or docker://NAME:TAG",
            )
        return f"oci:{path}"
    if path.is_file():
        try:
            with tarfile.open(path) as tar:
                names = {member.name.removeprefix("./") for _, member in zip(range(10_000), tar, strict=False)}
        except (tarfile.TarError, EOFError) as error:
            raise UsageError(f"{source} is no tar archive: {error}") from error
        if {"oci-layout", "index.json"} <= names:
            return f"oci-archive:{path}"
        return f"docker-archive:{path}" if "manifest.json" in names and "etc" not in names else None
    if _TRANSPORT.fullmatch(source):
        return source
    raise UsageError(
        f"there is no {source}", remedy="give an existing archive or directory, or an image as docker://NAME:TAG"
    )


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise MachineError(f"{name} is needed to import an image", remedy=f"apt-get install {name}")
    return found
