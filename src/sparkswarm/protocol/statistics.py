"""Statistics of a partition by row and column.

Owns the numbers of one partition: collecting them, closing a round, dividing them by a split
and joining them in a merge. It knows neither costs nor other executors.

All numbers are in one contiguous array with a line for each row and then for each column, so
that everything about a split line is in one or two cache lines. The first five fields are the
paper's statistics. ``CHECKS``, the candidate queries that points were checked against, is ours
and the basis of the work model. The fields ``*_NEW`` are the paper's *statistics collectors*
(N', Q', spanQ') of the present round.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from sparkswarm.compiled import FloatArray, IntArray, compiled
from sparkswarm.errors import GeometryError
from sparkswarm.geometry import CellRect, QueryCells

N = 0
"""Points from the first line to this one; decays with every round."""
Q = 1
"""Queries that start on a line from the first to this one."""
R = 2
"""Points and queries received in the last round from the first line to this one."""
SPAN_Q = 3
"""Queries that reach this line from the one before."""
PRE_SPAN_Q = 4
"""Queries received in the last round that reach this line from the one before."""
CHECKS = 5
"""Candidate queries checked, from the first line to this one; decays as N does."""
N_NEW = 6
"""N': points received this round on this line."""
Q_NEW = 7
"""Q': queries received this round that start on this line."""
SPAN_Q_NEW = 8
"""spanQ': queries received this round that reach this line from the one before."""
CHECKS_NEW = 9
"""Candidate queries checked this round on this line."""
FIELDS = 10

HALVE = 0.5
"""The paper's decay: "N is divided by 2 before it is updated in each round"."""

JUMP = 0.25
"""Fraction by which a round's arrivals must differ from the usual, beyond chance, to be a
jump."""


class Axis(IntEnum):
    """Direction of lines: a split by ROWS has whole rows on either side."""

    ROWS = 0
    COLUMNS = 1


class RoundTotals(NamedTuple):
    """Arrivals of a closed round."""

    points: float
    queries: float
    checks: float


class PointCounts:
    """Points and checks of one partition by row and column, for :meth:`Statistics.add_points`.

    Collected where points are matched, whoever owns the partition.
    """

    __slots__ = ("cells", "values")

    def __init__(self, cells: CellRect) -> None:
        self.cells = cells
        self.values: FloatArray = np.zeros((cells.rows + cells.columns, 2))

    def collect(self, columns: IntArray, rows: IntArray, checks: FloatArray) -> None:
        """Count points, as :meth:`Statistics.collect_points` does."""
        _collect_points(self.values, columns, rows, checks, np.empty(0), self.cells, 0, 1)


