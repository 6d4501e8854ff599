"""Reinforcement learning with TRL's GRPOTrainer: our tries at problems are its rollouts.

One update: `play` tries each of some problems several times with the model as it is, the trainer computes the advantage
of each try within its group, and learns from the tokens that the model sampled. What the environment said is context
and gets no gradient. See `config.Reinforce` for the form of the loss.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import torch
from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from ratchet.errors import RatchetError, UsageError
from ratchet.generation_records import Problem, Sample
from ratchet.policies.local.engine import Engine
from ratchet.policies.local.loading import load
from ratchet.policies.local.templates import Tokens, read_tokens
from ratchet.protocols import Sampler
from ratchet.task_records import FailureKind, TokenTrace
from ratchet.train.checkpoints import Record, keep, last_whole
from ratchet.train.config import Reinforce, Tell
from ratchet.train.lora import adapters

Item = TypeVar("Item")

Play = Callable[[Sampler, int, Sequence[tuple[Problem, int]]], Sequence[Sample]]
"""Tries problems with what a sampler samples: (the sampler, how many updates were made before, which tries) gives one
`Sample` for each try, in their order."""


def reinforce(
    checkpoint: Path,
    problems: Sequence[Problem],
    play: Play,
    target: Path,
    folder: Path,
    config: Reinforce,
    *,
    seed: int = 0,
    tell: Tell = lambda _: None,
) -> None:
    """Train `checkpoint` on `problems` and save it as `target`.

    What is under way is in `folder`: the same call goes on after the last whole checkpoint there. Raises UsageError
    where there is nothing to train on, and whatever `play` raises.
    """
    if not problems:
        raise UsageError("there is no problem to train on", remedy="make tasks, or install the checkouts first")
    folder.mkdir(parents=True, exist_ok=True)
    each = min(config.problems, len(problems))
    config = replace(
        config, problems=each, at_once=config.at_once if each * config.samples % config.at_once == 0 else 1
    )
    schedule = list(islice(_schedule(problems, each, seed), config.steps))
    tokens = read_tokens(checkpoint)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint, local_files_only=True)
    resumed = last_whole(folder)
    tries = _Tries(schedule, play, tokens, config, checkpoint)
    trainer = _Trainer(
        model=load(checkpoint, "float32"),
        args=_arguments(folder, config, seed),
        reward_funcs=[tries.reward],
        rollout_func=tries,
        train_dataset=Dataset.from_list([{"prompt": str(n)} for n in range(len(schedule) * each)]),
        processing_class=tokenizer,
        peft_config=adapters(config.lora_rank),
        callbacks=[tries, Record(folder, tell, tries.numbers)],
    )
    tries.prepare(trainer)
    trainer.train(resume_from_checkpoint=str(resumed) if resumed else None)
    keep(trainer.accelerator.unwrap_model(trainer.model), tokenizer, target)


def _schedule(problems: Sequence[Problem], each: int, seed: int) -> Iterator[Sequence[Problem]]:
    """Endless batches of different problems: all of them in an order by chance, then all in another."""
    draw = random.Random(seed)  # noqa: S311  no secret
    ordered = sorted(problems, key=lambda problem: problem.id)
    while True:
        yield from _groups(draw.sample(ordered, len(ordered) - len(ordered) % each), each)


def _arguments(folder: Path, config: Reinforce, seed: int) -> GRPOConfig:
    whole = config.problems * config.samples
    return GRPOConfig(
        output_dir=str(folder),
        max_steps=config.steps,
        per_device_train_batch_size=config.at_once,
        gradient_accumulation_steps=whole // config.at_once,
        steps_per_generation=whole // config.at_once,
        num_generations=config.samples,
        learning_rate=config.learning_rate,
        lr_scheduler_type="constant",
        max_grad_norm=config.max_grad_norm,
        loss_type="dr_grpo",
        scale_rewards="none",
        beta=config.beta,
        temperature=config.temperature,
        max_completion_length=config.most_tokens,
        shuffle_dataset=False,  # the schedule is ours
        bf16=torch.cuda.is_available(),
        gradient_checkpointing=config.gradient_checkpointing,
        use_vllm=bool(config.vllm),
        vllm_mode=config.vllm or "colocate",
        logging_steps=1,
        save_steps=config.save_every,
        save_total_limit=2,
        seed=seed,
        report_to=config.reporter,
        disable_tqdm=True,
        remove_unused_columns=False,
    )


class _Trainer(GRPOTrainer):
    """Spares padding, and sequences that cannot teach anything."""

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        if self.beta == 0 and not inputs["advantages"].any():
            # A product with 0 would be the same, and cost as much as any other sequence.
            first: torch.Tensor = next(each for each in model.parameters() if each.requires_grad)
            return first.sum() * 0.0
        loss: torch.Tensor = super()._compute_loss(model, trimmed(inputs))  # type: ignore[no-untyped-call]
        return loss


def trimmed(inputs: dict[str, Any]) -> dict[str, Any]:
    """The same sequences without the columns that are padding in all of them: a batch was padded to its longest."""
    prompt = inputs["prompt_mask"].any(0)
    completion = inputs["completion_mask"].any(0)
    columns = {"prompt_ids": prompt, "prompt_mask": prompt}
    names = ("completion_ids", "completion_mask", "tool_mask", "old_per_token_logps", "ref_per_token_logps")
    columns |= dict.fromkeys((*names, "sampling_per_token_logps"), completion)
    return {
        name: value[:, columns[name]] if name in columns and torch.is_tensor(value) and value.dim() == 2 else value
        for name, value in inputs.items()
    }


class _Tries(TrainerCallback):
    """TRL's rollout function: plays the problems of an update, and counts what came of them."""

    def __init__(
        self,
        schedule: Sequence[Sequence[Problem]],
        play: Play,
        tokens: Tokens,
        config: Reinforce,
        checkpoint: Path,
    ) -> None:
        self._problems = list(chain.from_iterable(schedule))
        self._play = play
        self._tokens = tokens
        self._config = config
        self._checkpoint = checkpoint
        self._sampler: Sampler | None = None
        self._start: Any = None
        self._numbers: dict[str, float] = {}
        self._played = 0.0

    def prepare(self, trainer: Any) -> None:
        model = trainer.accelerator.unwrap_model(trainer.model)
        if self._config.vllm:
            from ratchet.train.vllm import VllmSampler

            self._sampler = VllmSampler(trainer, self._tokens)
        else:
            self._sampler = Engine(model, self._tokens)
        if self._config.kl and not self._config.lora_rank:
            self._start = load(self._checkpoint)

    # ------------------------------------------------------------------ one update

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        """The tries at the problems that `prompts` number: each number comes once for each try of a group."""
        began = time.monotonic()
        seen: dict[str, int] = {}
        wanted = []
        for prompt in prompts:
            wanted.append((self._problems[int(prompt)], seen.get(prompt, 0)))
            seen[prompt] = seen.get(prompt, 0) + 1
        assert self._sampler is not None
        samples = list(self._play(self._sampler, trainer.state.global_step, wanted))
        if len(samples) != len(wanted):
            raise RatchetError(f"of {len(wanted)} tries {len(samples)} came back", remedy="report this")
        self._played = time.monotonic()
        self._numbers = numbers_of(samples, self._config.samples, self._played - began)
        split = [_split(sample.trace, self._tokens) for sample in samples]
        if self._config.kl:
            self._numbers["kl_to_start"] = self._divergence(trainer, samples)
        return {
            "prompt_ids": [each[0] for each in split],
            "completion_ids": [each[1] for each in split],
            "logprobs": [each[3] for each in split],
            "env_mask": [each[2] for each in split],
            "scored": [None if sample.reward is None else float(sample.reward) for sample in samples],
        }

    def reward(self, *, scored: Sequence[float | None], **_: Any) -> list[float | None]:
        return list(scored)

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._numbers["seconds/update"] = time.monotonic() - self._played

    def numbers(self) -> Mapping[str, float]:
        total = sum(self._numbers.get(f"seconds/{name}", 0.0) for name in ("rollout", "grading", "update"))
        shares = {
            f"share/{name}": self._numbers.get(f"seconds/{name}", 0.0) / total if total else 0.0
            for name in ("rollout", "grading", "update")
        }
        return {**self._numbers, **shares}

    @torch.no_grad()
    def _divergence(self, trainer: Any, samples: Sequence[Sample]) -> float:
        """The mean over sampled tokens of exp(d) - d - 1, d = log p(start) - log p(now): Schulman's estimator "k3" of
        the Kullback-Leibler divergence."""
        total, count = 0.0, 0
        model = trainer.accelerator.unwrap_model(trainer.model)
        for trace in (sample.trace for sample in samples):
            if trace is None or not trace.logprobs:
                continue
            if self._start is None:
                with model.disable_adapter():
                    then = logprobs_of(model, trace, self._config.temperature)
            else:
                then = logprobs_of(self._start, trace, self._config.temperature)
            now = torch.tensor([p for p, mine in zip(trace.logprobs, trace.mask, strict=True) if mine])
            difference = then.cpu() - now
            total += float((difference.exp() - difference - 1).sum())
            count += len(now)
        return total / max(count, 1)


