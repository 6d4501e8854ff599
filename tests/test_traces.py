"""Traces of a solution: planted ones are found wherever they lie, and a clean start has none."""

from __future__ import annotations

import io
import random
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.autoinstall.workshop import Workshop
from ratchet.protocols import Sandbox
from ratchet.sandbox.oci import OciBackend
from ratchet.task_records import FileChange, Task, TaskKind
from ratchet.tasks.prepare import start_layers
from ratchet.tasks.traces import _is_copy, _members, _removed, find_traces, told
from sample_project import PRICES, STOCK, sample_environment, sample_task

# --------------------------------------------------------------------------- what a statement may tell

FEATURE = Task(
    id="task",
    environment="environment",
    kind=TaskKind.FEATURE,
    language="python",
    statement="",
    changes=(
        FileChange("inventory/stock.py", STOCK, STOCK.replace("return sum(self._counts.values())", "raise TypeError")),
        FileChange("inventory/prices.py", PRICES, None),
    ),
    fail_to_pass=(),
    pass_to_pass=(),
)


@pytest.mark.parametrize(
    "statement",
    [
        "`return sum(self._counts.values())` is all it takes",
        "do\n    return   sum(self._counts.values())",
        'put back sign = "-" if cents < 0 else ""',
    ],
)
def test_code_of_the_solution_is_told(statement: str) -> None:
    assert told(statement, FEATURE)


@pytest.mark.parametrize(
    "statement",
    [
        "`def discount(cents, count):` is missing",
        "discount: The price of `count` pieces: from 10 pieces on each costs a tenth less, from 100 on a fifth less.",
        "`if left < 0:` is still there",
    ],
)
def test_what_documents_a_solution_may_be_told(statement: str) -> None:
    assert told(statement, FEATURE) == ()


# --------------------------------------------------------------------------- what a sandbox holds

# Each command leaves the solution in one place; the traces have to name that.
PLANTED = {
    "/opt/copy.txt": "cp /tmp/prices.py /opt/copy.txt",
    "/opt/some words.md": "sed -n '/def discount/,/share = 90/p' /tmp/prices.py > '/opt/some words.md'",
    "/opt/venv/lib/other.py": "cp /tmp/prices.py /opt/venv/lib/other.py",
    "/opt/inventory-1.0.whl": "cd /tmp && python3 -c 'import zipfile; "
    'zipfile.ZipFile("/opt/inventory-1.0.whl", "w", zipfile.ZIP_DEFLATED).write("prices.py")\'',
    "/opt/sources.tar.gz": "tar -C /tmp -czf /opt/sources.tar.gz prices.py",
    "/opt/inventory/__pycache__/prices.cpython-311.pyc": "mkdir -p /opt/inventory && cp /tmp/prices.py /opt/inventory"
    " && python3 -m py_compile /opt/inventory/prices.py && rm /opt/inventory/prices.py",
    "/opt/moved/prices.cpython-311.pyc": "mkdir /opt/moved && mkdir -p /tmp/build/inventory"
    " && cp /tmp/prices.py /tmp/build/inventory && cd /tmp/build && python3 -c 'import py_compile; "
    'py_compile.compile("inventory/prices.py", cfile="/opt/moved/prices.cpython-311.pyc")\'',
}
# As the user, in the workspace's repository. Each leaves its trace there.
HISTORY = {
    "a stash": "cp /tmp/prices.py inventory/prices.py && git -c user.name=a -c user.email=a@b stash -q",
    "more than one commit": "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m other",
    "objects that no commit has": "git hash-object -w /etc/passwd",
    "a remote": "git remote add origin https://example.org/inventory.git",
}


@pytest.fixture(scope="module")
def start(home: Path, backend: OciBackend) -> Iterator[tuple[Workshop, tuple[str, ...], Task]]:
    with Workshop.open(home) as workshop:
        environment = sample_environment(workshop)
        task = sample_task(environment)
        layers, layer = start_layers(workshop, environment, task.changes)
        yield workshop, layers, task
        workshop.layers.remove(layer)


