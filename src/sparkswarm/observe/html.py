"""What notebooks show: a status as a table, a plan as a picture, and a matplotlib figure of both.

Runs on the driver, on call. Text that came from outside is escaped: a reason may quote what a
user sent. Importing this module gives :class:`~sparkswarm.protocol.plan.Plan` its picture in
notebooks; the protocol itself knows nothing of HTML.
"""

from __future__ import annotations

import colorsys
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from sparkswarm.errors import missing_extra
from sparkswarm.protocol.partition import Partition
from sparkswarm.protocol.plan import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sparkswarm.observe.progress import Progress, Status

WIDTH, MIN_HEIGHT, MAX_HEIGHT = 480, 120, 480
"""Size of a plan's picture in pixels; it has the shape of the space where that fits."""

MAX_RECTANGLES = 5000
"""More partitions than this make a notebook slow; the smallest are left out."""

MAX_PATCHES = 20_000
"""Partitions that a figure shows; the smallest are left out."""

MAX_BARS = 30
"""Executors that are shown one by one; of more, the busiest are."""

FIRST_HUE, GOLDEN_ANGLE = 210, 137.508


def executor_colour(executor: int) -> tuple[int, int, int]:
    """Return the hue in degrees, saturation and lightness in percent of an executor's colour.

    Steps of the golden angle keep neighbours distinct for any number of executors.
    """
    return round(FIRST_HUE + executor * GOLDEN_ANGLE) % 360, 60, 45 + 10 * (executor % 3)


def css_colour(executor: int) -> str:
    """Return an executor's colour in CSS."""
    hue, saturation, lightness = executor_colour(executor)
    return f"hsl({hue},{saturation}%,{lightness}%)"


def handle_html(status: Status, plan: Plan) -> str:
    """Return the status of a run and its plan."""
    return f"<div>{status_html(status)}{plan_html(plan)}</div>"


def status_html(status: Status) -> str:
    """Return the status of a run as a table, with a bar for the work of each executor."""
    rows = "".join(
        f'<tr><th style="text-align:left;vertical-align:top">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in status.facts()
    )
    return f"<table>{rows}</table>" + (_bars(status.last) if status.last else "")


def _bars(last: Progress) -> str:
    busy, executors = last.busy_s, list(range(len(last.busy_s)))
    title = "Work of each executor"
    if len(busy) > MAX_BARS:
        title = f"The {MAX_BARS} busiest of {len(busy):,} executors"
        executors = sorted(executors, key=lambda m: (-busy[m], m))[:MAX_BARS]
    largest = max(busy, default=0.0) or 1.0
    rows = "".join(
        f'<tr><td style="text-align:right">{m}</td><td style="width:320px;text-align:left">'
        f'<div style="background:{css_colour(m)};height:0.8em;'
        f'width:{100 * busy[m] / largest:.0f}%"></div></td>'
        f'<td style="text-align:right">{1000 * busy[m]:.3g} ms</td></tr>'
        for m in executors
    )
    return f"<table><caption><small>{title} in batch {last.batch}</small></caption>{rows}</table>"


def plan_html(plan: Plan) -> str:
    """Return a picture of the plan with a caption."""
    shared = sum(p.is_shared for p in plan.partitions)
    b = plan.grid.bounds
    left_out = max(0, len(plan.partitions) - MAX_RECTANGLES)
    caption = (
        _title(plan)
        + (f", {shared:,} shared (circles)" if shared else "")
        + f"; {plan.grid.columns:,} x {plan.grid.rows:,} cells, x {b.min_x:g} to {b.max_x:g}, "
        f"y {b.min_y:g} to {b.max_y:g}. A colour for each executor."
        + (f" The {left_out:,} smallest partitions are not drawn." if left_out else "")
    )
    return f"<div>{plan_svg(plan)}<div><small>{caption}</small></div></div>"


Plan._repr_html_ = plan_html  # type: ignore[attr-defined]  # what a notebook calls


def _title(plan: Plan) -> str:
    return (
        f"Plan {plan.version}: {len(plan.partitions):,} partitions of {plan.executors:,} executors"
    )


def _largest(plan: Plan, most: int) -> list[Partition]:
    return sorted(plan.partitions, key=lambda p: -p.cells.area)[:most]


