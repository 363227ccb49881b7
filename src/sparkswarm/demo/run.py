"""Runs the demo: starts Spark, streams with SWARM, streams the same rows with a static plan.

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
from pathlib import Path
from types import FrameType

from pyspark.sql import SparkSession
from rich.console import Console
from rich.live import Live

from sparkswarm.config import PolicyName
from sparkswarm.demo import view, warm_up
from sparkswarm.demo.scene import QUERIES, Scene
from sparkswarm.errors import SparkswarmError
from sparkswarm.map.server import serve_in_background
from sparkswarm.observe.journal import IN_CHECKPOINT
from sparkswarm.observe.progress import Progress, Status
from sparkswarm.spark.handle import Handle
from sparkswarm.spark.session import session
from sparkswarm.spark.sources import register_sources
from sparkswarm.terminal import progress_bar

LINE_EVERY = 5
"""Without a terminal, every n-th batch is printed as a line."""

OnBatch = Callable[[Handle, Status, Sequence[Progress]], object]


def run_demo(
    console: Console, seconds: int, executors: int, seed: int, compare: bool, browser: bool
) -> None:
    """Stream for about ``seconds`` with a live view and the map, compare, and print a summary."""
    scene = Scene(seconds, executors, seed)
    # Workers that were interrupted may still write while the folder is being removed.
    with tempfile.TemporaryDirectory(
        prefix="sparkswarm-demo-", ignore_cleanup_errors=True
    ) as folder:
        url = serve_in_background(Path(folder) / "swarm" / IN_CHECKPOINT)
        console.print(f"The live map is at {url}", highlight=False)
        if browser:
            webbrowser.open(url)
        with warm_up.in_background() as compilers:
            spark = _start_spark(console, Path(folder))
            try:
                if compilers:
                    _wait_for(console, compilers)
                with _deferred_ctrl_c() as ctrl_c:
                    swarm = _run_swarm(console, scene, spark, folder, ctrl_c)
                    static = _run_static(console, scene, spark, folder, ctrl_c) if compare else []
            finally:
                spark.stop()
    console.print(view.summary(scene, swarm, static))


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


def _watch(
    handle: Handle, batches: int, ctrl_c: threading.Event, on_batch: OnBatch
) -> list[Progress]:
    """Call ``on_batch`` after every batch; stop after the last. Returns all batches."""
    seen: list[Progress] = []
    try:
        while not seen or seen[-1].batch < batches - 1:
            status = handle.status()
            if ctrl_c.wait(0.05):
                raise KeyboardInterrupt
            if status.last and (not seen or status.last.batch > seen[-1].batch):
                seen.append(status.last)
                on_batch(handle, status, seen)
            elif not status.active:
                handle.await_termination()  # raises what ended it
    finally:
        # No need to finish the batch: the checkpoint is deleted afterwards.
        handle.query.stop()
    return seen


def _start(
    console: Console, scene: Scene, spark: SparkSession, folder: str, policy: PolicyName, pace: int
) -> Handle:
    with _status(console, "Opening the streams"):
        return scene.start(spark, policy, folder, pace)


def _run_swarm(
    console: Console, scene: Scene, spark: SparkSession, folder: str, ctrl_c: threading.Event
) -> list[Progress]:
    """Stream with SWARM, in a live view if there is a terminal, else line by line."""
    handle = _start(console, scene, spark, folder, "swarm", pace=1)
    if not console.is_interactive:
        console.print(f"Registering {QUERIES:,} subscriptions …", highlight=False)
        return _watch(handle, scene.batches, ctrl_c, _line_by_line(console, scene))
    waiting = console.status(f"Registering {QUERIES:,} subscriptions, matching the first batch …")
    live = Live(console=console, auto_refresh=False)

    def on_batch(handle: Handle, status: Status, seen: Sequence[Progress]) -> None:
        waiting.stop()
        live.start()
        now = view.screen(console, scene, status, handle.decisions(), seen)
        live.update(now, refresh=True)

    waiting.start()
    try:
        return _watch(handle, scene.batches, ctrl_c, on_batch)
    finally:
        waiting.stop()
        live.stop()


def _run_static(
    console: Console, scene: Scene, spark: SparkSession, folder: str, ctrl_c: threading.Event
) -> list[Progress]:
    """Stream the same rows with a static plan."""
    handle = _start(console, scene, spark, folder, "static_uniform", pace=0)
    what = "The same rows with a static plan"
    if not console.is_interactive:
        console.print(f"{what} …", highlight=False)
        return _watch(handle, scene.batches, ctrl_c, _line_by_line(console, scene))
    with progress_bar(console) as progress:
        task = progress.add_task(what, total=scene.batches)
        return _watch(
            handle,
            scene.batches,
            ctrl_c,
            lambda _, __, seen: progress.update(task, completed=seen[-1].batch + 1),
        )


def _line_by_line(console: Console, scene: Scene) -> OnBatch:
    def on_batch(_: Handle, status: Status, seen: Sequence[Progress]) -> None:
        if len(seen) % LINE_EVERY == 1 or seen[-1].batch == scene.batches - 1:
            console.print(view.line(scene, status, seen[-1]), highlight=False, soft_wrap=True)

    return on_batch
