"""Runs the demo: starts Spark, streams with SWARM and with a static plan, batch by batch in turn.

Owns processes, temporary folders and Ctrl-C. All numbers shown are measured.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from pyspark.sql import SparkSession
from rich.console import Console
from rich.live import Live

from sparkswarm.bench.turns import Turns
from sparkswarm.config import PolicyName
from sparkswarm.demo import view, warm_up
from sparkswarm.demo.scene import QUERIES, Scene
from sparkswarm.errors import SparkswarmError
from sparkswarm.map.server import serve_in_background
from sparkswarm.observe.journal import IN_CHECKPOINT
from sparkswarm.observe.progress import Observer, Progress, Status
from sparkswarm.spark.handle import Handle
from sparkswarm.spark.session import session
from sparkswarm.spark.sources import register_sources

LINE_EVERY = 5
"""Without a terminal, every n-th batch is printed as a line."""

POLICIES: tuple[PolicyName, ...] = ("swarm", "static_uniform")
"""The policy that is shown, and what it is compared with."""

OnBatch = Callable[[Status, Sequence[Progress], Sequence[Progress]], object]
"""Called after every batch with the state of SWARM's stream and the batches until now: SWARM's, and
those of the static plan."""


@dataclass(frozen=True)
class Stream:
    """A stream that was started, and the batches that it has run."""

    handle: Handle
    seen: list[Progress]


def run_demo(
    console: Console, seconds: int, executors: int, seed: int, compare: bool, browser: bool
) -> None:
    """Stream for about ``seconds`` with a live view and the map, and print a summary."""
    scene = Scene.lasting(seconds, executors, seed, streams=1 + compare)
    # Workers that were interrupted may still write while the folder is being removed.
    with tempfile.TemporaryDirectory(
        prefix="sparkswarm-demo-", ignore_cleanup_errors=True
    ) as folder:
        url = serve_in_background(Path(folder) / POLICIES[0] / IN_CHECKPOINT)
        console.print(f"The live map is at {url}", highlight=False)
        if browser:
            webbrowser.open(url)
        with warm_up.in_background() as compilers:
            spark = _start_spark(console, Path(folder))
            try:
                if compilers:
                    _wait_for(console, compilers)
                with _deferred_ctrl_c() as ctrl_c:
                    runs = _stream(console, scene, spark, folder, POLICIES[: 1 + compare], ctrl_c)
            finally:
                spark.stop()
    console.print(view.summary(scene, *runs))


def _wait_for(console: Console, compilers: Sequence[subprocess.Popen[bytes]]) -> None:
    with _status(console, "Compiling kernels, the first time only"):
        for compiler in compilers:
            compiler.wait()


@contextmanager
def _status(console: Console, what: str) -> Iterator[None]:
    """Show what is going on, with a spinner if there is a terminal."""
    if not console.is_interactive:
        console.print(f"{what} …", highlight=False)
        yield
    else:
        with console.status(f"{what} …"):
            yield


def _start_spark(console: Console, folder: Path) -> SparkSession:
    """Start Spark with the output of its processes in a file instead of the terminal."""
    log = folder / "spark.log"
    quiet: dict[str, str | bool] = {
        "spark.log.level": "ERROR",
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "spark"),
        # The demo is short: the JVM's slower, better compiler would not pay off.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    try:
        with _output_to(log, console), _status(console, "Starting Spark"):
            spark = session("sparkswarm demo", "local[*]", quiet)
            register_sources(spark)
    except Exception as error:
        tail = log.read_text(errors="replace").strip().splitlines()[-5:]
        raise SparkswarmError("\n".join(["Spark did not start:", *tail, str(error)])) from error
    return spark


@contextmanager
def _output_to(log: Path, console: Console) -> Iterator[None]:
    """Redirect the output of processes started in this block; the console is not redirected."""
    saved = {fd: os.dup(fd) for fd in (1, 2)}
    with log.open("wb") as file:
        for fd in saved:
            os.dup2(file.fileno(), fd)
    before = console.file
    with open(os.dup(saved[2]), "w", encoding="utf-8", errors="replace") as there:
        console.file = there
        try:
            yield
        finally:
            console.file = before
            for fd, old in saved.items():
                os.dup2(old, fd)
                os.close(old)


@contextmanager
def _deferred_ctrl_c() -> Iterator[threading.Event]:
    """Set an event on Ctrl-C instead of raising.

    Raised within a call to the JVM, it would leave a connection on which Spark cannot be stopped.
    """
    pressed = threading.Event()

    def press(_signal: int, _frame: FrameType | None) -> None:
        pressed.set()

    before = signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _stream(
    console: Console,
    scene: Scene,
    spark: SparkSession,
    folder: str,
    policies: Sequence[PolicyName],
    ctrl_c: threading.Event,
) -> list[list[Progress]]:
    """Stream the same rows under each policy, in turn; return the batches of each."""
    turns = Turns(len(policies), scene.batches)
    streams: list[Stream] = []
    try:
        with _status(console, "Opening the streams"):
            for number, policy in enumerate(policies):
                seen: list[Progress] = []
                observers = [_note(seen), turns.observer(number)]
                # The stream that is shown sets the pace, the other follows it.
                pace = 0 if number else scene.pace
                handle = scene.start(spark, policy, folder, pace, observers)
                streams.append(Stream(handle, seen))
        with _shown(console, scene, streams[0].handle) as on_batch:
            _watch(streams, scene.batches, ctrl_c, on_batch)
    finally:
        turns.end()
        for stream in streams:
            # No need to finish the batch: the checkpoint is deleted afterwards.
            stream.handle.query.stop()
    return [stream.seen[: scene.batches] for stream in streams]


def _note(seen: list[Progress]) -> Observer:
    return lambda progress, _plan, _decisions: seen.append(progress)


def _watch(
    streams: Sequence[Stream], batches: int, ctrl_c: threading.Event, on_batch: OnBatch
) -> None:
    """Call ``on_batch`` after every batch that all streams have run; return after the last."""
    shown = 0
    while shown < batches:
        if ctrl_c.wait(0.05):
            raise KeyboardInterrupt
        done = min(len(stream.seen) for stream in streams)
        if done > shown:
            shown = done
            swarm, *static = [stream.seen[:done] for stream in streams]
            status = replace(streams[0].handle.status(), last=swarm[-1])
            on_batch(status, swarm, static[0] if static else [])
            continue
        for stream in streams:
            if not stream.handle.query.isActive:
                stream.handle.await_termination()  # raises what ended it


@contextmanager
def _shown(console: Console, scene: Scene, handle: Handle) -> Iterator[OnBatch]:
    """Show batches in a live view if there is a terminal, else line by line."""
    first = f"Registering {QUERIES:,} subscriptions, matching the first batch …"
    if not console.is_interactive:
        console.print(first, highlight=False)
        yield _line_by_line(console, scene)
        return
    waiting = console.status(first)
    live = Live(console=console, auto_refresh=False)

    def on_batch(status: Status, swarm: Sequence[Progress], static: Sequence[Progress]) -> None:
        waiting.stop()
        live.start()
        now = view.screen(console, scene, status, handle.decisions(), swarm, static)
        live.update(now, refresh=True)

    waiting.start()
    try:
        yield on_batch
    finally:
        waiting.stop()
        live.stop()


def _line_by_line(console: Console, scene: Scene) -> OnBatch:
    def on_batch(status: Status, swarm: Sequence[Progress], static: Sequence[Progress]) -> None:
        last = swarm[-1]
        if last.batch % LINE_EVERY == 0 or last.batch == scene.batches - 1:
            rival = static[-1] if static else None
            console.print(view.line(scene, status, last, rival), highlight=False, soft_wrap=True)

    return on_batch
