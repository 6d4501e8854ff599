#!/usr/bin/env python3
"""Measure `ratchet install` on a list of sources, beside the naive script on the same inputs.

    measure_installs.py RESULTS.jsonl SOURCE...     # goes on where an earlier run stopped; prints a table at the end

The naive script is what most people try first, in a fresh base with the same network: `pip install . pytest; pytest`.
Its tests are then counted from its report, in the same way as ours, though it runs them where it installed: with the
install phase's network.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from ratchet.autoinstall.options import Options
from ratchet.autoinstall.pipeline import autoinstall
from ratchet.autoinstall.workshop import WORKSPACE, Workshop
from ratchet.errors import RatchetError
from ratchet.junit import ReportError, parse
from ratchet.records import Install, Limits, Outcome, TestRun
from ratchet.sources import fetch
from ratchet.store import default_home

NAIVE = (
    "python3 -m venv /tmp/venv && . /tmp/venv/bin/activate && pip install -q . pytest && "
    "pytest -q --junitxml=/tmp/report.xml"
)


def naive(source: str, workshop: Workshop) -> dict[str, Any]:
    checkout = fetch(source, workshop.store)
    base = workshop.base_for("3.11", "bookworm")
    began = time.monotonic()
    with workshop.store.cache(checkout.id) as cache:
        layers = workshop.pristine_layers(base, checkout)
        with workshop.online(layers, Limits(), cache) as sandbox:
            result = sandbox.run(NAIVE, user="dev", cwd=WORKSPACE, timeout_s=900)
            try:
                run = parse(sandbox.read("/tmp/report.xml"))
                why = ""
            except (FileNotFoundError, ReportError) as error:
                run = TestRun()
                lines = [line for line in result.output.splitlines() if line.strip()]
                why = str(result.limit or (lines[-1] if lines else error))[:160]
    return {"source": source, "how": "naive", **counts(run), "why": why, "seconds": round(time.monotonic() - began)}


def ours(source: str, workshop: Workshop) -> dict[str, Any]:
    began = time.monotonic()
    install = autoinstall(source, workshop, Options(fresh=True))
    return {"source": source, "how": "ratchet", **describe(install), "seconds": round(time.monotonic() - began)}


def describe(install: Install) -> dict[str, Any]:
    row: dict[str, Any] = {
        "status": "verified" if install.environment else "discarded",
        "reason": install.reason,
        "detail": install.detail,
        "attempts": len(install.attempts),
        "stages": dict(install.seconds),
    }
    if audit := install.audit:
        row |= counts(audit.tests) | {
            "flaky": len(audit.flaky),
            "need_network": len(audit.need_network),
            "held_out": f"{sum(v.passed for v in audit.held_out)}/{len(audit.held_out)}",
            "held_out_failed": [v.why for v in audit.held_out if not v.passed],
            "sabotage": f"{sum(s.noticed_by is not None for s in audit.sabotages)}/{len(audit.sabotages)}",
        }
    return row


def counts(run: TestRun) -> dict[str, Any]:
    return {"passed": run.count(Outcome.PASSED), "ran": run.ran, "skipped": run.count(Outcome.SKIPPED)}


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| source | passed / ran (skipped) | attempts | held-out | sabotage noticed | flaky | seconds | naive script |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    latest = {(row["source"], row["how"]): row for row in rows}
    for source in dict.fromkeys(row["source"] for row in rows):
        mine, other = latest.get((source, "ratchet"), {}), latest.get((source, "naive"), {})
        done = (
            f"{mine['passed']:,} / {mine['ran']:,} ({mine['skipped']:,})" if "ran" in mine else mine.get("reason", "")
        )
        simple = f"{other['passed']:,} / {other['ran']:,}" if other.get("ran") else f"0: {other.get('why', 'not run')}"
        rest = [str(mine.get(key, "")) for key in ("attempts", "held_out", "sabotage", "flaky", "seconds")]
        lines.append("| " + " | ".join([source, done, *rest, simple.replace("|", "/")]) + " |")
    return "\n".join(lines)


def main(results: Path, sources: list[str]) -> None:
    rows = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    done = {(row["source"], row["how"]) for row in rows}
    with Workshop.open(default_home()) as workshop, results.open("a") as file:
        for source in sources:
            for how, measure in (("ratchet", ours), ("naive", naive)):
                if (source, how) in done:
                    continue
                try:
                    row = measure(source, workshop)
                except RatchetError as error:
                    print(f"{source}: {error}", file=sys.stderr)
                    continue
                rows.append(row)
                file.write(json.dumps(row) + "\n")
                file.flush()
                print(json.dumps(row), file=sys.stderr)
    print(table(rows))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:])
