"""What people prefer (RLHF): labelled pairs of rollouts, and a reward model fitted on them.

The model is Bradley and Terry's (Rank analysis of incomplete block designs, 1952): the odds that one rollout is
preferred to another are exp(v(one) - v(other)), where the value v is linear in a few features. That is a logistic
regression without intercept on the differences of the features.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.errors import MachineError, StoreError, UsageError
from ratchet.patches import added_lines, removed_lines
from ratchet.records import content_id
from ratchet.rewards.behaviour import behaviour
from ratchet.rewards.tests import solved, unit_tests
from ratchet.store import Store
from ratchet.task_records import Rollout, Task

PREFERENCE = "preference"
REWARD_MODEL = "reward-model"

FEATURES = (
    "solved",
    "unit_tests",
    "behaviour",
    "changed_lines",
    "changed_files",
    "steps",
    "tokens",
    "flags",
    "decisive_flags",
    "untested",
)
LEAST_PAIRS = 10
MOST_FOLDS = 5


@dataclass(frozen=True)
class Preference:
    """An answer: of two rollouts of one task, shown as a and b, which is better. `answer` is "a", "b" or "tie";
    `seed` decided which of them was shown as a."""

    task: str
    a: str
    b: str
    answer: str
    seed: int


@dataclass(frozen=True)
class RewardModel:
    """The value of a rollout is the sum of `coefficients` times its features, less `means`, over `scales`.

    `accuracy` is the share of `pairs` that a model predicted which was fitted on the other folds: of other tasks,
    where more than one task was labelled (`tasks`). `ties` were left out.
    """

    features: tuple[str, ...]
    coefficients: tuple[float, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    pairs: int
    ties: int
    tasks: int
    accuracy: float

    def value(self, features: Mapping[str, float]) -> float:
        """The log-odds to be preferred to the average of the labelled rollouts."""
        terms = zip(self.features, self.coefficients, self.means, self.scales, strict=True)
        return math.fsum(weight * (features[name] - mean) / scale for name, weight, mean, scale in terms)


def preferred(rollout: Rollout, task: Task, model: RewardModel | None) -> float:
    """From 0 to 1, the part of a reward: how likely it is preferred to the average of the labelled rollouts.
    UsageError without a model."""
    if model is None:
        raise UsageError(
            "there is no reward model for the part `preference`",
            remedy="`ratchet label` collects preferences and `ratchet label fit` fits one; or give it no weight",
        )
    if unknown := sorted(set(model.features) - set(FEATURES)):
        raise StoreError(
            f"the reward model uses {', '.join(unknown)}, which this release does not compute",
            remedy="fit it again: ratchet label fit",
        )
    return _sigmoid(model.value(features_of(rollout, task)))


def features_of(rollout: Rollout, task: Task) -> dict[str, float]:
    """What the reward model sees of a rollout, by the names in `FEATURES`. Amounts are logarithms, log(1 + x)."""
    flags = rollout.grade.flags if rollout.grade else ()
    lines = len(added_lines(rollout.patch)) + len(removed_lines(rollout.patch))
    return {
        "solved": float(rollout.grade is not None and solved(rollout.grade, task)),
        "unit_tests": unit_tests(rollout, task),
        "behaviour": behaviour(rollout, task) or 0.0,
        "changed_lines": math.log1p(lines),
        "changed_files": math.log1p(len(rollout.patch)),
        "steps": math.log1p(max(rollout.steps, 0)),
        "tokens": math.log1p(max(rollout.usage.tokens, 0)),
        "flags": float(len(flags)),
        "decisive_flags": float(sum(flag.decisive for flag in flags)),
        "untested": float(rollout.grade is None),
    }


# --------------------------------------------------------------------------- pairs


def pairs_to_label(
    rollouts: Iterable[Rollout], labelled: Iterable[Preference], seed: int
) -> Iterator[tuple[Rollout, Rollout]]:
    """Pairs of graded rollouts of one task with different patches, none of them labelled yet: one of each task in
    turn. The seed decides their order, and which of a pair is shown first."""
    known = {frozenset((preference.a, preference.b)) for preference in labelled}
    by_task: dict[str, list[Rollout]] = {}
    for rollout in sorted(rollouts, key=lambda rollout: rollout.id):
        if rollout.grade is not None and rollout.failure is None:
            by_task.setdefault(rollout.task, []).append(rollout)
    rng = random.Random(seed)  # noqa: S311 - to be reproducible
    queues = []
    for _, of_task in sorted(by_task.items()):
        pairs = [rng.sample(pair, 2) for pair in itertools.combinations(of_task, 2) if pair[0].patch != pair[1].patch]
        rng.shuffle(pairs)
        queues.append([(a, b) for a, b in pairs if frozenset((a.id, b.id)) not in known])
    rng.shuffle(queues)
    for row in itertools.zip_longest(*queues):
        yield from (pair for pair in row if pair is not None)


def store_preference(store: Store, preference: Preference) -> str:
    """Store an answer; another one on the same pair takes its place."""
    return store.put(PREFERENCE, preference, id=content_id([preference.task, *sorted((preference.a, preference.b))]))


# --------------------------------------------------------------------------- fitting


def fit(preferences: Iterable[Preference], rollouts: Mapping[str, Rollout], tasks: Mapping[str, Task]) -> RewardModel:
    """The reward model that explains the preferences best. Those whose rollouts or task are gone are left out.

    Raises UsageError where there are fewer than `LEAST_PAIRS` decided pairs, or the same side was always preferred.
    """
    usable = [p for p in preferences if p.task in tasks and p.a in rollouts and p.b in rollouts]
    decided = [preference for preference in usable if preference.answer in ("a", "b")]
    _refuse_too_few(decided)
    rows = [[_row(rollouts[name], tasks[p.task]) for name in (p.a, p.b)] for p in decided]
    left_is_better = [preference.answer == "a" for preference in decided]
    groups = [preference.task for preference in decided]
    coefficients, means, scales = _coefficients(rows, left_is_better)
    return RewardModel(
        features=FEATURES,
        coefficients=coefficients,
        means=means,
        scales=scales,
        pairs=len(decided),
        ties=len(usable) - len(decided),
        tasks=len(set(groups)),
        accuracy=_cross_validated(rows, left_is_better, groups),
    )


def stored_model(store: Store) -> RewardModel | None:
    """The reward model that was fitted last."""
    return store.latest(REWARD_MODEL, "latest", RewardModel)


def store_model(store: Store, model: RewardModel) -> str:
    record = store.put(REWARD_MODEL, model)
    store.link(REWARD_MODEL, "latest", record)
    return record


def _refuse_too_few(decided: Sequence[Preference]) -> None:
    if len(decided) < LEAST_PAIRS:
        raise UsageError(
            f"{len(decided)} decided pairs are too few to fit a reward model on",
            remedy=f"label at least {LEAST_PAIRS}: ratchet label",
        )
    if len({preference.answer for preference in decided}) < 2:
        raise UsageError(
            f"all {len(decided)} answers prefer {decided[0].answer}: they tell of the side, not of the rollouts",
            remedy="label more pairs, reading both patches: ratchet label",
        )


def _row(rollout: Rollout, task: Task) -> list[float]:
    features = features_of(rollout, task)
    return [features[name] for name in FEATURES]


_Pairs = Sequence[Sequence[Sequence[float]]]  # by pair, side, feature
_Floats = tuple[float, ...]


def _coefficients(rows: _Pairs, left_is_better: Sequence[bool]) -> tuple[_Floats, _Floats, _Floats]:
    """The coefficients of the standardised features, the features' means and their scales."""
    np, linear_model, _, preprocessing = _libraries()
    pairs = np.asarray(rows, dtype=float)
    scaler = preprocessing.StandardScaler().fit(pairs.reshape(-1, pairs.shape[-1]))
    differences = (pairs[:, 0] - pairs[:, 1]) / scaler.scale_
    # Each pair also the other way round: the same likelihood, and both classes in every fold. Half the weight, so that
    # a pair counts once against the regularisation.
    both = np.concatenate([differences, -differences])
    labels = np.concatenate([np.asarray(left_is_better), ~np.asarray(left_is_better)])
    model = linear_model.LogisticRegression(fit_intercept=False, C=1.0, max_iter=1000)
    model.fit(both, labels, sample_weight=np.full(len(labels), 0.5))
    return tuple(model.coef_[0].tolist()), tuple(scaler.mean_.tolist()), tuple(scaler.scale_.tolist())


