"""Renders the demo in the terminal: the live view after a batch, and the summary at the end.

Owns texts, colours and layout. The layout is the same for every batch, only numbers change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from statistics import fmean

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sparkswarm.demo.scene import CHANGES, HOTSPOT_SHARE, POINTS, QUERIES, Scene
from sparkswarm.observe.describe import lines
from sparkswarm.observe.progress import Progress, Status
from sparkswarm.protocol.messages import Decision, DecisionKind
from sparkswarm.workloads.cities import BUSIEST_HOUR

OTHER_LINES = 19
"""Lines of the view without bars and decisions; with 8 bars and 4 decisions it has 23 of 24."""

MAX_BARS, SPARKS = 8, "▁▂▃▄▅▆▇█"

MAX_LOANS = 4
"""Loans that are listed, the largest first."""


def screen(
    console: Console,
    scene: Scene,
    status: Status,
    decisions: Sequence[Decision],
    seen: Sequence[Progress],
) -> Group:
    """Return the view after a batch."""
    width, last = console.width, seen[-1]
    rows = min(scene.executors, MAX_BARS)
    room = max(3, min(12, console.height - (OTHER_LINES - MAX_BARS + rows) - 1))
    sparks = Text.assemble(
        (f"{last.balance:.2f}  ", "bold"), _sparks(seen, scene.during, width - 12)
    )
    newest = (_decision(d) for d in reversed(decisions) if d.kind is not DecisionKind.ASK)
    return Group(
        _head(scene, last.batch),
        _facts(scene, status, last),
        _panel(
            _bars(last.busy_s, width - 4),
            "run time of each executor's task in this batch",
            below=_lent(last, width - 6),
        ),
        _panel(sparks, "balance by batch: mean run time / longest, 1 is perfect"),
        _panel(Group(*islice(newest, room)), "decisions and reasons, newest first", room + 2),
    )


def line(scene: Scene, status: Status, last: Progress) -> str:
    """Return a batch as one line, for use without a terminal."""
    return (
        f"batch {last.batch + 1} of {scene.batches}, {_clock(scene, last.batch)}: "
        f"{last.points:,} points in {last.seconds:.2f} s, {last.matches:,} results, "
        f"balance {last.balance:.2f}, {last.lent / max(last.points, 1):.0%} lent, "
        f"{status.partitions} partitions" + (", hotspot" if last.batch in scene.during else "")
    )


def summary(scene: Scene, swarm: Sequence[Progress], static: Sequence[Progress]) -> Group:
    """Return the measurements of SWARM beside those of the static plan."""
    runs = {"SWARM": swarm, "static": static} if static else {"SWARM": swarm}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for measure in ("balance", "busiest", "batch"):
        for run in runs:
            table.add_column(f"{measure}\n{run}", justify="right", no_wrap=True)
    table.add_column("\nlent", justify="right", no_wrap=True)
    for phase, batches in _rows(scene).items():
        # The first batch registers the subscriptions, and Spark warms up in it.
        those = [[p for p in run if p.batch in batches and p.batch] for run in runs.values()]
        table.add_row(
            phase,
            *(_mean((p.balance for p in run), "{:.2f}") for run in those),
            *(_mean((1000 * max(p.busy_s) for p in run), "{:.0f} ms") for run in those),
            *(_mean((p.seconds for p in run), "{:.2f} s") for run in those),
            _mean((p.lent / max(p.points, 1) for p in those[0]), "{:.0%}"),
        )
    size = f"{scene.batches} batches of {POINTS:,} points, {scene.executors} executors"
    notes = [
        "Means over the batches, without the first, which registers the subscriptions.",
        "In the hotspot's first batch SWARM lends points under the old plan (lent: their share), "
        "then it moves partitions and lends what is left.",
        "Each executor stands for a machine of its own. balance: mean run time of the executors' "
        "tasks / the longest, 1 is perfect. busiest: the longest task, for which a batch would "
        "wait if each executor had its own core. batch: wall-clock time on this machine, where "
        "executors share the cores.",
    ]
    if static:
        notes.append(
            "static: the same rows with a plan that never changes (static_uniform). It runs "
            "second, when Java has compiled its code: that alone slows early batches of SWARM."
        )
    head = Text(f"\nMeasured on Spark: {size}", style="bold")
    return Group(head, table, Text(" ".join(notes), style="dim"))


def _rows(scene: Scene) -> dict[str, range]:
    """Return the batches of each row of the summary."""
    before, during, after = scene.phases.items()
    return dict([before, during, ("  in its first batch", during[1][:1]), after])


def _clock(scene: Scene, batch: int) -> str:
    """Return the time of day in the stream, and the longitude where it is evening."""
    hour = scene.hour(batch)
    east = ((BUSIEST_HOUR - hour) * 15 + 180) % 360 - 180
    side = "E" if east >= 0 else "W"
    return f"{int(hour):02d}:{int(hour % 1 * 60):02d} UTC, evening at {abs(east):.0f}°{side}"


def _head(scene: Scene, batch: int) -> Text:
    head = Text("SWARM on Spark", style="bold", no_wrap=True, overflow="ellipsis")
    head.append(f"  batch {batch + 1} of {scene.batches}  {_clock(scene, batch)}  ", "default")
    if batch in scene.during:
        head.append(f"HOTSPOT: {HOTSPOT_SHARE:.0%} of all", "bold yellow")
    elif batch < scene.during.start:
        head.append(f"hotspot from batch {scene.during.start + 1}", "dim")
    else:
        head.append("hotspot gone", "dim")
    return head


def _facts(scene: Scene, status: Status, last: Progress) -> Table:
    """Return the numbers in columns of fixed width."""
    bad = sum(status.quarantined.values())
    facts = Table.grid(expand=True, padding=(0, 1, 0, 0))
    for _ in range(3):
        facts.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    facts.add_row(
        _fact(f"{last.points_per_second:,.0f}", "points/s"),
        _fact(f"{last.seconds:.2f} s", "latency"),
        _fact(f"{last.matches:,}", "results"),
    )
    facts.add_row(
        _fact(f"{QUERIES:,}", "subscriptions"),
        _fact(f"{CHANGES if last.batch else QUERIES:,}", "changed"),
        _fact(f"{bad:,}", "bad rows rejected"),
    )
    facts.add_row(
        _fact(f"{scene.executors}", "executors"),
        _fact(f"{status.partitions}", "partitions"),
        _fact(f"{status.round}", "balancing rounds"),
    )
    return facts


def _fact(number: str, what: str) -> Text:
    return Text.assemble((number, "bold"), (f" {what}", "dim"))


def _panel(
    content: RenderableType, title: str, height: int | None = None, below: Text | None = None
) -> Panel:
    return Panel(
        content,
        title=title,
        title_align="left",
        subtitle=below,
        subtitle_align="left",
        border_style="dim",
        height=height,
    )


def _lent(last: Progress, width: int) -> Text | None:
    """Return who lent points to whom, or None where nobody did."""
    if not last.lent:
        return None
    share = f"{last.lent / max(last.points, 1):.0%} of the points lent: "
    text = Text.assemble((share, "yellow"), last.loans_text(MAX_LOANS))
    text.truncate(width, overflow="ellipsis")
    return text


def _bars(busy: Sequence[float], width: int) -> Table:
    """Return a bar for each executor, in columns of at most ``MAX_BARS``."""
    columns = -(-len(busy) // MAX_BARS)
    rows = -(-len(busy) // columns)
    room = max(1, width // columns - 12)
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
    """Return the balance of the last batches as bars; yellow during the hotspot."""
    bars = [SPARKS[min(7, int(p.balance * 8))] for p in seen[-room:]]
    styles = ["yellow" if p.batch in during else "green" for p in seen[-room:]]
    return Text.assemble(*zip(bars, styles, strict=True))


def _decision(decision: Decision) -> Text:
    """Return a decision as one line; of several changes the first."""
    (what, reason), *more = lines(decision)
    also = f" and {len(more)} more" if more else ""
    return Text.assemble(
        (f"round {decision.round:>2}  ", "dim"),
        (what + also, "bold"),
        f": {reason}",
        no_wrap=True,
        overflow="ellipsis",
    )


def _mean(values: Iterable[float], form: str) -> str:
    """Return the mean as text, or a dash if there are no values."""
    numbers = list(values)
    return form.format(fmean(numbers)) if numbers else "-"
