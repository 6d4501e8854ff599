"""How a builder tries a target where it works. Only a look: the verdict comes from a fresh replay, elsewhere."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace

from ratchet.policies.digest import Digest, digest_command, parse_digest
from ratchet.records import Action, ActionKind, CommandResult, Goal, Observation
from ratchet.verdicts import MOST_NEED_NETWORK, decide

USER = "dev"
"""Who runs goals. Every base has this user, or a builder makes it."""


@dataclass(frozen=True)
class Trial:
    """What a target gave. `digest` is None where it leaves no report, or none that can be read. `started` is whether
    the start script succeeded: where it did not, `result` is what that did."""

    goal: Goal
    result: CommandResult
    digest: Digest | None
    started: bool = True

    @property
    def unmet(self) -> str:
        """What of the target's description does not hold; empty when all does."""
        expectation = self.goal.expectation
        if not self.started:
            ended = f"the {self.result.limit} limit" if self.result.limit else f"exit status {self.result.exit_status}"
            return f"the start script failed ({ended})"
        if expectation.report is None:
            verdict = decide(self.goal, self.result)
            return "" if verdict.passed else verdict.why
        if self.result.limit is not None:
            return f"the {self.result.limit} limit ended it"
        if self.digest is None:
            return f"it left no test report (exit status {self.result.exit_status})"
        if self.digest.ran < expectation.min_tests:
            return f"{self.digest.ran} tests ran, where at least {expectation.min_tests} should"
        if (offline := self.digest.ran - self.digest.judged) > MOST_NEED_NETWORK * self.digest.ran:
            return f"{offline} of {self.digest.ran} tests want a network, which they do not get"
        if self.digest.passed < expectation.min_pass_rate * self.digest.judged:
            return f"{self.digest.passed} of {self.digest.judged} tests passed"
        return ""

    @property
    def output(self) -> str:
        """What failed, the messages of failing tests first."""
        messages = f"{self.digest.text()}\n" if self.digest is not None and self.result.limit is None else ""
        return f"{messages}{self.result.output[-30_000:]}"


def try_target(
    goal: Goal, env: Mapping[str, str], timeout_s: float, *, start: str = ""
) -> Generator[Action, Observation, Trial]:
    """Run a target as its judge will: as an ordinary user, without the way to the registries, once the start script
    `start` has run as root."""
    report = goal.expectation.report
    run = Action(
        ActionKind.RUN,
        command=f"rm -f {report}\n{goal.command}" if report else goal.command,
        start=start,
        user=USER,
        env=env,
        timeout_s=timeout_s,
        proxied=False,
        keep=False,
        note="a target",
    )
    result = result_of((yield run))
    if start and result.command == start:
        return Trial(goal, result, None, started=False)
    if report is None:
        return Trial(goal, result, None)
    said = yield replace(
        run, command=digest_command("python3", report), start="", timeout_s=None, note="what the tests said"
    )
    return Trial(goal, result, parse_digest(result_of(said).output))


def result_of(observation: Observation) -> CommandResult:
    if observation.result is None:
        raise ValueError("a command was run, so there must be a result")
    return observation.result
