"""The state of aggregate queries: one row for each pane of each query.

Owns the columns of the state, how tables of it are merged, and how they are stored. What a pane is
for and when it becomes part of a result is in :mod:`sparkswarm.apps.aggregates.windows`. Merging
gives the same result, to the last bit, in whatever order and from whatever parts. To divide a
state is to filter its table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.apps.aggregates.exact_sums import Sums
from sparkswarm.apps.aggregates.specs import Measure
from sparkswarm.compiled import BoolArray, LongArray

Positions = npt.NDArray[np.intp]
Rows = Positions | BoolArray

KEY_COLUMNS = ("id", "length", "slide", "asked", "home", "start")
"""How the arrays of :class:`Panes` are called in a stored table.

The other columns are ``points`` and, for measure number i, ``counts{i}``, ``minimum{i}``,
``maximum{i}``, ``digits{i}`` and ``strange{i}``; ``place{i}`` is in the schema's metadata.
"""


class Panes(NamedTuple):
    """The pane of a query that each row is about: the key of a row.

    The first five are those of :class:`~sparkswarm.apps.aggregates.specs.AggregateSpecs`, so that
    a state can be read without its queries.
    """

    ids: LongArray
    length: LongArray
    slide: LongArray
    aggregate_bits: LongArray
    home: LongArray
    start: LongArray


class Values(NamedTuple):
    """The values of one measure that are not null, aggregated per row.

    Empty for queries that don't ask for the measure. NaN is larger than any number, as in Spark.
    """

    counts: LongArray
    minimum: npt.NDArray[Any]
    maximum: npt.NDArray[Any]
    sums: Sums

    @classmethod
    def empty(cls, measure: Measure, rows: int) -> Values:
        """Return aggregates of no values."""
        bounds = np.iinfo(np.int64)
        return cls(
            np.zeros(rows, np.int64),
            # NaN because it is the largest value.
            np.full(rows, bounds.max) if measure.whole else np.full(rows, np.nan),
            np.full(rows, bounds.min) if measure.whole else np.full(rows, -np.inf),
            Sums.zero(rows),
        )

    def take(self, rows: Rows) -> Values:
        """Return some rows, by index or by mask."""
        return Values(
            self.counts[rows], self.minimum[rows], self.maximum[rows], self.sums.take(rows)
        )

    @classmethod
    def concat(cls, parts: Sequence[Values]) -> Values:
        """Concatenate the rows of several."""
        return cls(
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.minimum for part in parts]),
            np.concatenate([part.maximum for part in parts]),
            Sums.concat([part.sums for part in parts]),
        )

    def combine(self, starts: Positions, stops: Positions) -> Values:
        """Aggregate each range of rows; ranges are not empty and may overlap."""
        return Values(
            add_ranges(self.counts, starts, stops),
            # fmin ignores NaN unless there is nothing else; maximum is NaN if any value is.
            _reduce_ranges(np.fmin, self.minimum, starts, stops),
            _reduce_ranges(np.maximum, self.maximum, starts, stops),
            self.sums.added(starts, stops),
        )


def add_ranges(counts: LongArray, starts: Positions, stops: Positions) -> LongArray:
    """Return the sum of each range of counts."""
    running: LongArray = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return running[stops] - running[starts]


def _reduce_ranges(
    function: np.ufunc, values: npt.NDArray[Any], starts: Positions, stops: Positions
) -> npt.NDArray[Any]:
    if not len(starts):
        return values[:0]
    # reduceat reduces from each index to the next, so every other result is one of ours. The
    # last stop may be the end of the array, which must be a valid index too.
    padded = np.append(values, values[-1])
    return function.reduceat(padded, np.column_stack([starts, stops]).ravel())[::2]


@dataclass(frozen=True)
class PaneTable:
    """Aggregates of panes, one row per pane, sorted by :class:`Panes`."""

    measures: tuple[Measure, ...]
    panes: Panes
    points: LongArray
    """The number of points of each pane."""
    values: tuple[Values, ...]
    """The aggregates of each measure."""

    def __len__(self) -> int:
        return len(self.points)

    @classmethod
    def empty(cls, measures: Sequence[Measure]) -> PaneTable:
        """Return a state without rows."""
        none = np.empty(0, np.int64)
        return cls(
            tuple(measures),
            Panes(*(none,) * len(Panes._fields)),
            none,
            tuple(Values.empty(measure, 0) for measure in measures),
        )

    @classmethod
    def merge(cls, states: Sequence[PaneTable]) -> PaneTable:
        """Return one state for several, at least one; their order does not matter."""
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
            add_ranges(points, starts, stops),
            tuple(Values.concat(column).take(order).combine(starts, stops) for column in columns),
        )

    def take(self, rows: Rows) -> PaneTable:
        """Return some rows, by index in ascending order or by mask."""
        return PaneTable(
            self.measures,
            Panes(*(part[rows] for part in self.panes)),
            self.points[rows],
            tuple(values.take(rows) for values in self.values),
        )

    def to_table(self) -> pa.Table:
        """Return the table to be stored."""
        columns: dict[str, Any] = dict(zip(KEY_COLUMNS, self.panes, strict=True))
        columns["points"] = self.points
        metadata = {}
        for i, (counts, minimum, maximum, sums) in enumerate(self.values):
            flat = pa.array(np.ascontiguousarray(sums.digits).ravel())
            columns[f"counts{i}"] = counts
            columns[f"minimum{i}"] = minimum
            columns[f"maximum{i}"] = maximum
            columns[f"digits{i}"] = pa.FixedSizeListArray.from_arrays(flat, sums.digits.shape[1])
            columns[f"strange{i}"] = sums.nonfinite
            metadata[f"place{i}"] = str(sums.exponent)
        return pa.table(columns).replace_schema_metadata(metadata)

    @classmethod
    def from_table(cls, table: pa.Table, measures: Sequence[Measure]) -> PaneTable:
        """Read a table of :meth:`to_table`, or some of its rows; the measures must be the same."""
        table = table.combine_chunks()

        def array(name: str) -> npt.NDArray[Any]:
            found: npt.NDArray[Any] = table.column(name).to_numpy()
            return found

        def sums(i: int) -> Sums:
            column = table.column(f"digits{i}")
            flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
            digits = flat.reshape(table.num_rows, column.type.list_size)
            exponent = int(table.schema.metadata[f"place{i}".encode()])
            return Sums(digits, exponent, array(f"strange{i}"))

        return cls(
            tuple(measures),
            Panes(*map(array, KEY_COLUMNS)),
            array("points"),
            tuple(
                Values(array(f"counts{i}"), array(f"minimum{i}"), array(f"maximum{i}"), sums(i))
                for i in range(len(measures))
            ),
        )
