"""A model as the builder: alone, or from where the rules did not get any further."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from ratchet.policies.model.turns import ModelPolicy
from ratchet.policies.rules.builder import SYSTEM_PATH, VENV, RulesBuilder
from ratchet.policies.rules.planning import Lesson
from ratchet.policies.rules.python_tests import REPORT
from ratchet.policies.targets import USER, Trial, result_of, try_target
from ratchet.protocols import Policy
from ratchet.records import Action, ActionKind, CommandResult, Goal, Observation, Reason

START = "/opt/ratchet/start"
"""Where a model leaves the start script."""

VARIABLES = {"PATH": f"{VENV}/bin:{SYSTEM_PATH}", "VIRTUAL_ENV": VENV, "LANG": "C.UTF-8"}
"""What commands in an environment get that a model builds alone."""

# A submission whose targets fail is answered with what failed; after so many the attempt is over.
_MOST_SUBMISSIONS = 4
_SHOWN_CHARACTERS = 3000

# Steps for each submission: a last look, the start script, and of each target its run and its report.
_STEPS_OF_A_TRIAL = 2 + 2 * 3

OWN_STEPS = 2 + _MOST_SUBMISSIONS * _STEPS_OF_A_TRIAL + 1
"""What a `ModelBuilder` takes at most of an attempt beside the steps of its model: what is done first, the trials of
three targets, and the end."""

# In a last look before a submission counts: what was made as root is given to the user who runs goals, and so is the
# folder of the reports, where a model has run a target as root.
_GIVE_TO_USER = (
    f"for folder in /workspace {VENV} {PurePosixPath(REPORT).parent}; do\n"
    f'  [ ! -d "$folder" ] || find "$folder" -xdev ! -user {USER} -exec chown -h {USER}: {{}} +\n'
    "done"
)

Work = Generator[Action, Observation, None]


def opening(python: str) -> tuple[Action, ...]:
    """What is done before a model that builds alone gets the sandbox: an ordinary user, uv, a virtual environment."""
    return (
        Action(
            ActionKind.RUN,
            command=f"id {USER} >/dev/null 2>&1 || useradd --create-home --shell /bin/sh {USER}\n"
            "command -v uv >/dev/null 2>&1 || python3 -m pip install --break-system-packages uv\n"
            f"install -d -o {USER} -g {USER} {VENV}\ninstall -d /opt/ratchet",
            env=VARIABLES,
            note="an ordinary user, and uv, where the base lacks them",
        ),
        Action(
            ActionKind.RUN,
            command=f"uv venv --quiet --allow-existing --seed --python {python} {VENV}",
            user=USER,
            env=VARIABLES,
            note="a virtual environment of its own",
        ),
    )


class ModelBuilder:
    """A `Policy`: plays `first`, then lets a model act until its submission holds.

    A submission counts only when all targets hold in the sandbox as it is; else the model is told what failed, at most
    four times. Where the model gives up, goes in circles or has done `most_steps` actions, the targets are tried all
    the same: what counts is what it did. `env` is what every command in the environment gets.
    """

    def __init__(
        self,
        turns: ModelPolicy,
        targets: Sequence[Goal],
        env: dict[str, str],
        first: Sequence[Action] = (),
        *,
        most_steps: int,
    ) -> None:
        self._turns = turns
        self._targets = sorted(targets, key=lambda goal: goal.timeout_s)
        self._env = env
        self._first = tuple(first)
        self._most_steps = self._steps_left = most_steps
        self._start = ""
        self._work = self._run()
        next(self._work)

    def act(self, observation: Observation) -> Action:
        return self._work.send(observation)

    def _run(self) -> Work:
        observation = yield Action(ActionKind.NONE)  # taken by the first `next`
        for action in self._first:
            observation = yield action
            if not result_of(observation).ok:
                detail = f"`{action.note}` failed: {result_of(observation).output[-300:]}"
                yield Action(ActionKind.SUBMIT, ok=False, reason=Reason.BUILD_FAILED, detail=detail)
                return
        if self._first:
            observation = replace(observation, result=None)
        for _ in range(_MOST_SUBMISSIONS):
            action = yield from self._until_submission(observation)
            if action.reason is Reason.BUDGET_SPENT:
                yield action
                return
            failed, observation = yield from self._try_targets(action)
            if failed is None:
                yield Action(ActionKind.SUBMIT, env=self._env, start=self._start, note=action.note)
                return
            missing = f"{failed.goal.command}: {failed.unmet}"
            if action.ok and self._steps_left <= 0:
                action = self._out_of_steps()
            if not action.ok:
                yield replace(action, detail=f"{action.detail}; {missing}", exchanges=())
                return
            self._turns.tell(f"Not yet: the target `{failed.goal.command}` does not hold: {failed.unmet}.")
        detail = f"the targets still failed after {_MOST_SUBMISSIONS} submissions: {missing}"
        yield Action(ActionKind.SUBMIT, ok=False, reason=Reason.TARGETS_FAILED, detail=detail)

    def _until_submission(self, observation: Observation) -> Generator[Action, Observation, Action]:
        while self._steps_left > 0:
            action = self._turns.act(replace(observation, steps_left=self._steps_left))
            if action.kind is ActionKind.SUBMIT:
                return action
            self._steps_left -= 1
            observation = yield action
        return self._out_of_steps()

    def _out_of_steps(self) -> Action:
        detail = f"the model has done the {self._most_steps} actions that it was given"
        return Action(ActionKind.SUBMIT, ok=False, reason=Reason.POLICY_GAVE_UP, detail=detail)

    def _try_targets(self, submission: Action) -> Generator[Action, Observation, tuple[Trial | None, Observation]]:
        """The first target that does not hold, if there is one."""
        observation = yield Action(
            ActionKind.RUN,
            command=_GIVE_TO_USER,
            note="what was made as root belongs to the user who runs goals",
            exchanges=submission.exchanges,
        )
        look = Action(ActionKind.RUN, command=f"test -x {START}", keep=False, note="a start script?")
        observation = yield look
        self._start = START if result_of(observation).ok else ""
        for goal in self._targets:
            trial = yield from try_target(goal, self._env, goal.timeout_s, start=self._start)
            if trial.unmet:
                return trial, replace(observation, result=_as_result(trial))
        return None, observation


class Takeover:
    """A `Policy`: the rules first; where they give up for good, a model goes on from the same state.

    `is_last` says of the lesson in a failure of the rules whether they have nothing more to try; after `most_steps` of
    their actions they have not. `make` gives the builder that takes over, from a text that says what was done and what
    failed, and the outputs of failed commands.
    """

    def __init__(
        self,
        rules: RulesBuilder,
        is_last: Callable[[Lesson], bool],
        make: Callable[[str, Sequence[str]], ModelBuilder],
        *,
        most_steps: int,
    ) -> None:
        self.rules = rules
        self.took_over = False
        self._is_last = is_last
        self._make = make
        self._policy: Policy = rules
        self._most_steps = most_steps
        self._done: list[tuple[Action, CommandResult | None]] = []

    def act(self, observation: Observation) -> Action:
        if self._done:
            self._done[-1] = (self._done[-1][0], observation.result)
        action = self._policy.act(observation)
        if not self.took_over:
            if action.kind is not ActionKind.SUBMIT and len(self._done) >= self._most_steps:
                action = Action(ActionKind.SUBMIT, ok=False, detail=f"the rules have done {self._most_steps} actions")
            lesson = self.rules.lesson
            if action.kind is ActionKind.SUBMIT and not action.ok and (lesson is None or self._is_last(lesson)):
                self.took_over = True
                self._policy = self._make(situation(self._done, action), failed_outputs(self._done))
                return self._policy.act(replace(observation, result=None, changed=None))
            self._done.append((action, None))
        return action


def situation(done: Sequence[tuple[Action, CommandResult | None]], submission: Action) -> str:
    """What rules did since their last rollback, and what failed, for a model that takes over."""
    lines: list[str] = []
    for action, result in done:
        if action.kind is ActionKind.ROLLBACK:
            lines.clear()
        elif action.kind is ActionKind.WRITE:
            lines.append(f"wrote {action.path}")
        elif action.kind is ActionKind.RUN and action.keep and result is not None:
            first = action.command.strip().splitlines()[0][:200]
            lines.append(f"{'ok' if result.ok else 'FAILED'}: {first}")
    failed = next((r for a, r in reversed(done) if r is not None and not r.ok and a.kind is ActionKind.RUN), None)
    output = (
        f"\nOutput of the last command that failed (`{failed.command[:200]}`):\n{_end(failed.output)}" if failed else ""
    )
    return "\n".join([*lines[-12:], f"Then it was given up: {submission.detail[:500]}"]) + output


def failed_outputs(done: Sequence[tuple[Action, CommandResult | None]]) -> list[str]:
    """What failed commands printed, the last one first."""
    return [r.output for a, r in reversed(done) if r is not None and not r.ok and a.kind is ActionKind.RUN]


def _as_result(trial: Trial) -> CommandResult:
    output = _end(trial.output)
    return replace(trial.result, command=trial.goal.command, output=output, output_bytes=len(output))


def _end(output: str) -> str:
    return output if len(output) <= _SHOWN_CHARACTERS else f"[…]\n{output[-_SHOWN_CHARACTERS:]}"
