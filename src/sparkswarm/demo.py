"""The demo: a hotspot comes, glides and goes, and the engine follows it, live in the terminal.

Streams the built-in cities against subscriptions on a local Spark, shows every batch, then
streams the same rows once more under a division of the space that never changes, and compares
the two. All numbers are measured.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
import webbrowser
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean

from pyspark.sql import SparkSession
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sparkswarm.config import PolicyName, SwarmConfig
from sparkswarm.errors import SparkswarmError
from sparkswarm.journal import IN_CHECKPOINT
from sparkswarm.map.server import serve_in_background
from sparkswarm.protocol.messages import Logged
from sparkswarm.spark.engine import Handle, Swarm
from sparkswarm.spark.session import session
from sparkswarm.spark.source import register
from sparkswarm.spark.status import Progress, Status
from sparkswarm.workloads import CONTIGUOUS_US

POINTS, QUERIES, CHANGES = 200_000, 100_000, 3_000
"""Points of a batch, queries registered, and operations on them in every later batch."""

QUERY_SIDE, BAD_ROWS, GRID = 0.003, 0.001, 500

HOTSPOT = "0.30,0.35,0.05,{share},{start},{stop},0.50,0.45"
"""A square with 5% of each side of the map; it draws 60% of the points, and all new queries."""

ROWS_OF_BARS, LINE_EVERY = 8, 5
SPARKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Scene:
    """What is streamed. A batch stands for a second, of the stream's time as of the clock's."""

    batches: int
    executors: int
    seed: int

    @property
    def phases(self) -> dict[str, range]:
        """The batches before, during and after the hotspot."""
        start, stop = self.batches // 3, 2 * self.batches // 3
        return {
            "before the hotspot": range(start),
            "during the hotspot": range(start, stop),
            "after the hotspot": range(stop, self.batches),
        }

    def hotspot(self, share: float, later: int = 0) -> str:
        """Return the hotspot as an option of a source whose time is ahead by so many seconds."""
        during = self.phases["during the hotspot"]
        return HOTSPOT.format(share=share, start=during.start + later, stop=during.stop + later)

    def start(self, spark: SparkSession, policy: PolicyName, folder: str, pace: int) -> Handle:
        """Start the stream under a policy, a batch every ``pace`` seconds if Spark keeps up."""
        points = spark.readStream.format("swarm_cities").options(
            rowsPerBatch=POINTS, rowsPerSecond=POINTS, limit=POINTS * self.batches,
            badRows=BAD_ROWS, grid=GRID, seed=self.seed, hotspot=self.hotspot(0.6),
        )  # fmt: skip
        queries = spark.readStream.format("swarm_queries").options(
            queries=QUERIES, churn=CHANGES / QUERIES, rowsPerSecond=CHANGES, side=QUERY_SIDE,
            grid=GRID, seed=self.seed, hotspot=self.hotspot(1.0, QUERIES // CHANGES),
        )  # fmt: skip
        b = CONTIGUOUS_US
        config = SwarmConfig(
            bounds=(b.min_x, b.min_y, b.max_x, b.max_y), grid=(GRID, GRID),
            executors=self.executors, policy=policy, round_batches=1,
        )  # fmt: skip
        return Swarm(spark, config).start(
            points.load(), queries.load(), sink="noop", checkpoint=f"{folder}/{policy}",
            trigger={"processingTime": f"{pace} seconds"},
        )  # fmt: skip


def run_demo(
    console: Console, seconds: int, executors: int, seed: int, compare: bool, browser: bool
) -> None:
    """Stream for about so many seconds, showing each batch and the map; compare; sum up."""
    scene = Scene(seconds, executors, seed)
    with tempfile.TemporaryDirectory(prefix="sparkswarm-demo-") as folder:
        url = serve_in_background(Path(folder) / "swarm" / IN_CHECKPOINT)
        console.print(f"The live map is at {url}", highlight=False)
        if browser:
            webbrowser.open(url)
        console.print("Starting Spark …", style="dim")
        spark = _start_spark(Path(folder) / "spark.log")
        try:
            swarm = _show(console, scene, spark, folder)
            static = _rival(console, scene, spark, folder) if compare else []
        finally:
            spark.stop()
    console.print(_summary(scene, swarm, static))


def _start_spark(log: Path) -> SparkSession:
    """Start a Spark whose processes write to a file what would garble the terminal."""
    quiet: dict[str, str | bool] = {
        "spark.log.level": "ERROR",
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # For a minute or two, compiling well costs Java more than it wins.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    try:
        with _output_to(log):
            spark = session("sparkswarm demo", "local[*]", quiet)
    except Exception as error:
        said = log.read_text(errors="replace").strip().splitlines()[-5:]
        raise SparkswarmError("\n".join(["Spark did not start:", *said, str(error)])) from error
    register(spark)
    return spark


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Give processes that start meanwhile a file for their output, for as long as they live."""
    saved = {fd: os.dup(fd) for fd in (1, 2)}
    with log.open("wb") as file:
        for fd in saved:
            os.dup2(file.fileno(), fd)
    try:
        yield
    finally:
        for fd, old in saved.items():
            os.dup2(old, fd)
            os.close(old)


