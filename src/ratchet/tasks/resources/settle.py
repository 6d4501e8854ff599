"""Make a sandbox's files agree with changed sources, and leave nothing behind of what they were.

    settle.py ORDER.json

Runs as root inside a sandbox, with whatever Python 3 its base has. ORDER holds `workspace`; `changed`: path (relative),
tails, mtime (nanoseconds), mode; `copies`: path, tails, sha256 and size that each source had; `keep`: files of the
checkout. Tails are the last two parts that the path of a copy may have.

Copies of sources, changed or not, become links to them: an installed copy follows every edit, and does not show what
changed.
The project's bytecode, and the caches and archives in which a changed file's text may lie, are removed. Prints one
JSON object: what was linked and removed.
"""

import hashlib
import json
import lzma
import os
import shutil
import sys
import tarfile
import zipfile
import zlib

CACHES = {".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox", ".eggs"}
DOWNLOADS = {"pip", "uv", "pypoetry", "pdm"}  # below ~/.cache
ARCHIVES = (".whl", ".egg", ".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
BYTECODE = (".pyc", ".pyo")
# RuntimeError: headers that go on without end, or a kind of archive that is not known.
DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    zlib.error,
    lzma.LZMAError,
)
OUTSIDE = {"/proc", "/sys", "/dev", "/run"}
LARGEST_BYTECODE_BYTES = 32 << 20


class Settler:
    def __init__(self, order):
        self.workspace = order["workspace"]
        self.changed = order["changed"]
        self.keep = set(order["keep"])
        self.tails = {each for change in self.changed for each in change["tails"]}
        self.modules = {os.path.splitext(os.path.basename(each))[0] for each in self.tails if each.endswith(".py")}
        # Short files of the same text are common: a copy has the same end of its path.
        self.copies = {}
        for copy in order["copies"]:
            for each in copy["tails"]:
                self.copies.setdefault(each, []).append(copy)
        self.linked, self.removed = [], []

    def folder(self, path, name):
        """Whether a folder is to be looked into; a cache is removed."""
        inside = path.startswith(self.workspace + "/")
        home = path.startswith(("/root/", "/home/"))
        # Which module was changed could be seen from whose bytecode is missing: all of the project's goes.
        stale = inside and name == "__pycache__" and "/site-packages/" not in path
        download = name in DOWNLOADS and os.path.basename(os.path.dirname(path)) == ".cache" and (home or inside)
        if (name in CACHES and (inside or home)) or stale or download:
            shutil.rmtree(path, ignore_errors=True)
            self.removed.append(path)
            return False
        return path not in OUTSIDE

    def file(self, path, name, info):
        if path.endswith(BYTECODE):
            if name.split(".")[0] in self.modules and info.st_size <= LARGEST_BYTECODE_BYTES and self.is_stale(path):
                self.remove(path)
        elif path.endswith(ARCHIVES):
            if path.startswith(self.workspace + "/") and self.holds_changed(path):
                self.remove(path)
        else:
            self.link(path, info)

    def is_stale(self, path):
        """Bytecode lies beside its source, or where Python puts it; else it says what it was compiled from."""
        folder, name = os.path.split(path)
        if os.path.basename(folder) == "__pycache__":
            folder = os.path.dirname(folder)
        if tail(os.path.join(folder, name.split(".")[0] + ".py")) in self.tails:
            return True
        with open(path, "rb") as file:
            data = file.read()
        return any(each.encode("utf-8", "surrogateescape") in data for each in self.tails)

    def holds_changed(self, path):
        try:
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    names = archive.namelist()
            else:
                with tarfile.open(path) as archive:
                    names = archive.getnames()
        except DAMAGED:
            return False
        return any(tail(name) in self.tails for name in names)

    def link(self, path, info):
        relative = path[len(self.workspace) + 1 :] if path.startswith(self.workspace + "/") else ""
        for copy in self.copies.get(tail(path), ()):
            if relative == copy["path"] or relative in self.keep:
                continue
            if info.st_size == copy["size"] > 0 and digest(path) == copy["sha256"]:
                os.unlink(path)
                os.symlink(os.path.join(self.workspace, copy["path"]), path)
                self.linked.append(path)
                return

    def remove(self, path):
        os.unlink(path)
        self.removed.append(path)


def tail(path):
    return "/".join(path.split("/")[-2:])


def digest(path):
    found = hashlib.sha256()
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            found.update(piece)
    return found.hexdigest()


def walk(settler):
    pending = ["/"]
    while pending:
        folder = pending.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        before = os.stat(folder)
        for entry in entries:
            if entry.is_symlink():
                continue
            if entry.is_dir(follow_symlinks=False):
                if settler.folder(entry.path, entry.name):
                    pending.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                settler.file(entry.path, entry.name, entry.stat(follow_symlinks=False))
        if os.stat(folder).st_mtime_ns != before.st_mtime_ns:  # it would tell that something was done here
            os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))


def restore(settler):
    """Owners, modes and times as they were: they would tell where to look."""
    owner = os.stat(settler.workspace)
    for change in settler.changed:
        path = os.path.join(settler.workspace, change["path"])
        if os.path.isfile(path) and not os.path.islink(path):
            os.chown(path, owner.st_uid, owner.st_gid)
            if change["mode"] is not None:
                os.chmod(path, change["mode"])
            os.utime(path, ns=(change["mtime"], change["mtime"]))
        folder = os.path.dirname(path)
        if os.path.isdir(folder):
            os.utime(folder, ns=(change["mtime"], change["mtime"]))


def main():
    with open(sys.argv[1]) as file:
        settler = Settler(json.load(file))
    walk(settler)
    restore(settler)
    json.dump({"linked": sorted(settler.linked), "removed": sorted(settler.removed)}, sys.stdout)


if __name__ == "__main__":
    main()
