"""Sharing: a cell too hot for one executor is served by several.

Beyond the paper, which cannot divide a cell. Every owner holds all queries of the cell and
each point goes to one owner by a hash, so that the work divides and no result is doubled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sparkswarm.protocol.cost import CostModel
from sparkswarm.protocol.geometry import CellRect
from sparkswarm.protocol.partition import Change, Partition, reowned, split
from sparkswarm.protocol.statistics import Axis, Statistics

MAX_OWNERS = 64
"""Queries of a shared cell are kept by every owner: there must be an end to it."""

COOL = 0.5
"""A cell below this fraction of the level is not worth sharing, and owners are dropped only
when each share would stay below it, so that a cell on the edge does not go back and forth."""


def hottest_cell(statistics: Statistics, model: CostModel) -> tuple[CellRect, float]:
    """Return the cell where the costliest row and column cross, and a cost it surely has.

    Only sums of rows and columns are known. What the row and the column have together
    beyond the whole must lie in the cell where they cross.
    """
    rows, columns = (model.profile(statistics, axis) for axis in Axis)
    row, column = int(np.argmax(rows)), int(np.argmax(columns))
    col_start = statistics.cells.col_start + column
    row_start = statistics.cells.row_start + row
    sure = float(rows[row] + columns[column] - rows.sum())
    return CellRect(col_start, row_start, col_start + 1, row_start + 1), max(0.0, sure)


class Sharing(NamedTuple):
    """How a cell would be shared.

    Attributes
    ----------
    change
        The change; the shared cell is the last partition it creates.
    share
        What each owner would then have of the cell's cost.
    joined
        How many of the executors offered would join.
    """

    change: Change
    share: float
    joined: int


def share_hot_cell(
    partition: Partition,
    statistics: Statistics,
    model: CostModel,
    system_received: float,
    m_high: int,
    m_lows: Sequence[int],
    fresh_id: int,
    level: float = 0.0,
    owners: int | None = None,
) -> Sharing | None:
    """Share the hottest cell of a partition with some of ``m_lows``.

    A cell inside a larger partition is cut out first; the pieces around it stay with m_high.

    Parameters
    ----------
    level
        Share only a cell that surely costs more than this.
    owners
        How many owners it shall have; by default so many that every share fits the level.

    Returns
    -------
    Sharing or None
        None where no cell is hot enough or nobody can join.
    """
    cell, sure = hottest_cell(statistics, model)
    hot = model.cost(sure, system_received)
    if hot <= level or (partition.is_shared and not partition.is_cell):
        return None
    whole = hot * len(partition.owners)
    wanted = owners_needed(whole, level) if owners is None else owners
    wanted = min(wanted, len(partition.owners) + len(m_lows), MAX_OWNERS)
    joined = wanted - len(partition.owners)
    if joined < 1:
        return None
    everyone = (*partition.owners, *m_lows[:joined])
    if partition.is_cell:
        change = reowned(partition, everyone, fresh_id)
    else:
        around = [(cells, (m_high,)) for cells in _around(partition.cells, cell)]
        change = split(partition, [*around, (cell, everyone)], fresh_id)
    return Sharing(change, whole / wanted, joined)


def owners_needed(whole: float, level: float) -> int:
    """Return how many owners a shared cell needs for every share to fit the level."""
    return max(1, math.ceil(whole / level)) if level > 0 else 1


def _around(whole: CellRect, hole: CellRect) -> list[CellRect]:
    """Cut ``whole`` less ``hole`` into at most four rectangles."""
    pieces = [
        whole._replace(row_stop=hole.row_start),
        whole._replace(row_start=hole.row_stop),
        CellRect(whole.col_start, hole.row_start, hole.col_start, hole.row_stop),
        CellRect(hole.col_stop, hole.row_start, whole.col_stop, hole.row_stop),
    ]
    return [piece for piece in pieces if piece.area]
