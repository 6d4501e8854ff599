"""The root file system of one sandbox: layers, what was frozen since it was opened, and the upper being written."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from ratchet.errors import StoreError, UsageError
from ratchet.sandbox import kernel, merge, overlay
from ratchet.sandbox.kernel import ID_SHIFT
from ratchet.sandbox.layers import Layers
from ratchet.sandbox.snapshots import Snapshots


class RootFs:
    """Mounted at `path` from `mount` to `unmount`. No process may be running in it when it is unmounted."""

    def __init__(
        self, directory: Path, path: Path, opened_on: Sequence[str], layers: Layers, snapshots: Snapshots
    ) -> None:
        self.path = path
        self.opened_on = tuple(opened_on)
        self.frozen: list[str] = []
        self._directory = directory
        self._layers = layers
        self._snapshots = snapshots
        self._made = 0
        self._mounted = False
        for layer in opened_on:
            snapshots.hold(layer)
        self._new_upper()

    @property
    def stack(self) -> tuple[str, ...]:
        """Ids of all layers below the upper, bottom first."""
        return (*self.opened_on, *self.frozen)

    @property
    def own_directories(self) -> list[Path]:
        """What this sandbox has written since it was opened; the upper first."""
        return [self.upper, *(path for name in self.frozen if (path := self._snapshots.path(name)))]

    def mount(self) -> None:
        work = self._new_directory("work")  # an overlay that was mounted volatile wants a fresh one each time
        overlay.mount(self.path, [self._path(name) for name in self.stack], self.upper, work)
        self._mounted = True

    def unmount(self) -> None:
        if self._mounted:
            kernel.unmount(self.path)
            self._mounted = False

    @property
    def unchanged(self) -> bool:
        """Whether nothing was written since it was opened, or last frozen."""
        with os.scandir(self.upper) as entries:
            return next(entries, None) is None

    def freeze(self) -> str:
        """The upper becomes a snapshot. Must be unmounted, as for all below."""
        snapshot = self._snapshots.freeze(self.upper)
        self.frozen.append(snapshot)
        self._new_upper()
        return snapshot

    def back_to(self, snapshot: str) -> None:
        if snapshot not in self.frozen:
            raise UsageError(f"{snapshot} is no snapshot of this sandbox")
        self._layers.trash.discard(self.upper)
        self._new_upper()
        keep = self.frozen.index(snapshot) + 1
        for dropped in self.frozen[keep:]:
            self._snapshots.release(dropped)
        del self.frozen[keep:]

    def keep(self) -> str:
        """Everything written since the sandbox was opened becomes one layer of the store, and the new top."""
        layer = secrets.token_hex(16)
        if self.frozen:
            self.freeze()
            merged = self._directory / f"merged-{layer}"
            merge.merge([self._path(name) for name in self.frozen], merged)
            self._layers.adopt(merged, layer)
        else:
            self._layers.adopt(self.upper, layer)
            self._new_upper()
        self._release_frozen()
        self.frozen = [layer]
        return layer

    def close(self) -> None:
        self.unmount()
        self._release_frozen()
        for layer in self.opened_on:
            self._snapshots.release(layer)

    def _release_frozen(self) -> None:
        for snapshot in self.frozen:
            self._snapshots.release(snapshot)
        self.frozen = []

    def _new_upper(self) -> None:
        self.upper = self._new_directory("upper")
        os.chown(self.upper, ID_SHIFT, ID_SHIFT)

    def _new_directory(self, kind: str) -> Path:
        self._made += 1
        directory = self._directory / f"{kind}-{self._made}"
        directory.mkdir()
        directory.chmod(0o755)
        return directory

    def _path(self, name: str) -> Path:
        path = self._snapshots.path(name) or self._layers.path(name)
        if not path.is_dir():
            raise StoreError(f"there is no layer {name}", remedy="`ratchet base list` shows the bases that are there")
        return path
