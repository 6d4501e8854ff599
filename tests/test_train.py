"""Learning is what it says: with the real trainers, on a tiny real model."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from ratchet.errors import UsageError  # noqa: E402
from ratchet.generation_records import Problem, ProblemKind, Sample  # noqa: E402
from ratchet.policies.local.templates import read_tokens  # noqa: E402
from ratchet.policies.local.weights import weights_hash  # noqa: E402
from ratchet.records import to_json  # noqa: E402
from ratchet.task_records import FailureKind, TokenTrace  # noqa: E402
from ratchet.train import reinforce as reinforce_module  # noqa: E402
from ratchet.train.checkpoints import read_metrics  # noqa: E402
from ratchet.train.config import Reinforce, WarmStart, check, from_table  # noqa: E402
from ratchet.train.reinforce import logprobs_of, reinforce  # noqa: E402
from ratchet.train.warm_start import warm_start  # noqa: E402
from ratchet.train.worker import WarmStartJob  # noqa: E402
from tiny_model import tiny_checkpoint  # noqa: E402

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

PROBLEMS = tuple(Problem(ProblemKind.TASK, f"problem-{n}", f"repository-{n}") for n in range(3))
PROMPT = (5, 6, 7, 8)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny_checkpoint(tmp_path_factory.mktemp("tiny"))


class Bandit:
    """One arm for each token; half of the arms pay. One try is one token, or `length` of them. Many tries `at_once` are
    one batch, but not always with the same chances."""

    def __init__(self, length=1, stop_at=None, at_once=1):
        self.at_once = at_once
        self.length = length
        self.stop_at = stop_at
        self.sampled = []

    def __call__(self, sampler, step, wanted):
        if step == self.stop_at:
            raise KeyboardInterrupt
        with ThreadPoolExecutor(self.at_once) as threads:
            return list(threads.map(lambda each: self.one(sampler, *each), wanted))

    def one(self, sampler, problem, sample):
        got = sampler.sample(PROMPT, max_tokens=self.length, temperature=1.0)
        self.sampled.append(got)
        mask = (0,) * len(PROMPT) + (1,) * len(got.token_ids)
        trace = TokenTrace(PROMPT + got.token_ids, mask, (0.0,) * len(PROMPT) + got.logprobs)
        reward = float(got.token_ids[0] % 2)
        return Sample(problem.id, sample, bool(reward), True, reward, trace=trace, traces=1, completion_tokens=1)


def weights(checkpoint):
    from safetensors.torch import load_file

    return load_file(checkpoint / "model.safetensors")


def same(one, other):
    a, b = weights(one), weights(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# --------------------------------------------------------------------------- reinforcement learning


def test_a_bandit_is_learnt(checkpoint, tmp_path):
    config = Reinforce(steps=30, problems=1, samples=32, learning_rate=2e-2, most_tokens=4, at_once=32, save_every=10)
    reinforce(checkpoint, PROBLEMS, Bandit(at_once=32), tmp_path / "new", tmp_path / "run", config)
    rewards = [row["reward"] for row in read_metrics(tmp_path / "run")]
    assert sum(rewards[:2]) / 2 < 0.8
    assert sum(rewards[-3:]) / 3 > 0.9
    assert not same(checkpoint, tmp_path / "new")


def test_adapters_learn_too_and_are_merged(tmp_path):
    checkpoint = tiny_checkpoint(tmp_path / "tiny", head=20)  # the last matrix gets no adapter, and is chance
    config = Reinforce(
        steps=40, problems=1, samples=32, learning_rate=1e-2, most_tokens=4, at_once=32, save_every=10, lora_rank=8
    )
    reinforce(checkpoint, PROBLEMS[:1], Bandit(at_once=32), tmp_path / "new", tmp_path / "run", config)
    rewards = [row["reward"] for row in read_metrics(tmp_path / "run")]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.2
    assert weights(tmp_path / "new").keys() == weights(checkpoint).keys()


def losses(checkpoint, tmp_path, monkeypatch, config, play):
    """What the trainer computed its losses from, in one update: (inputs, the trainer's log-probabilities, the loss)."""
    seen = []
    found = []
    trainer = reinforce_module._Trainer
    compute_loss, compute_logprobs = trainer._compute_loss, trainer._get_per_token_logps_and_entropies

    def spied(self, model, inputs):
        loss = compute_loss(self, model, inputs)
        seen.append((reinforce_module.trimmed(inputs), found[-1], loss.detach()))
        return loss

    def kept(self, *args, **kwargs):
        computed = compute_logprobs(self, *args, **kwargs)
        found.append(computed[0].detach())
        return computed

    monkeypatch.setattr(trainer, "_compute_loss", spied)
    monkeypatch.setattr(trainer, "_get_per_token_logps_and_entropies", kept)
    reinforce(checkpoint, PROBLEMS, play, tmp_path / "new", tmp_path / "run", config)
    return seen


def test_the_trainer_finds_the_log_probabilities_of_sampling_again(checkpoint, tmp_path, monkeypatch):
    play = Bandit(length=12)
    config = Reinforce(steps=1, problems=2, samples=4, most_tokens=16, at_once=8, beta=0.01)
    ((inputs, found, _),) = losses(checkpoint, tmp_path, monkeypatch, config, play)
    mask = inputs["tool_mask"] * inputs["completion_mask"] == 1
    assert mask.sum() == sum(len(each.token_ids) for each in play.sampled)
    assert torch.allclose(found[mask], inputs["sampling_per_token_logps"][mask], atol=1e-4)


def test_the_loss_is_that_of_dr_grpo_by_hand(checkpoint, tmp_path, monkeypatch):
    play = Bandit(length=6)
    config = Reinforce(steps=1, problems=1, samples=4, most_tokens=10, at_once=4)
    ((inputs, _, loss),) = losses(checkpoint, tmp_path, monkeypatch, config, play)
    rewards = [float(each.token_ids[0] % 2) for each in play.sampled]
    mean = sum(rewards) / 4
    assert sorted(inputs["advantages"].tolist()) == pytest.approx(sorted(r - mean for r in rewards))
    # On the policy that sampled, each ratio is 1: minus the advantage of every token, over 4 sequences of 10 tokens.
    by_hand = -sum((r - mean) * len(each.token_ids) for r, each in zip(rewards, play.sampled, strict=True)) / (4 * 10)
    assert float(loss) == pytest.approx(by_hand, abs=1e-6)


class Interrupted(Bandit):
    """A try is three tokens, two of the environment, and three tokens; `said` is what the environment says."""

    def __init__(self, said, logprobs=None):
        super().__init__()
        self.said = said

    def one(self, sampler, problem, sample):
        first = sampler.sample(PROMPT, max_tokens=3)
        middle = PROMPT + first.token_ids + self.said
        second = sampler.sample(middle, max_tokens=3)
        ids = middle + second.token_ids
        mask = (0,) * 4 + (1,) * len(first.token_ids) + (0,) * len(self.said) + (1,) * len(second.token_ids)
        logprobs = (0.0,) * 4 + first.logprobs + (0.0,) * len(self.said) + second.logprobs
        reward = float(sample % 2)
        return Sample(problem.id, sample, False, False, reward, trace=TokenTrace(ids, mask, logprobs), traces=1)


def test_what_the_environment_said_gets_no_gradient(checkpoint, tmp_path, monkeypatch):
    config = Reinforce(steps=1, problems=1, samples=4, most_tokens=16, at_once=4)
    original = reinforce_module._Trainer._get_per_token_logps_and_entropies
    leaves = []

    def leafed(self, *args, **kwargs):
        logps, *rest = original(self, *args, **kwargs)
        logps.retain_grad()
        leaves.append(logps)
        return (logps, *rest)

    monkeypatch.setattr(reinforce_module._Trainer, "_get_per_token_logps_and_entropies", leafed)
    ((inputs, _, _),) = losses(checkpoint, tmp_path, monkeypatch, config, Interrupted((9, 10)))
    gradient, mask = leaves[-1].grad, inputs["tool_mask"] * inputs["completion_mask"]
    assert mask[:, 3:5].sum() == 0
    assert (gradient[mask == 0] == 0).all()
    assert (gradient[mask == 1] != 0).all()


def test_a_group_without_signal_and_a_failed_machine_teach_nothing(checkpoint, tmp_path):
    class Useless(Bandit):
        def one(self, sampler, problem, sample):
            done = super().one(sampler, problem, sample)
            if sample == 0:
                return Sample(problem.id, 0, False, False, None, failure=FailureKind.INFRASTRUCTURE)
            return replace(done, reward=1.0)

    config = Reinforce(steps=1, problems=2, samples=4, most_tokens=8, learning_rate=1.0)
    reinforce(checkpoint, PROBLEMS, Useless(), tmp_path / "new", tmp_path / "run", config)
    (row,) = read_metrics(tmp_path / "run")
    assert row["groups_without_signal"] == 2
    assert row["infrastructure_failures"] == 2
    assert row["reward"] == 1
    assert same(checkpoint, tmp_path / "new")


def test_reinforcement_that_was_stopped_ends_with_the_same_weights(checkpoint, tmp_path):
    config = Reinforce(steps=4, problems=2, samples=4, learning_rate=1e-2, most_tokens=8, at_once=4)
    reinforce(checkpoint, PROBLEMS, Bandit(4), tmp_path / "whole", tmp_path / "a", config, seed=3)
    with pytest.raises(KeyboardInterrupt):
        reinforce(checkpoint, PROBLEMS, Bandit(4, stop_at=2), tmp_path / "parts", tmp_path / "b", config, seed=3)
    assert not (tmp_path / "parts").exists()
    (tmp_path / "b" / "checkpoint-9").mkdir()  # one that was being written when the process died
    reinforce(checkpoint, PROBLEMS, Bandit(4), tmp_path / "parts", tmp_path / "b", config, seed=3)
    assert same(tmp_path / "whole", tmp_path / "parts")
    assert [row["step"] for row in read_metrics(tmp_path / "b")] == [1, 2, 3, 4]


def test_nothing_to_train_on_is_said(checkpoint, tmp_path):
    with pytest.raises(UsageError, match="no problem"):
        reinforce(checkpoint, (), Bandit(), tmp_path / "new", tmp_path / "run", Reinforce())


# --------------------------------------------------------------------------- warm start


def trace(checkpoint, prompt, reply):
    tokens = read_tokens(checkpoint)
    given, said = tokens.encode(prompt), (*tokens.encode(reply), tokens.end)
    return TokenTrace(given + said, (0,) * len(given) + (1,) * len(said))


def test_what_was_verified_becomes_likely(checkpoint, tmp_path):
    from ratchet.policies.local.loading import load

    lesson = trace(checkpoint, "install: ", "uv pip install -e .")
    config = WarmStart(epochs=40, learning_rate=1e-2, batch=2)
    warm_start(checkpoint, [lesson, lesson], tmp_path / "new", tmp_path / "run", config)
    with torch.no_grad():
        before = float(logprobs_of(load(checkpoint), lesson).mean())
        after = float(logprobs_of(load(tmp_path / "new"), lesson).mean())
    assert before < -4
    assert after > -0.5


def test_tokens_of_others_are_not_learnt(checkpoint, tmp_path):
    lesson = trace(checkpoint, "ab", "cd")
    ids, mask = lesson.ids, lesson.mask
    config = WarmStart(epochs=2, learning_rate=1e-2)
    for name, last in (("one", 11), ("other", 12)):  # what follows the last sampled token is context for nothing
        given = TokenTrace((*ids, last), (*mask, 0))
        warm_start(checkpoint, [given], tmp_path / name, tmp_path / f"run-{name}", config)
    assert same(tmp_path / "one", tmp_path / "other")
    assert not same(tmp_path / "one", checkpoint)


def test_traces_that_are_too_long_are_left_out_and_counted(checkpoint, tmp_path):
    short, long = trace(checkpoint, "a", "b"), trace(checkpoint, "a" * 50, "b")
    config = WarmStart(epochs=1, most_tokens=20)
    warm_start(checkpoint, [short, long], tmp_path / "new", tmp_path / "run", config)
    assert read_metrics(tmp_path / "run")[-1]["left_out"] == 1
    with pytest.raises(UsageError, match="none of the 1 verified tries"):
        warm_start(checkpoint, [long], tmp_path / "new2", tmp_path / "run2", config)


def test_a_killed_warm_start_ends_with_the_same_weights(checkpoint, tmp_path):
    traces = tuple(trace(checkpoint, f"{n}: ", f"say {n}") for n in range(6))
    config = WarmStart(epochs=4, learning_rate=1e-2, batch=2)

    def start(name):
        job = WarmStartJob(str(checkpoint), str(tmp_path / name), str(tmp_path / f"run-{name}"), config, 1, traces)
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({"kind": "WarmStartJob", "job": to_json(job)}))
        command = [sys.executable, "-m", "ratchet.train.worker", str(file)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    for name, kill_at in (("whole", None), ("parts", 5), ("parts", None)):
        with start(name) as process:
            for line in process.stdout:
                if json.loads(line)["step"] == kill_at:
                    process.send_signal(signal.SIGKILL)
                    break
        assert process.returncode == (-signal.SIGKILL if kill_at else 0)
        assert Path(tmp_path / name).exists() == (kill_at is None)
    assert same(tmp_path / "whole", tmp_path / "parts")
    assert weights_hash(tmp_path / "whole") == weights_hash(tmp_path / "parts")
    assert [row["step"] for row in read_metrics(tmp_path / "run-parts")] == list(range(1, 13))


# --------------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("kind", "table", "said"),
    [
        (Reinforce, {"samples": 1}, "samples is 1"),
        (Reinforce, {"vllm": "maybe"}, "vllm knows no maybe"),
        (Reinforce, {"problems": 3, "samples": 3, "at_once": 2}, "does not divide"),
        (Reinforce, {"steps": -1}, "steps has to be"),
        (Reinforce, {"kl": 1}, "kl has to be"),
        (WarmStart, {"learning_rate": 0}, "learning_rate is 0"),
        (WarmStart, {"epoch": 1}, "there is no epoch"),
        (WarmStart, {"learning_rate": "high"}, "learning_rate has to be"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(kind, table, said):
    with pytest.raises(UsageError, match=said):
        check(from_table(kind, table, "here"), "here")
