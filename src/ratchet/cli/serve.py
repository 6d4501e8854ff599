"""`ratchet serve`: a GGUF file as a policy's model, on this machine."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from ratchet.cli.screen import complain, say


def serve(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A .gguf file, or the name of a model that was pulled.")
    ],
    host: Annotated[
        str,
        typer.Option("--host", metavar="HOST", help="The address to listen on; whoever reaches it can use the model."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="PORT", help="The port; 0 for any that is free.")] = 8000,
    context: Annotated[int, typer.Option("--context", metavar="TOKENS", help="The longest conversation.")] = 8192,
    threads: Annotated[
        int | None, typer.Option("--threads", metavar="N", help="Threads to compute with; every core by default.")
    ] = None,
) -> None:
    """Serve open weights with an OpenAI-compatible endpoint until Ctrl-C.

    When it is ready, the URL and the --policy to use with it are printed, one line each.
    """
    from ratchet.models.serve import open_server, prepare
    from ratchet.store import default_home

    service = prepare(model, default_home(), host=host, port=port, context_tokens=context, threads=threads)
    if service.is_public:
        complain(f"warning: there is no authentication: whoever reaches {host} can use the model and see its answers")
    if service.context_tokens < context:
        complain(f"the model was trained with {service.context_tokens} tokens of context: that is what it gets")
    complain(f"loading {service.path}: {service.context_tokens} tokens of context, {service.threads} threads")
    with open_server(service) as url:
        say(url)
        say(f"--policy openai:{service.name}@{url}")
        try:
            while True:
                signal.pause()  # the server works in threads of its own; a kill unwinds from here
        except KeyboardInterrupt:
            complain("stopped")
