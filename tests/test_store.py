"""Records, locks, temporary files and garbage collection."""

import dataclasses
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.errors import StoreError, UsageError
from ratchet.garbage import collect_garbage, find_garbage
from ratchet.records import (
    Audit,
    Base,
    Checkout,
    Environment,
    Install,
    Recipe,
    Trajectory,
    content_id,
    to_json,
)
from ratchet.scratch import TakenError, locked, remove_tree
from ratchet.store import Store, default_home

TRAJECTORY = Trajectory((), "submitted")
CHECKOUT = Checkout("c" * 64, "project", "/somewhere", "/copy")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


# --------------------------------------------------------------------------- records


def test_a_record_comes_back_under_the_hash_of_its_content(store: Store) -> None:
    name = store.put("trajectory", TRAJECTORY)
    assert name == content_id(TRAJECTORY)
    assert store.get("trajectory", name, Trajectory) == TRAJECTORY


def test_a_record_with_an_id_is_stored_under_it_and_one_can_be_given(store: Store) -> None:
    assert store.put("checkout", CHECKOUT) == CHECKOUT.id
    assert store.put("trajectory", TRAJECTORY, id="mine") == "mine"
    assert store.get("trajectory", "mine", Trajectory) == TRAJECTORY


def test_making_a_store_makes_no_directory(store: Store) -> None:
    assert store.ids("environment") == [] and store.kinds() == []
    assert store.linked("install", "x") is None
    assert not store.home.exists()


def test_the_home_is_the_variable_or_the_platform_directory(tmp_path: Path) -> None:
    assert default_home({"RATCHET_HOME": str(tmp_path)}) == tmp_path
    assert default_home({"RATCHET_HOME": "relative"}).is_absolute()
    assert default_home({}).name == "ratchet"


def test_a_unique_start_of_an_id_is_enough_and_an_exact_one_wins(store: Store) -> None:
    for name in ("abc", "abcd", "b1", "b2"):
        store.put("trajectory", TRAJECTORY, id=name)
    assert store.resolve("trajectory", "abcd") == "abcd"
    assert store.resolve("trajectory", "abc") == "abc"
    with pytest.raises(UsageError, match="2 trajectory ids start with b"):
        store.get("trajectory", "b", Trajectory)
    with pytest.raises(UsageError, match="no trajectory z"):
        store.get("trajectory", "z", Trajectory)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a\0b", "a" * 300])
def test_an_id_that_is_no_file_name_is_refused(store: Store, name: str) -> None:
    with pytest.raises(UsageError):
        store.get("trajectory", name, Trajectory)


def test_ids_are_listed_from_the_oldest_and_removed_ones_not_at_all(store: Store) -> None:
    for number, name in enumerate(("z", "a", "m")):
        store.put("trajectory", TRAJECTORY, id=name)
        os.utime(store.record_file("trajectory", name), (number, number))
    store.remove("trajectory", "a")
    assert store.ids("trajectory") == ["z", "m"]


@pytest.mark.parametrize("damage", ["truncate", "edit", "not-json", "wrong-shape", "other-type"])
def test_a_damaged_record_says_which_file_and_what_to_do(store: Store, damage: str) -> None:
    name = store.put("trajectory", TRAJECTORY)
    path = store.record_file("trajectory", name)
    content = path.read_text()
    damaged = {
        "truncate": content[:-20],
        "edit": content.replace("submitted", "forged"),
        "not-json": "\x00" * 100,
        "wrong-shape": "[]",
        "other-type": content,
    }[damage]
    path.write_text(damaged)
    with pytest.raises(StoreError) as caught:
        store.get("trajectory", name, Checkout if damage == "other-type" else Trajectory)
    assert str(path) in caught.value.what and "remove that file" in caught.value.remedy


def test_undecodable_names_survive(store: Store) -> None:
    record = dataclasses.replace(CHECKOUT, name="caf\udce9")
    store.put("checkout", record)
    assert store.get("checkout", record.id, Checkout).name == "caf\udce9"