@pytest.fixture
def sandbox(start: tuple[Workshop, tuple[str, ...], Task]) -> Iterator[Sandbox]:
    workshop, layers, _ = start
    with workshop.offline(layers, sample_environment(workshop).limits) as sandbox:
        yield sandbox


@pytest.fixture
def task(start: tuple[Workshop, tuple[str, ...], Task]) -> Task:
    return start[2]


def run(sandbox: Sandbox, command: str, user: str = "root") -> None:
    done = sandbox.run(command, user=user, cwd="/workspace")
    assert done.ok, done.output


@pytest.mark.sandbox
def test_a_clean_start_has_no_traces(sandbox: Sandbox, task: Task) -> None:
    assert find_traces(sandbox, task) == ()


@pytest.mark.sandbox
def test_a_solution_is_found_wherever_it_lies(sandbox: Sandbox, task: Task) -> None:
    sandbox.write("/tmp/prices.py", PRICES.encode())
    for command in PLANTED.values():
        run(sandbox, command)
    run(sandbox, "rm -r /tmp/prices.py /tmp/build")
    found = find_traces(sandbox, task)
    assert {place: any(line.startswith(f"{place}: ") for line in found) for place in PLANTED} == dict.fromkeys(
        PLANTED, True
    )
    assert len(found) == len(PLANTED)


@pytest.mark.sandbox
def test_a_solution_is_found_in_the_history(sandbox: Sandbox, task: Task) -> None:
    sandbox.write("/tmp/prices.py", PRICES.encode())
    for command in HISTORY.values():
        run(sandbox, command, "dev")
    run(sandbox, "rm /tmp/prices.py")
    assert {f"/workspace/.git: {kind}" for kind in HISTORY} <= set(find_traces(sandbox, task))


@pytest.mark.sandbox
def test_a_fault_without_a_telling_line_is_still_looked_for_in_bytecode(sandbox: Sandbox, task: Task) -> None:
    short = replace(task, changes=(FileChange("inventory/prices.py", "a = 1\n", "a = 2\n"),))
    run(sandbox, "python3 -m py_compile inventory/prices.py")
    assert [line.split(": ")[1] for line in find_traces(sandbox, short)] == ["bytecode of inventory/prices.py"]


@pytest.mark.sandbox
def test_hidden_changes_may_not_be_found_either(sandbox: Sandbox, task: Task) -> None:
    """The policy starts with the tests as they were before; a copy of the new ones tells what is asked."""
    new = "def test_new():\n    assert compute_the_price(12) == 13\n    assert compute_the_price(0) == 1\n"
    hidden = replace(task, hidden=(FileChange("tests/test_new.py", None, new),))
    sandbox.write("/opt/copied.txt", new.encode())
    assert any(line.startswith("/opt/copied.txt: ") for line in find_traces(sandbox, hidden))


# --------------------------------------------------------------------------- hostile archives, and copies


@pytest.mark.parametrize("cut", [40, 200])
def test_a_damaged_archive_holds_nothing(cut: int) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        info = tarfile.TarInfo("a.py")
        info.size = 5000
        archive.addfile(info, io.BytesIO(random.Random(1).randbytes(5000)))
    assert list(_members(packed.getvalue()[:cut] + b"\0" * 60)) == []


def test_an_archive_is_unpacked_up_to_a_size() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(6):
            archive.writestr(f"{number}.txt", bytes(40 << 20))
    assert len(list(_members(packed.getvalue()))) == 3


def test_a_copy_of_the_whole_file_is_told_from_a_likeness() -> None:
    before = (
        "".join(f"first_line_{n} = compute({n})\n" for n in range(20)) + "    if count >= 100:\n        share = 80\n"
    )
    known = _removed(FileChange("pkg/a.py", before, before.replace(">=", ">")))
    assert known is not None
    assert _is_copy(known, "build/lib/pkg/a.py", before.encode() + b"# one more line\n")
    assert not _is_copy(known, "pkg/other.py", b"if count >= 100:\n    share = 80\n")
