"""Where a policy starts: the environment with a task's changes, and nothing in it of what they took away."""

from __future__ import annotations

import hashlib
import json
import shlex
import stat
from collections.abc import Sequence
from pathlib import Path

from ratchet.autoinstall.verify import environment_layers
from ratchet.autoinstall.workshop import BASE_USER, WORKSPACE, Workshop
from ratchet.errors import SandboxError
from ratchet.patches import Patch, inverse
from ratchet.protocols import Sandbox
from ratchet.records import Environment
from ratchet.task_records import Task
from ratchet.tasks.project_files import checkout_root, project_files, sources_of, tails_of, test_files

_SETTLE = Path(__file__).parent / "resources" / "settle.py"
_FOLDER = "/opt/ratchet/settle"
_TIMEOUT_S = 300.0

# One commit, by nobody, at a fixed date, without hooks, remotes or a reflog.
_GIT = f"""\
cd {WORKSPACE} && rm -rf .git || exit 1
command -v git >/dev/null 2>&1 || exit 0
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0
export GIT_AUTHOR_NAME=start GIT_AUTHOR_EMAIL=start@localhost
export GIT_COMMITTER_NAME=start GIT_COMMITTER_EMAIL=start@localhost
export GIT_AUTHOR_DATE=2000-01-01T00:00:00Z GIT_COMMITTER_DATE=2000-01-01T00:00:00Z
git -c init.defaultBranch=main init -q --template= . || exit 1
git config core.logAllRefUpdates false
git -c core.autocrlf=false -c core.safecrlf=false -c gc.auto=0 add -A || exit 1
git -c core.hooksPath=/dev/null -c commit.gpgSign=false -c gc.auto=0 commit -q --allow-empty --no-verify -m start
"""


def task_layers(workshop: Workshop, environment: Environment, task: Task) -> tuple[str, ...]:
    """The layers that a rollout of a task starts from. The task's own is made the first time and kept for as long as
    its record (`garbage.py` knows layers by the start of an id in their name)."""
    layer = f"task-{task.id[:32]}"
    below = environment_layers(workshop, environment)
    if not workshop.layers.exists(layer):
        _, made = start_layers(workshop, environment, (*task.changes, *inverse(task.hidden)))
        workshop.layers.rename(made, layer)
    return (*below, layer)


def start_layers(workshop: Workshop, environment: Environment, changes: Patch) -> tuple[tuple[str, ...], str]:
    """The layers of an environment with `changes`, and the id of the one that holds them, which the caller removes.

    Copies of sources (installed, or in a build folder) become links to those in the workspace; bytecode, caches and
    archives that may hold a changed file's old text are removed; the history is one commit. Raises SandboxError.
    """
    below = environment_layers(workshop, environment)
    with workshop.offline(below, environment.limits) as sandbox:
        order = _order(workshop, environment, changes)
        apply_patch(sandbox, changes)
        sandbox.write(f"{_FOLDER}/settle.py", _SETTLE.read_bytes())
        sandbox.write(f"{_FOLDER}/order.json", json.dumps(order).encode())
        _must(sandbox, f"/usr/bin/python3 -I -S {_FOLDER}/settle.py {_FOLDER}/order.json && rm -rf {_FOLDER}", "root")
        _must(sandbox, _GIT, BASE_USER)
        layer = sandbox.keep()
    return (*below, layer), layer


def apply_patch(sandbox: Sandbox, patch: Patch) -> None:
    """Write the files of a patch into the workspace, as its ordinary user. Raises SandboxError where that cannot be."""
    gone = [f"{WORKSPACE}/{change.path}" for change in patch if change.after is None]
    if gone:
        _must(sandbox, f"rm -f -- {shlex.join(gone)}", BASE_USER)
    for change in patch:
        if change.after is None:
            continue
        path, data = f"{WORKSPACE}/{change.path}", change.after.encode("utf-8", "surrogateescape")
        try:
            sandbox.write(path, data, mode=change.mode, user=BASE_USER)
        except OSError as error:
            raise SandboxError(f"{path} cannot be written in a sandbox: {error.strerror}") from error


def _order(workshop: Workshop, environment: Environment, changes: Patch) -> dict[str, object]:
    """What `resources/settle.py` is to do."""
    root = checkout_root(workshop, environment)
    files = project_files(workshop, environment)
    texts: dict[str, str | None] = {**sources_of(workshop, environment)}
    texts |= {change.path: change.before for change in changes}
    copies = []
    for path, text in texts.items():
        data = (text or "").encode("utf-8", "surrogateescape")
        digest = hashlib.sha256(data).hexdigest()
        copies.append({"path": path, "tails": tails_of(path), "sha256": digest, "size": len(data)})
    changed = []
    for change in changes:
        original = root / change.path
        known = original.is_file() and not original.is_symlink()
        info = (original if known else root).lstat()
        mode = stat.S_IMODE(info.st_mode) if known else None
        tails = tails_of(change.path)
        changed.append({"path": change.path, "tails": tails, "mtime": info.st_mtime_ns, "mode": mode})
    return {"workspace": WORKSPACE, "changed": changed, "copies": copies, "keep": [*files.sources, *files.tests]}


def _must(sandbox: Sandbox, command: str, user: str) -> None:
    done = sandbox.run(command, user=user, timeout_s=_TIMEOUT_S)
    if not done.ok:
        ended = f"the {done.limit} limit" if done.limit else f"exit status {done.exit_status}"
        raise SandboxError(
            f"the start of a task cannot be made: {ended}: {done.output.strip()[-300:]}",
            remedy="the environment's base needs python3, and the disk limit room for a copy of the workspace",
        )


__all__: Sequence[str] = ["apply_patch", "sources_of", "start_layers", "task_layers", "test_files"]
