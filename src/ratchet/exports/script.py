"""The recipe of an environment as one readable shell script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath

from ratchet.records import Recipe, RecipeStep

# Settings of the machine, not of the environment: where packages come from, whom to trust for it, and secrets.
_MACHINE_SETTING = re.compile(
    r"""(?ix) ^ (?:
        .*_proxy
      | .*(?:index|registry|find_links|mirror|trusted_host).*
      | .*(?:token|password|passwd|secret|credential|api_key).*
      | .*_(?:cert|cainfo|cafile|ca_bundle|ca_certs) | ssl_cert_(?:file|dir)
    ) $"""
)
_WORKSPACE = "/workspace"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def portable(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that belong to the environment and not to the machine that it was made on."""
    return {n: value for n, value in env.items() if _NAME.fullmatch(n) and not _MACHINE_SETTING.match(n)}


def recipe_script(recipe: Recipe, *, name: str) -> str:
    """The recipe as a shell script, to be run as root in a fresh base with the checkout in /workspace."""
    lines = ["#!/bin/sh", f"# Rebuilds {comment(name)} from its base and its checkout.", "set -eu", f"cd {_WORKSPACE}"]
    lines += [f"export {key}={shlex.quote(value)}" for key, value in portable(recipe.env).items()]
    lines += ["", *_AS_USER]
    for step in recipe.steps:
        lines += ["", *([f"# {comment(step.note)}"] if step.note else [])]
        lines += _write_lines(step) if step.path else [_run_line(step, recipe)]
    return "\n".join(lines) + "\n"


_AS_USER = (
    "as() {  # as USER COMMAND...: with that user's rights and home",
    '    user=$1; shift; home=$(getent passwd "$user" | cut -d: -f6)',
    '    setpriv --reuid "$user" --regid "$user" --init-groups env HOME="$home" USER="$user" "$@"',
    "}",
)


def comment(text: str) -> str:
    """`text` as it may stand in a comment: on one line, printable."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable())[:200]


def _run_line(step: RecipeStep, recipe: Recipe) -> str:
    own = {name: value for name, value in portable(step.env).items() if recipe.env.get(name) != value}
    words = ["as", step.user] if step.user != "root" else ["env"] if own else []
    words += [f"{name}={value}" for name, value in own.items()]
    command = step.command if step.cwd == _WORKSPACE else f"cd {shlex.quote(step.cwd)} || exit\n{step.command}"
    return shlex.join([*words, "sh", "-c", command]) + (" || true" if step.may_fail else "")


def _write_lines(step: RecipeStep) -> list[str]:
    path, end = shlex.quote(step.path), "END"
    while end in step.content:
        end += "_"
    lines = [
        f"mkdir -p {shlex.quote(str(PurePosixPath(step.path).parent))}",
        f"cat >{path} <<'{end}'",
        step.content.removesuffix("\n"),
        end,
        f"chmod {step.mode:o} {path}",
    ]
    return lines + ([f"chown {shlex.quote(step.user)}: {path}"] if step.user != "root" else [])
