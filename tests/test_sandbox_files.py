"""Merging uppers, the seccomp profile, control groups as files: the parts that need no container."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ratchet.records import Limits
from ratchet.sandbox import accounts, cgroups, kernel, merge, overlay, runtime, seccomp
from ratchet.sandbox.command import Transcript

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


def contents(tree: Path) -> dict[str, str]:
    """What is in a tree: files with their text and mode, links with their target, directories with their mode."""
    found = {}
    for directory, folders, names in os.walk(tree):
        for name in (*folders, *names):
            path = Path(directory, name)
            mode = path.lstat().st_mode
            text = str(path.readlink()) if path.is_symlink() else path.read_text() if path.is_file() else ""
            found[str(path.relative_to(tree))] = f"{stat.filemode(mode)} {text}"
    return found


class Overlay:
    """A stack that is written to, one frozen upper after another."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.root = directory, directory / "root"
        self.layers = [directory / "base"]
        for made in (self.root, *self.layers):
            made.mkdir()

    def mounted(self, layers: list[Path]) -> Path:
        number = len(list(self.directory.iterdir()))
        upper, work = self.directory / f"upper{number}", self.directory / f"work{number}"
        upper.mkdir()
        work.mkdir()
        overlay.mount(self.root, layers, upper, work)
        return upper

    def freeze(self, script: str) -> None:
        upper = self.mounted(self.layers)
        try:
            assert os.system(f"cd {self.root} && {{ {script}; }}") == 0
        finally:
            kernel.unmount(self.root)
        self.layers.append(upper)

    def contents(self, layers: list[Path]) -> dict[str, str]:
        self.mounted(layers)
        try:
            return contents(self.root)
        finally:
            kernel.unmount(self.root)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Overlay]:
    made = Overlay(tmp_path)
    base = "mkdir -p a/b/c gone kept; echo 1 > a/b/c/file; echo 1 > gone/file; echo 1 > kept/file; echo 1 > top; ln -s top link"
    assert os.system(f"cd {made.layers[0]} && {{ {base}; }}") == 0
    yield made
    kernel.unmount(made.root)


SCRIPTS = {
    "files written twice": ["echo 2 > top; echo 2 > new", "echo 3 > top; echo 3 > new; chmod 700 new"],
    "removed, then made again": ["rm top; rm -r gone", "echo 3 > top; mkdir gone; echo 3 > gone/other"],
    "made, then removed": ["mkdir d; echo 2 > d/f; echo 2 > n", "rm -r d; rm n; echo 3 > other"],
    "a directory replaced by a new one": ["rm -r a; mkdir a; echo 2 > a/own", "mkdir a/b; echo 3 > a/b/own"],
    "replaced after it was changed": ["echo 2 > a/b/c/two; rm a/b/c/file", "rm -r a/b; mkdir a/b; echo 3 > a/b/three"],
    "a directory becomes a file, and back": ["rm -r kept; echo 2 > kept", "rm kept; mkdir kept; echo 3 > kept/new"],
    "a file becomes a directory": ["rm top; mkdir top; echo 2 > top/in", "echo 3 > top/in2; rm top/in"],
    "links and modes": ["ln -sfn kept link; chmod 750 a", "rm link; ln -s a link; chmod 711 a/b; mkfifo pipe"],
    "three layers": ["echo 2 > a/b/x; rm top", "rm -r a; echo 3 > top", "mkdir -p a/b; echo 4 > a/b/y; rm top"],
    "nothing at all": ["true", "true"],
}


@as_root
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_merged_upper_has_the_effect_of_all(stack: Overlay, name: str, tmp_path: Path) -> None:
    for script in SCRIPTS[name]:
        stack.freeze(script)
    before = stack.contents(stack.layers)
    merged = tmp_path / "merged"
    merge.merge(stack.layers[1:], merged)
    assert stack.contents([stack.layers[0], merged]) == before


@as_root
def test_merging_keeps_hard_links_and_copies_nothing(stack: Overlay, tmp_path: Path) -> None:
    stack.freeze("echo 2 > one; ln one two")
    stack.freeze("echo 3 > three")
    merged = tmp_path / "merged"
    merge.merge(stack.layers[1:], merged)
    assert (merged / "one").stat().st_ino == (merged / "two").stat().st_ino == (stack.layers[1] / "one").stat().st_ino


@as_root
def test_a_hundred_layers_with_awkward_names_can_be_mounted(tmp_path: Path) -> None:
    home = tmp_path / ("a:b,c\\d " + "x" * 150)
    layers = [home / f"layer{number}" for number in range(100)]
    for number, layer in enumerate(layers):
        layer.mkdir(parents=True)
        (layer / "top").write_text(str(number))
    for name in ("upper", "work", "root"):
        (home / name).mkdir()
    overlay.mount(home / "root", layers, home / "upper", home / "work")
    try:
        assert (home / "root" / "top").read_text() == "99"
    finally:
        assert kernel.unmount(home / "root")
    assert not kernel.unmount(home / "root")


