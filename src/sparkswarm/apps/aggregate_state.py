"""The state of aggregate queries: what is known of each pane of each query.

Owns the columns, how states are put together and divided, and how they are stored; what a pane
is for, and when it becomes part of a result, is in :mod:`sparkswarm.apps.aggregates`. A state is
the same, to the last bit, in whichever order and from whichever parts it was put together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparkswarm.apps.aggregate_queries import Measure
from sparkswarm.apps.exact_sums import Sums
from sparkswarm.protocol.geometry import CellRect

LongArray = npt.NDArray[np.int64]
Positions = npt.NDArray[np.intp]
Rows = Positions | npt.NDArray[np.bool_]


class Panes(NamedTuple):
    """Which pane of which query each row is about; what makes two rows one.

    The first six are those of :class:`~sparkswarm.apps.aggregate_queries.Asked`: a state stands
    for itself, whatever has become of its query.
    """

    ids: LongArray
    length: LongArray
    slide: LongArray
    asked: LongArray
    column: LongArray
    row: LongArray
    start: LongArray


class Values(NamedTuple):
    """What each row knows of one measure: of values that are not null, if its query asks.

    NaN counts as larger than any number, as in Spark.
    """

    counts: LongArray
    minimum: npt.NDArray[Any]
    maximum: npt.NDArray[Any]
    sums: Sums

    @classmethod
    def nothing(cls, measure: Measure, rows: int) -> Values:
        """Return what rows know before they have seen a value."""
        bounds = np.iinfo(np.int64)
        return cls(
            np.zeros(rows, np.int64),
            # NaN, because it counts as the largest.
            np.full(rows, bounds.max) if measure.whole else np.full(rows, np.nan),
            np.full(rows, bounds.min) if measure.whole else np.full(rows, -np.inf),
            Sums.zero(rows),
        )

    def take(self, which: Rows) -> Values:
        """Return the chosen rows, by index or by mask."""
        return Values(
            self.counts[which], self.minimum[which], self.maximum[which], self.sums.take(which)
        )

    @classmethod
    def stacked(cls, parts: Sequence[Values]) -> Values:
        """Put several lots of rows one below another."""
        return cls(
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.minimum for part in parts]),
            np.concatenate([part.maximum for part in parts]),
            Sums.joined([part.sums for part in parts]),
        )

    def combined(self, starts: Positions, stops: Positions) -> Values:
        """Return what stretches of rows know together; they are not empty and may overlap."""
        return Values(
            added(self.counts, starts, stops),
            # Ignores NaN where there is something else; the other gives NaN wherever it occurs.
            _reduced(np.fmin, self.minimum, starts, stops),
            _reduced(np.maximum, self.maximum, starts, stops),
            self.sums.added(starts, stops),
        )


def added(counts: LongArray, starts: Positions, stops: Positions) -> LongArray:
    """Return the sum of each stretch of counts."""
    running: LongArray = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return running[stops] - running[starts]


def _reduced(
    function: np.ufunc, values: npt.NDArray[Any], starts: Positions, stops: Positions
) -> npt.NDArray[Any]:
    if not len(starts):
        return values[:0]
    # reduceat goes from each index to the next: every other result is what we want. The last
    # stop may be the end of the array, which must be an index too.
    padded = np.append(values, values[-1])
    return function.reduceat(padded, np.column_stack([starts, stops]).ravel())[::2]


@dataclass(frozen=True)
class State:
    """What is known of some panes, in the order of :class:`Panes`, each once.

    Attributes
    ----------
    measures
        The columns of the points that queries may aggregate.
    panes
        What each row is about.
    points
        How many points each has.
    values
        What it knows of each measure.
    """

    measures: tuple[Measure, ...]
    panes: Panes
    points: LongArray
    values: tuple[Values, ...]

    def __len__(self) -> int:
        return len(self.points)

    @classmethod
    def empty(cls, measures: Sequence[Measure]) -> State:
        """Return the state of queries that have matched nothing."""
        none = np.empty(0, np.int64)
        return cls(
            tuple(measures),
            Panes(*(none,) * len(Panes._fields)),
            none,
            tuple(Values.nothing(measure, 0) for measure in measures),
        )

    @classmethod
    def joined(cls, states: Sequence[State]) -> State:
        """Put several states, at least one, together: the same in whichever order.

        What makes one state of those of partitions that merge, and takes in new partials.
        """
        if len(states) == 1:
            return states[0]
        panes = Panes(*map(np.concatenate, zip(*(state.panes for state in states), strict=True)))
        order = np.lexsort(panes[::-1])
        panes = Panes(*(part[order] for part in panes))
        different = np.zeros(len(order), bool)
        different[:1] = True
        for part in panes:
            different[1:] |= part[1:] != part[:-1]
        starts = np.flatnonzero(different)
        stops = np.append(starts[1:], len(order))[: len(starts)]
        points = np.concatenate([state.points for state in states])[order]
        columns = zip(*(state.values for state in states), strict=True)
        return cls(
            states[0].measures,
            Panes(*(part[starts] for part in panes)),
            added(points, starts, stops),
            tuple(Values.stacked(column).take(order).combined(starts, stops) for column in columns),
        )

    def take(self, which: Rows) -> State:
        """Return the chosen rows, by index, which keeps their order, or by mask."""
        return State(
            self.measures,
            Panes(*(part[which] for part in self.panes)),
            self.points[which],
            tuple(values.take(which) for values in self.values),
        )

    def of_cells(self, cells: CellRect) -> State:
        """Return the state of the queries at home in these cells, for a partition that splits."""
        column, row = self.panes.column, self.panes.row
        return self.take(
            (column >= cells.col_start)
            & (column < cells.col_stop)
            & (row >= cells.row_start)
            & (row < cells.row_stop)
        )

    def without(self, ids: LongArray) -> State:
        """Forget queries that were unregistered, or updated and start anew."""
        return self.take(np.isin(self.panes.ids, ids, invert=True))

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays to be stored."""
        arrays: dict[str, npt.NDArray[Any]] = {**self.panes._asdict(), "points": self.points}
        for i, (counts, minimum, maximum, sums) in enumerate(self.values):
            named = {"counts": counts, "minimum": minimum, "maximum": maximum}
            place = np.array([sums.place], np.int64)
            named |= {"digits": sums.digits, "place": place, "strange": sums.strange}
            arrays |= {f"{name}{i}": array for name, array in named.items()}
        return arrays

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, npt.NDArray[Any]], measures: Sequence[Measure]
    ) -> State:
        """Return what :meth:`to_arrays` gave; the measures must be those of then."""
        return cls(
            tuple(measures),
            Panes(*(arrays[name] for name in Panes._fields)),
            arrays["points"],
            tuple(
                Values(
                    arrays[f"counts{i}"],
                    arrays[f"minimum{i}"],
                    arrays[f"maximum{i}"],
                    Sums(arrays[f"digits{i}"], int(arrays[f"place{i}"][0]), arrays[f"strange{i}"]),
                )
                for i in range(len(measures))
            ),
        )
