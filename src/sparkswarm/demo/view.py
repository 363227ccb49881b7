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

OTHER_LINES = 10
"""Lines of the view without bars, balances and decisions; with 8, 2 and 3 it has 23 of 24."""

NAMES = "SWARM", "static"
"""What the two streams are called."""

LEAST_COLUMN = 13
"""Width of a column of bars: number, one block, run time."""

MAX_BARS, SPARKS = 8, "▁▂▃▄▅▆▇█"

MAX_LOANS = 4
"""Loans that are listed, the largest first."""


def screen(
    console: Console,
    scene: Scene,
    status: Status,
    decisions: Sequence[Decision],
    swarm: Sequence[Progress],
    static: Sequence[Progress] = (),
) -> Group:
    """Return the view after a batch, given the batches until now."""
    width, last = console.width, swarm[-1]
    runs = [run for run in (swarm, static) if run]
    rows = min(scene.executors, MAX_BARS)
    room = max(3, min(12, console.height - 1 - OTHER_LINES - rows - len(runs)))
    loads = [run[-1].busy_s for run in runs]
    columns = -(-scene.executors // MAX_BARS)
    if width - 4 < len(loads) * columns * LEAST_COLUMN:
        loads = loads[:1]
    whose = ": SWARM left, static right" if len(loads) > 1 else ""
    newest = (_decision(d) for d in reversed(decisions) if d.kind is not DecisionKind.ASK)
    return Group(
        _head(scene, last.batch),
        _facts(scene, status, last),
        _panel(
            _loads(loads, width - 4),
            f"run time of each executor's task in this batch{whose}",
            below=_lent(last, width - 6),
        ),
        _panel(
            Group(
                *(_balances(*one, scene.during, width) for one in zip(NAMES, runs, strict=False))
            ),
            "balance by batch: mean run time / longest, 1 is perfect",
        ),
        _panel(Group(*islice(newest, room)), "decisions and reasons, newest first", room + 2),
    )


def line(scene: Scene, status: Status, last: Progress, static: Progress | None = None) -> str:
    """Return a batch as one line, for use without a terminal."""
    text = (
        f"batch {last.batch + 1} of {scene.batches}, {_clock(scene, last.batch)}: "
        f"{last.points:,} points in {last.seconds:.2f} s, {last.matches:,} results, "
        f"balance {last.balance:.2f}, {last.lent / max(last.points, 1):.0%} lent, "
        f"{status.partitions} partitions" + (", hotspot" if last.batch in scene.during else "")
    )
    if static is None:
        return text
    return f"{text}; static {static.seconds:.2f} s, balance {static.balance:.2f}"


def summary(scene: Scene, swarm: Sequence[Progress], static: Sequence[Progress] = ()) -> Group:
    """Return the measurements of SWARM beside those of the static plan."""
    runs = dict(zip(NAMES, [run for run in (swarm, static) if run], strict=False))
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
            "static: the same rows with a plan that never changes (static_uniform). The two take "
            "turns, batch by batch, so both wait alike for Java to compile its code at the "
            "beginning. On this hotspot an even plan fails: most of the work is in one of its "
            "partitions. Where load is even, or executors share a machine, a static plan is as "
            "good."
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


def _loads(runs: Sequence[Sequence[float]], width: int) -> Table:
    """Return the bars of the streams side by side, with one scale."""
    most = max(map(max, runs)) or 1.0
    table = Table.grid(expand=True)
    for _ in runs:
        table.add_column(ratio=1, no_wrap=True)
    table.add_row(*(_bars(busy, most, width // len(runs)) for busy in runs))
    return table


def _bars(busy: Sequence[float], most: float, width: int) -> Table:
    """Return a bar for each executor, in columns of at most ``MAX_BARS``."""
    columns = -(-len(busy) // MAX_BARS)
    rows = -(-len(busy) // columns)
    room = max(1, width // columns - 12)
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


def _balances(name: str, seen: Sequence[Progress], during: range, width: int) -> Text:
    """Return a stream's balance and time of the last batch, and the balance of those before."""
    last = seen[-1]
    now = f"{name:<7}{last.balance:.2f}  "
    took = f"{last.seconds:.2f} s a batch  "
    return Text.assemble(
        (now, "bold"), took, _sparks(seen, during, width - 4 - len(now) - len(took))
    )


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
