"""A suite that a time limit ended: one test that hangs must not hide all the others.

Each test gets a time limit of its own. With pytest that is a plugin's, under the shim for unittest runners a variable.
"""

from __future__ import annotations

from collections.abc import Iterator

from ratchet.policies.rules.repairs import changes
from ratchet.policies.rules.repairs.failure import Failure, Repair
from ratchet.records import LimitHit

KEY = "hanging-test"

# Longer than nearly every honest test takes, and short enough that a few hanging ones leave time for the rest.
TEST_TIMEOUT_S = 60


def propose_for_limit(failure: Failure) -> Iterator[Repair]:
    """A repair where tests ran out of time; nothing for any other limit."""
    if failure.limit is not LimitHit.TIME or failure.stage not in {"collect", "test"}:
        return
    note = f"a test may hang, so each gets {TEST_TIMEOUT_S} s: the suite ran out of time"
    if "-m pytest" in failure.command:
        timeout = changes.add_pytest_options(f"--timeout={TEST_TIMEOUT_S}")
        yield Repair(KEY, note, changes.both(changes.require("pytest-timeout"), timeout))
    else:
        yield Repair(KEY, note, changes.set_env({"UNITTEST_JUNIT_TIMEOUT_S": str(TEST_TIMEOUT_S)}))
