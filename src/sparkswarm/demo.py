"""The demo: a hotspot comes and goes, and the protocol follows it, live in the terminal.

Simulated rounds over the built-in world of cities, with the same stream under a division of
the space that never changes beside it. It shows the protocol, not yet the engine on Spark.
"""

from __future__ import annotations

import time

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sparkswarm.bench.world import Played, World
from sparkswarm.config import SwarmConfig
from sparkswarm.protocol.geometry import FloatArray
from sparkswarm.workloads import CONTIGUOUS_US, Hotspot, cities_density

BAR = 28
SPARKS = "▁▂▃▄▅▆▇█"


def run_demo(console: Console, executors: int, rounds: int, pause: float, seed: int) -> None:
    """Play ``rounds`` rounds, showing each, and sum up."""
    b = CONTIGUOUS_US
    hotspot = Hotspot(start=max(1, rounds // 3), stop=max(2, 2 * rounds // 3))
    config = SwarmConfig(
        bounds=(b.min_x, b.min_y, b.max_x, b.max_y), grid=(500, 500), executors=executors
    )
    with console.status("laying out cities, registering 100,000 queries …"):
        density = cities_density(CONTIGUOUS_US, 500, 500)
        world = World(config, density, hotspot, points=200_000, queries=100_000, seed=seed)
    swarm: list[float] = []
    static: list[float] = []
    decisions: list[str] = []
    with Live(console=console, refresh_per_second=10, transient=True) as live:
        for number in range(rounds):
            played = world.play()
            swarm.append(played.efficiency)
            static.append(played.static_efficiency)
            decisions = (decisions + _in_words(played))[-6:]
            live.update(_screen(played, number, rounds, hotspot, swarm, static, decisions))
            time.sleep(pause)
    console.print(_summary(hotspot, swarm, static, len(world.swarm.plan.partitions)))


def _screen(
    played: Played,
    number: int,
    rounds: int,
    hotspot: Hotspot,
    swarm: list[float],
    static: list[float],
    decisions: list[str],
) -> Group:
    state = Text(f"round {number + 1} of {rounds}   ", style="bold")
    if hotspot.active(number):
        state.append("HOTSPOT: 40% of the points in 2% of the space", style="bold yellow")
    bars = Table.grid(padding=(0, 2))
    bars.add_row("", Text("SWARM", style="bold green"), Text("never rebalanced", style="bold red"))
    most = max(float(played.work.max()), float(played.static_work.max()))
    for m in range(len(played.work)):
        bars.add_row(
            f"executor {m:>2}",
            _bar(float(played.work[m]), most, "green"),
            _bar(float(played.static_work[m]), most, "red"),
        )
    lines = Table.grid(padding=(0, 2))
    lines.add_row("balance, SWARM", Text(_sparks(swarm), style="green"), f"{swarm[-1]:.2f}")
    lines.add_row("never rebalanced", Text(_sparks(static), style="red"), f"{static[-1]:.2f}")
    return Group(
        state,
        Panel(bars, title="work of each executor in this round", title_align="left"),
        Panel(lines, title="balance efficiency: mean / most, 1 is perfect", title_align="left"),
        Panel("\n".join(decisions), title="last decisions", title_align="left", height=8),
    )


def _bar(value: float, most: float, colour: str) -> Text:
    filled = round(BAR * value / most) if most else 0
    return Text("█" * filled + "·" * (BAR - filled), style=colour)


def _sparks(values: list[float]) -> str:
    return "".join(SPARKS[min(7, int(value * 8))] for value in values[-60:])


def _in_words(played: Played) -> list[str]:
    """Keep the decision and a count of the changes: a screen is no place for a log."""
    first = next((entry for entry in played.log if entry.what in ("rebalance", "do nothing")), None)
    if first is None:
        return []
    changes = f"  → {len(played.changes)} changes" if played.changes else ""
    return [f"{first}{changes}"]


def _summary(hotspot: Hotspot, swarm: list[float], static: list[float], partitions: int) -> Group:
    table = Table(title="balance efficiency, mean over rounds (simulated)", title_justify="left")
    for column in ("", "SWARM", "never rebalanced", "work done in the same time"):
        table.add_column(column, justify="right" if column else "left")
    for name, rounds in (
        ("before the hotspot", slice(hotspot.start)),
        ("during the hotspot", slice(hotspot.start, hotspot.stop)),
        ("after the hotspot", slice(hotspot.stop, None)),
    ):
        ours, theirs = _mean(swarm[rounds]), _mean(static[rounds])
        table.add_row(name, f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.1f} x")
    return Group(
        table,
        Text(
            f"{partitions} partitions at the end. The work done in the same time follows from "
            "the balance: everyone waits for the most loaded executor.",
            style="dim",
        ),
    )


def _mean(values: list[float] | FloatArray) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
