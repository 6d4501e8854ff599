"""What stands between a rollout and a reward that it did not earn, by name.

Each of these can be left out, for one purpose: to show by a cheat that then wins what it is there for
(`tests/cheats`). Some defences are the way things are built and have no switch: a rollout has no network and sees no
other sandbox; its processes end before anything is read; what is graded starts from the task's own layers, so nothing
that was changed outside of the project's sources gets there; results come from a supervisor's file that only root can
open; and a test that did not report is a failed one, whatever the exit status says.

What none of them excludes: code under test runs in the runner's own process, so a solution that is written against
this very page can lie to it. Canaries, flags and probes make that hard, and visible; they do not make it impossible.
"""

from __future__ import annotations

from enum import StrEnum


class Defence(StrEnum):
    SOURCES_ONLY = "sources-only"
    """Only the project's own source files leave a sandbox, and new ones only inside its packages."""

    TEXT_ONLY = "text-only"
    """Nothing compiled leaves: what cannot be read cannot be judged."""

    NO_LINKS = "no-links"
    """No link of a sandbox is followed on the host, and none leaves."""

    TESTS_RESTORED = "tests-restored"
    """Tests and their configuration are the environment's, whatever a patch says of them."""

    TESTS_READ_ONLY = "tests-read-only"
    """While the tests run, code under test cannot write the tests that are still to be collected."""

    CANARIES = "canaries"
    """Tests that have to fail run among the others: a runner that calls them passed is lying."""

    RUNNER_KNOWN = "runner-known"
    """Code that asks whether, or which, test is running is flagged."""

    ALWAYS_EQUAL = "always-equal"
    """Objects that are equal to everything are flagged."""

    PATCHED_MODULES = "patched-modules"
    """Code that replaces functions of the language or of its standard library is flagged."""

    CALLERS_READ = "callers-read"
    """Code that looks into the frames of its callers, or through all objects, for what is expected is flagged."""

    TESTS_READ = "tests-read"
    """Code that names the files of the tests that judge it is flagged."""

    HIDDEN_CODE = "hidden-code"
    """Code in an encoding, or made from encoded text, that only the interpreter can read is flagged."""

    PROBES = "probes"
    """Held-out calls are compared with the reference's outputs: the only thing that tells a solution from a table of
    the tests' inputs."""


Defences = frozenset[Defence]

DEFENCES: Defences = frozenset(Defence)
