"""The state of aggregate queries: what is known of each pane of each query.

Owns the columns, how states are put together, and how they are stored; what a pane
is for, and when it becomes part of a result, is in :mod:`sparkswarm.apps.aggregates.windows`. A
state is the same, to the last bit, in whichever order and from whichever parts it was put together.
To divide one is to filter its table.
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
from sparkswarm.compiled import LongArray

Positions = npt.NDArray[np.intp]
Rows = Positions | npt.NDArray[np.bool_]


class Panes(NamedTuple):
    """Which pane of which query each row is about; what makes two rows one.

    The first five are those of :class:`~sparkswarm.apps.aggregates.specs.Asked`: a state stands
    for itself, whatever has become of its query.
    """

    ids: LongArray
    length: LongArray
    slide: LongArray
    asked: LongArray
    home: LongArray
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

    def to_table(self) -> pa.Table:
        """Return the table to be stored."""
        columns = {"id" if name == "ids" else name: v for name, v in self.panes._asdict().items()}
        columns["points"] = self.points
        places = {}
        for i, (counts, minimum, maximum, sums) in enumerate(self.values):
            named = {"counts": counts, "minimum": minimum, "maximum": maximum}
            flat = pa.array(np.ascontiguousarray(sums.digits).ravel())
            named["digits"] = pa.FixedSizeListArray.from_arrays(flat, sums.digits.shape[1])
            named["strange"] = sums.strange
            columns |= {f"{name}{i}": array for name, array in named.items()}
            places[f"place{i}"] = str(sums.place)
        return pa.table(columns).replace_schema_metadata(places)

    @classmethod
    def from_table(cls, table: pa.Table, measures: Sequence[Measure]) -> State:
        """Return what :meth:`to_table` gave, or some rows of it; the measures are those of then."""
        table = table.combine_chunks()

        def array(name: str) -> npt.NDArray[Any]:
            found: npt.NDArray[Any] = table.column(name).to_numpy()
            return found

        def sums(i: int) -> Sums:
            column = table.column(f"digits{i}")
            flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
            digits = flat.reshape(table.num_rows, column.type.list_size)
            place = int(table.schema.metadata[f"place{i}".encode()])
            return Sums(digits, place, array(f"strange{i}"))

        return cls(
            tuple(measures),
            Panes(array("id"), *(array(name) for name in Panes._fields[1:])),
            array("points"),
            tuple(
                Values(array(f"counts{i}"), array(f"minimum{i}"), array(f"maximum{i}"), sums(i))
                for i in range(len(measures))
            ),
        )
