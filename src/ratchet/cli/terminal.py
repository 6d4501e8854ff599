"""An interactive process in a sandbox: the runtime gives it a terminal of its own and joins it to ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ratchet.errors import SandboxError
from ratchet.protocols import Sandbox
from ratchet.records import Limits
from ratchet.sandbox.accounts import find_user
from ratchet.sandbox.oci import OciBackend
from ratchet.sandbox.runtime import PATH, ProcessSpec, process_config


def attach(
    backend: OciBackend, sandbox: Sandbox, args: Sequence[str], *, user: str, cwd: str, env: Mapping[str, str]
) -> int:
    """Run `args` in an open sandbox of `backend` on our terminal, until it ends; returns its exit status."""
    account = find_user(user, sandbox.read("/etc/passwd"), sandbox.read("/etc/group"))
    if account is None:
        raise SandboxError(f"The sandbox has no user {user}.", remedy="build its base again: ratchet base build")
    identity = {"HOME": account.home, "USER": account.name, "LOGNAME": account.name}
    variables = {"PATH": PATH, "LANG": "C.UTF-8", "TERM": os.environ.get("TERM", "xterm"), **identity, **env}
    columns, lines = shutil.get_terminal_size()
    process = process_config(ProcessSpec(args, account, variables), Limits())
    process |= {"terminal": True, "cwd": cwd, "consoleSize": {"height": lines, "width": columns}}
    runtime = backend.runtime
    with tempfile.TemporaryDirectory(prefix="ratchet-shell-") as scratch:
        spec = Path(scratch) / "process.json"
        spec.write_text(json.dumps(process))
        command = [runtime.program, "--root", str(runtime.state), "exec", "--process", str(spec)]
        return subprocess.run([*command, backend.prefix + sandbox.name], check=False).returncode