class Statistics:
    """The statistics of one partition (paper, "SWARM's Statistics").

    After :meth:`close_round`, the numbers of points, queries and arrivals in any run of whole
    rows or columns follow from two lines, and equal a count.
    """

    __slots__ = ("cells", "values")

    def __init__(self, cells: CellRect, values: FloatArray | None = None) -> None:
        self.cells = cells
        self.values: FloatArray = (
            np.zeros((cells.rows + cells.columns, FIELDS)) if values is None else values
        )

    def lines(self, axis: Axis) -> FloatArray:
        """Return the lines of one axis, a view."""
        rows = self.cells.rows
        return self.values[:rows] if axis == Axis.ROWS else self.values[rows:]

    # -- collecting ------------------------------------------------------------------------

    def collect_points(
        self,
        columns: IntArray,
        rows: IntArray,
        checks: FloatArray | None = None,
        weights: FloatArray | None = None,
    ) -> None:
        """Count points: one counter for the row and one for the column of each.

        Parameters
        ----------
        columns, rows
            The points' cells in the grid, all within this partition.
        checks
            Number of candidate queries that each was checked against; 0 by default.
        weights
            Number of points that each entry stands for; 1 by default.
        """
        _collect_points(
            self.values,
            columns,
            rows,
            _or_empty(checks),
            _or_empty(weights),
            self.cells,
            N_NEW,
            CHECKS_NEW,
        )

    def collect_queries(self, queries: QueryCells) -> None:
        """Count new queries, already clipped to this partition."""
        _collect_queries(self.values, *queries[:4], self.cells)

    def remove_queries(self, queries: QueryCells) -> None:
        """Subtract queries that were unregistered or expired, clipped to this partition.

        They still count as received (R), because they did arrive.
        """
        gone = Statistics(self.cells)
        gone.collect_queries(queries)
        gone.close_round()
        self.values[:, Q] -= gone.values[:, Q]
        self.values[:, SPAN_Q] -= gone.values[:, SPAN_Q]

    def add_points(self, collected: FloatArray) -> None:
        """Add what others collected of this partition, see :class:`PointCounts`."""
        self.values[:, [N_NEW, CHECKS_NEW]] += collected

    def stretch_round(self, factor: float) -> None:
        """Multiply the arrivals of this round, to compensate for a round of unusual length."""
        self.values[:, [N_NEW, CHECKS_NEW]] *= factor

    def close_round(self, decay: float = HALVE, forget_jumps: bool = False) -> RoundTotals:
        """Add the collectors to the statistics and reset them: Algorithm 2, updateStat.

        One pass over rows and columns.

        Parameters
        ----------
        decay
            Multiplies the old N and checks before the new ones are added.
        forget_jumps
            Differs from the paper: where the arrivals are far from what the past predicts,
            the past is dropped and the round takes its place. After one round a hotspot then
            counts in full instead of half.
        """
        if forget_jumps and decay < 1.0 and self._jumped(1.0 - decay):
            # N settles at N' / (1 - decay); keep to that scale.
            totals = _close_round(self.values, self.cells.rows, 0.0, 1.0 / (1.0 - decay))
        else:
            totals = _close_round(self.values, self.cells.rows, decay, 1.0)
        return RoundTotals(*totals)

    def _jumped(self, per_round: float) -> bool:
        """Return whether points or checks of this round are out of line with the past."""
        points, checks = self.lines(Axis.ROWS)[:, [N_NEW, CHECKS_NEW]].sum(axis=0)
        usual_points, usual_checks = self.values[-1, [N, CHECKS]] * per_round
        # Four standard deviations of a Poisson count, plus a quarter.
        chance = 4.0 * np.sqrt(max(usual_points, 1.0))
        usual_rate = usual_checks / usual_points if usual_points > 0 else 0.0
        checks_a_point = usual_rate or checks / max(points, 1.0)
        return bool(
            abs(points - usual_points) > chance + JUMP * usual_points
            or abs(checks - usual_checks) > chance * checks_a_point + JUMP * usual_checks
        )

    # -- reading ---------------------------------------------------------------------------

    @property
    def points(self) -> float:
        """N(p), the points."""
        return float(self.values[-1, N])

    @property
    def queries(self) -> float:
        """Q(p), the queries."""
        return float(self.values[-1, Q])

    @property
    def received(self) -> float:
        """R(p), points and queries received in the last round."""
        return float(self.values[-1, R])

    @property
    def checks(self) -> float:
        """Candidate queries checked."""
        return float(self.values[-1, CHECKS])

    # -- splitting, merging, sharing -------------------------------------------------------

    def restricted_to(self, cells: CellRect, queries: QueryCells | None = None) -> Statistics:
        """Return the statistics of a part of this partition.

        Along a cut they are exact. Across it they are estimates: the columns of a band of rows
        are those of the whole, scaled by the band's share. Where the band has T of N points,
        no prefix is off by more than T (N - T) / N, at most N / 4, and since old counts decay
        by half, the error halves every round.

        Parameters
        ----------
        cells
            The part.
        queries
            The queries of the part, clipped to it, to recount Q and spanQ exactly. R counts
            for one round only and stays an estimate.
        """
        if not self.cells.contains(cells):
            raise GeometryError(f"{cells} is not a part of {self.cells}")
        part = self._cut(Axis.ROWS, cells)._cut(Axis.COLUMNS, cells)
        if part is self:
            part = Statistics(cells, self.values.copy())
        if queries is not None:
            part._recount(queries)
        return part

    def scaled(self, factor: float) -> Statistics:
        """Return the statistics with this share of the points and all queries."""
        values = self.values.copy()
        values[:, [N, R, CHECKS, N_NEW, CHECKS_NEW]] *= factor
        return Statistics(self.cells, values)

    @classmethod
    def joined(
        cls, parts: list[Statistics], cells: CellRect, queries: QueryCells | None = None
    ) -> Statistics:
        """Return the statistics of partitions that together tile ``cells``.

        Points, arrivals and checks add up exactly. Queries that reach from one part into
        another are counted in both, so Q is an upper bound unless ``queries``, those of the
        whole, are given to recount it.
        """
        per_line = np.zeros((cells.rows + cells.columns, FIELDS))
        for part in parts:
            row = part.cells.row_start - cells.row_start
            column = part.cells.col_start - cells.col_start + cells.rows
            per_line[row : row + part.cells.rows] += _per_line(part.lines(Axis.ROWS))
            per_line[column : column + part.cells.columns] += _per_line(part.lines(Axis.COLUMNS))
        whole = cls(cells, per_line)
        for axis in Axis:
            lines = whole.lines(axis)
            lines[:, _CUMULATIVE] = lines[:, _CUMULATIVE].cumsum(axis=0)
        if queries is not None:
            whole._recount(queries)
        return whole

    def _cut(self, axis: Axis, cells: CellRect) -> Statistics:
        """Keep the lines of ``axis`` within ``cells``; scale the other axis."""
        if axis == Axis.ROWS:
            start = cells.row_start - self.cells.row_start
            stop = start + cells.rows
            kept = self.cells._replace(row_start=cells.row_start, row_stop=cells.row_stop)
        else:
            start = cells.col_start - self.cells.col_start
            stop = start + cells.columns
            kept = self.cells._replace(col_start=cells.col_start, col_stop=cells.col_stop)
        if kept == self.cells:
            return self
        along = self.lines(axis)[start:stop].copy()
        if start:
            along[:, _CUMULATIVE] -= self.lines(axis)[start - 1, _CUMULATIVE]
            # Queries that reach the first line from outside now start there.
            along[:, Q] += along[0, SPAN_Q]
            along[:, R] += along[0, PRE_SPAN_Q]
            along[0, Q_NEW] += along[0, SPAN_Q_NEW]
            along[0, [SPAN_Q, PRE_SPAN_Q, SPAN_Q_NEW]] = 0.0
        across = self.lines(Axis.COLUMNS if axis == Axis.ROWS else Axis.ROWS).copy()
        across *= _shares(along, self.lines(axis))
        both = (along, across) if axis == Axis.ROWS else (across, along)
        return Statistics(kept, np.concatenate(both))

    def _recount(self, queries: QueryCells) -> None:
        """Set Q and spanQ so that they are exact once the present round is closed."""
        exact = Statistics(self.cells)
        exact.collect_queries(queries)
        exact.close_round()
        for axis in Axis:
            lines, right = self.lines(axis), exact.lines(axis)
            lines[:, Q] = right[:, Q] - lines[:, Q_NEW].cumsum()
            lines[:, SPAN_Q] = right[:, SPAN_Q] - lines[:, SPAN_Q_NEW]