def _watch(handle: Handle, batches: int, on_batch: Callable[..., object]) -> list[Progress]:
    """Call back with (handle, status, batches seen) after every batch; stop after the last."""
    seen: list[Progress] = []
    with handle:
        while not seen or seen[-1].batch < batches - 1:
            status = handle.status()
            if status.last and (not seen or status.last.batch > seen[-1].batch):
                seen.append(status.last)
                on_batch(handle, status, seen)
            elif not status.active:
                handle.await_termination()  # raises what ended it
            time.sleep(0.05)
    return seen


def _show(console: Console, scene: Scene, spark: SparkSession, folder: str) -> list[Progress]:
    """Run SWARM, in a live view where there is a terminal, else line by line."""
    handle = scene.start(spark, "swarm", folder, pace=1)
    if not _is_live(console):
        return _watch(handle, scene.batches, lambda _, *now: _say(console, *now))
    waiting = f"Registering {QUERIES:,} queries (the first time, code is compiled as well) …"
    with Live(Text(waiting, style="dim"), console=console, auto_refresh=False) as live:
        return _watch(
            handle, scene.batches,
            lambda *now: live.update(_screen(console, scene, *now), refresh=True),
        )  # fmt: skip


def _rival(console: Console, scene: Scene, spark: SparkSession, folder: str) -> list[Progress]:
    """Stream the same rows under a division of the space that never changes."""
    console.print("The same rows, never rebalanced …", style="dim")
    handle = scene.start(spark, "static_uniform", folder, pace=0)
    if not _is_live(console):
        return _watch(handle, scene.batches, lambda _, *now: _say(console, *now))
    with console.status("") as line:
        return _watch(
            handle, scene.batches,
            lambda *now: line.update(f"batch {now[2][-1].batch + 1} of {scene.batches}"),
        )  # fmt: skip


def _is_live(console: Console) -> bool:
    return console.is_interactive and sys.stdout.isatty()


def _say(console: Console, status: Status, seen: list[Progress]) -> None:
    last = seen[-1]
    if len(seen) % LINE_EVERY == 1:
        console.print(
            f"batch {last.batch}: {last.points:,} points in {last.seconds:.2f} s, "
            f"{status.matches:,} results so far, balance {last.balance:.2f}, "
            f"{status.partitions} partitions",
            highlight=False,
        )


