"""What a patch is worth: the task's tests, run where the policy never was.

A fresh, offline sandbox over the layers of the task; the patch applied, less what it has no business with; the hidden
tests put back; tests and their configuration made root's, so that nothing that runs as the ordinary user writes them;
then the suite under its supervisor (`suite.py`), results per test. Probes run in a fork that the tests never touched.

What goes wrong by the patch (it does not compile, exits, hangs, fills the disk) leaves tests without a result, which is
a failure, and `detail` says what happened. Broken machinery raises `SandboxError`: that is no grade.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from ratchet.autoinstall.verify import START_TIMEOUT_S, start
from ratchet.autoinstall.workshop import BASE_USER, WORKSPACE, Workshop
from ratchet.errors import SandboxError
from ratchet.patches import Patch
from ratchet.protocols import Sandbox
from ratchet.records import CommandResult, Environment, TestRun
from ratchet.task_records import Flag, Grade, Task
from ratchet.tasks.behaviour import run_probes
from ratchet.tasks.defences import DEFENCES, Defence, Defences
from ratchet.tasks.extraction import configures
from ratchet.tasks.layer_changes import Stack
from ratchet.tasks.monitor import suspicious
from ratchet.tasks.prepare import apply_patch, task_layers, test_files
from ratchet.tasks.suite import SuiteRun, run_suite, suite_of

_LARGEST_TEST_BYTES = 1 << 20
_CHECK_TIMEOUT_S = 60.0
_MOST_CHECKED = 50
_LIST = "/root/.ratchet-tests"

# Root's, and with the sticky bit: suites go on making files beside their tests, and nobody can replace the tests. The
# bytecode that pytest keeps of tests is read from a folder that nobody can write. $1 is a list of paths, each ended
# with NUL: first the folders, an empty one, then the files. git has to be told that a workspace of root's is safe.
_PROTECT = """
set -e
folders=$(mktemp)
files=$(mktemp)
sed -z '/^$/,$d' "$1" >"$folders"; sed -z '1,/^$/d' "$1" >"$files"
xargs -0 -r -a "$folders" sh -c 'for folder do
  [ -d "$folder" ] && [ ! -L "$folder" ] || continue
  chown root:root "$folder"; chmod 1777 "$folder"
  [ "$folder" = /workspace ] && continue
  rm -rf "$folder/__pycache__"; mkdir -m 555 "$folder/__pycache__"
done' sh
xargs -0 -r -a "$files" sh -c 'find "$@" -maxdepth 0 -type f -exec chown root:root {} + -exec chmod a-w {} +' sh
rm -f "$folders" "$files" "$1"
! command -v git >/dev/null || git config --system --add safe.directory /workspace
"""

_COMPILE = """
import sys
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        compile(file.read(), path, "exec", dont_inherit=True)
"""

# Prints a letter for each path: (y)es, (n)o, or (-) where an import says nothing of the patch: no module, or what is
# missing is not the project's.
_IMPORTS = """
import os, subprocess, sys
CODE = '''
import importlib, sys
try:
    importlib.import_module(sys.argv[1])
except ModuleNotFoundError as error:
    sys.exit(1 if (error.name or "").startswith(sys.argv[1].partition(".")[0] + ".") else 3)
'''
def ask(path):
    folder, name = os.path.split(path[:-3])
    parts = [] if name == "__init__" else [name]
    while folder and os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, name = os.path.split(folder)
        parts.insert(0, name)
    if parts[-1:] in ([], ["__main__"]) or (folder and len(parts) == 1) or not all(map(str.isidentifier, parts)):
        return "-"
    command = [sys.executable, "-c", CODE, ".".join(parts)]
    try:
        status = subprocess.run(command, stdin=-3, stdout=-3, stderr=-3, timeout=10).returncode
    except subprocess.TimeoutExpired:
        return "n"
    return {0: "y", 3: "-"}.get(status, "n")
print("".join(map(ask, sys.argv[1:])))
"""


def grade(
    workshop: Workshop,
    environment: Environment,
    task: Task,
    patch: Patch,
    *,
    flags: Sequence[Flag] = (),
    dropped: Sequence[str] = (),
    layers: Sequence[str] | None = None,
    defences: Defences = DEFENCES,
) -> Grade:
    """Grade `patch`, which leads from the task's start. `flags` and `dropped` are what the extraction gave; the
    monitor's flags are added here. `layers` is what is graded over, if not the task's own (which are made and kept).

    `compiles` is of the changed Python files, with the environment's Python; `imports` of the changed modules, each in
    a process of its own. `type_checks` is not looked at. Raises `SandboxError`; whatever the patch does is a value.
    """
    began = time.monotonic()
    wanted = (*task.fail_to_pass, *task.pass_to_pass)
    tests = test_files(workshop, environment) | {change.path for change in task.hidden}
    over = task_layers(workshop, environment, task) if layers is None else tuple(layers)
    texts = _test_texts(workshop, over, task)
    seen = suspicious(patch, task, tests=texts, defences=defences)
    limits = replace(environment.limits, time_s=max(task.timeout_s, START_TIMEOUT_S) + _CHECK_TIMEOUT_S)
    with workshop.offline(over, limits) as sandbox:
        _prepare(sandbox, patch, task, tests, defences)
        compiles = _compiles(sandbox, environment, patch)
        probes = _probes(sandbox, environment, task) if Defence.PROBES in defences else ()
        ran, detail = _run(sandbox, environment, task, wanted, canaries=Defence.CANARIES in defences)
        # What hung once would hang again.
        imports = _imports(sandbox, environment, patch) if compiles and ran and not ran.result.limit else None
    tampered = [Flag("tampered", what, decisive=True) for what in (ran.tampered if ran else ())]
    return Grade(
        tests=ran.tests if ran else TestRun(),
        compiles=compiles,
        imports=imports,
        probes=probes,
        flags=tuple(dict.fromkeys([*flags, *seen, *tampered])),
        dropped=tuple(dropped),
        detail=detail or _missing(ran, wanted),
        seconds=round(time.monotonic() - began, 3),
    )


def _prepare(sandbox: Sandbox, patch: Patch, task: Task, tests: Collection[str], defences: Defences) -> None:
    """The state that is graded: the task's start, with the patch, and the tests as they are in the environment."""
    if Defence.TESTS_RESTORED in defences:
        patch = [change for change in patch if change.path not in tests and not configures(change.path)]
    apply_patch(sandbox, patch)
    apply_patch(sandbox, task.hidden)
    # Nothing that was compiled from another text of a changed file may be imported in its place.
    folders = sorted({str(PurePosixPath(WORKSPACE, change.path).parent / "__pycache__") for change in patch})
    command = f"rm -rf -- {shlex.join(folders)}" if folders else ":"
    if Defence.TESTS_READ_ONLY in defences:
        sandbox.write(_LIST, "".join(f"{path}\0" for path in _protected(tests)).encode("utf-8", "surrogateescape"))
        command += f"\nset -- {_LIST}\n{_PROTECT}"
    done = sandbox.run(command)
    if not done.ok:
        raise SandboxError(
            f"the tests could not be protected: {done.output.strip()[-300:]}",
            remedy="the environment's base needs sh, sed, find and xargs; or the disk limit is too small",
        )