def _cross_validated(rows: _Pairs, left_is_better: Sequence[bool], groups: Sequence[str]) -> float:
    """The share of pairs that are predicted by a model which was fitted on the other folds."""
    np, _, model_selection, _ = _libraries()
    distinct = len(set(groups))
    if distinct > 1:
        splits = model_selection.GroupKFold(min(MOST_FOLDS, distinct)).split(rows, groups=groups)
    else:
        splits = model_selection.KFold(min(MOST_FOLDS, len(rows)), shuffle=True, random_state=0).split(rows)
    right = 0
    for learnt, held_out in splits:
        coefficients, _, scales = _coefficients([rows[i] for i in learnt], [left_is_better[i] for i in learnt])
        weights = np.asarray(coefficients) / np.asarray(scales)
        for i in held_out:
            value = float((np.asarray(rows[i][0]) - np.asarray(rows[i][1])) @ weights)
            right += value != 0 and (value > 0) == left_is_better[i]
    return right / len(rows)


def _libraries() -> tuple[Any, Any, Any, Any]:
    try:
        import numpy as np
        from sklearn import linear_model, model_selection, preprocessing  # type: ignore[import-untyped]
    except ImportError as error:
        raise MachineError(
            f"fitting a reward model needs scikit-learn ({error})",
            remedy='install it: pip install "ratchet-rl[preferences]"',
        ) from error
    return np, linear_model, model_selection, preprocessing


def _sigmoid(x: float) -> float:
    """1 / (1 + exp(-x)), without overflow."""
    return 0.5 * (1.0 + math.tanh(0.5 * x))