def _screen(
    console: Console, scene: Scene, handle: Handle, status: Status, seen: list[Progress]
) -> Group:
    """Return the view after a batch; 23 lines on a small terminal."""
    width, room = console.width, max(4, min(12, console.height - 20))
    last, during = seen[-1], scene.phases["during the hotspot"]
    head = Text(f"SWARM on Spark   batch {last.batch + 1} of {scene.batches}   ", style="bold")
    if last.batch in during:
        head.append("HOTSPOT: 60% of the points, on the move", style="bold yellow")
    elif last.batch < during.start:
        head.append(f"a hotspot appears in batch {during.start + 1}", style="dim")
    else:
        head.append("the hotspot is gone", style="dim")
    facts = Table.grid(padding=(0, 3, 0, 0))
    rate, size = last.points / last.seconds, f"{last.points:,} points in {last.seconds:.2f} s"
    facts.add_row(f"{rate:,.0f} points/s", size, f"{status.matches:,} results so far")
    known = f"{QUERIES:,} queries, {CHANGES:,} change"
    facts.add_row(f"{status.partitions} partitions", known, f"{scene.executors} executors")
    bad = ", ".join(
        f"{count:,} {reason.split(' coordinate')[0].split(' the ')[0]}"
        for (_, reason), count in sorted(status.quarantined.items())
    )
    sparks = Text.assemble((f"{last.balance:.2f}  ", "bold"), _sparks(seen, during, width - 12))
    newest = (_in_words(d) for d in reversed(handle.decisions()) if not d.what.startswith("ask"))
    decisions = Text("\n").join(islice(newest, room))
    return Group(
        head,
        facts,
        Text(f"quarantined: {bad}", "dim", no_wrap=True, overflow="ellipsis"),
        _panel(_bars(last.busy, width - 4), "work of each executor in this batch"),
        _panel(sparks, "balance efficiency over the batches: mean work / most, 1 is perfect"),
        _panel(decisions, "decisions and why, the newest first", room + 2),
    )


def _panel(content: RenderableType, title: str, height: int | None = None) -> Panel:
    return Panel(content, title=title, title_align="left", border_style="dim", height=height)


def _bars(busy: Sequence[float], width: int) -> Table:
    """Return a bar for each executor, in as many columns as it takes."""
    columns = -(-len(busy) // ROWS_OF_BARS)
    rows = -(-len(busy) // columns)
    room = width // columns - 12
    most = max(busy) or 1.0
    table = Table.grid(padding=(0, 1, 0, 0))
    for row in range(rows):
        cells: list[RenderableType] = []
        for m in range(row, len(busy), rows):
            filled = round(room * busy[m] / most)
            style = "yellow" if busy[m] > 1.5 * sum(busy) / len(busy) else "green"
            bar = Text.assemble(("█" * filled, style), ("·" * (room - filled), "dim"))
            cells += [f"{m:>2}", bar, f"{1000 * busy[m]:>4.0f} ms"]
        table.add_row(*cells)
    return table


def _sparks(seen: Sequence[Progress], during: range, room: int) -> Text:
    """Return the balance of the last batches as bars; those in the hotspot in yellow."""
    bars = [SPARKS[min(7, int(p.balance * 8))] for p in seen[-room:]]
    styles = ["yellow" if p.batch in during else "green" for p in seen[-room:]]
    return Text.assemble(*zip(bars, styles, strict=True))


def _in_words(entry: Logged) -> Text:
    """Keep the first of several changes: a screen is no place for a log."""
    what, *more = entry.what.split("; ")
    reason = entry.reason.split("; ")[0] if more else entry.reason
    also = f" and {len(more)} more" if more else ""
    return Text.assemble((f"{entry.round} ", "dim"), (what + also, "bold"), f": {reason}")


def _summary(scene: Scene, swarm: list[Progress], static: list[Progress]) -> Group:
    runs = {"SWARM": swarm, "static": static} if static else {"SWARM": swarm}
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    for name in [f"{measure}\n{run}" for measure in ("balance", "busiest") for run in runs]:
        table.add_column(name, justify="right", no_wrap=True)
    for phase, batches in scene.phases.items():
        those = [[p for p in run if p.batch in batches] for run in runs.values()]
        balances = [_mean(p.balance for p in run) for run in those]
        busiest = [_mean(max(p.busy) for p in run) for run in those]
        table.add_row(
            phase, *(f"{b:.2f}" for b in balances), *(f"{1000 * b:.0f} ms" for b in busiest)
        )
    note = (
        "Means over the batches. balance: mean work of the executors / the most, 1 is perfect. "
        "busiest: processor time of the busiest executor, the critical path of a batch."
    )
    if static:
        note += " static: the same rows, the space divided evenly once (policy static_uniform)."
    size = f"{scene.batches} batches of {POINTS:,} points, {scene.executors} executors"
    head = Text(f"\nMeasured on Spark: {size}", style="bold")
    return Group(head, table, Text(note, style="dim"))


def _mean(values: Iterable[float]) -> float:
    return fmean([*values] or [math.nan])