@pytest.mark.parametrize("values", [(5,), (0,), (255,), (3, 200), (0x12, 0x1C)])
def test_masks_match_all_but_the_values(values: tuple[int, ...]) -> None:
    cubes = list(seccomp.all_but(values, bits=8))
    for number in range(256):
        assert sum(number & mask == value for mask, value in cubes) == (number not in values)


def test_no_system_call_is_both_allowed_and_refused_outright() -> None:
    rules = [rule for rule in seccomp.profile()["syscalls"] if not rule["args"]]
    names = [name for rule in rules for name in rule["names"]]
    assert len(names) == len(set(names))
    assert {"clone", "unshare", "socket", "ioctl", "personality"}.isdisjoint(names)


V1 = """\
30 23 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
"""
V2 = "31 23 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"


def test_hierarchies_of_both_versions() -> None:
    v1 = {tree.root.name: tree.controllers for tree in cgroups.hierarchies(V1)}
    assert v1["memory"] == {"memory"}
    assert v1["cpu,cpuacct"] == {"cpu", "cpuacct"}
    assert v1["unified"] == frozenset()
    assert cgroups.hierarchies(V2) == (cgroups.Hierarchy(Path("/sys/fs/cgroup"), frozenset()),)


GROUP_FILES: dict[str, Mapping[str, str]] = {
    "v1": {
        "memory/g/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        "pids/g/pids.events": "max 7\n",
        "pids/g/pids.current": "12\n",
        "memory/g/cgroup.procs": "11\n12\n",
        "pids/g/cgroup.procs": "12\n13\n",
    },
    "v2": {
        "g/memory.events": "low 0\nhigh 0\nmax 9\noom 3\noom_kill 3\noom_group_kill 0\n",
        "g/pids.events": "max 7\n",
        "g/pids.current": "12\n",
        "g/cgroup.procs": "11\n12\n13\n",
    },
}


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_control_group_is_read_in_both_versions(tmp_path: Path, version: str) -> None:
    for name, text in GROUP_FILES[version].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    v1 = tuple(cgroups.Hierarchy(tmp_path / name, frozenset({name})) for name in ("memory", "pids"))
    trees = v1 if version == "v1" else (cgroups.Hierarchy(tmp_path, frozenset()),)
    group = cgroups.Cgroup("g", trees)
    assert (group.oom_kills(), group.forks_refused(), group.processes()) == (3, 7, 12)
    assert group.pids() == {11, 12, 13}
    assert list(cgroups.groups_named("g", trees)) == ["g"]
    absent = cgroups.Cgroup("absent", trees)
    assert (absent.oom_kills(), absent.forks_refused(), absent.pids()) == (0, 0, set())
    absent.kill()
    absent.remove()


def test_swap_counts_as_memory_where_there_is_any() -> None:
    limits = Limits(memory_bytes=1 << 30)
    for limit_swap, expected in ((True, {"limit": 1 << 30, "swap": 1 << 30}), (False, {"limit": 1 << 30})):
        config = runtime.container_config(Path("/root"), "g", "host", limits, [], limit_swap=limit_swap)
        assert config["linux"]["resources"]["memory"] == expected


def test_a_runtime_log_gives_its_last_error(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert runtime.log_message(log) == ""
    log.write_text(
        '{"level":"warning","msg":"w"}\n{"level":"error","msg":"first"}\n{"level":"error","msg":"last"}\nnoise\n'
    )
    assert runtime.log_message(log) == "last"


def test_users_by_name_and_number() -> None:
    passwd = b"root:x:0:0::/root:/bin/sh\ndev:x:1000:1001:,,,:/home/dev:/bin/sh\nbroken\n"
    group = b"video:x:44:dev\nevil:x:notanumber:dev\nbig:x:99999:dev\nother:x:45:root,deva\n"
    expected = runtime.User("dev", 1000, 1001, "/home/dev", (44,))
    assert accounts.find_user("dev", passwd, group) == accounts.find_user("1000", passwd, group) == expected
    assert accounts.find_user("nobody", passwd, group) is None
    assert accounts.find_user("root", b"", b"") == runtime.ROOT


@pytest.mark.parametrize("sizes", [[5], [6, 6], [3] * 20, [100], [10, 1], [1] * 11])
def test_a_transcript_keeps_both_ends(sizes: list[int]) -> None:
    data = bytes(65 + number % 26 for number in range(sum(sizes)))
    transcript = Transcript(10)
    position = 0
    for size in sizes:
        transcript.add(data[position : position + size])
        position += size
    assert transcript.total_bytes == len(data)
    if len(data) <= 10:
        assert transcript.text() == data.decode()
    else:
        mark = f"\n[... {len(data) - 10} bytes cut ...]\n"
        assert transcript.text() == data[:5].decode() + mark + data[-5:].decode()
