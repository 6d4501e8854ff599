"""Mounting layers on one another.

Directories are named by descriptor (`/proc/self/fd/12`) in the mount options: the kernel takes one page of options,
and so a hundred layers fit whatever the path of the store, colons and commas in it do no harm, and no process has to
change its working directory.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ratchet.errors import MachineError, SandboxError
from ratchet.sandbox import kernel

_OPTIONS_BYTES = 4096 - 1
# Nobody on the host may become a user of the sandbox by what lies there; inside, no command gains rights anyway.
_FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV
_FIXED = "redirect_dir=nofollow,index=off,metacopy=off"


def mount(target: Path, lower: Sequence[Path], upper: Path, work: Path) -> None:
    """Mount `lower` (bottom first) with `upper` on top. `work` must be fresh: a volatile one is used once.

    `volatile` leaves out every fsync of the upper file system (20,000 small files: 2.8 s instead of 30). Renaming a
    directory that lies in a lower layer gives EXDEV, as it does under Docker: what is written has no references to
    what is below, so layers can be merged and exported file by file. Raises SandboxError, or MachineError where the
    file system cannot hold an upper layer.
    """
    with ExitStack() as stack:

        def name(directory: Path) -> str:
            descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            return f"/proc/self/fd/{descriptor}"

        below = ":".join(name(layer) for layer in reversed(lower))
        options = f"lowerdir={below},upperdir={name(upper)},workdir={name(work)},{_FIXED}"
        if len(options) + len(",volatile") > _OPTIONS_BYTES:
            raise SandboxError(
                f"{len(lower)} layers are more than one overlay mount takes",
                remedy="close the sandbox after keep(), which merges its layers into one, and open that",
            )
        try:
            _mount(target, options)
        except OSError as error:
            raise _explained(error, upper) from error


def _mount(target: Path, options: str) -> None:
    try:
        kernel.mount("overlay", target, "overlay", f"{options},volatile", _FLAGS)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        kernel.mount("overlay", target, "overlay", options, _FLAGS)  # Linux before 5.10: slower, and otherwise the same


def _explained(error: OSError, upper: Path) -> Exception:
    if error.errno == errno.ENODEV:
        return MachineError("this kernel has no overlay file system", remedy="modprobe overlay")
    if error.errno == errno.EPERM:
        return MachineError("mounting is not permitted here", remedy="run as root, outside of unprivileged containers")
    if error.errno == errno.EINVAL:
        return MachineError(
            f"the file system of {upper} cannot be the upper layer of an overlay",
            remedy="set RATCHET_HOME to a directory on ext4, xfs or btrfs (not on an overlay, as in most containers)",
        )
    return SandboxError(f"cannot mount the layers: {error.strerror}", remedy="dmesg says more")
