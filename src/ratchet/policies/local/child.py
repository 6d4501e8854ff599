"""The model in a process of its own: the main one loads no torch, and the allocator can be told what torch needs.

Requests and answers are lines of JSON on the child's standard input and output. The child ends when its input does,
which is when its parent ends, however that happens.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from ratchet.errors import ModelServerError
from ratchet.policies.local.model import LocalModel
from ratchet.policies.local.templates import read_tokens
from ratchet.policies.local.weights import checkpoint_of
from ratchet.records import Sampled

# Measured on two cores: with glibc's defaults the memory of each step is given back and asked for again, which takes
# three to six times as long; threads of OpenMP that spin starve whatever runs beside them.
TORCH_ENVIRONMENT = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "99999999999",
    "MALLOC_TOP_PAD_": "268435456",
    "MALLOC_ARENA_MAX": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "TOKENIZERS_PARALLELISM": "false",
}

_MOST_AT_ONCE = 64
_START_S = 600.0


class ChildSampler:
    """A `protocols.Sampler` whose engine is in a child process. Close it, or use it as a context."""

    def __init__(
        self, checkpoint: Path, *, threads: int | None = None, environ: Mapping[str, str] = os.environ
    ) -> None:
        env = {**environ, **TORCH_ENVIRONMENT}
        if threads is not None:
            env["OMP_NUM_THREADS"] = str(threads)
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the child
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ratchet.policies.local.child", str(checkpoint)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=env,
        )
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._numbers = 0
        self._ready: Future[Any] = Future()
        threading.Thread(target=self._read, daemon=True, name="ratchet-local-model").start()

    def sample(
        self, prompt_ids: Sequence[int], *, max_tokens: int, temperature: float = 1.0, stop: Sequence[str] = ()
    ) -> Sampled:
        """See `protocols.Sampler`. Raises ModelServerError where the child has ended, or its model failed."""
        try:
            self._ready.result(_START_S)
        except TimeoutError:
            raise ModelServerError(
                f"the local model was not loaded after {_START_S:.0f} s", remedy="use a smaller model, or a faster disk"
            ) from None
        answer: Future[Any] = Future()
        with self._lock:
            self._numbers += 1
            number = self._numbers
            self._waiting[number] = answer
        asked = {
            "number": number,
            "prompt": list(prompt_ids),
            "max_tokens": max_tokens,
            "temperature": temperature,
            "stop": list(stop),
        }
        self._write(asked)
        got = answer.result()
        if "error" in got:
            raise ModelServerError(got["error"], remedy="try a smaller batch or context")
        return Sampled(tuple(got["ids"]), tuple(got["logprobs"]), got["finish"])

    def close(self) -> None:
        with suppress(OSError):
            self._input.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> ChildSampler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _input(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _write(self, asked: Mapping[str, Any]) -> None:
        try:
            with self._lock:
                self._input.write(json.dumps(asked).encode() + b"\n")
                self._input.flush()
        except (OSError, ValueError):
            self._process.wait()
            raise self._ended() from None

    def _read(self) -> None:
        """What the child answers, to whom it is for; and that it has ended, to all who wait."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            if "ready" in answer:
                self._ready.set_result(answer)
                continue
            with self._lock:
                waiting = self._waiting.pop(answer["number"])
            waiting.set_result(answer)
        self._process.wait()
        with self._lock:
            left = [*self._waiting.values(), *([] if self._ready.done() else [self._ready])]
            self._waiting.clear()
        for each in left:
            each.set_exception(self._ended())

    def _ended(self) -> ModelServerError:
        self._log.seek(0)
        said = self._log.read()[-600:].decode(errors="replace").strip()
        return ModelServerError(
            f"the process of the local model ended with status {self._process.returncode}: {said or 'it said nothing'}",
            remedy="a negative status is a signal, and -9 mostly means too little memory: use a smaller model or batch",
        )


@contextmanager
def open_local(
    source: str, home: Path, *, name: str = "", threads: int | None = None, **options: Any
) -> Iterator[LocalModel]:
    """A model from `source` (see `weights.checkpoint_of`), in a child process, for as long as the context lasts.
    `options` are fields of `LocalModel`."""
    checkpoint = checkpoint_of(source, home)
    tokens = read_tokens(checkpoint)
    with ChildSampler(checkpoint, threads=threads) as sampler:
        yield LocalModel(sampler, tokens, name or f"local:{checkpoint.name[:12]}", **options)


# --------------------------------------------------------------------------- in the child


def serve(checkpoint: Path, requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until there are no more."""
    from ratchet.policies.local.engine import Engine
    from ratchet.policies.local.loading import load

    engine = Engine(load(checkpoint), read_tokens(checkpoint))
    lock = threading.Lock()

    def say(answer: Mapping[str, Any]) -> None:
        with lock:
            answers.write(json.dumps(answer).encode() + b"\n")
            answers.flush()

    def answer(asked: Mapping[str, Any]) -> None:
        try:
            sampled = engine.sample(
                asked["prompt"],
                max_tokens=asked["max_tokens"],
                temperature=asked["temperature"],
                stop=asked["stop"],
            )
        except (ModelServerError, ValueError) as error:
            say({"number": asked["number"], "error": str(error)})
            return
        got = {"ids": sampled.token_ids, "logprobs": sampled.logprobs, "finish": sampled.finish}
        say({"number": asked["number"], **got})

    say({"ready": True})
    with ThreadPoolExecutor(_MOST_AT_ONCE) as threads:
        for line in requests:
            threads.submit(answer, json.loads(line))
        threads.shutdown(wait=False, cancel_futures=True)
        os._exit(0)  # nobody wants what is under way


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    serve(Path(sys.argv[1]), sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
