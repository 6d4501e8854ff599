"""A Dockerfile and its context, which rebuild an environment on another machine.

`write(environment, directory)` leaves:

    Dockerfile     FROM the public image of the base's suite, then the recipe, step by step
    checkout/      the repository, as it was installed
    steps/         commands of more than one line, one file each
    files/         files that the recipe writes
    recipe.sh      the whole recipe as one script, for people
    start.sh       the start script, where the environment has one, with entrypoint.sh that runs it first

Nothing of the machine that made the environment goes along: no package index settings, no proxy, no certificate.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator, Mapping
from importlib import metadata
from itertools import groupby
from pathlib import Path

from ratchet.errors import UsageError
from ratchet.exports.script import comment, portable, recipe_script
from ratchet.records import Environment, Recipe, RecipeStep
from ratchet.sandbox.bases import PACKAGES

_UBUNTU = frozenset({"focal", "jammy", "noble", "plucky", "questing", "resolute"})
_PLACE = "/usr/local/lib/ratchet"
_ENTRYPOINT = f"""#!/bin/sh
# Starts what the environment needs, as root; then becomes the command that was asked for, as dev.
set -e
{_PLACE}/start.sh
exec setpriv --reuid dev --regid dev --init-groups env HOME=/home/dev USER=dev LOGNAME=dev "$@"
"""


def write(environment: Environment, directory: Path, *, image: str | None = None) -> Path:
    """Write Dockerfile and context into `directory`, which must be absent or empty; returns the Dockerfile.

    `image` replaces the public image of the suite. UsageError where the directory holds something, where no public
    image is known for the base, or where the checkout is gone from this machine.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} is there already, and is not an empty directory.", remedy="name another with -o")
    checkout = Path(environment.checkout.path)
    if not checkout.is_dir():
        raise UsageError(
            f"The checkout of {environment.name} is no longer in the store.",
            remedy=f"ratchet survey {environment.checkout.source} fetches it again",
        )
    image = image or public_image(environment)
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copytree(checkout, directory / "checkout", symlinks=True)
    _write_script(directory / "recipe.sh", recipe_script(environment.recipe, name=environment.name))
    if environment.recipe.start:
        _write_script(directory / "start.sh", _with_shebang(environment.recipe.start))
        _write_script(directory / "entrypoint.sh", _ENTRYPOINT)
    lines = [*_head(environment, image), *_steps(environment.recipe, directory), *_tail(environment)]
    dockerfile = directory / "Dockerfile"
    dockerfile.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return dockerfile


def public_image(environment: Environment) -> str:
    """The ordinary name of the public image of the base's suite."""
    suite = environment.base.suite
    if suite is None:
        raise UsageError(
            f"The base {environment.base.name} was imported: no public image is known for it.",
            remedy="say which image to start from with --from IMAGE",
        )
    return f"ubuntu:{suite}" if suite in _UBUNTU else f"debian:{suite}"


def _head(environment: Environment, image: str) -> Iterator[str]:
    checkout = environment.checkout
    name = f"{checkout.name} {checkout.version}" if checkout.version else checkout.name
    # No name from a repository may be in the first line: there, `# syntax=…` would choose the program that builds.
    yield "# Written by ratchet."
    yield f"# {comment(name)}, environment {environment.id[:12]}."
    yield f"# Checkout {checkout.id[:12]}" + (f", commit {comment(checkout.commit)}." if checkout.commit else ".")
    yield f"FROM {image}"
    yield ""
    yield "# What every base holds: these packages, uv, and an ordinary user."
    yield (
        "RUN apt-get update \\\n"
        "    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \\\n"
        f"        {' '.join(PACKAGES)}"
    )
    yield (
        f"RUN python3 -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir uv=={metadata.version('uv')} \\\n"
        "    && ln -s /opt/uv/bin/uv /usr/local/bin/uv"
    )
    yield "RUN useradd --create-home --shell /bin/bash dev"
    yield "COPY --chown=dev:dev checkout/ /workspace/"
    yield "RUN chown dev:dev /workspace"
    yield "WORKDIR /workspace"
    yield from _variables(environment.recipe.env)


def _variables(env: Mapping[str, str]) -> Iterator[str]:
    for name, value in portable(env).items():
        yield f"ENV {name}={_quote(value)}"


def _steps(recipe: Recipe, directory: Path) -> Iterator[str]:
    user = "root"
    for owner, group in groupby(enumerate(recipe.steps, start=1), key=lambda pair: pair[1].user):
        yield ""
        if owner != user:
            yield f"USER {owner}"
            user = owner
        for number, step in group:
            if step.note:
                yield f"# {comment(step.note)}"
            yield from _write_step(number, step, directory) if step.path else _run_step(number, step, recipe, directory)
    yield ""
    wanted = "root" if recipe.start else "dev"
    if user != wanted:
        yield f"USER {wanted}"


def _run_step(number: int, step: RecipeStep, recipe: Recipe, directory: Path) -> Iterator[str]:
    own = {name: value for name, value in portable(step.env).items() if recipe.env.get(name) != value}
    before = "".join(f"export {name}={shlex.quote(value)}; " for name, value in own.items())
    if step.cwd != "/workspace":
        before += f"cd {shlex.quote(step.cwd)} || exit 1; "
    command = before + step.command.strip()
    if step.may_fail:
        command = f"sh -c {shlex.quote(command)} || true"
    if not _fits_a_line(command):
        (directory / "steps").mkdir(exist_ok=True)
        name = f"steps/{number:02d}.sh"
        _write_script(directory / name, _with_shebang(command))
        yield f"COPY {name} {_PLACE}/{name}"
        command = f"sh {_PLACE}/{name}"
    yield f"RUN {command}"


def _fits_a_line(command: str) -> bool:
    """Whether a Dockerfile's RUN takes the command as it is: no continuation, here-document, JSON form or flag."""
    return not (
        "\n" in command
        or "<<" in command
        or command.endswith("\\")
        or command.startswith(("[", "--"))
        or len(command) > 800
    )


def _write_step(number: int, step: RecipeStep, directory: Path) -> Iterator[str]:
    (directory / "files").mkdir(exist_ok=True)
    source = directory / "files" / f"{number:02d}"
    source.write_text(step.content, encoding="utf-8")
    source.chmod(step.mode)
    paths = json.dumps([f"files/{source.name}", step.path])
    yield f"COPY --chown={step.user}:{step.user} {paths}"


def _tail(environment: Environment) -> Iterator[str]:
    if environment.recipe.start:
        yield f"COPY start.sh entrypoint.sh {_PLACE}/"
        yield f'ENTRYPOINT ["{_PLACE}/entrypoint.sh"]'
    yield 'CMD ["/bin/bash"]'


def _quote(value: str) -> str:
    """A value as ENV takes it, in double quotes."""
    if "\n" in value:
        raise UsageError("A variable of the environment has several lines, which a Dockerfile cannot express.")
    for plain in ("\\", '"', "$"):
        value = value.replace(plain, f"\\{plain}")
    return f'"{value}"'


def _with_shebang(script: str) -> str:
    script = script if script.endswith("\n") else script + "\n"
    return script if script.startswith("#!") else f"#!/bin/sh\n{script}"


def _write_script(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
