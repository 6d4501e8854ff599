"""The layers of this machine: directory trees with shifted owners, one per id, never changed once they are there."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from ratchet.errors import StoreError, UsageError
from ratchet.sandbox import claims, unpack
from ratchet.sandbox.kernel import ID_COUNT, ID_SHIFT
from ratchet.sandbox.trash import Trash


class Layers:
    """The store in `home/layers`. Layers appear whole or not at all, and several processes may use it at once."""

    def __init__(self, home: Path) -> None:
        self._directory = home / "layers"
        self._staging = home / "staging"
        self.trash = Trash(home / "trash")

    def path(self, layer_id: str) -> Path:
        """Where the tree of a layer lies, or would. Raises UsageError for an id that is none."""
        if not layer_id or not layer_id.replace("-", "").replace("_", "").isalnum():
            raise UsageError(f"{layer_id!r} is no layer id")
        return self._directory / layer_id

    def exists(self, layer_id: str) -> bool:
        return self.path(layer_id).is_dir()

    def ids(self) -> tuple[str, ...]:
        if not self._directory.is_dir():
            return ()
        return tuple(sorted(entry.name for entry in self._directory.iterdir() if entry.is_dir()))

    def add_tree(self, source: Path, layer_id: str, at: str, user_id: int = 1000) -> None:
        """A layer that holds a copy of the directory `source` at the path `at`, owned by `user_id`.

        Links are kept as links; modes and times too; device nodes, sockets and pipes are left out. The folders above
        `at` belong to root, with mode 755. Does nothing where the layer exists.
        """
        where = PurePosixPath(at)
        if not where.is_absolute() or ".." in where.parts:
            raise UsageError(f"a layer's place in the sandbox is an absolute path, not {at!r}")

        def fill(tree: Path) -> None:
            target = tree
            for part in where.parts[1:]:
                target = target / part
                target.mkdir(mode=0o755)
                os.chown(target, ID_SHIFT, ID_SHIFT)
            _copy_tree(source, target, ID_SHIFT + user_id)

        self._add(layer_id, fill)

    def add_archive(self, archive: Path, layer_id: str) -> None:
        """A layer from an untrusted root file system archive (tar, also compressed). Does nothing where it exists.

        Raises StoreError where the archive is damaged or would fill the disk.
        """

        def fill(tree: Path) -> None:
            program = [sys.executable, "-I", str(Path(unpack.__file__)), str(tree), str(ID_SHIFT), str(ID_COUNT)]
            with archive.open("rb") as stream:
                done = subprocess.run(program, stdin=stream, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise StoreError(
                    f"{archive} cannot be unpacked: {done.stderr.strip()}",
                    remedy="check that it is a whole tar archive of a root file system, and that there is disk space",
                )

        self._add(layer_id, fill)

    def adopt(self, upper: Path, layer_id: str) -> None:
        """Take over a directory of the same file system, by renaming it."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        upper.rename(self.path(layer_id))

    def rename(self, layer_id: str, new_id: str) -> None:
        """Give a layer another id. Where there is one of that id already, this one is superfluous and goes. No sandbox
        may be open on it."""
        try:
            self.path(layer_id).rename(self.path(new_id))
        except OSError:
            if not self.exists(new_id):
                raise
            self.remove(layer_id)

    def remove(self, layer_id: str) -> None:
        """Returns at once; the files go in the background. No sandbox may be open on the layer."""
        self.trash.discard(self.path(layer_id))

    def size_bytes(self, layer_id: str) -> int:
        """Disk space that the layer takes."""
        if not self.exists(layer_id):
            raise StoreError(f"there is no layer {layer_id}", remedy="`ratchet gc` and build it again")
        command = ["du", "-sx", "--block-size=1", "--", str(self.path(layer_id))]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0])

    def sweep(self) -> tuple[str, ...]:
        """Remove what dead processes left half made."""
        swept = []
        for dead in claims.claim_dead(self._staging):
            swept.append(f"half-made layer {dead.id}")
            self.trash.discard(dead.path)
            dead.close()
        self.trash.empty()
        return tuple(swept)

    def _add(self, layer_id: str, fill: Callable[[Path], None]) -> None:
        if self.exists(layer_id):
            return
        claimed = claims.claim(self._staging)
        try:
            tree = claimed.path / "tree"
            tree.mkdir()
            tree.chmod(0o755)
            os.chown(tree, ID_SHIFT, ID_SHIFT)
            fill(tree)
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                tree.rename(self.path(layer_id))
            except OSError:
                if not self.exists(layer_id):
                    raise
                # another process was faster with the same layer: then this one is superfluous
        finally:
            self.trash.discard(claimed.path)
            claimed.close()


def _copy_tree(source: Path, target: Path, owner: int) -> None:
    """Copy the content of `source` into the existing directory `target`."""
    pending = [(source, target)]
    finished: list[tuple[Path, os.stat_result]] = []
    while pending:
        from_directory, to_directory = pending.pop()
        finished.append((to_directory, from_directory.lstat()))
        for entry in os.scandir(from_directory):
            info, copy = entry.stat(follow_symlinks=False), to_directory / entry.name
            if stat.S_ISDIR(info.st_mode):
                copy.mkdir()
                pending.append((Path(entry.path), copy))
            elif stat.S_ISLNK(info.st_mode):
                copy.symlink_to(Path(entry.path).readlink())
                os.chown(copy, owner, owner, follow_symlinks=False)
            elif stat.S_ISREG(info.st_mode):
                shutil.copyfile(entry.path, copy, follow_symlinks=False)
                _set_attributes(copy, info, owner)
    for directory, info in reversed(finished):
        _set_attributes(directory, info, owner)


def _set_attributes(path: Path, info: os.stat_result, owner: int) -> None:
    os.chown(path, owner, owner)
    path.chmod(stat.S_IMODE(info.st_mode))
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
