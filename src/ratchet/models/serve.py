"""A GGUF file served on this machine, with chat completions as OpenAI has them: llama.cpp's server, in this process."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from ratchet.errors import MachineError, UsageError
from ratchet.models.catalog import models_directory
from ratchet.models.gguf import read_head

_WORKING_BYTES = 512 << 20  # beside weights and cache; one batch's results alone take 300 MiB with 152,000 tokens
_MAX_PROMPT_CACHE_MIB = 2048
_MIN_CONTEXT_TOKENS = 512


@dataclass(frozen=True)
class Service:
    """What is to be served, and how; every field is checked."""

    path: Path
    name: str
    host: str
    port: int  # 0: any that is free
    context_tokens: int
    threads: int
    prompt_cache_mib: int  # for conversations that are not the present one

    @property
    def is_public(self) -> bool:
        return not _is_loopback(self.host)


def prepare(model: str, home: Path, *, host: str, port: int, context_tokens: int, threads: int | None) -> Service:
    """Check everything that can be checked before the weights are loaded.

    `model` is a file, or the name of one that was pulled. The context is at most what the model was trained with.
    Raises UsageError for what cannot be served so, MachineError when the port is taken or the memory too small.
    """
    path = _find(model, home)
    head = read_head(path)
    if context_tokens < _MIN_CONTEXT_TOKENS:
        raise UsageError(
            f"a context of {context_tokens} tokens is too short", remedy=f"at least --context {_MIN_CONTEXT_TOKENS}"
        )
    context_tokens = min(context_tokens, head.context_tokens or context_tokens)
    if threads is not None and threads < 1:
        raise UsageError(f"{threads} threads cannot work", remedy="leave --threads out to use every core")
    needed = path.stat().st_size + context_tokens * (head.cache_bytes_per_token or 0) + _WORKING_BYTES
    spare = _available_bytes() - needed
    if spare < 0:
        raise MachineError(
            f"{path.name} with {context_tokens} tokens of context needs {needed >> 20} MiB of memory, and "
            f"{(needed + spare) >> 20} MiB are available",
            remedy="take a smaller model or --context, or end other programs",
        )
    _check_port(host, port)
    return Service(
        path=path,
        name=re.sub(r"[^A-Za-z0-9._+-]+", "-", path.stem) or "model",
        host=host,
        port=port,
        context_tokens=context_tokens,
        threads=threads or len(os.sched_getaffinity(0)),
        prompt_cache_mib=min(_MAX_PROMPT_CACHE_MIB, spare // 2 >> 20),
    )


@contextmanager
def open_server(service: Service) -> Iterator[str]:
    """Load the model and serve it; gives the base URL when it is ready. It answers until the block is left.

    One request after another is worked on. What a prompt has in common with an earlier one is not computed again.
    Raises MachineError when the package is missing or llama.cpp refuses; it says why on standard error.
    """
    # Threads that wait for work must not spin: sandboxes share the cores. OpenMP reads it when it is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        import xllamacpp  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError as error:
        raise MachineError(
            f"xllamacpp, which serves the model, cannot be loaded: {error}",
            remedy="pip install 'ratchet-rl[serve]'; on Debian and Ubuntu it also needs the package libgomp1",
        ) from error
    settings = xllamacpp.CommonParams()
    settings.model.path = str(service.path)
    settings.model_alias = {service.name}
    settings.hostnames = [service.host]
    settings.port = service.port
    settings.n_ctx = service.context_tokens
    settings.n_parallel = 1
    settings.cache_prompt = True
    settings.cache_ram_mib = service.prompt_cache_mib
    settings.use_jinja = True  # the model's own chat template, with tools
    settings.fit_params = False  # the context stays what was asked for
    settings.ui = False
    settings.endpoint_slots = False  # shows everybody's prompts
    settings.cors_origins = ""  # pages in a browser have no business here
    settings.verbosity = 1  # errors only
    for processors in (settings.cpuparams, settings.cpuparams_batch):
        processors.n_threads = service.threads
        processors.poll = 0
    try:
        server = xllamacpp.Server(settings)
    except RuntimeError as error:
        raise MachineError(
            f"llama.cpp cannot serve {service.path}: {error}",
            remedy="its own lines above say why; a file that is cut short or of a newer format is the usual cause",
        ) from error
    try:
        yield _base_url(service, server.listening_address)
    finally:
        del server  # the only way to stop it


def _find(model: str, home: Path) -> Path:
    """The file called `model`, or the pulled one of that name."""
    given = Path(model).expanduser()
    if given.exists() or given.suffix == ".gguf" or len(given.parts) != 1:
        return given
    pulled = models_directory(home) / f"{model}.gguf"
    if not pulled.is_file():
        raise UsageError(
            f"there is no file {model}, and no model of that name was pulled",
            remedy="ratchet model list shows those there are, ratchet model pull NAME brings one",
        )
    return pulled


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_port(host: str, port: int) -> None:
    """Whether a server can listen there. Only a hint: somebody may take the port while the weights are loaded."""
    if not 0 <= port <= 65_535:
        raise UsageError(f"{port} is no port", remedy="a port is a number from 0 to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise MachineError(f"port {port} of {host} is taken", remedy="use another: --port") from error
        raise MachineError(
            f"nothing can listen on {host}, port {port}: {error.strerror or error}",
            remedy="use an address of this machine: --host; ports below 1024 need root",
        ) from error


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text("ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    raise MachineError("/proc/meminfo does not say what memory is available", remedy="use Linux 3.14 or newer")


def _base_url(service: Service, listening: str) -> str:
    """What clients use: an address that listens for all is reached by the loopback one."""
    port = listening.rpartition(":")[2].rstrip("/")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(service.host, service.host)  # noqa: S104 it is not bound here
    return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"
