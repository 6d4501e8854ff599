"""Prompts for small models that are trained on them: a tenth of the tokens that `prompts.py` takes.

They explain little, since what a reply looks like is learnt from lessons. An install is a conversation of short shell
commands; a task is one look at the function that the statement names, and one edit.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from packaging.requirements import InvalidRequirement, Requirement

from ratchet.errors import ContextOverflowError
from ratchet.policies.model.builder import ModelBuilder, opening
from ratchet.policies.model.prompts import as_data
from ratchet.policies.model.turns import ModelPolicy
from ratchet.policies.targets import USER
from ratchet.protocols import Model
from ratchet.python_trees import tree_of
from ratchet.records import Action, ActionKind, Goal, Observation, Reason, Survey
from ratchet.task_records import Task

BUILDER_STAGE, SOLVER_STAGE = "construction", "solver"

_BUILDER = (
    "Install the Python project in /workspace with all that its tests need. Reply with one command:\n"
    "```sh\nCOMMAND\n```\nWhen its tests run, reply:\n```submit\n```"
)
_SOLVER = (
    "One line of this code is wrong. Reply with the wrong lines and the right ones:\n"
    "```edit PATH\n<<<<<<< SEARCH\nOLD\n=======\nNEW\n>>>>>>> REPLACE\n```"
)

_MOST_GROUPS = 8
_MOST_NAMES = 8
_MOST_SHOWN = 300  # characters of a result
_LONGEST_CODE = 1800
_LONGEST_SAID = 500

# Requirements of these are for other work than running tests; the groups are told of after the others.
_OTHER_WORK = re.compile(r"doc|lint|style|typ|mypy|pre.?commit|release|publish|build|bench|readme", re.IGNORECASE)


# --------------------------------------------------------------------------- installs


def brief_builder(
    model: Model, survey: Survey, targets: Sequence[Goal], env: Mapping[str, str], python: str, *, most_steps: int
) -> ModelBuilder:
    """A builder that works alone, with `most_steps` commands; beside them it takes up to `builder.OWN_STEPS` steps.
    Raises as `ModelPolicy` does."""
    turns = ModelPolicy(
        model,
        system=_BUILDER,
        task=install_task(survey, targets),
        stage=BUILDER_STAGE,
        allowed=frozenset({ActionKind.RUN, ActionKind.SUBMIT}),
        env=env,
        reply_tokens=model.context_tokens,
        most_shown=_MOST_SHOWN,
    )
    return ModelBuilder(turns, targets, dict(env), opening(python), most_steps=most_steps)


def install_task(survey: Survey, targets: Sequence[Goal]) -> str:
    """What is known of a project, on some ten lines. All of it comes from the repository: it is data."""
    lines = [f"{survey.first('project-name') or 'project'} {survey.first('project-version') or ''}".rstrip()]
    lines += [f"version from {source}" for source in survey.values("version-source")[:1]]
    lines += [f"needs: {names}" for names in [_names(f.value for f in survey.of("requirement"))] if names]
    groups: dict[str, list[str]] = {}
    for kind in ("extra-requirement", "group-requirement"):
        for fact in survey.of(kind):
            groups.setdefault(fact.group, []).append(fact.value)
    ordered = sorted(groups, key=lambda group: bool(_OTHER_WORK.search(group)))  # stable: as found, otherwise
    lines += [f"{group}: {_names(groups[group])}" for group in islice(ordered, _MOST_GROUPS)]
    imports = dict.fromkeys(fact.value for fact in survey.of("test-import") if not fact.group)
    if imports:
        lines.append(f"tests import: {', '.join(islice(imports, _MOST_NAMES))}")
    commands = [goal.command.splitlines()[0] for goal in targets if "pytest" in goal.command]
    lines += [f"run: {command[:120]}" for command in commands[:1]]
    return as_data("\n".join(lines), "project")


def _names(requirements: Iterable[str]) -> str:
    """The requirements without their markers, each once."""
    found: dict[str, None] = {}
    for text in requirements:
        try:
            parsed = Requirement(text)
        except InvalidRequirement:
            continue
        found[without_marker(parsed)] = None
    return ", ".join(islice(found, _MOST_NAMES))


def without_marker(requirement: Requirement) -> str:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}"


# --------------------------------------------------------------------------- tasks


@dataclass(frozen=True)
class Excerpt:
    """The code that a task is about, as it is where the policy starts. `path` is relative to the workspace, `first` and
    `last` count lines from 1."""

    path: str
    first: int
    last: int
    text: str


def excerpt(task: Task) -> Excerpt | None:
    """The function that the task's statement names; None where it names none, the code is not in one piece of Python,
    or is too long for a brief look."""
    named = re.search(r"^`([\w.]+)` \((?:\w+ ?)+\) in `([^`\n]+)`$", task.statement, re.MULTILINE)
    if named is None:
        return None
    change = next((change for change in task.changes if change.path == named[2]), None)
    if change is None or change.after is None:
        return None
    try:
        tree = tree_of(change.after)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = _definition(tree, named[1].split("."))
    if found is None or found.end_lineno is None:
        return None
    first = min([found.lineno, *(each.lineno for each in found.decorator_list)])
    text = "\n".join(change.after.split("\n")[first - 1 : found.end_lineno])
    return Excerpt(named[2], first, found.end_lineno, text) if len(text) <= _LONGEST_CODE else None


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _definition(tree: ast.AST, names: Sequence[str]) -> _Definition | None:
    """The definition with this dotted name."""
    for node in ast.walk(tree):
        if isinstance(node, _Definition) and node.name == names[0]:
            return node if len(names) == 1 else _definition(ast.Module(node.body, []), names[1:])
    return None


def solver_task(task: Task, code: Excerpt) -> str:
    """The code, and what fails. All of it comes from the repository: it is data."""
    said = task.statement.partition("## What fails")[2].partition("## How to see it")[0].strip()
    return f"{code.path}\n{as_data(code.text, 'code')}\n{as_data(said[:_LONGEST_SAID], 'fails')}"


class BriefSolver:
    """A `Policy`: one edit, which is submitted. Where it does not fit the file, the model is told why and may try
    again, up to `most_steps` replies in all. Raises as `ModelPolicy` does."""

    def __init__(self, model: Model, task: Task, code: Excerpt, *, most_steps: int) -> None:
        self._turns = ModelPolicy(
            model,
            system=_SOLVER,
            task=solver_task(task, code),
            stage=SOLVER_STAGE,
            allowed=frozenset({ActionKind.EDIT}),
            reply_tokens=model.context_tokens,
            most_shown=_MOST_SHOWN,
        )
        self._left = most_steps
        self._last: Action | None = None

    def act(self, observation: Observation) -> Action:
        last = self._last
        if last is not None and last.kind is ActionKind.EDIT and (observation.result is None or observation.result.ok):
            return Action(ActionKind.SUBMIT)
        if self._left <= 0:
            return _gave_up("no edit that fits the file")
        self._left -= 1
        try:
            action = self._turns.act(observation)
        except ContextOverflowError as error:
            return _gave_up(error.what)
        self._last = replace(action, user=USER)
        return self._last


def _gave_up(detail: str) -> Action:
    return Action(ActionKind.SUBMIT, ok=False, reason=Reason.POLICY_GAVE_UP, detail=detail)