def logprobs_of(model: Any, trace: TokenTrace, temperature: float = 1.0) -> torch.Tensor:
    """What `model` gives the tokens that were sampled (`mask` 1), as natural logarithms."""
    device = next(model.parameters()).device
    ids = torch.tensor([trace.ids], device=device)
    logits = model(input_ids=ids).logits[0, :-1].float() / temperature
    logprobs = torch.log_softmax(logits, dim=-1).gather(1, ids[0, 1:, None])[:, 0]
    return logprobs[torch.tensor(trace.mask[1:], device=device).bool()]


def _split(trace: TokenTrace | None, tokens: Tokens) -> tuple[list[int], list[int], list[int], list[float]]:
    """Prompt, completion, the completion's mask, and its log-probabilities. The completion begins with the first token
    that was sampled; a try without any is one token that teaches nothing."""
    if trace is None or 1 not in trace.mask:
        return [tokens.pad], [tokens.pad], [0], [0.0]
    first = max(trace.mask.index(1), 1)
    last = len(trace.mask) - trace.mask[::-1].index(1)
    logprobs = trace.logprobs or (0.0,) * len(trace.ids)
    return (
        list(trace.ids[:first]),
        list(trace.ids[first:last]),
        list(trace.mask[first:last]),
        list(logprobs[first:last]),
    )


