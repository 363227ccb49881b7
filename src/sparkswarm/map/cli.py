"""The command ``sparkswarm map``: its options and messages."""

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
            help="The run's checkpoint, or its journal (a file or folder).",
        ),
    ],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the page; 0 takes any free port.")
    ] = 8765,
    host: Annotated[
        str, typer.Option(help="Address to listen on; by default this machine only.")
    ] = LOOPBACK,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
) -> None:
    """Show a run on a map in the browser: live, or replayed from its journal.

    Example: sparkswarm map my/checkpoint

    If the run has no journal yet, the page waits for it. Serves until Ctrl-C.

    Exit codes: 1 the journal is not a local file or the port is in use, 2 wrong usage, 130
    interrupted.
    """
    with exit_on_error():
        journal = _journal(run)
        server = MapServer(journal, host, port)
    if not is_loopback(host):
        stderr.print(
            f"[bold yellow]warning:[/] anyone who has this URL and can reach {host} can read this "
            "run's journal; neither it nor its token is encrypted on the way",
            highlight=False,
        )
    if not journal.exists():
        stderr.print(f"{journal} does not exist yet: waiting for it", style="dim", highlight=False)
    stderr.print(f"The map is at {server.url} (Ctrl-C stops it)", highlight=False)
    if browser:
        webbrowser.open(server.url)
    with exit_on_error(), server:
        server.serve_forever()


def _journal(run: str) -> Path:
    path = local_path(run)
    if path is None:
        raise ConfigError(
            f"the map reads local files only, got {run!r}; copy the journal here first"
        )
    return find(path)
