"""A run in a notebook: its state as HTML, its plan and loads as a picture.

Owns what people see there. All text that came from outside is escaped: a reason may quote what
a user sent.
"""

from __future__ import annotations

import colorsys
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from sparkswarm.observe.describe import reason, what
from sparkswarm.observe.plan_html import colour, css_colour, plan_html
from sparkswarm.protocol.plan import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sparkswarm.observe.progress import Progress, Status

MOST_BARS = 30
"""More executors than this are not shown one by one; the busiest are."""

MOST_PATCHES = 20_000
"""More rectangles than this nobody could tell apart."""


def status_html(status: Status) -> str:
    """Return the state of a run."""
    state = "running" if status.active else "stopped"
    facts = [
        ("policy", f"{escape(status.policy)}, {state}"),
        (
            "divided",
            f"{status.executors:,} executors, {status.partitions:,} partitions, "
            f"round {status.round:,}",
        ),
        (
            "so far",
            ", ".join(filter(None, [f"{status.batches:,} batches", status.counts_text()])),
        ),
    ]
    if status.last:
        last = status.last
        facts.append(
            (
                f"batch {last.batch}",
                f"{last.points:,} points in {last.seconds:.2f} s "
                f"({last.points_per_second:,.0f} points/s), balance {last.balance:.2f}",
            )
        )
    if status.quarantined:
        bad = (
            f"{count:,} x {escape(kind)}: {escape(reason)}"
            for (kind, reason), count in sorted(status.quarantined.items())
        )
        facts.append(("quarantined", "<br>".join(bad)))
    if status.decisions:
        said = (
            f"round {d.round}: <b>{escape(what(d))}</b>, {escape(reason(d))}"
            for d in status.decisions
        )
        facts.append(("decisions", "<br>".join(said)))
    return _table(facts) + (_bars(status.last) if status.last else "")


def handle_html(status: Status, plan: Plan) -> str:
    """Return the state of a run and its plan."""
    return f"<div>{status_html(status)}{plan_html(plan)}</div>"


def _table(facts: Iterable[tuple[str, str]]) -> str:
    rows = "".join(
        f'<tr><th style="text-align:left;vertical-align:top">{name}</th>'
        f'<td style="text-align:left">{value}</td></tr>'
        for name, value in facts
    )
    return f"<table>{rows}</table>"


def _bars(last: Progress) -> str:
    """Return the work of each executor in the last batch; the busiest where they are many."""
    order = sorted(range(len(last.busy_s)), key=lambda m: (-last.busy_s[m], m))[:MOST_BARS]
    most = max(last.busy_s, default=0.0) or 1.0
    shown = order if len(last.busy_s) > MOST_BARS else sorted(order)
    rows = "".join(
        f'<tr><td style="text-align:right">{m}</td><td style="width:320px;text-align:left">'
        f'<div style="background:{css_colour(m)};height:0.8em;'
        f'width:{100 * last.busy_s[m] / most:.0f}%"></div></td>'
        f'<td style="text-align:right">{1000 * last.busy_s[m]:.3g} ms</td></tr>'
        for m in shown
    )
    which = (
        f"The {MOST_BARS} busiest of {len(last.busy_s):,} executors"
        if len(last.busy_s) > MOST_BARS
        else "Work of each executor"
    )
    return f"<table><caption><small>{which} in batch {last.batch}</small></caption>{rows}</table>"


def plot(plan: Plan, busy: Sequence[float] = (), title: str | None = None) -> Figure:
    """Draw the partitions of a plan and, where given, the work of each executor beside them.

    Parameters
    ----------
    plan
        The plan.
    busy
        Seconds of work of each executor.
    title
        Above it all; by default the plan's version and size.

    Returns
    -------
    matplotlib.figure.Figure
        A notebook shows it; ``savefig`` writes it to a file.
    """
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        1, 2 if busy else 1, figsize=(11 if busy else 7, 4.6), layout="constrained",
        squeeze=False, width_ratios=(3, 2) if busy else (1,),
    )  # fmt: skip
    # Or a notebook would show it twice: as a result, and as a figure that is still open.
    plt.close(figure)
    _draw_partitions(axes[0][0], plan)
    if busy:
        _draw_busy(axes[0][1], busy)
    partitions = f"{len(plan.partitions):,} partitions of {plan.executors:,} executors"
    figure.suptitle(title if title is not None else f"Plan {plan.version}: {partitions}")
    return figure


def _rgb(executor: int) -> tuple[float, float, float]:
    hue, saturation, lightness = colour(executor)
    return colorsys.hls_to_rgb(hue / 360, lightness / 100, saturation / 100)


def _draw_partitions(axes: Axes, plan: Plan) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    largest = sorted(plan.partitions, key=lambda p: -p.cells.area)[:MOST_PATCHES]
    patches, faces = [], []
    for partition in largest:
        min_x, min_y, max_x, max_y = plan.grid.space(partition.cells)
        patches.append(Rectangle((min_x, min_y), max_x - min_x, max_y - min_y))
        faces.append((*_rgb(partition.owners[0]), 0.55))
    axes.add_collection(
        PatchCollection(patches, facecolors=faces, edgecolors="0.15", linewidths=0.6)
    )
    shared = [plan.grid.space(p.cells) for p in largest if p.is_shared]
    if shared:
        axes.plot(
            [(min_x + max_x) / 2 for min_x, _, max_x, _ in shared],
            [(min_y + max_y) / 2 for _, min_y, _, max_y in shared],
            "o", ms=7, mfc="none", mec="#d00000", mew=1.6, label="shared by several executors",
        )  # fmt: skip
        axes.legend(loc="lower left", fontsize=8)
    b = plan.grid.bounds
    axes.set(
        xlim=(b.min_x, b.max_x), ylim=(b.min_y, b.max_y), xlabel="x", ylabel="y",
        title="partitions, a colour for each executor",
    )  # fmt: skip


def _draw_busy(axes: Axes, busy: Sequence[float]) -> None:
    executors = range(len(busy))
    axes.barh(executors, [1000 * b for b in busy], color=[(*_rgb(m), 0.8) for m in executors])
    mean = 1000 * sum(busy) / len(busy)
    axes.axvline(mean, color="0.3", ls="--", lw=1)
    axes.invert_yaxis()
    if len(busy) <= MOST_BARS:
        axes.set_yticks(list(executors))
    most = max(busy)
    balance = mean / (1000 * most) if most else 1.0
    axes.set(
        xlabel="work in the last batch (ms)", ylabel="executor",
        title=f"loads, balance {balance:.2f}, mean {mean:.3g} ms (dashed)",
    )  # fmt: skip
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
