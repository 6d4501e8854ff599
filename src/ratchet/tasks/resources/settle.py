"""Make a sandbox's files agree with changed sources, and leave nothing behind of what they were.

    settle.py ORDER.json

Runs as root inside a sandbox, with whatever Python 3 its base has. ORDER holds `workspace`; `changed`: path (relative),
sha256 and size of what it was, mtime (seconds); `keep`: files of the checkout. Copies of a changed file become links to it, so that an installed copy follows every edit. Its bytecode and
the caches in which its text may lie are removed. Prints one JSON object: what was linked and removed.
"""

import hashlib
import json
import os
import shutil
import sys

CACHES = {".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox", ".eggs", ".cache", ".coverage"}
ARCHIVES = (".whl", ".egg", ".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
OUTSIDE = {"/proc", "/sys", "/dev", "/run"}
linked, removed = [], []


def digest(path):
    found = hashlib.sha256()
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            found.update(piece)
    return found.hexdigest()


def same(entry, change):
    info = entry.stat(follow_symlinks=False)
    return info.st_size == change["size"] > 0 and digest(entry.path) == change["sha256"]


def is_copy(path, change):
    """Only a file with the same end of its path: short files of the same text are common."""
    tail = change["path"].split("/")[-2:]
    return path.split("/")[-len(tail):] == tail


def is_bytecode(path, change, data):
    name = os.path.basename(path)
    module = os.path.basename(change["path"])[: -len(".py")]
    if not change["path"].endswith(".py") or name.split(".")[0] != module:
        return False
    tail = "/".join(change["path"].split("/")[-2:])
    return tail.encode() in data


def look_at(entry, order):
    path = entry.path
    inside = path.startswith(order["workspace"] + "/")
    relative = path[len(order["workspace"]) + 1:] if inside else ""
    if inside and path.endswith(ARCHIVES) and relative not in order["keep"]:
        os.unlink(path)
        removed.append(path)
        return
    for change in order["changed"]:
        if relative == change["path"]:
            continue
        if path.endswith((".pyc", ".pyo")):
            with open(path, "rb") as file:
                if is_bytecode(path, change, file.read()):
                    os.unlink(path)
                    removed.append(path)
                    return
        elif is_copy(path, change) and relative not in order["keep"] and same(entry, change):
            os.unlink(path)
            os.symlink(os.path.join(order["workspace"], change["path"]), path)
            linked.append(path)
            return


def walk(folder, order):
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink():
            continue
        if entry.is_dir(follow_symlinks=False):
            inside = entry.path.startswith((order["workspace"] + "/", "/root/", "/home/"))
            if inside and entry.name in CACHES:
                shutil.rmtree(entry.path, ignore_errors=True)
                removed.append(entry.path)
            elif entry.path not in OUTSIDE:
                walk(entry.path, order)
        elif entry.is_file(follow_symlinks=False):
            names = {os.path.basename(change["path"]).rsplit(".", 1)[0] for change in order["changed"]}
            if entry.name.split(".")[0] in names or entry.name.endswith(ARCHIVES):
                look_at(entry, order)


def main():
    with open(sys.argv[1]) as file:
        order = json.load(file)
    order["keep"] = set(order["keep"])
    walk("/", order)
    owner = os.stat(order["workspace"])
    for change in order["changed"]:
        path = os.path.join(order["workspace"], change["path"])
        if os.path.isfile(path) and not os.path.islink(path):
            os.chown(path, owner.st_uid, owner.st_gid)
            os.utime(path, (change["mtime"], change["mtime"]))
    json.dump({"linked": sorted(linked), "removed": sorted(removed)}, sys.stdout)


main()
