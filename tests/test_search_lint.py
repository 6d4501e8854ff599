"""Searching and linting in a sandbox: bounded, harmless, and clear about what they did not do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ratchet.actions import perform
from ratchet.records import Action, ActionKind, CommandResult, SandboxSpec
from ratchet.sandbox.oci import OciBackend, OciSandbox

pytestmark = pytest.mark.sandbox

FILES = {
    "src/shop.py": "def price(count):\n    return count * 2\n\n\nclass Shop:\n    pass\n",
    "src/many.txt": "needle\n" * 130,
    ".git/config": "def price\n",
    "src/__pycache__/old.py": "def price\n",
    "src/.mypy_cache/old.py": "def price\n",
    "long.min.js": f"var haystack = 1;{'x' * 5000}\n",
    "broken.py": "def price(:\n    pass\n",
    "ast.py": "import pathlib\npathlib.Path('/tmp/executed').touch()\n",
}


@pytest.fixture(scope="module")
def sandbox(backend: OciBackend, base: str) -> Iterator[OciSandbox]:
    with backend.open(SandboxSpec((base,))) as sandbox:
        sandbox.run("install -d -o dev /workspace")
        for path, content in FILES.items():
            sandbox.write(f"/workspace/{path}", content.encode(), user="dev")
        sandbox.run("cd /workspace && mkfifo pipe && printf 'haystack\\0\\1' > src/binary")
        yield sandbox


def search(sandbox: OciSandbox, pattern: str, path: str = "/workspace") -> CommandResult:
    result = perform(Action(ActionKind.SEARCH, command=pattern, path=path, user="dev"), sandbox, 60.0)
    assert result is not None
    return result


def lint(sandbox: OciSandbox, path: str) -> CommandResult:
    result = perform(Action(ActionKind.LINT, path=path, user="dev"), sandbox, 60.0)
    assert result is not None
    return result


# --------------------------------------------------------------------------- search


def test_matches_have_their_places_and_leave_out_histories_and_caches(sandbox: OciSandbox) -> None:
    result = search(sandbox, "^(def|class) ")
    assert result.ok
    assert result.output == "broken.py:1:def price(:\nsrc/shop.py:1:def price(count):\nsrc/shop.py:5:class Shop:\n"


def test_a_search_can_be_of_one_folder_or_file(sandbox: OciSandbox) -> None:
    assert search(sandbox, "def price", "/workspace/src").output == "src/shop.py:1:def price(count):\n"
    assert search(sandbox, "def price", "/workspace/broken.py").output == "broken.py:1:def price(:\n"
    assert search(sandbox, "root:x", "/etc/passwd").output.startswith("/etc/passwd:1:root:x")


def test_many_matches_are_counted_and_long_lines_and_binaries_cut(sandbox: OciSandbox) -> None:
    lines = search(sandbox, "needle").output.splitlines()
    assert len(lines) == 101
    assert lines[-1].startswith("[30 more lines match")
    (line,) = search(sandbox, "haystack").output.splitlines()
    assert line.startswith("long.min.js:1:var haystack")
    assert len(line) <= 300


def test_where_nothing_matches_or_nothing_is_there_it_says_so(sandbox: OciSandbox) -> None:
    assert search(sandbox, "no such text").output == "no line below /workspace matches\n"
    missing = search(sandbox, "x", "/workspace/no/such")
    assert (missing.exit_status, missing.output) == (1, "there is no /workspace/no/such that can be searched\n")
    bracket = search(sandbox, "price(count")
    assert not bracket.ok
    assert "Unmatched (" in bracket.output
    assert "write \\( where you mean" in bracket.output


@pytest.mark.parametrize(
    "pattern", ["-f/etc/passwd", "'; touch /tmp/injected; '", "$(touch /tmp/injected)", "--", "a\0b"]
)
def test_a_pattern_is_never_anything_else(sandbox: OciSandbox, pattern: str) -> None:
    assert not search(sandbox, pattern).ok
    assert not sandbox.run("test -e /tmp/injected").ok


def test_a_pipe_is_not_waited_for(sandbox: OciSandbox) -> None:
    result = search(sandbox, "x", "/workspace/pipe")
    assert result.seconds < 10
    assert result.limit is None


# --------------------------------------------------------------------------- lint


def test_an_error_of_syntax_is_shown_with_its_place(sandbox: OciSandbox) -> None:
    result = lint(sandbox, "/workspace/broken.py")
    assert result.exit_status == 1
    assert result.output.startswith("./broken.py:1: SyntaxError:")


def test_a_file_that_is_linted_is_not_run_and_nothing_is_written(sandbox: OciSandbox) -> None:
    before = sandbox.snapshot()
    assert lint(sandbox, "/workspace/ast.py").ok
    assert lint(sandbox, "/workspace/src/shop.py").ok
    assert sandbox.snapshot() == before


def test_what_nothing_can_lint_is_said(sandbox: OciSandbox) -> None:
    assert "only Python, JavaScript and C" in lint(sandbox, "/workspace/src/many.txt").output
    assert lint(sandbox, "/workspace/no.py").output == "there is no such file\n"
    assert lint(sandbox, "/workspace/pipe.py").exit_status == 2