def plan_svg(plan: Plan) -> str:
    """Return the partitions as rectangles, each in the colour of its first owner."""
    b = plan.grid.bounds
    shape = WIDTH * (b.max_y - b.min_y) / (b.max_x - b.min_x)
    height = round(min(max(shape, MIN_HEIGHT), MAX_HEIGHT))
    body = "".join(
        _shapes(
            _largest(plan, MAX_RECTANGLES),
            cell_width=WIDTH / plan.grid.columns,
            cell_height=height / plan.grid.rows,
            height=height,
        )
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="plan {plan.version}" '
        f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'style="max-width:100%;height:auto">{body}</svg>'
    )


def _shapes(
    partitions: Sequence[Partition], *, cell_width: float, cell_height: float, height: int
) -> Iterable[str]:
    for p in partitions:
        x, w = p.cells.col_start * cell_width, p.cells.columns * cell_width
        # Rows count upwards, pixels downwards.
        y, h = height - p.cells.row_stop * cell_height, p.cells.rows * cell_height
        owners = " and ".join(map(str, p.owners))
        yield (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" '
            f'fill="{css_colour(p.owners[0])}" fill-opacity="0.55" stroke="currentColor" '
            f'stroke-width="0.6"><title>p{p.id}, executor {owners}, '
            f"{p.cells.columns} x {p.cells.rows} cells</title></rect>"
        )
    for p in partitions:
        if p.is_shared:
            x = (p.cells.col_start + p.cells.col_stop) / 2 * cell_width
            y = height - (p.cells.row_start + p.cells.row_stop) / 2 * cell_height
            yield (
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="none" stroke="#d00000" '
                'stroke-width="1.6"/>'
            )


def plot(plan: Plan, busy_s: Sequence[float] = ()) -> Figure:
    """Draw the partitions of a plan and, if given, the seconds of work of each executor.

    A notebook shows the figure; its ``savefig`` writes it to a file.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise missing_extra("matplotlib", "plot") from error

    widths = (3, 2) if busy_s else (1,)
    figure, axes = plt.subplots(
        ncols=len(widths),
        figsize=(11 if busy_s else 7, 4.6),
        layout="constrained",
        squeeze=False,
        width_ratios=widths,
    )
    # Otherwise a notebook shows it twice: as a result, and as a figure that is still open.
    plt.close(figure)
    _draw_partitions(axes[0][0], plan)
    if busy_s:
        _draw_busy(axes[0][1], busy_s)
    figure.suptitle(_title(plan))
    return figure


def _rgb(executor: int) -> tuple[float, float, float]:
    hue, saturation, lightness = executor_colour(executor)
    return colorsys.hls_to_rgb(hue / 360, lightness / 100, saturation / 100)


def _draw_partitions(axes: Axes, plan: Plan) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    largest = _largest(plan, MAX_PATCHES)
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
        x = [(min_x + max_x) / 2 for min_x, _, max_x, _ in shared]
        y = [(min_y + max_y) / 2 for _, min_y, _, max_y in shared]
        label = "shared by several executors"
        axes.plot(x, y, "o", ms=7, mfc="none", mec="#d00000", mew=1.6, label=label)
        axes.legend(loc="lower left", fontsize=8)
    b = plan.grid.bounds
    axes.set(xlim=(b.min_x, b.max_x), ylim=(b.min_y, b.max_y), xlabel="x", ylabel="y")
    axes.set_title("partitions, a colour for each executor")


def _draw_busy(axes: Axes, busy_s: Sequence[float]) -> None:
    executors = range(len(busy_s))
    axes.barh(executors, [1000 * b for b in busy_s], color=[(*_rgb(m), 0.8) for m in executors])
    mean = 1000 * sum(busy_s) / len(busy_s)
    axes.axvline(mean, color="0.3", ls="--", lw=1)
    axes.invert_yaxis()
    if len(busy_s) <= MAX_BARS:
        axes.set_yticks(list(executors))
    axes.set(xlabel="work in the last batch (ms)", ylabel="executor")
    axes.set_title(f"work of the executors, mean {mean:.3g} ms (dashed)")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
