"""A plan as a picture for a notebook: plain HTML and SVG, made of numbers only.

Owns the colours of executors. Knows nothing of notebooks; whoever shows HTML can show it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkswarm.protocol.partition import Partition
    from sparkswarm.protocol.plan import Plan

WIDTH, LEAST_HEIGHT, MOST_HEIGHT = 480, 120, 480
"""Size of the picture in pixels; it has the shape of the space where that fits."""

MOST_DRAWN = 5000
"""More rectangles than this would make a notebook slow; the smallest are left out."""

FIRST_HUE, GOLDEN_ANGLE = 210, 137.508


def colour(executor: int) -> tuple[int, int, int]:
    """Return the hue in degrees, saturation and lightness in percent of an executor's colour.

    Steps of the golden angle keep neighbours apart, however many there are.
    """
    return round(FIRST_HUE + executor * GOLDEN_ANGLE) % 360, 60, 45 + 10 * (executor % 3)


def css_colour(executor: int) -> str:
    """Return an executor's colour as style sheets have it."""
    hue, saturation, lightness = colour(executor)
    return f"hsl({hue},{saturation}%,{lightness}%)"


def plan_html(plan: Plan) -> str:
    """Return a picture of the plan, with a line that says what is in it."""
    shared = sum(p.is_shared for p in plan.partitions)
    b = plan.grid.bounds
    left_out = max(0, len(plan.partitions) - MOST_DRAWN)
    words = (
        f"Plan {plan.version}: {len(plan.partitions):,} partitions of {plan.executors:,} executors"
        + (f", {shared:,} shared (circles)" if shared else "")
        + f"; {plan.grid.columns:,} x {plan.grid.rows:,} cells, x {b.min_x:g} to {b.max_x:g}, "
        f"y {b.min_y:g} to {b.max_y:g}. A colour for each executor."
        + (f" The {left_out:,} smallest partitions are not drawn." if left_out else "")
    )
    return f"<div>{plan_svg(plan)}<div><small>{words}</small></div></div>"


def plan_svg(plan: Plan) -> str:
    """Return the partitions as rectangles, each in the colour of its first owner."""
    b = plan.grid.bounds
    shape = WIDTH * (b.max_y - b.min_y) / (b.max_x - b.min_x)
    height = round(min(max(shape, LEAST_HEIGHT), MOST_HEIGHT))
    largest = sorted(plan.partitions, key=lambda p: -p.cells.area)[:MOST_DRAWN]
    across, up = WIDTH / plan.grid.columns, height / plan.grid.rows
    body = "".join(_shapes(largest, across, up, height))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="plan {plan.version}" '
        f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'style="max-width:100%;height:auto">{body}</svg>'
    )


def _shapes(partitions: list[Partition], across: float, up: float, height: int) -> Iterable[str]:
    for p in partitions:
        x, w = p.cells.col_start * across, p.cells.columns * across
        # Rows count upwards, pixels downwards.
        y, h = height - p.cells.row_stop * up, p.cells.rows * up
        owners = " and ".join(map(str, p.owners))
        yield (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" '
            f'fill="{css_colour(p.owners[0])}" fill-opacity="0.55" stroke="currentColor" '
            f'stroke-width="0.6"><title>p{p.id}, executor {owners}, '
            f"{p.cells.columns} x {p.cells.rows} cells</title></rect>"
        )
    for p in partitions:
        if p.is_shared:
            x = (p.cells.col_start + p.cells.col_stop) / 2 * across
            y = height - (p.cells.row_start + p.cells.row_stop) / 2 * up
            yield (
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="none" stroke="#d00000" '
                'stroke-width="1.6"/>'
            )
