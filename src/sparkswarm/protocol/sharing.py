"""Sharing: a cell too hot for one executor is served by several.

Beyond the paper, which cannot divide a cell. Every owner holds all queries of the cell, and a
hash sends each point to one owner, so that the work divides and no result is duplicated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sparkswarm.geometry import CellRect
from sparkswarm.protocol.cost import CostModel
from sparkswarm.protocol.holding import Holding
from sparkswarm.protocol.partition import TICKETS, PlanChange, reshared, split
from sparkswarm.protocol.statistics import Axis, Statistics

WORTH_SHARING = 0.2
"""Fraction of the level that a cell must cost to be shared."""

COOL = 0.1
"""Fraction of the level below which a shared cell goes back to one owner. The distance to
``WORTH_SHARING`` keeps a cell at the threshold from going back and forth."""


def hottest_cell(statistics: Statistics, model: CostModel) -> tuple[CellRect, float]:
    """Return the cell where the costliest row and column cross, and a lower bound of its cost.

    Only sums of rows and columns are known. The excess of row plus column over the whole must
    lie in the cell where they cross. (In the paper's model, whose costs do not add up, this is
    an estimate from the points.)
    """
    rows, columns = (model.profile(statistics, axis) for axis in Axis)
    row, column = int(np.argmax(rows)), int(np.argmax(columns))
    col_start = statistics.cells.col_start + column
    row_start = statistics.cells.row_start + row
    sure = float(rows[row] + columns[column] - rows.sum())
    return CellRect(col_start, row_start, col_start + 1, row_start + 1), max(0.0, sure)


class Sharing(NamedTuple):
    """A way to share a cell: the last partition that the change creates.

    ``cost`` is what m_low takes over.
    """

    change: PlanChange
    cost: float


def share_hot_cell(
    held: Holding,
    model: CostModel,
    system_received: float,
    *,
    m_high: int,
    m_low: int,
    amount: float,
    level: float,
    fresh_id: int,
) -> Sharing | None:
    """Give ``m_low`` as many tickets of the hottest cell as are worth ``amount``.

    A cell inside a larger partition is cut out first; the pieces around it stay with m_high.
    Of a cell that is shared already, m_high gives from its own tickets. Returns None where no
    cell is hot enough.
    """
    partition = held.partition
    if partition.is_shared and not partition.is_cell:
        return None
    cell, sure = hottest_cell(held.statistics, model)
    shares = partition.shares
    ticket = model.cost(sure, system_received) / shares[m_high]
    if ticket * TICKETS <= WORTH_SHARING * level:
        return None
    # An only owner keeps at least one ticket; giving all of them would be a move.
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
