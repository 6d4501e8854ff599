"""From the words of the command line to who solves tasks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.errors import UsageError

if TYPE_CHECKING:
    from ratchet.policies.budget import Meter
    from ratchet.protocols import Model, Policy
    from ratchet.records import Action, Environment
    from ratchet.rollout import MakePolicy
    from ratchet.store import Store
    from ratchet.task_records import Task

_LARGEST_SCRIPT_BYTES = 16 << 20


@dataclass(frozen=True)
class Contestant:
    """`name` is what its rollouts are known by: what decides otherwise has another name."""

    name: str
    make: MakePolicy
    rolls_back: bool


def contestant(text: str, store: Store, meter: Meter) -> Contestant:
    """`reference`, `nothing`, `script:FILE`, or a model as in `profiles.parse_model`. Raises UsageError."""
    from ratchet.policies.budget import require_prices
    from ratchet.policies.chat import ChatModel
    from ratchet.policies.profiles import parse_model
    from ratchet.policies.scripted import ScriptedPolicy
    from ratchet.tasks.baselines import NOTHING, reference_actions

    if text == "reference":
        return Contestant(text, lambda task, _: ScriptedPolicy(reference_actions(task)), rolls_back=False)
    if text == "nothing":
        return Contestant(text, lambda _, __: ScriptedPolicy(NOTHING), rolls_back=False)
    environments: dict[str, Environment] = {}
    if text.startswith("script:"):
        return _script(Path(text.removeprefix("script:")), partial(_variables, store, environments))
    profile = parse_model(text)
    require_prices(meter.budget, profile)
    model = ChatModel(profile, meter)
    return Contestant(profile.name, partial(_solver, model, store, environments), rolls_back=True)


def _solver(model: Model, store: Store, environments: dict[str, Environment], task: Task, _sample: int) -> Policy:
    from ratchet.policies.model.solver import solver

    return solver(model, task, env=_variables(store, environments, task))


def _variables(store: Store, environments: dict[str, Environment], task: Task) -> dict[str, str]:
    """What commands in the task's environment get."""
    from ratchet.records import Environment

    if task.environment not in environments:
        environments[task.environment] = store.get("environment", task.environment, Environment)
    return dict(environments[task.environment].recipe.env)


def _script(path: Path, variables: Any) -> Contestant:
    """The actions in a file, by the ordinary user and with the environment's variables where they say nothing else."""
    from dataclasses import replace

    from ratchet.policies.scripted import ScriptedPolicy
    from ratchet.records import ActionKind, content_id

    actions = read_script(path)

    def make(task: Task, _sample: int) -> Policy:
        env = variables(task)
        return ScriptedPolicy(replace(action, env={**env, **action.env}) for action in actions)

    rolls_back = any(action.kind is ActionKind.ROLLBACK for action in actions)
    return Contestant(f"script:{path.name}@{content_id(list(actions))[:8]}", make, rolls_back)


def read_script(path: Path) -> tuple[Action, ...]:
    """The actions in a JSON file: a list of objects with the fields of `records.Action`. Raises UsageError."""
    from cattrs.errors import BaseValidationError

    from ratchet.policies.targets import USER
    from ratchet.records import Action, from_json

    example = '[{"kind": "run", "command": "ls"}, {"kind": "submit"}]'
    try:
        with path.open("rb") as file:
            data = json.loads(file.read(_LARGEST_SCRIPT_BYTES))
        return from_json([{"user": USER, **entry} for entry in data], tuple[Action, ...])
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", remedy="check the path") from error
    except (ValueError, TypeError, RecursionError, BaseValidationError) as error:
        what = f"{path} is no list of actions ({type(error).__name__})"
        raise UsageError(what, remedy=f"write a JSON list like {example}") from error