def _protected(tests: Collection[str]) -> list[str]:
    """The folders above tests, an empty path, and the tests."""
    folders = {
        str(folder)
        for path in tests
        for folder in PurePosixPath(WORKSPACE, path).parents
        if folder.is_relative_to(WORKSPACE)
    }
    return [*sorted(folders | {WORKSPACE}), "", *sorted(f"{WORKSPACE}/{path}" for path in tests)]


def _run(
    sandbox: Sandbox, environment: Environment, task: Task, wanted: Collection[str], *, canaries: bool
) -> tuple[SuiteRun | None, str]:
    """What the tests gave, with the services up; and what went wrong, in words."""
    started = start(sandbox, environment.recipe)
    if started is not None and not started.ok:
        return None, f"the start script failed with {_ended(started)}"
    suite = suite_of(environment)
    suite = replace(suite, env={**suite.env, "PYTHONDONTWRITEBYTECODE": "1"})
    ran = run_suite(sandbox, suite, wanted, canaries=canaries, timeout_s=task.timeout_s)
    return ran, f"the tests were ended by {_ended(ran.result)}" if ran.result.limit else ""


def _missing(ran: SuiteRun | None, wanted: Collection[str]) -> str:
    """In words, where tests have no result."""
    if ran is None:
        return ""
    reported = {case.id for case in ran.tests.cases}
    missing = [test for test in wanted if test not in reported]
    if not missing:
        return ""
    last = next((line for line in reversed(ran.result.output.splitlines()) if line.strip()), "")
    return (
        f"{len(missing)} of {len(wanted)} tests have no result; the run ended with {_ended(ran.result)}: {last[:200]}"
    )


def _ended(result: CommandResult) -> str:
    return f"the {result.limit} limit" if result.limit else f"status {result.exit_status}"


# --------------------------------------------------------------------------- beside the tests


def _compiles(sandbox: Sandbox, environment: Environment, patch: Patch) -> bool | None:
    """None where no Python file was changed."""
    paths = _changed_python(patch)
    if not paths:
        return None
    command = f"python -c {shlex.quote(_COMPILE)} {shlex.join(paths)}"
    return _as_user(sandbox, environment, command).ok


def _imports(sandbox: Sandbox, environment: Environment, patch: Patch) -> bool | None:
    """After the tests: what an import starts can do nothing to them. None where nothing can be said."""
    paths = _changed_python(patch)
    if not paths:
        return None
    command = f"python -c {shlex.quote(_IMPORTS)} {shlex.join(paths)}"
    answers = _as_user(sandbox, environment, command).output.strip()
    return None if set(answers) <= {"-"} else set(answers) <= {"y", "-"}


def _changed_python(patch: Patch) -> list[str]:
    changed = [change.path for change in patch if change.after is not None and change.path.endswith(".py")]
    return changed[:_MOST_CHECKED]


def _probes(sandbox: Sandbox, environment: Environment, task: Task) -> tuple[bool, ...]:
    if not task.probes:
        return ()
    with sandbox.fork() as fork:
        started = start(fork, environment.recipe)
        if started is not None and not started.ok:
            return (False,) * len(task.probes)
        return run_probes(fork, environment.recipe.env, task.probes)


def _as_user(sandbox: Sandbox, environment: Environment, command: str) -> CommandResult:
    env = {**environment.recipe.env, "PYTHONDONTWRITEBYTECODE": "1"}
    return sandbox.run(command, user=BASE_USER, cwd=WORKSPACE, env=env, timeout_s=_CHECK_TIMEOUT_S)


def _test_texts(workshop: Workshop, layers: Sequence[str], task: Task) -> Mapping[str, str]:
    """The files of the tests that have to be mended, as they judge."""
    hidden = {change.path: change.after or "" for change in task.hidden}
    stack = Stack([workshop.layers.path(layer) for layer in layers])
    texts = {}
    for path in sorted({test.partition("::")[0] for test in task.fail_to_pass}):
        data = stack.read(f"{WORKSPACE.lstrip('/')}/{path}", _LARGEST_TEST_BYTES)
        texts[path] = hidden.get(path) or (data or b"").decode("utf-8", "replace")
    return texts
