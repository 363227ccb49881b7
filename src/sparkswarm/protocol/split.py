"""Which partitions to move whole (Algorithm 3), and the best line through one to split.

Paper, "Workload Reduction by Repartitioning" and "Searching for Best Split".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparkswarm.geometry import CellRect
from sparkswarm.protocol.cost import CostModel
from sparkswarm.protocol.statistics import Axis, Statistics


def find_subset(costs: Sequence[float], capacity: float) -> list[int]:
    """Choose partitions whose costs add up to as much of ``capacity`` as a greedy choice finds.

    Algorithm 3, findSubset: sorted greedy subset sum, at least half of what the best subset
    reaches, in O(k log k). Differs: partitions without cost stay, because moving them changes
    nothing.

    Returns
    -------
    list of int
        Positions in ``costs``, from the costliest to the cheapest; together they never exceed
        the capacity.
    """
    total = 0.0
    chosen: list[int] = []
    for i in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        if costs[i] > 0 and total + costs[i] <= capacity:
            total += costs[i]
            chosen.append(i)
            if total == capacity:
                break
    return chosen


@dataclass(frozen=True, slots=True)
class Split:
    """A line through a partition, and what each side costs.

    Attributes
    ----------
    axis, line
        The first ``line`` rows or columns are on one side.
    move_first
        Whether the side before the line is the one that moves.
    moved, kept
        Costs of the side that moves and the side that stays.
    difference
        C_diff, the cost of m_high less that of m_low afterwards; 0 is perfect.
    """

    axis: Axis
    line: int
    move_first: bool
    moved: float
    kept: float
    difference: float

    def pieces(self, cells: CellRect) -> tuple[CellRect, CellRect]:
        """Return (the cells that move, the cells that stay)."""
        cut = cells.split_rows if self.axis == Axis.ROWS else cells.split_columns
        first, second = cut(self.line)
        return (first, second) if self.move_first else (second, first)


def find_split(
    statistics: Statistics, model: CostModel, c_high: float, c_low: float, system_received: float
) -> Split | None:
    """Find the line and side that leave m_high and m_low closest to each other.

    At most four binary searches: rows and columns, either side moved. As a line advances,
    the side before it never gets cheaper and the side after it never gets costlier, so C_diff
    is monotone and the best line is one of the two where it changes sign.

    Returns None for a partition of one cell.
    """
    c_partition = model.cost(model.numerator(statistics), system_received)
    best: Split | None = None
    for axis in Axis:
        count = len(statistics.lines(axis))
        for move_first in (True, False):

            def at(line: int, axis: Axis = axis, move_first: bool = move_first) -> Split:
                first, second = (
                    model.cost(side, system_received)
                    for side in model.split(statistics, axis, line)
                )
                moved, kept = (first, second) if move_first else (second, first)
                difference = (c_high - c_partition + kept) - (c_low + moved)
                return Split(axis, line, move_first, moved, kept, difference)

            for line in _around_zero(count, move_first, lambda line: at(line).difference):
                candidate = at(line)
                if best is None or abs(candidate.difference) < abs(best.difference):
                    best = candidate
            if best is not None and best.difference == 0:
                return best
    return best


def _around_zero(count: int, falls: bool, difference: Callable[[int], float]) -> list[int]:
    """Return the split lines next to where a monotone function of the line crosses zero."""
    low, high = 1, count
    while low < high:
        middle = (low + high) // 2
        if (difference(middle) > 0) == falls:
            low = middle + 1
        else:
            high = middle
    return [line for line in (low - 1, low) if 0 < line < count]
