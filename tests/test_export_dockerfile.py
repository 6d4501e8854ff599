"""The Dockerfile export: what it holds, what it must not hold, and (slow) that it rebuilds the environment."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ratchet.errors import UsageError
from ratchet.exports import dockerfile
from ratchet.exports.script import portable, recipe_script
from ratchet.records import Audit, Base, Checkout, Environment, Recipe, RecipeStep

ENV = {"PATH": "/opt/venv/bin:/usr/bin:/bin", "GREETING": 'say "hi" for $5'}


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    tree = tmp_path / "tree"
    (tree / "src").mkdir(parents=True)
    (tree / "src" / "mod.py").write_text("x = 1\n")
    (tree / "run.sh").write_text("#!/bin/sh\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "link").symlink_to("src/mod.py")
    steps = (
        RecipeStep(command="install -d -o dev /opt/venv", env=ENV, note="a place"),
        RecipeStep(path="/opt/ratchet/requirements.txt", content="pytest\n", user="dev"),
        RecipeStep(command="uv venv /opt/venv", user="dev", env=ENV | {"UV_EXCLUDE_NEWER": "2024-01-01"}),
        RecipeStep(command="cat <<X\ntwo\nX", user="dev", env=ENV, cwd="/tmp"),
    )
    return Environment(
        id="e" * 32,
        name="example",
        base=Base("base-1", "bookworm", "bookworm", "amd64", "mmdebstrap"),
        checkout=Checkout("c" * 64, "example", "pypi:example", str(tree), version="1.0"),
        recipe=Recipe(steps, ENV, ""),
        layer="layer-1",
        goals=(),
        targets=(),
        verdicts=(),
        audit=Audit(),
    )


def with_recipe(environment: Environment, **changes: object) -> Environment:
    return dataclasses.replace(environment, recipe=dataclasses.replace(environment.recipe, **changes))  # type: ignore[arg-type]


def test_the_recipe_is_readable_and_in_order(environment: Environment, tmp_path: Path) -> None:
    lines = dockerfile.write(environment, tmp_path / "out").read_text().splitlines()
    assert "FROM debian:bookworm" in lines
    wanted = [
        "COPY --chown=dev:dev checkout/ /workspace/",
        'ENV GREETING="say \\"hi\\" for \\$5"',
        "# a place",
        "RUN install -d -o dev /opt/venv",
        "USER dev",
        'COPY --chown=dev:dev ["files/02", "/opt/ratchet/requirements.txt"]',
        "RUN export UV_EXCLUDE_NEWER=2024-01-01; uv venv /opt/venv",
        "RUN sh /usr/local/lib/ratchet/steps/04.sh",
        'CMD ["/bin/bash"]',
    ]
    assert [line for line in lines if line in wanted] == wanted
    assert lines.count("USER dev") == 1  # steps of one user are one group, and the image ends as dev


def test_the_context_is_complete(environment: Environment, tmp_path: Path) -> None:
    out = tmp_path / "out"
    dockerfile.write(environment, out)
    assert (out / "checkout/src/mod.py").read_text() == "x = 1\n"
    assert (out / "checkout/run.sh").stat().st_mode & 0o111
    assert (out / "checkout/link").is_symlink()
    assert (out / "files/02").read_text() == "pytest\n"
    assert (out / "steps/04.sh").read_text() == "#!/bin/sh\ncd /tmp || exit 1; cat <<X\ntwo\nX\n"
    assert "uv venv /opt/venv" in (out / "recipe.sh").read_text()
    assert not (out / "start.sh").exists()


def test_a_start_script_is_run_first(environment: Environment, tmp_path: Path) -> None:
    text = dockerfile.write(with_recipe(environment, start="service x start"), tmp_path / "out").read_text()
    assert "ENTRYPOINT" in text
    assert text.index("USER root") > text.index("USER dev")  # services are started as root
    assert "service x start" in (tmp_path / "out/start.sh").read_text()
    assert "--reuid dev" in (tmp_path / "out/entrypoint.sh").read_text()


def test_nothing_of_the_machine_goes_along(environment: Environment, tmp_path: Path) -> None:
    secret = {
        "PIP_INDEX_URL": "https://user:hunter2@mirror.invalid/simple",
        "UV_DEFAULT_INDEX": "https://mirror.invalid/hunter2",
        "https_proxy": "http://127.0.0.1:3128/hunter2",
        "SSL_CERT_FILE": "/etc/ssl/hunter2",
        "NODE_EXTRA_CA_CERTS": "/etc/ssl/hunter2",
        "SOME_API_TOKEN": "hunter2",
        "bad name\nRUN evil": "hunter2",
    }
    steps = tuple(dataclasses.replace(step, env={**step.env, **secret}) for step in environment.recipe.steps)
    out = tmp_path / "out"
    dockerfile.write(with_recipe(environment, steps=steps, env=ENV | secret), out)
    texts = [path.read_text() for path in out.rglob("*") if path.is_file()]
    assert len(texts) > 5
    assert not [text for text in texts if "hunter2" in text or "evil" in text]
    assert portable(ENV | {"LANG": "C.UTF-8", "UV_EXCLUDE_NEWER": "2024"}).keys() == {*ENV, "LANG", "UV_EXCLUDE_NEWER"}


def test_a_name_from_the_repository_cannot_choose_the_builder(environment: Environment, tmp_path: Path) -> None:
    named = dataclasses.replace(environment.checkout, name="syntax=evil/frontend\nRUN evil", version=None)
    text = dockerfile.write(dataclasses.replace(environment, checkout=named), tmp_path / "out").read_text()
    assert text.startswith("# Written by")
    assert not [line for line in text.splitlines() if line.startswith("RUN evil")]


def test_the_directory_must_be_free(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("x")
    with pytest.raises(UsageError, match="not an empty directory"):
        dockerfile.write(environment, tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["precious"]


def test_an_imported_base_needs_an_image(environment: Environment, tmp_path: Path) -> None:
    imported = dataclasses.replace(environment, base=dataclasses.replace(environment.base, suite=None))
    with pytest.raises(UsageError, match="imported") as caught:
        dockerfile.write(imported, tmp_path / "out")
    assert "--from" in caught.value.remedy
    assert not (tmp_path / "out").exists()
    assert "FROM example:1\n" in dockerfile.write(imported, tmp_path / "out", image="example:1").read_text()


def test_the_script_does_what_the_recipe_says(environment: Environment, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file"
    steps = (
        RecipeStep(path=str(target), content="it's $HOME\n", mode=0o600, note="a\nnote"),
        RecipeStep(
            command="printf %s \"$WHO\" >>file\nprintf ' two lines' >>file", cwd=str(target.parent), env={"WHO": "me"}
        ),
    )
    script = tmp_path / "recipe.sh"
    script.write_text(recipe_script(Recipe(steps), name="x").replace("cd /workspace\n", ""))
    subprocess.run(["sh", script], check=True)
    assert target.read_text() == "it's $HOME\nme two lines"
    assert target.stat().st_mode & 0o777 == 0o600


def test_what_may_fail_does_not_end_the_script_nor_the_build(environment: Environment, tmp_path: Path) -> None:
    steps = (
        RecipeStep(command=f"echo half >>{tmp_path}/file\nexit 3", may_fail=True),
        RecipeStep(command=f"echo 'the rest' >>{tmp_path}/file; false", env={"A": "b c"}, may_fail=True),
        RecipeStep(command="exit 5"),
        RecipeStep(command=f"touch {tmp_path}/never"),
    )
    script = recipe_script(Recipe(steps), name="x").replace("cd /workspace\n", "")
    assert subprocess.run(["sh", "-c", script], check=False).returncode == 5
    assert (tmp_path / "file").read_text() == "half\nthe rest\n"
    assert not (tmp_path / "never").exists()
    (tmp_path / "file").unlink()
    text = dockerfile.write(with_recipe(environment, steps=steps), tmp_path / "out").read_text()
    runs = [line.removeprefix("RUN ") for line in text.splitlines() if line.startswith("RUN ")][-len(steps) :]
    here = [run.replace("/usr/local/lib/ratchet", str(tmp_path / "out")) for run in runs]
    ended = [subprocess.run(["sh", "-c", run], check=False).returncode for run in here]
    assert ended == [0, 0, 5, 0]
    assert (tmp_path / "file").read_text() == "half\nthe rest\n"


# --------------------------------------------------------------------------- the real thing

VARIABLES = {
    "PATH": "/opt/venv/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "VIRTUAL_ENV": "/opt/venv",
    "GREETING": ENV["GREETING"],
}
BUILT = Recipe(
    steps=(
        RecipeStep(
            command="id dev >/dev/null 2>&1 || useradd --create-home dev\ninstall -d -o dev -g dev /opt/venv /opt/ratchet",
            env=VARIABLES,
        ),
        RecipeStep(command="uv venv --quiet --seed --python 3.11 /opt/venv", user="dev", env=VARIABLES),
        RecipeStep(path="/opt/ratchet/requirements.txt", content="pytest\n", user="dev"),
        RecipeStep(command="uv pip install -q -e . -r /opt/ratchet/requirements.txt", user="dev", env=VARIABLES),
        RecipeStep(
            command="apt-get install -q -y --no-install-recommends xxd",
            env=VARIABLES | {"DEBIAN_FRONTEND": "noninteractive"},
        ),
    ),
    env=VARIABLES,
    start="id -un >/tmp/started",
)
PROJECT = {
    "pyproject.toml": '[project]\nname = "small"\nversion = "1"\n\n[build-system]\nrequires = ["hatchling"]\n'
    'build-backend = "hatchling.build"\n\n[tool.hatch.build.targets.wheel]\ninclude = ["small.py"]\n',
    "small.py": "ANSWER = 42\n",
    "test_small.py": "import os, pathlib, shutil, small\n\n\ndef test_it():\n    assert small.ANSWER == 42\n"
    "    assert pathlib.Path('/tmp/started').read_text() == 'root\\n'\n    assert shutil.which('xxd') and os.getuid() != 0\n",
}


def buildah(*arguments: str) -> str:
    done = subprocess.run(["buildah", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"buildah {arguments[0]}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(shutil.which("buildah") is None, reason="buildah is not installed: ./test --slow installs it")
def test_buildah_rebuilds_the_environment_and_its_tests_pass_there(environment: Environment, tmp_path: Path) -> None:
    tree = tmp_path / "project"
    tree.mkdir()
    for name, text in PROJECT.items():
        (tree / name).write_text(text)
    made = dataclasses.replace(
        environment, recipe=BUILT, checkout=dataclasses.replace(environment.checkout, path=str(tree))
    )
    archive = tmp_path / "base.tar"
    subprocess.run(["mmdebstrap", "-q", "--variant=minbase", "bookworm", str(archive)], check=True)
    image, result = "localhost/ratchet-test-base", "localhost/ratchet-test-result"
    scratch = buildah("from", "scratch")
    buildah("add", "-q", scratch, str(archive), "/")
    trust_what_this_machine_trusts(scratch)
    buildah("commit", "-q", "--rm", scratch, image)
    container = ""
    try:
        dockerfile.write(made, tmp_path / "out", image=image)
        buildah("bud", "--isolation", "chroot", "-t", result, str(tmp_path / "out"))
        container = buildah("from", result)
        entrypoint = "/usr/local/lib/ratchet/entrypoint.sh"
        output = subprocess.run(
            ["buildah", "run", "--isolation", "chroot", container, "--", entrypoint, "python", "-m", "pytest", "-q"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "1 passed" in output.stdout, output.stdout + output.stderr
    finally:
        if container:
            buildah("rm", container)
        subprocess.run(["buildah", "rmi", result, image], capture_output=True, check=False)


def trust_what_this_machine_trusts(container: str) -> None:
    """Where this machine is behind a private certificate authority, the local base trusts it, and not the export."""
    bundle = os.environ.get("SSL_CERT_FILE", "")
    if bundle:
        inside = "/usr/local/share/host-certificates.pem"
        buildah("copy", "-q", container, bundle, inside)
        buildah("config", "--env", f"SSL_CERT_FILE={inside}", "--env", f"PIP_CERT={inside}", container)
