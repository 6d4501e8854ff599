#!/usr/bin/env python3
"""Measure a model as goal setter and builder on a list of sources, with its failures.

    measure_models.py RESULTS.jsonl --policy POLICY [install options] -- SOURCE...

Every source is installed with the same options; what came of it, what the goals were and who proposed them, tokens and
seconds by stage are one line of RESULTS.jsonl each. It goes on where an earlier run stopped, and prints a table.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def measure(source: str, options: list[str]) -> dict[str, Any]:
    began = time.monotonic()
    command = [str(Path(sys.executable).with_name("ratchet")), "install", source, "--json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False)
    outcome = json.loads(done.stdout or b"{}")
    return {"source": source, "options": options, "outcome": outcome, "seconds": round(time.monotonic() - began)}


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| source | status | goals: model / floor | held-out | calls | tokens in + out | model s | all s | detail |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        outcome = row["outcome"]
        goals, held_out = outcome.get("goals", []), outcome.get("held_out", [])
        of_model = sum(goal["origin"] != "rules" for goal in goals)
        usage = outcome.get("usage", {}).values()
        cells = [
            row["source"],
            outcome.get("status", "error"),
            f"{of_model} / {len(goals) - of_model}",
            f"{sum(goal['passed'] for goal in held_out)}/{len(held_out)}",
            str(sum(used["calls"] for used in usage)),
            f"{sum(used['prompt_tokens'] for used in usage):,} + {sum(used['completion_tokens'] for used in usage):,}",
            f"{sum(used['seconds'] for used in usage):.0f}",
            str(row["seconds"]),
            (outcome.get("reason") or outcome.get("error") or "") + " " + outcome.get("detail", "")[:120],
        ]
        lines.append("| " + " | ".join(cell.replace("|", "¦").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines)


def main() -> None:
    words = sys.argv[1:]
    if len(words) < 2 or "--" not in words:
        raise SystemExit(__doc__)
    split = words.index("--")
    results, options, sources = Path(words[0]), words[1:split], words[split + 1 :]
    rows = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    for source in sources:
        if any(row["source"] == source and row["options"] == options for row in rows):
            continue
        rows.append(measure(source, options))
        with results.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
    print(table([row for row in rows if row["options"] == options]))


if __name__ == "__main__":
    main()
