"""``sparkswarm map``: watch a run, or one that is over.

Owns words and options of this command, and nothing that computes.
"""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from sparkswarm.errors import ConfigError
from sparkswarm.map.server import LOOPBACK, MapServer, is_loopback
from sparkswarm.observe.journal import find
from sparkswarm.store.files import local_path
from sparkswarm.terminal import exit_on_error, stderr


def map_(
    run: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT_OR_JOURNAL",
            help="The run: its checkpoint, or its journal's file or folder.",
        ),
    ],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Where to serve the page; 0 is any free port.")
    ] = 8765,
    host: Annotated[
        str, typer.Option(help="The address to serve at; the default is this machine only.")
    ] = LOOPBACK,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
) -> None:
    """Show a run on a live map, in the browser: under way, or replayed from its journal.

    Give it the folder that the run has as its checkpoint: sparkswarm map my/checkpoint

    If nothing is there yet, the page waits for it. Serves until Ctrl-C.

    Exit codes: 1 the journal is not a local file or the port is taken, 2 wrong usage, 130 it was
    ended with Ctrl-C.
    """
    with exit_on_error():
        journal = _journal(run)
        server = MapServer(journal, host, port)
    if not is_loopback(host):
        stderr.print(
            f"[bold yellow]warning:[/] whoever reaches {host} can read this run's journal; "
            "there is no password",
            highlight=False,
        )
    if not journal.exists():
        stderr.print(f"{journal} is not there yet: waiting for it", style="dim", highlight=False)
    stderr.print(f"The map is at {server.url} (Ctrl-C ends it)", highlight=False)
    if browser:
        webbrowser.open(server.url)
    with exit_on_error(), server:
        server.serve_forever()


def _journal(run: str) -> Path:
    path = local_path(run)
    if path is None:
        raise ConfigError(f"a journal is a local file, got {run!r}; copy it here first")
    return find(path)
