"""The memory of what worked: what is learned from a verified attempt, what is left out, and what comes back when."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ratchet.agent import distill
from ratchet.autoinstall.memory import KIND, Memory, as_text, every, lessons_of, recall, remember
from ratchet.autoinstall.signatures import signature, telling_line
from ratchet.cli import memory as commands
from ratchet.errors import UsageError
from ratchet.garbage import find_garbage
from ratchet.records import Action, ActionKind, CommandResult, LimitHit, Step, Trajectory
from ratchet.store import Store

NO_HEADER = "src/_zip.c:2:10: fatal error: zip.h: No such file or directory\ncompilation terminated.\n"
NO_MODULE = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'yaml'\n"
APT = "apt-get install -y libzip-dev"


def run(command: str, output: str = "", *, keep: bool = True, limit: LimitHit | None = None, **more: object) -> Step:
    """A step whose command failed where it printed anything."""
    result = CommandResult(command, None if limit else int(bool(output)), output, len(output), 1.0, limit)
    return Step(Action(ActionKind.RUN, command, keep=keep, **more), result)  # type: ignore[arg-type]


def write(path: str, content: str) -> Step:
    return Step(Action(ActionKind.WRITE, path=path, content=content), None)


BACK = Step(Action(ActionKind.ROLLBACK), None)
DONE = Step(Action(ActionKind.SUBMIT), None)


def learned(*steps: Step, project: str = "widget", names: tuple[str, ...] = ()) -> list[tuple[str, tuple[str, ...]]]:
    trajectory = Trajectory((*steps, DONE), "submitted")
    lessons = lessons_of(trajectory, distill(trajectory), project=project, names=names)
    return [(lesson.signature, lesson.fix) for lesson in lessons]


# --------------------------------------------------------------------------- signatures


@pytest.mark.parametrize(
    ("output", "expected", "package"),
    [
        (NO_HEADER, "fatal error: zip.h: No such file or directory", "zip.h"),
        (NO_MODULE, "ModuleNotFoundError: No module named yaml", "yaml"),
        ("sh: 1: pg_config: not found\n", "pg_config: not found", "pg_config"),
        ("E: Unable to locate package libfoo9-dev\n", "E: Unable to locate package libfoo9-dev", "libfoo9-dev"),
        (
            "ImportError: libGL.so.1: cannot open shared object file: No such file",
            "libGL.so.N: cannot open shared object file",
            "libGL.so.1",
        ),
        (
            "  cause: Because there is no version of attrs==999.0 and a==1 depends on it",
            "there is no version of attrs",
            "attrs",
        ),
        ("pytest: error: unrecognized arguments: --cov=widget --cov-report", "unrecognized arguments: --cov", "--cov"),
        (
            "E   OSError: [Errno 98] Address in use: ('127.0.0.1', 8080)",
            "OSError: [Errno N] Address in use: (N)",
            "",
        ),
        ("LookupError: no version for /workspace/src at 12:30:01", "LookupError: no version for PATH at N", ""),
        ("error: /usr/lib/x86/libz.so.1.2.13 at 0x7ffe12ab is bad", "error: libz.so.N at N is bad", ""),
        ("error: can't read https://user:secret@host/x?y", "error: cant read URL", ""),
        ("error: subprocess-exited-with-error\nValueError: bad pin", "ValueError: bad pin", ""),
        ("E   AssertionError: error 3\nFAILED tests/test_a.py::test_b - AssertionError", "", ""),
        ("all is well\n", "", ""),
    ],
)
def test_the_most_telling_line(output: str, expected: str, package: str) -> None:
    assert signature(output) == expected
    telling = telling_line(output)
    assert (telling.package if telling else "") == package


def test_what_is_missing_says_more_than_what_it_led_to() -> None:
    assert signature(f"error: the build failed\n{NO_HEADER}error: Command 'gcc' failed") == signature(NO_HEADER)


def test_the_error_that_occurs_most_often_is_taken() -> None:
    assert signature("KeyError: 'a'\n" + "ValueError: b\n" * 3) == "ValueError: b"


def test_runs_on_other_machines_give_the_same() -> None:
    one = "error: /tmp/pip-build-8xk2/src/a.c:12: version 1.2.3 needs 0xdeadbeef (took 3.5s)"
    other = "error: /tmp/pip-build-zz91/src/a.c:99: version 4.5 needs 0x12345678 (took 10.1s)"
    assert signature(one) == signature(other) != ""


@pytest.mark.parametrize(
    "unit",
    ["a-", "error: ", "x.", "\n", "a was not ", "Error", "/a", "1.", "''", "\x1b[", "http://", "é\ud800", "=" * 40],
)
def test_hostile_outputs_take_no_time(unit: str) -> None:
    line = "error: " + (unit * 400)[:380] + " not found\n"
    began = time.process_time()
    for output in (unit * (2_000_000 // len(unit)) + "\nValueError: end", line * 5000):
        assert len(signature(output)) <= 200
    assert time.process_time() - began < 5


@given(st.text())
def test_any_output_gives_one_printable_line(output: str) -> None:
    assert signature("error: " + output).isprintable()


# --------------------------------------------------------------------------- lessons


def test_what_was_done_between_the_failure_and_the_success_is_the_fix() -> None:
    steps = (run("apt-get update"), run("make", NO_HEADER, keep=False), run(APT), run("make"), run("pip install late"))
    assert learned(*steps) == [(signature(NO_HEADER), (APT,))]


def test_what_is_not_in_the_recipe_is_no_fix() -> None:
    assert learned(run("make", NO_HEADER), run("apt-get install -y wrong"), BACK, run(APT), run("make")) == [
        (signature(NO_HEADER), (APT,))
    ]
    assert not learned(run("make", NO_HEADER), run("ls /usr", keep=False), run("make"))


def test_what_was_done_before_the_failure_too_is_no_fix() -> None:
    again = (run("useradd dev"), run("python3 -m venv /opt/venv"))
    assert learned(*again, run("make", NO_HEADER), BACK, *again, run(APT), run("make")) == [
        (signature(NO_HEADER), (APT,))
    ]


def test_a_failure_that_was_never_overcome_teaches_nothing() -> None:
    assert not learned(run("make", NO_HEADER), run(APT), run("make", NO_HEADER), run("true"))


def test_each_error_of_a_command_has_its_own_fix() -> None:
    steps = (run("make", NO_HEADER), run(APT), run("make", NO_MODULE), run("pip install pyyaml"), run("make"))
    assert learned(*steps) == [(signature(NO_HEADER), (APT,)), (signature(NO_MODULE), ("pip install pyyaml",))]


def test_the_command_itself_done_otherwise_is_the_fix() -> None:
    better = "python -m pip install --no-build-isolation -e '.[test]'"
    assert learned(run("pip install -e .", NO_MODULE), run(better)) == [(signature(NO_MODULE), (better,))]


def test_another_thing_that_was_installed_is_not_the_same_command() -> None:
    steps = (run("pip install -e .", NO_MODULE), run("pip install pyyaml"), run("pip install -e ."))
    assert learned(*steps) == [(signature(NO_MODULE), ("pip install pyyaml",))]


def test_variables_can_be_the_fix() -> None:
    steps = (run("make", NO_MODULE, env={"LANG": "C"}), run("make", env={"LANG": "C", "CFLAGS": "-O0 -g"}))
    assert learned(*steps) == [(signature(NO_MODULE), ("CFLAGS='-O0 -g' make",))]


def test_lines_that_a_file_gained_are_a_fix() -> None:
    bounds = "/opt/ratchet/constraints.txt"
    install = f"uv pip install -c {bounds} -e ."
    steps = (write(bounds, "a\n"), run(install, NO_MODULE), BACK, write(bounds, "a\nsetuptools<60\n"), run(install))
    assert learned(*steps) == [(signature(NO_MODULE), (f"echo 'setuptools<60' >> {bounds}",))]


def test_the_files_of_generation_0_are_left_out_of_commands() -> None:
    add = "uv pip install -c /opt/ratchet/constraints.txt pyyaml"
    assert learned(run("make", NO_MODULE), run(add), run("make")) == [
        (signature(NO_MODULE), ("uv pip install pyyaml",))
    ]


def test_a_limit_is_no_error_to_learn_from() -> None:
    assert not learned(run("make", NO_HEADER, limit=LimitHit.TIME), run(APT), run("make"))


@pytest.mark.parametrize(
    "command",
    [
        "sed -i s/a/b/ /workspace/config.ini",
        "pip install -r requirements/dev.txt",
        "pip install --find-links=vendor/wheels pyyaml",
        "cp /home/dev/x /etc/x",
        "pip install acme_widget-plugins",
        "pip install ACME.Widget",
        "pip install git+https://git.corp.example/tool.git",
        "API_TOKEN=abc make deps",
        "printf 'a\nb' > /etc/x",
        "true \u202e evil",
        'true ``` "now"',
        "x" * 301,
    ],
)
def test_what_belongs_to_one_project_or_could_mislead_is_left_out(command: str) -> None:
    steps = (run("make", NO_HEADER), run(command), run(APT), run("make"))
    assert learned(*steps, project="acme-widget", names=("widgetlib",)) == [(signature(NO_HEADER), (APT,))]


def test_what_was_run_in_a_folder_of_the_project_is_left_out() -> None:
    assert not learned(run("make", NO_HEADER), run("make install", cwd="/workspace/vendor"), run("make"))


def test_an_error_about_the_project_itself_is_left_out() -> None:
    steps = (run("make", "ModuleNotFoundError: No module named 'widgetlib.core'"), run(APT), run("make"))
    assert learned(*steps)
    assert not learned(*steps, names=("widgetlib",))


def test_many_failures_take_no_time() -> None:
    began = time.process_time()
    learned(*(run(f"pip install a{n} " + "x'" * 5_000, f"{NO_MODULE}{n}") for n in range(200)))
    assert time.process_time() - began < 5


def test_too_much_is_no_lesson() -> None:
    many = [run(f"apt-get install -y lib{n}-dev") for n in range(7)]
    assert not learned(run("make", NO_HEADER), *many, run("make"))


@given(st.lists(st.tuples(st.text(max_size=40), st.sampled_from(["", NO_HEADER, NO_MODULE])), max_size=8))
def test_any_commands_can_be_learned_from(commands_and_outputs: list[tuple[str, str]]) -> None:
    for _, fix in learned(*(run(command, output) for command, output in commands_and_outputs)):
        assert all(command.isprintable() for command in fix)


# --------------------------------------------------------------------------- the store


def memory(error: str = "E1", *fix: str, package: str = "", project: str = "a", ecosystem: str = "python") -> Memory:
    return Memory(ecosystem, package, error, fix or ("fix it",), 1, (project,))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    return Store(tmp_path)


def test_a_project_counts_once(store: Store) -> None:
    for project in ("a", "b", "a", "b"):
        remember(store, [memory(project=project)])
    assert [(m.worked, m.projects) for m in every(store)] == [(2, ("a", "b"))]


def test_of_two_fixes_what_they_have_in_common_is_kept(store: Store) -> None:
    remember(store, [memory("E1", "a", "b", "c", project="p")])
    remember(store, [memory("E1", "c", "x", "b", project="q")])
    assert [(m.fix, m.worked) for m in every(store)] == [(("b", "c"), 2)]


def test_of_two_fixes_without_anything_in_common_the_better_proved_is_kept(store: Store) -> None:
    remember(store, [memory("E1", "old", project="p")])
    remember(store, [memory("E1", "new", project="q")])
    assert every(store)[0].fix == ("new",)
    remember(store, [memory("E1", "new", project="r")])
    remember(store, [memory("E1", "other", project="s")])
    assert [(m.fix, m.worked) for m in every(store)] == [(("new",), 2)]


def test_the_same_error_comes_before_the_same_package_and_that_before_nothing(store: Store) -> None:
    of_package = memory("E: other", package="zip.h", project="b")
    of_error = memory(signature(NO_HEADER), package="zip.h")
    remember(store, [memory("E: unrelated"), of_package, of_error, memory(of_error.signature, ecosystem="node")])
    remember(store, [memory("E: other", package="zip.h", project="c")])
    found = recall(store, ecosystem="python", outputs=[NO_HEADER])
    assert [m.signature for m in found] == [of_error.signature, of_package.signature]
    assert recall(store, ecosystem="python", outputs=[NO_HEADER], most=1) == [of_error]
    assert [m.id for m in recall(store, ecosystem="python", packages=["ZIP_H"])] == [of_package.id, of_error.id]
    assert not recall(store, ecosystem="python", outputs=["all is well"], packages=["numpy", ""])


def test_a_lesson_comes_back_where_the_same_goes_wrong_elsewhere(store: Store) -> None:
    trajectory = Trajectory((run("make", NO_HEADER), run(APT), run("make"), DONE), "submitted")
    ids = remember(store, lessons_of(trajectory, distill(trajectory), project="secret-project"))
    elsewhere = NO_HEADER.replace("src/_zip.c:2:10", "/tmp/b-1x/other.c:77:3")
    found = recall(store, ecosystem="python", outputs=[elsewhere])
    assert tuple(m.id for m in found) == ids
    assert as_text(found[0]) == (
        "Noted when installing 1 project (a hint from there, not an instruction): after the error\n"
        "  fatal error: zip.h: No such file or directory\n"
        "this helped:\n"
        "  apt-get install -y libzip-dev"
    )


def test_memories_are_no_garbage(store: Store) -> None:
    remember(store, [memory()])
    assert not find_garbage(store, min_age_s=0)


# --------------------------------------------------------------------------- the command


def call(*arguments: str) -> str:
    result = CliRunner().invoke(commands.app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_list_and_clear(store: Store) -> None:
    one, two = remember(store, [memory("E1", "fix \x1b[2Jone"), memory("E2", package="zlib")])
    assert "\x1b" not in call("list")
    assert [(row["id"], row["package"], row["worked"]) for row in json.loads(call("list", "--json"))] == [
        (two, "zlib", 1),
        (one, "", 1),
    ]
    assert call("clear", one[:8]) == "forgot 1 memory\n"
    assert store.ids(KIND) == [two]
    with pytest.raises(UsageError):
        call("clear", one)
    assert call("clear") == "forgot 1 memory\n"
    assert call("clear") == "forgot 0 memories\n"
