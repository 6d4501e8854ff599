"""A model as the goal setter: it looks round the pristine checkout and proposes ten goals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ratchet.policies.model.prompts import DATA_RULE, as_data, protocol
from ratchet.policies.model.proposals import GOAL_BLOCK, MOST_GOALS, parse_goals
from ratchet.policies.model.turns import ModelPolicy
from ratchet.policies.rules.python_tests import find_suite
from ratchet.protocols import Model
from ratchet.records import Action, ActionKind, Checkout, Fact, Goal, GoalKind, Observation, Reason, Survey

STAGE = "goals"
WANTED = 10

# It looks, and changes nothing: this user of every Debian system may write to no file of the checkout.
USER = "nobody"
ALLOWED = frozenset({ActionKind.RUN, ActionKind.READ, ActionKind.SUBMIT})

_COMMAND_TIMEOUT_S = 60.0
_REPLY_TOKENS = 1000
_SURVEY_CHARACTERS = 2500
_MOST_PROBLEMS_TOLD = 6

# A module that no project has: small models copy examples as they are.
_EXAMPLE = "fooshop"
_FORM = f"""\
```goal
kind: import
command: cd / && python -c "import {_EXAMPLE}; print('imported', {_EXAMPLE}.__name__)"
description: Imports the package, not from its sources but as it is installed, and prints its name.
expect: ^imported {_EXAMPLE}$
```
```goal
kind: tests
command: python -m pytest tests
description: Runs the whole test suite; at least 95 % of the tests pass.
```"""

_SYSTEM = """\
You write goals for a software project: {wanted} commands that work only once the project and all that it needs are \
installed. Now nothing is installed. Somebody else installs it later; then your commands are run in /workspace, where \
the project is, without network, and each must show that a part of it works.

- kind is one of: setup, tests, build, lint, import, launch. Propose several kinds, not more than 4 of one.
- description says what the command prints then. expect is a regular expression for one line of that output. Write \
several expect lines, or none where you are not sure.
- A command installs nothing and changes no file of the project. It must fail now.
- You are the user nobody and can only look: read files, run commands like ls and cat. Look at a few files at most.
- {data}

