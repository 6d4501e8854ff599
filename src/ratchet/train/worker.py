"""Training in a process of its own: the main one loads no torch, and the allocator can be told what torch needs.

`run` starts it and tells of each update; `python -m ratchet.train.worker JOB.json` is what it starts. The worker ends
when its standard input does, which is when its parent ends, however that happens; the same job goes on afterwards.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet import errors
from ratchet.autoinstall.workshop import Workshop
from ratchet.errors import MachineError, RatchetError
from ratchet.generation_records import Problem, Sample
from ratchet.policies.local.child import TORCH_ENVIRONMENT
from ratchet.policies.local.templates import read_tokens, train_is_missing
from ratchet.problems import Player, TryLimits
from ratchet.protocols import Sampler
from ratchet.records import from_json, to_json
from ratchet.task_records import TokenTrace
from ratchet.train.config import Reinforce, Tell, WarmStart

_END_S = 30.0


@dataclass(frozen=True)
class WarmStartJob:
    """Paths are of folders: the checkpoint to start from, the one to make, and where what is under way is kept."""

    checkpoint: str
    target: str
    folder: str
    config: WarmStart
    seed: int
    traces: tuple[TokenTrace, ...]


@dataclass(frozen=True)
class ReinforceJob:
    """As above; `home` is where the environments and tasks of the problems are, `name` whose tries they are (see
    `problems.Player`), `jobs` how many are tried at once."""

    checkpoint: str
    target: str
    folder: str
    config: Reinforce
    seed: int
    problems: tuple[Problem, ...]
    home: str
    name: str
    limits: TryLimits
    jobs: int


Job = WarmStartJob | ReinforceJob


def run(job: Job, tell: Tell = lambda _: None) -> None:
    """Do a job. Raises MachineError where the worker dies, and the errors of the package that it met."""
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "job.json"
    file.write_text(json.dumps({"kind": type(job).__name__, "job": to_json(job)}), encoding="utf-8")
    log = folder / "worker.log"
    with log.open("ab") as errors_file:
        process = subprocess.Popen(
            [sys.executable, "-m", "ratchet.train.worker", str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors_file,
            env={**os.environ, **TORCH_ENVIRONMENT, "TRL_EXPERIMENTAL_SILENCE": "1"},
        )
    assert process.stdin is not None
    assert process.stdout is not None
    failed: Mapping[str, str] | None = None
    try:
        for line in process.stdout:
            said = json.loads(line)
            if "error" in said:
                failed = said["error"]
            else:
                tell(said)
    finally:
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if failed is not None:
        raise _as_error(failed)
    if process.returncode:
        raise MachineError(
            f"training ended with status {process.returncode}; the end of {log}:\n{_tail(log)}",
            remedy="a negative status is a signal, -9 mostly means too little memory: use fewer tokens or a LoRA rank;"
            " the same command goes on from the last checkpoint",
        )


def _as_error(failed: Mapping[str, str]) -> RatchetError:
    kind = getattr(errors, failed["kind"], RatchetError)
    error: RatchetError = kind(failed["what"], remedy=failed["remedy"])
    return error


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 1500))
        return file.read().decode(errors="replace").strip()


# --------------------------------------------------------------------------- in the worker


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no progress
    finished = threading.Event()
    threading.Thread(target=_end_with_parent, args=(finished,), daemon=True).start()

    def say(what: Mapping[str, Any]) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    try:
        do(read_job(Path(sys.argv[1])), say)
    except RatchetError as error:
        say({"error": {"kind": type(error).__name__, "what": error.what, "remedy": error.remedy}})
        sys.exit(1)
    finally:
        finished.set()


def _end_with_parent(finished: threading.Event) -> None:
    # Not through sys.stdin, whose lock would be held when the interpreter shuts down.
    while os.read(0, 4096):
        pass
    if not finished.is_set():
        os._exit(1)


def read_job(file: Path) -> Job:
    data = json.loads(file.read_text(encoding="utf-8"))
    if data["kind"] == WarmStartJob.__name__:
        return from_json(data["job"], WarmStartJob)
    return from_json(data["job"], ReinforceJob)


def do(job: Job, tell: Tell) -> None:
    try:
        from ratchet.train.reinforce import reinforce
        from ratchet.train.warm_start import warm_start
    except ImportError as error:
        raise train_is_missing() from error
    checkpoint, target, folder = Path(job.checkpoint), Path(job.target), Path(job.folder)
    if isinstance(job, WarmStartJob):
        warm_start(checkpoint, job.traces, target, folder, job.config, seed=job.seed, tell=tell)
        return
    with Workshop.open(Path(job.home)) as workshop:
        play = Plays(Player(workshop, job.limits, job.jobs), job)
        reinforce(checkpoint, job.problems, play, target, folder, job.config, seed=job.seed, tell=tell)


class Plays:
    """A `reinforce.Play`: what a `Player` plays, in real sandboxes."""

    def __init__(self, player: Player, job: ReinforceJob) -> None:
        self._player = player
        self._job = job
        self._tokens = read_tokens(Path(job.checkpoint))

    def __call__(self, sampler: Sampler, step: int, wanted: Sequence[tuple[Problem, int]]) -> list[Sample]:
        job = self._job
        model = job.limits.model(sampler, self._tokens, f"{job.name}/{step}", job.config.temperature)
        problems = list(dict.fromkeys(problem for problem, _ in wanted))
        samples = max(sample for _, sample in wanted) + 1
        played = self._player.play(problems, samples, lambda *_: model, name=f"{job.name}/{step}", held_out=False)
        return in_order(played, wanted)


def in_order(samples: Iterable[Sample], wanted: Sequence[tuple[Problem, int]]) -> list[Sample]:
    found = {(sample.problem, sample.sample): sample for sample in samples}
    return [found[problem.id, sample] for problem, sample in wanted]


if __name__ == "__main__":
    main()
