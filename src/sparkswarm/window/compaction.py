"""Compaction: which blocks of a partition are rewritten as one, so that there stay few.

Runs in a task, once per executor and batch, for the partitions that the executor owns. The same
blocks give the same choice, so it may run again.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkswarm.geometry import CellRect, Grid
from sparkswarm.store.blocks import Block
from sparkswarm.store.manifest import BlockRef

FAN_IN = 8
"""Number of small blocks in a row that become one."""

MAX_POINTS = 1 << 20
"""Points of a compacted block at most, so that it expires soon enough."""


def choose_compaction(
    blocks: Sequence[BlockRef], fan_in: int = FAN_IN, max_points: int = MAX_POINTS
) -> list[tuple[int, ...]]:
    """Choose groups of blocks of one partition, by position, each to become one block.

    Blocks are taken in the order of time, and only neighbours are joined, so that blocks still
    expire one by one. A block with more than half of ``max_points`` is large and left alone.
    Others become one when at least ``fan_in`` of them are in a row, small ones first, and if none
    of them has more points than all the others together: a point's block then doubles whenever
    the point is rewritten, which is at most log2(``max_points``) times. A row of 4 ``fan_in``
    blocks is joined in any case, so that a partition with k large blocks has fewer than
    4 (k + 1) ``fan_in`` blocks when nothing is chosen.
    """
    order = sorted(range(len(blocks)), key=lambda i: (blocks[i].meta.newest, i))
    points = [blocks[i].points for i in order]
    bound = fan_in
    while True:
        groups = [
            group
            for run in _runs_below(points, min(bound, max_points // 2))
            if len(run) >= fan_in
            for group in _groups(run, points, max_points)
            if len(run) >= 4 * fan_in or _pays([points[i] for i in group], max_points)
        ]
        if groups or bound >= max_points // 2:
            return [tuple(order[i] for i in group) for group in groups]
        bound *= fan_in


def _pays(points: list[int], max_points: int) -> bool:
    """Whether the block would be twice its largest part, or never be rewritten again."""
    return sum(points) >= 2 * max(points) or sum(points) > max_points // 2


def _runs_below(points: list[int], bound: int) -> list[list[int]]:
    runs: list[list[int]] = [[]]
    for i, count in enumerate(points):
        if count <= bound:
            runs[-1].append(i)
        else:
            runs.append([])
    return runs


def _groups(run: list[int], points: list[int], max_points: int) -> list[list[int]]:
    """Divide a run into groups of at most ``max_points``; leave out single blocks."""
    groups: list[list[int]] = [[]]
    for i in run:
        if sum(points[k] for k in groups[-1]) + points[i] > max_points:
            groups.append([])
        groups[-1].append(i)
    return [group for group in groups if len(group) > 1]


def compact(parts: Sequence[tuple[Block, CellRect]], grid: Grid, since: int) -> Block | None:
    """Join the points of several blocks, each in its cells, from ``since`` on; None if none."""
    rows = [(block.points, block.rows_in(cells, grid, since=since)) for block, cells in parts]
    return Block.concat([points.take(chosen) for points, chosen in rows], grid)
