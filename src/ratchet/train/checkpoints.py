"""What trainers leave on disk while they run: checkpoints that are whole, one line of numbers for each update, and the
result under its name only once all of it is there."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from ratchet.train.config import Tell

METRICS = "metrics.jsonl"

_WHOLE = "ratchet-whole"
_NAME = re.compile(r"checkpoint-(\d+)")


def last_whole(folder: Path) -> Path | None:
    """The newest checkpoint that was saved to its end. Removes those that were not, and the numbers of updates after
    it, which will be made again."""
    found: dict[int, Path] = {}
    for path in folder.glob("checkpoint-*"):
        name = _NAME.fullmatch(path.name)
        if name is None:
            continue
        if (path / _WHOLE).is_file():
            found[int(name[1])] = path
        else:
            shutil.rmtree(path, ignore_errors=True)
    last = max(found, default=0)
    rows = [row for row in read_metrics(folder) if row["step"] <= last]
    if (folder / METRICS).exists():
        whole = folder / f"{METRICS}.new"
        whole.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        whole.replace(folder / METRICS)
    return found.get(last)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """One row for each update, the oldest first. A line that was being written when the process died is left out."""
    try:
        lines = (folder / METRICS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    rows = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


class Record(TrainerCallback):
    """Marks checkpoints that are whole, writes the numbers of each update, and tells of them. `numbers` may add to
    them."""

    def __init__(self, folder: Path, tell: Tell, numbers: Callable[[], Mapping[str, float]] = dict) -> None:
        self._folder = folder
        self._tell = tell
        self._numbers = numbers

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        (self._folder / f"checkpoint-{state.global_step}" / _WHOLE).touch()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ARG002
        if not logs or "train_runtime" in logs:  # the last one sums the run up
            return
        row = {"step": state.global_step, "steps": state.max_steps, **_rounded({**logs, **self._numbers()})}
        with (self._folder / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self._tell(row)


def _rounded(numbers: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(f"{value:.6g}")
        for name, value in sorted(numbers.items())
        if isinstance(value, int | float) and value == value
    }


def keep(model: Any, tokenizer: Any, target: Path) -> None:
    """Save a model, adapters merged, as the checkpoint `target`: whole, or not at all."""
    if hasattr(model, "merge_and_unload"):
        model = model.merge_and_unload()
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    if target.exists():
        shutil.rmtree(target)
    partial.rename(target)