def test_the_latest_record_of_a_key_is_found_until_it_is_removed(store: Store) -> None:
    assert store.latest("trajectory", "key", Trajectory) is None
    store.link("trajectory", "key", store.put("trajectory", TRAJECTORY, id="first"))
    store.link("trajectory", "key", store.put("trajectory", TRAJECTORY, id="second"))
    assert store.linked("trajectory", "key") == "second"
    assert store.latest("trajectory", "key", Trajectory) == TRAJECTORY
    store.remove("trajectory", "second")
    assert store.latest("trajectory", "key", Trajectory) is None and store.links("trajectory") == {}


def test_readers_never_see_a_part_while_others_write(store: Store) -> None:
    store.put("trajectory", TRAJECTORY, id="one")
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            store.put("trajectory", Trajectory((), "x" * 200_000), id="one")

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        ends = {store.get("trajectory", "one", Trajectory).end[:1] for _ in range(100)}
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert ends <= {"s", "x"}
    assert [path.name for path in store.scratch.directory.iterdir()] == [".lock"]


# --------------------------------------------------------------------------- locks and temporary files


def test_nothing_is_exclusive_while_somebody_shares(store: Store) -> None:
    with store.shared(), store.shared(), pytest.raises(UsageError, match="in use"), store.exclusive():
        pass
    with store.exclusive():
        pass


def test_two_installs_of_one_checkout_get_different_caches_and_the_next_reuses(store: Store) -> None:
    with store.cache("abc") as first, store.cache("abc") as second:
        assert first != second
        (first / "wheel").write_text("x")
    with store.cache("abc") as again:
        assert (again / "wheel").exists()


def test_an_error_inside_a_cache_is_not_swallowed_and_frees_it(store: Store) -> None:
    with pytest.raises(TakenError), store.cache("abc"):
        raise TakenError
    with store.cache("abc") as path:
        assert path.name == "abc"


def test_a_temporary_directory_is_gone_after_an_interrupt(store: Store) -> None:
    with pytest.raises(KeyboardInterrupt), store.scratch.temporary() as path:
        (path / "file").write_text("x")
        raise KeyboardInterrupt
    assert not path.exists()


CRASH = """
import os, signal, sys, time
from pathlib import Path
from ratchet.store import Store
with Store(Path(sys.argv[1])).scratch.temporary() as path:
    (path / "file").write_text("x")
    print(path, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(store: Store) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a temporary directory, and has printed its path."""
    process = subprocess.Popen([sys.executable, "-c", CRASH, str(store.home)], stdout=subprocess.PIPE, text=True)
    with process:
        yield process
        process.kill()


def test_what_a_killed_process_left_is_swept_and_what_a_living_one_uses_is_not(
    store: Store, holder: subprocess.Popen[str]
) -> None:
    assert holder.stdout is not None
    left = Path(holder.stdout.readline().strip())
    with store.scratch.temporary():
        assert left.exists()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with store.scratch.temporary():
        assert not left.exists()


