"""Supervised fine-tuning on the tokens of verified tries (rejection sampling), with TRL's SFTTrainer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

from ratchet.errors import UsageError
from ratchet.policies.local.loading import load
from ratchet.task_records import TokenTrace
from ratchet.train.checkpoints import Record, keep, last_whole
from ratchet.train.config import Tell, WarmStart
from ratchet.train.lora import adapters


def warm_start(
    checkpoint: Path,
    traces: Sequence[TokenTrace],
    target: Path,
    folder: Path,
    config: WarmStart,
    *,
    seed: int = 0,
    tell: Tell = lambda _: None,
) -> None:
    """Train `checkpoint` on `traces` and save it as `target`. Only tokens that a model sampled are learnt (`mask`).

    What is under way is in `folder`: the same call goes on after the last whole checkpoint there, and ends with the
    same weights as one that was not interrupted. Raises UsageError where no trace can be learnt from.
    """
    usable = [trace for trace in traces if len(trace.ids) <= config.most_tokens and any(trace.mask)]
    if not usable:
        raise UsageError(
            f"none of the {len(traces)} verified tries can be learnt from", remedy="raise most_tokens, or make lessons"
        )
    folder.mkdir(parents=True, exist_ok=True)
    batch = min(config.batch, len(usable))
    at_once = next(each for each in range(min(config.at_once, batch), 0, -1) if batch % each == 0)
    resumed = last_whole(folder)
    arguments = SFTConfig(
        output_dir=str(folder),
        num_train_epochs=config.epochs,
        per_device_train_batch_size=at_once,
        gradient_accumulation_steps=batch // at_once,
        learning_rate=config.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=2,
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,
        bf16=torch.cuda.is_available(),
        gradient_checkpointing=False,
        logging_steps=1,
        save_steps=config.save_every,
        save_total_limit=2,
        seed=seed,
        report_to=config.reporter,
        disable_tqdm=True,
    )
    tokenizer = AutoTokenizer.from_pretrained(checkpoint, local_files_only=True)
    trainer = SFTTrainer(
        model=load(checkpoint, "float32"),
        args=arguments,
        train_dataset=_dataset(usable),
        processing_class=tokenizer,
        peft_config=adapters(config.lora_rank),
        callbacks=[Record(folder, tell, lambda: {"left_out": len(traces) - len(usable)})],
    )
    trainer.train(resume_from_checkpoint=str(resumed) if resumed else None)
    keep(trainer.model, tokenizer, target)


def _dataset(traces: Sequence[TokenTrace]) -> Dataset:
    rows: list[dict[str, Any]] = [
        {
            "input_ids": list(trace.ids),
            "labels": [token if mine else -100 for token, mine in zip(trace.ids, trace.mask, strict=True)],
        }
        for trace in traces
    ]
    return Dataset.from_list(rows)
