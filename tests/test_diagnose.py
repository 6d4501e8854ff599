"""What cannot be repaired gets a typed reason, and a sentence that quotes the line which decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.policies.rules.diagnose import diagnose
from ratchet.policies.rules.repairs import Context, Failure
from ratchet.records import Checkout, LimitHit, Reason, Survey

LOGS = Path(__file__).parent / "data" / "logs"


class Nothing:
    """A lookup without packages."""

    def header(self, name: str) -> tuple[str, ...]:
        return ()

    library = pkg_config = program = header


CONTEXT = Context(Survey("id"), Checkout("id", "project", "here", "/nonexistent"), ("3.11",), Nothing())

CASES = [
    ("setup-syntax-error", "install", Reason.BROKEN_BUILD_SCRIPT, "SyntaxError: '(' was never closed"),
    ("setup-python2", "install", Reason.BROKEN_BUILD_SCRIPT, "Missing parentheses in call to 'print'"),
    ("safe-config-parser", "install", Reason.BROKEN_BUILD_SCRIPT, "SafeConfigParser"),
    ("not-in-registry", "install", Reason.DEPENDENCY_NOT_FOUND, "this-distribution-does-not-exist-anywhere-77"),
    ("not-in-registry-own", "install", Reason.DEPENDENCY_NOT_FOUND, "no-such-thing-at-all-zz9"),
    ("build-requires-missing", "install", Reason.DEPENDENCY_NOT_FOUND, "no-such-backend-zz9"),
    ("impossible-pin", "install", Reason.VERSION_NOT_FOUND, "requests==99.7"),
    ("impossible-pin-own", "install", Reason.VERSION_NOT_FOUND, "requests==99.7"),
    ("newer-cut", "install", Reason.VERSION_NOT_FOUND, "flask>=2"),
    ("conflict", "install", Reason.DEPENDENCY_CONFLICT, "werkzeug<2"),
    ("conflict-own", "install", Reason.DEPENDENCY_CONFLICT, "urllib3<2 and urllib3>=2"),
    ("conflict-beside", "install", Reason.DEPENDENCY_CONFLICT, "urllib3>=2.2"),
    ("requires-python-own", "install", Reason.PYTHON_UNAVAILABLE, "Python>=3.13"),
    ("python-download", "environment", Reason.PYTHON_UNAVAILABLE, "cpython-3.10"),
    ("unreachable", "install", Reason.REGISTRY_UNREACHABLE, "registry.invalid"),
    ("proxy-denied", "install", Reason.REGISTRY_UNREACHABLE, "registry.invalid"),
    ("resolve-host", "install", Reason.REGISTRY_UNREACHABLE, "registry.invalid"),
    ("cargo-missing", "install", Reason.REGISTRY_UNREACHABLE, "crates.invalid"),
    ("git-requirement", "install", Reason.REGISTRY_UNREACHABLE, "git.invalid"),
    ("header-missing", "install", Reason.BUILD_FAILED, "fatal error: lber.h"),
    ("library-missing", "install", Reason.BUILD_FAILED, "cannot find -lsodium"),
    ("meson-program", "install", Reason.BUILD_FAILED, "Program 'gperf' not found"),
    ("cmake-config-package", "install", Reason.BUILD_FAILED, "CMake Error"),
    ("apt-missing", "apt", Reason.BUILD_FAILED, "Unable to locate package no-such-package-zz9"),
    ("python2-source", "collect", Reason.PYTHON_UNAVAILABLE, "Missing parentheses"),
    ("python2-module", "collect", Reason.PYTHON_UNAVAILABLE, "urllib2"),
    ("drift-import", "collect", Reason.TESTS_NOT_COLLECTED, "cannot import name 'url_quote'"),
    ("option-mypy", "collect", Reason.TESTS_NOT_COLLECTED, "unrecognized arguments: --mypy"),
    ("no-tests", "test", Reason.TESTS_NOT_COLLECTED, "no tests ran"),
    ("mentions-only", "test", Reason.TESTS_FAILED, "1 failed, 2 passed"),
    ("drift-attribute", "test", Reason.TESTS_FAILED, "'Engine' object has no attribute 'execute'"),
]


@pytest.mark.parametrize(("name", "stage", "reason", "quoted"), CASES, ids=lambda value: str(value)[:40])
def test_a_log_has_one_reason(name: str, stage: str, reason: Reason, quoted: str) -> None:
    output = (LOGS / f"{name}.log").read_text("utf-8")
    found, detail = diagnose(Failure(stage, "command", output), CONTEXT)
    assert found is reason
    assert quoted in detail
    assert "\n" not in detail


@pytest.mark.parametrize(
    ("stage", "limit", "reason"),
    [
        ("install", LimitHit.TIME, Reason.BUILD_TIMEOUT),
        ("build", LimitHit.TIME, Reason.BUILD_TIMEOUT),
        ("apt", LimitHit.TIME, Reason.BUILD_TIMEOUT),
        ("collect", LimitHit.TIME, Reason.TEST_TIMEOUT),
        ("test", LimitHit.TIME, Reason.TEST_TIMEOUT),
        ("test", LimitHit.MEMORY, Reason.MEMORY_LIMIT),
        ("install", LimitHit.PROCESSES, Reason.PROCESS_LIMIT),
        ("build", LimitHit.DISK, Reason.DISK_LIMIT),
    ],
)
def test_a_limit_decides_whatever_the_log_says(stage: str, limit: LimitHit, reason: Reason) -> None:
    output = "SyntaxError: invalid syntax\nerror: No solution found when resolving dependencies"
    found, detail = diagnose(Failure(stage, "pip install .", output, None, limit), CONTEXT)
    assert found is reason
    assert "pip install ." in detail


def test_a_full_disk_is_the_cause_of_what_follows_it() -> None:
    output = "m.c:1:1: fatal error: error writing to m.o: No space left on device\nerror: command 'gcc' failed"
    assert diagnose(Failure("build", "make", output), CONTEXT)[0] is Reason.DISK_LIMIT


def test_a_silent_failure_names_its_exit_status() -> None:
    reason, detail = diagnose(Failure("install", "make", "", 3), CONTEXT)
    assert reason is Reason.BUILD_FAILED
    assert "exit status 3" in detail
