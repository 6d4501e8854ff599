"""Rewards: pure functions of a recorded rollout and its task. Nothing is run: another configuration scores the same
records anew."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ratchet.errors import UsageError
from ratchet.rewards.behaviour import behaviour
from ratchet.rewards.build import build
from ratchet.rewards.config import COSTS, DEFAULT, GAINS, RewardConfig, load_config
from ratchet.rewards.cost import cost
from ratchet.rewards.judge import RolloutOpinion, judged, opinion_of
from ratchet.rewards.preference import RewardModel, preferred, stored_model
from ratchet.rewards.tests import solved, unit_tests
from ratchet.store import Store
from ratchet.task_records import FailureKind, Reward, Rollout, Task

__all__ = ["DEFAULT", "RewardConfig", "load_config", "score", "score_stored", "solved", "unit_tests"]


def score(
    rollout: Rollout,
    task: Task,
    config: RewardConfig = DEFAULT,
    *,
    opinion: RolloutOpinion | None = None,
    model: RewardModel | None = None,
) -> Reward:
    """The reward of a rollout: `total` is from 0 to 1, and `parts` are what it was made of.

    The total is the mean, by weight, of the parts that are gained, of those that could be looked at; less the costs,
    which take at most the share `config.most` of it. It is 0 where the gate is shut, and where a flag is decisive: then
    there is a part "flagged". Costs are negative parts. A rollout that was not graded gains nothing.

    Raises UsageError for a rollout that failed by our infrastructure, which is never scored, for one of another task,
    and where the configuration gives weight to an opinion or a reward model that is not there.
    """
    if rollout.failure is FailureKind.INFRASTRUCTURE:
        raise UsageError(
            f"rollout {rollout.id[:12]} failed by the infrastructure, and is never scored", remedy="run it again"
        )
    if rollout.task != task.id:
        raise UsageError(f"rollout {rollout.id[:12]} is of task {rollout.task[:12]}, not {task.id[:12]}")
    gains = _gains(rollout, task)
    if config.weight("judge") or opinion is not None:
        gains["judge"] = judged(rollout, opinion)
    if config.weight("preference") or model is not None:
        gains["preference"] = preferred(rollout, task, model)
    costs = cost(rollout, config.k, config.q)
    parts = gains | costs
    if rollout.grade is not None and any(flag.decisive for flag in rollout.grade.flags):
        return Reward(0.0, parts | {"flagged": 1.0}, config.name)
    if rollout.grade is None or (config.gate == "solved" and not gains["solved"]):
        return Reward(0.0, parts, config.name)
    gained = _mean(gains, config)
    spent = min(-math.fsum(config.weight(name) * costs[name] for name in COSTS), config.most * gained)
    return Reward(gained - spent, parts, config.name)


def score_stored(store: Store, rollout: Rollout, task: Task, config: RewardConfig = DEFAULT) -> Reward:
    """As `score`, with the opinion and the reward model that are in the store, where the configuration wants them."""
    opinion = opinion_of(store, rollout) if config.weight("judge") else None
    model = stored_model(store) if config.weight("preference") else None
    return score(rollout, task, config, opinion=opinion, model=model)


def _gains(rollout: Rollout, task: Task) -> dict[str, float]:
    parts = {
        "solved": float(rollout.grade is not None and solved(rollout.grade, task)),
        "unit_tests": unit_tests(rollout, task),
        **build(rollout),
    }
    matched = behaviour(rollout, task)
    return parts if matched is None else parts | {"behaviour": matched}


def _mean(gains: Mapping[str, float], config: RewardConfig) -> float:
    weights = {name: config.weight(name) for name in GAINS if name in gains}
    total = math.fsum(weights.values())
    return math.fsum(weights[name] * gains[name] for name in weights) / total if total else 0.0