_CUMULATIVE = [N, Q, R, CHECKS]


def _totals(lines: FloatArray) -> FloatArray:
    """Return the total of every field; spans get the totals of what they span."""
    totals: FloatArray = lines.sum(axis=0)
    totals[_CUMULATIVE] = lines[-1, _CUMULATIVE]
    totals[SPAN_Q], totals[PRE_SPAN_Q] = totals[Q], totals[R]
    totals[SPAN_Q_NEW] = totals[Q_NEW]
    return totals


def _shares(part: FloatArray, whole: FloatArray) -> FloatArray:
    """Return the share of the part in each field of the whole, 0 where that is empty."""
    of_part, of_whole = _totals(part), _totals(whole)
    shares: FloatArray = np.zeros(FIELDS)
    return np.divide(of_part, of_whole, out=shares, where=of_whole > 0)


def _per_line(lines: FloatArray) -> FloatArray:
    """Undo the running sums."""
    single: FloatArray = lines.copy()
    single[1:, _CUMULATIVE] -= lines[:-1, _CUMULATIVE]
    return single


def _or_empty(values: FloatArray | None) -> FloatArray:
    return np.empty(0) if values is None else np.asarray(values, dtype=np.float64)


@compiled
def _collect_points(
    values: FloatArray,
    columns: IntArray,
    rows: IntArray,
    checks: FloatArray,
    weights: FloatArray,
    cells: CellRect,
    points_field: int,
    checks_field: int,
) -> None:
    first_column = (cells.row_stop - cells.row_start) - cells.col_start
    for i in range(len(columns)):
        row = rows[i] - cells.row_start
        column = columns[i] + first_column
        weight = weights[i] if len(weights) else 1.0
        values[row, points_field] += weight
        values[column, points_field] += weight
        if len(checks):
            values[row, checks_field] += weight * checks[i]
            values[column, checks_field] += weight * checks[i]


@compiled
def _collect_queries(
    values: FloatArray,
    col_start: IntArray,
    row_start: IntArray,
    col_stop: IntArray,
    row_stop: IntArray,
    cells: CellRect,
) -> None:
    first_column = (cells.row_stop - cells.row_start) - cells.col_start
    for i in range(len(col_start)):
        row = row_start[i] - cells.row_start
        column = col_start[i] + first_column
        values[row, Q_NEW] += 1.0
        values[column, Q_NEW] += 1.0
        for line in range(row + 1, row_stop[i] - cells.row_start):
            values[line, SPAN_Q_NEW] += 1.0
        for line in range(column + 1, col_stop[i] + first_column):
            values[line, SPAN_Q_NEW] += 1.0


@compiled
def _close_round(
    values: FloatArray, rows: int, decay: float, weight: float
) -> tuple[float, float, float]:
    sum_n = sum_q = sum_checks = 0.0
    for i in range(len(values)):
        if i == rows:
            sum_n = sum_q = sum_checks = 0.0
        line = values[i]
        sum_n += line[N_NEW]
        sum_q += line[Q_NEW]
        sum_checks += line[CHECKS_NEW]
        line[N] = line[N] * decay + sum_n * weight
        line[CHECKS] = line[CHECKS] * decay + sum_checks * weight
        line[Q] += sum_q
        line[R] = sum_n + sum_q
        line[PRE_SPAN_Q] = line[SPAN_Q_NEW]
        line[SPAN_Q] += line[SPAN_Q_NEW]
        line[N_NEW] = line[Q_NEW] = line[SPAN_Q_NEW] = line[CHECKS_NEW] = 0.0
    return sum_n, sum_q, sum_checks