{protocol}"""

_SUBMIT = "- `goal`: a goal. You finish with {wanted} different goals in one reply, each in a block of its own."
_NOW = "Write the {wanted} goals now, unless you have to see one more file."
_SUBMIT_BY_TOOL = "When you know enough, call submit. Its text has {wanted} goals, each in a block like this:\n{form}"


class GoalSetter:
    """A `Policy` for the pristine checkout. After its submission `goals` are what `model` proposed, at most 20, and
    `problems` what was wrong with others. Where fewer than ten came, it asks once more for the rest.

    The action that asks once more is a NONE; the submission is `ok` when there are any goals. Raises as
    `turns.ModelPolicy` does.
    """

    def __init__(self, model: Model, survey: Survey, checkout: Checkout, *, wanted: int = WANTED) -> None:
        self.goals: tuple[Goal, ...] = ()
        self.problems: tuple[str, ...] = ()
        self._wanted = wanted
        self._suite = find_suite(survey)
        self._asked_again = False
        self._asks_again = False  # the last action did
        finish = _SUBMIT_BY_TOOL if model.uses_tools else _SUBMIT
        self._turns = ModelPolicy(
            model,
            system=_SYSTEM.format(
                wanted=wanted,
                data=DATA_RULE,
                protocol=protocol(
                    ALLOWED, finish.format(wanted=wanted, form=_FORM), example=_FORM, tools=model.uses_tools
                ),
            ),
            task="What a first look at the project found:\n"
            + as_data(checkout_digest(survey, checkout, _SURVEY_CHARACTERS), "survey")
            + f"\n{_NOW.format(wanted=wanted)}",
            stage=STAGE,
            allowed=ALLOWED,
            user=USER,
            submit_blocks=(GOAL_BLOCK,),
            timeout_s=_COMMAND_TIMEOUT_S,
            reply_tokens=_REPLY_TOKENS,
            then=_NOW.format(wanted=wanted),
        )

    def act(self, observation: Observation) -> Action:
        if self._asks_again:  # what it was told is all that the model has to see
            observation = replace(observation, result=None)
        action = self._turns.act(observation)
        self._asks_again = False
        if action.kind in (ActionKind.RUN, ActionKind.READ):
            return replace(action, user=USER, keep=False)
        if action.kind is not ActionKind.SUBMIT:
            return action
        self._take(action.content)
        if action.ok and len(self.goals) < self._wanted and not self._asked_again and observation.steps_left > 1:
            self._asked_again = self._asks_again = True
            self._turns.tell(self._more())
            return Action(ActionKind.NONE, detail=self._more(), exchanges=action.exchanges)
        if self.goals:
            return replace(action, ok=True, reason=None)
        detail = action.detail or "; ".join(("it proposed no goal that can be used", *self.problems))[:500]
        return replace(action, ok=False, reason=action.reason or Reason.BAD_REPLIES, detail=detail)

    def _take(self, text: str) -> None:
        """Add the goals of a submission to those of the one before."""
        goals, problems = parse_goals(text, self._suite)
        known = {goal.command for goal in self.goals}
        new = [goal for goal in goals if goal.command not in known and _EXAMPLE not in goal.command]
        self.goals = (*self.goals, *new)[:MOST_GOALS]
        copied = [f"`{_EXAMPLE}` is only the example" for goal in goals if _EXAMPLE in goal.command]
        self.problems = (*self.problems, *copied, *problems)

    def _more(self) -> str:
        """What the model is told once, where it proposed too few goals that can be used."""
        missing = self._wanted - len(self.goals)
        used = {goal.kind for goal in self.goals}
        others = ", ".join(kind.value for kind in GoalKind if kind not in used)
        told = [f"{len(self.goals)} of your goals can be used:", *(f"- {goal.command}" for goal in self.goals)]
        told.append(
            f"Write {missing} more goals in one reply, with other commands" + (f" ({others})." if others else ".")
        )
        if self.problems:
            told += ["These could not be used:", *(f"- {text}" for text in self.problems[:_MOST_PROBLEMS_TOLD])]
        return "\n".join(told)


# --------------------------------------------------------------------------- what is known before it looks


def checkout_digest(survey: Survey, checkout: Checkout, most_characters: int) -> str:
    """What the survey found, the most useful first and each with its place, in at most `most_characters`. All of it
    comes from the repository: it is data."""
    lines: list[str] = []
    size = 0
    for line in dict.fromkeys(_digest_lines(survey, checkout)):
        if size + len(line) + 1 <= most_characters:
            lines.append(line)
            size += len(line) + 1
    return "\n".join(lines)


def _digest_lines(survey: Survey, checkout: Checkout) -> Iterator[str]:
    name = survey.first("project-name") or checkout.name
    yield f"project: {name} {survey.first('project-version') or checkout.version or ''}".rstrip()
    yield from _facts(survey, "import-name", "package to import", 4)
    yield from _facts(survey, "console-script", "program", 4)
    yield from _facts(survey, "main-module", "runs with python -m", 2)
    counts = sorted((f for f in survey.of("test-count") if f.value.isdigit()), key=lambda f: (-int(f.value), f.file))
    if counts:
        total = sum(int(fact.value) for fact in counts)
        yield f"tests: {total} test functions in {len(counts)} files"
        yield from (f"test file: {fact.file}: {fact.value} test functions" for fact in counts[:5])
    for kind, most in (("test-command", 6), ("build-command", 3), ("lint-command", 4), ("launch-command", 2)):
        yield from _facts(survey, kind, kind.replace("-", " "), most)
    yield from _facts(survey, "requires-python", "needs Python", 1)
    yield from _facts(survey, "build-backend", "build backend", 1)
    yield from _facts(survey, "tool", "configured tool", 6)
    yield from _facts(survey, "extension-module", "compiled module", 3)
    yield from _facts(survey, "requirement", "requirement", 8)
    yield from _facts(survey, "service", "service", 3)


def _facts(survey: Survey, kind: str, title: str, most: int) -> Iterator[str]:
    """The first facts of a kind that say different things."""
    first: dict[str, Fact] = {}
    for fact in survey.of(kind):
        first.setdefault(fact.value, fact)
    for fact in list(first.values())[:most]:
        yield f"{title}: {' '.join(fact.value.split())[:200]}  # {fact.file}:{fact.line}"