def numbers_of(samples: Sequence[Sample], group: int, seconds: float) -> dict[str, float]:
    """What of an update is logged. `seconds` is how long the tries took in all; grading has its share of it."""
    scored = [sample for sample in samples if sample.reward is not None]
    groups = [[s.reward for s in each if s.reward is not None] for each in _groups(samples, group)]
    acting = sum(sample.seconds.get("act", 0.0) for sample in samples)
    grading = sum(sample.seconds.get("grade", 0.0) for sample in samples)
    share = grading / (acting + grading) if acting + grading else 0.0
    tokens = sum(sample.completion_tokens for sample in samples)
    found = {
        "reward": _mean([s.reward for s in scored if s.reward is not None]),
        "passed": _mean([s.passed for s in scored]),
        "claimed_in_vain": _mean([s.claimed and not s.passed for s in scored]),
        "groups_without_signal": float(sum(len(set(group)) < 2 for group in groups)),
        "infrastructure_failures": float(sum(s.failure is FailureKind.INFRASTRUCTURE for s in samples)),
        "hack_flags": float(sum(bool(s.flags) for s in samples)),
        "without_tokens": float(sum(s.trace is None for s in samples)),
        "cut_traces": float(sum(s.traces > 1 for s in samples)),
        "actions": _mean([s.steps for s in scored]),
        "set_up_actions": float(sum(s.set_up for s in samples)),
        "sampled_tokens": tokens / max(len(samples), 1),
        "tokens_per_second": tokens / seconds if seconds else 0.0,
        "seconds/rollout": seconds * (1 - share),
        "seconds/grading": seconds * share,
    }
    for name in sorted({name for sample in scored for name in sample.parts}):
        found[f"part/{name}"] = _mean([sample.parts[name] for sample in scored if name in sample.parts])
    return found


def _groups(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