def test_a_tree_deeper_than_a_path_may_be_long_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "deep"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d" * 20, dir_fd=here)
        below = os.open("d" * 20, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    remove_tree(top)
    assert not top.exists()


# --------------------------------------------------------------------------- garbage


BASE = Base("base-" + "b" * 32, "bookworm", "bookworm", "amd64", "built")
TREE = "d" * 64


def make_environment(store: Store) -> Environment:
    checkout = dataclasses.replace(CHECKOUT, id=TREE)
    environment = Environment("e" * 64, "project", BASE, checkout, Recipe(), "layer-used", (), (), (), Audit())
    store.put("environment", environment)
    store.put("checkout", checkout)
    return environment


def make_folders(store: Store, *paths: str) -> None:
    for path in paths:
        folder = store.home / path
        folder.mkdir(parents=True)
        (folder / "file").write_text("x" * 10_000)


def make_install(store: Store, checkout: str, detail: str) -> str:
    install = Install("s", checkout, None, None, detail, (), (), (), (), (), None, False, {})
    name = store.put("install", install)
    store.link("install", checkout, name)
    return name


def names(store: Store) -> set[tuple[str, str]]:
    return {(each.kind, each.id) for each in find_garbage(store, min_age_s=0)}


def test_what_an_environment_or_a_base_needs_stays_and_the_rest_goes(store: Store) -> None:
    make_environment(store)
    (store.home / "bases").mkdir()
    other = dataclasses.replace(BASE, id="base-" + "f" * 32, name="trixie")
    (store.home / "bases" / "trixie.json").write_text(json.dumps(to_json(other)))
    kept = [
        f"layers/{BASE.id}",
        f"layers/{other.id}",
        "layers/layer-used",
        f"layers/checkout-{TREE[:32]}",
        f"checkouts/{TREE}",
    ]
    gone = ["layers/layer-old", f"layers/checkout-{CHECKOUT.id[:32]}", f"checkouts/{CHECKOUT.id}", f"caches/{TREE}"]
    make_folders(store, *kept, *gone)
    store.put("checkout", CHECKOUT)
    removed = collect_garbage(store, min_age_s=0)
    assert {str(each.path.relative_to(store.home)) for each in removed} == {
        *gone,
        f"records/checkout/{CHECKOUT.id}.json",
    }
    assert all(each.size_bytes >= 4096 for each in removed)
    assert all((store.home / path).exists() for path in kept)
    assert not any((store.home / path).exists() for path in gone)
    assert find_garbage(store, min_age_s=0) == ()


def test_the_latest_install_keeps_its_record_and_trajectories_but_no_files(store: Store) -> None:
    old = make_install(store, CHECKOUT.id, "old")
    trajectory, lost = store.put("trajectory", TRAJECTORY), store.put("trajectory", Trajectory((), "lost"))
    new = make_install(store, CHECKOUT.id, trajectory)
    make_folders(store, f"checkouts/{CHECKOUT.id}")
    assert names(store) == {("install record", old), ("trajectory record", lost), ("checkout", CHECKOUT.id)}
    assert store.linked("install", CHECKOUT.id) == new


def test_records_of_an_unknown_kind_are_kept_with_all_that_they_refer_to(store: Store) -> None:
    trajectory = store.put("trajectory", TRAJECTORY)
    store.put("rollout", Trajectory((), trajectory))
    assert names(store) == set()


def test_what_is_young_is_left_alone_whatever_its_modification_time_says(store: Store) -> None:
    make_folders(store, "layers/fresh")
    os.utime(store.layers / "fresh", (0, 0))
    assert find_garbage(store, min_age_s=60) == ()


def test_an_interrupted_install_can_go_on_for_two_weeks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folders(store, "runs/old")
    assert names(store) == set()
    monkeypatch.setattr("ratchet.garbage.RUN_AGE_S", 0.0)
    assert names(store) == {("interrupted install", "old")}


def test_an_interrupted_install_goes_with_its_lock_and_one_that_is_taken_stays_with_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ratchet.garbage.RUN_AGE_S", 0.0)
    make_folders(store, "runs/old", "runs/taken")
    runs = store.home / "runs"
    for name in ("old", "taken", "left-1"):
        (runs / f"{name}.lock").touch()
    with locked(runs / "taken.lock", fcntl.LOCK_EX):
        removed = collect_garbage(store, min_age_s=0)
        assert {(each.kind, each.id) for each in removed} == {("interrupted install", "old"), ("lock", "left-1.lock")}
        assert sorted(path.name for path in runs.iterdir()) == ["taken", "taken.lock"]
    collect_garbage(store, min_age_s=0)
    assert not list(runs.iterdir())


def test_an_open_sandbox_or_a_running_install_stops_the_collection(store: Store) -> None:
    make_folders(store, "layers/unused", "sandboxes/s1")
    with store.shared(), pytest.raises(UsageError, match="in use"):
        collect_garbage(store, min_age_s=0)
    with (store.sandboxes / "s1" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="s1 is open"):
            collect_garbage(store, min_age_s=0)
    assert (store.layers / "unused").exists()
    assert [each.id for each in collect_garbage(store, min_age_s=0)] == ["unused"]


def test_a_cache_in_use_stays(store: Store) -> None:
    make_folders(store, "caches/idle")
    with store.cache("busy") as path:
        assert [each.id for each in collect_garbage(store, min_age_s=0)] == ["idle"]
        assert path.exists()
    assert sorted(entry.name for entry in store.caches.iterdir()) == ["busy", "busy.lock"]


def test_nothing_is_collected_while_a_record_cannot_be_read(store: Store) -> None:
    environment = make_environment(store)
    make_folders(store, "layers/layer-used")
    store.record_file("environment", environment.id).write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        collect_garbage(store, min_age_s=0)
    assert (store.layers / "layer-used").exists()
