"""What a JUnit report in the sandbox says, short enough for the output of one command.

A policy sees nothing but the output of its commands, so the report is read by one. What it prints is not trusted:
the verdict comes from the report itself, elsewhere.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from ratchet.junit import needs_network

_SCRIPT = """\
import json, sys, xml.etree.ElementTree as tree
try:
    cases = list(tree.parse(sys.argv[1]).iter("testcase"))
except Exception as error:
    raise SystemExit("no report: %s" % error)
counts = {"ran": 0, "passed": 0, "skipped": 0}
failures = []
for case in cases:
    bad = [e for e in case if e.tag in ("failure", "error")]
    skipped = any(e.tag == "skipped" for e in case)
    counts["skipped" if skipped and not bad else "ran"] += 1
    counts["passed"] += not bad and not skipped
    for e in bad[:1]:
        text = (e.get("message") or "")[:500] + "\\n" + (e.text or "")[-1200:]
        failures.append([(case.get("classname") or "") + "::" + (case.get("name") or ""), e.tag, text])
print(json.dumps({"counts": counts, "failures": failures[:300]}))
"""


@dataclass(frozen=True)
class Digest:
    """The counts of a run, and its failures."""

    ran: int
    passed: int
    skipped: int
    failures: tuple[tuple[str, str, str], ...]  # (test, "failure" or "error", message)

    @property
    def offline_failures(self) -> tuple[tuple[str, str, str], ...]:
        """The failures that a network would not mend."""
        return tuple(failure for failure in self.failures if not needs_network(failure[2]))

    @property
    def judged(self) -> int:
        """Tests that ran and did not fail for want of a network."""
        return self.ran - (len(self.failures) - len(self.offline_failures))

    def text(self, most_characters: int = 60_000) -> str:
        """The failures as a log, each message once."""
        messages = dict.fromkeys(f"{test}\n{message}" for test, _, message in self.offline_failures)
        return "\n\n".join(messages)[:most_characters]


def digest_command(python: str, report: str) -> str:
    return f"{python} -c {shlex.quote(_SCRIPT)} {shlex.quote(report)}"


def parse_digest(output: str) -> Digest | None:
    """The digest that the sandbox printed; None where it printed something else. Its content is not trusted."""
    try:
        data = json.loads(output)
        counts = data["counts"]
        return Digest(
            int(counts["ran"]),
            int(counts["passed"]),
            int(counts["skipped"]),
            tuple((str(test), str(tag), str(message)) for test, tag, message in data["failures"]),
        )
    except (ValueError, KeyError, TypeError):
        return None
