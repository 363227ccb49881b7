"""Sharing: a cell too hot for one executor is served by several.

Beyond the paper, which cannot divide a cell. Every owner holds all queries of the cell and
each point goes to one owner by a hash, so that the work divides and no result is doubled.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sparkswarm.geometry import CellRect
from sparkswarm.protocol.cost import CostModel
from sparkswarm.protocol.partition import TICKETS, Partition, PlanChange, reshared, split
from sparkswarm.protocol.statistics import Axis, Statistics

WORTH_SHARING = 0.2
"""A cell is shared only if it costs more than this fraction of the level."""

COOL = 0.1
"""A shared cell goes back to one owner when it costs less than this fraction of the level.
The distance to ``WORTH_SHARING`` keeps a cell on the edge from going back and forth."""


def hottest_cell(statistics: Statistics, model: CostModel) -> tuple[CellRect, float]:
    """Return the cell where the costliest row and column cross, and a cost it surely has.

    Only sums of rows and columns are known. What the row and the column have together
    beyond the whole must lie in the cell where they cross. (Sure in the work model. The
    paper's costs do not add up, and there it is an estimate from the points.)
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
    cost
        What goes to m_low.
    """

    change: PlanChange
    cost: float


def share_hot_cell(
    partition: Partition,
    statistics: Statistics,
    model: CostModel,
    system_received: float,
    m_high: int,
    m_low: int,
    amount: float,
    level: float,
    fresh_id: int,
) -> Sharing | None:
    """Give ``m_low`` as many tickets of the hottest cell as are worth ``amount``.

    A cell inside a larger partition is cut out first; the pieces around it stay with
    m_high. A cell that is shared already gives from m_high's own tickets.

    Returns
    -------
    Sharing or None
        None where no cell is hot enough to share.
    """
    if partition.is_shared and not partition.is_cell:
        return None
    cell, sure = hottest_cell(statistics, model)
    shares = partition.shares
    ticket = model.cost(sure, system_received) / shares[m_high]
    if ticket * TICKETS <= WORTH_SHARING * level:
        return None
    # The only owner keeps at least one ticket: without any it would be a move.
    most = shares[m_high] if partition.is_shared else TICKETS - 1
    given = min(max(round(amount / ticket), 1), most)
    shares[m_high] -= given
    shares[m_low] = shares.get(m_low, 0) + given
    if partition.is_cell:
        change = reshared(partition, shares, fresh_id)
    else:
        around = [(cells, {m_high: TICKETS}) for cells in _around(partition.cells, cell)]
        change = split(partition, [*around, (cell, shares)], fresh_id)
    return Sharing(change, given * ticket)


def _around(whole: CellRect, hole: CellRect) -> list[CellRect]:
    """Cut ``whole`` less ``hole`` into at most four rectangles."""
    pieces = [
        whole._replace(row_stop=hole.row_start),
        whole._replace(row_start=hole.row_stop),
        CellRect(whole.col_start, hole.row_start, hole.col_start, hole.row_stop),
        CellRect(hole.col_stop, hole.row_start, whole.col_stop, hole.row_stop),
    ]
    return [piece for piece in pieces if piece.area]
