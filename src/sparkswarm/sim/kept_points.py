"""The recent points of one partition on one machine, and the windows by which they expire.

The paper leaves the expiry policy to the application and names sliding and tumbling time windows
and count windows. A window of a storage size is a count window here, because every point takes
the same number of bytes.

The time of a point is when its executor stored it. Times therefore never decrease within a
partition, and the points of a partition are newer than those of its parents.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sparkswarm.compiled import FloatArray, LongArray
from sparkswarm.errors import ConfigError, ProtocolError
from sparkswarm.geometry import CellRect, Grid

POINT = np.dtype([("id", np.int64), ("x", np.float64), ("y", np.float64), ("time", np.float64)])
"""A stored point; ids are unique."""

Points = npt.NDArray[np.void]
"""An array of ``POINT``."""


def no_points() -> Points:
    """Return an array without points."""
    return np.empty(0, dtype=POINT)


def newest_last(points: Points) -> Points:
    """Sort points by time, and by id where times are equal."""
    return points[np.lexsort((points["id"], points["time"]))]


class Rectangle(NamedTuple):
    """The range of a query, edges included."""

    min_x: float
    min_y: float
    max_x: float
    max_y: float

    def of(self, points: Points) -> Points:
        """Return the points inside."""
        x, y = points["x"], points["y"]
        inside = (x >= self.min_x) & (x <= self.max_x) & (y >= self.min_y) & (y <= self.max_y)
        return points[inside]


@dataclass(frozen=True, slots=True)
class SimSliding:
    """The points of the last ``length`` units of time."""

    length: float

    def __post_init__(self) -> None:
        _check_length(self.length)

    def since(self, now: float) -> float:
        """Return the earliest time that has not expired."""
        return now - self.length


@dataclass(frozen=True, slots=True)
class SimTumbling:
    """The points since the last multiple of ``length``; all earlier ones expire together."""

    length: float

    def __post_init__(self) -> None:
        _check_length(self.length)

    def since(self, now: float) -> float:
        """Return the earliest time that has not expired."""
        return min(now, math.floor(now / self.length) * self.length)


@dataclass(frozen=True, slots=True)
class SimCount:
    """The ``size`` newest points of a partition."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"a count window needs at least one point, got {self.size}")

    def since(self, now: float) -> float:
        """Return minus infinity: points do not expire by time."""
        return -math.inf


Window = SimSliding | SimTumbling | SimCount


def _check_length(length: float) -> None:
    if not 0 < length < math.inf:
        raise ConfigError(f"a window needs a positive, finite length, got {length}")


class KeptPoints:
    """The points that one machine stores of one partition, oldest first.

    Parameters
    ----------
    grid
        The cells.
    window
        When points expire.
    began
        When this machine became an owner of the partition. The points of the partition's
        parents are not newer than that.
    """

    def __init__(self, grid: Grid, window: Window, began: float = -math.inf) -> None:
        self.began = began
        self._grid = grid
        self._window = window
        self._rows: Points = np.empty(16, dtype=POINT)
        self._start = self._stop = 0

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def points(self) -> Points:
        """A copy of the points, oldest first."""
        return self._all.copy()

    def add(
        self,
        ids: LongArray | int,
        x: FloatArray | float,
        y: FloatArray | float,
        times: FloatArray | float,
    ) -> None:
        """Store one point or several, all inside the grid.

        Raises
        ------
        ProtocolError
            If a time is lower than the one before; nothing is stored then.
        """
        count = np.size(ids)
        latest = self._all["time"][-1] if len(self) else self.began
        moments = np.atleast_1d(times)
        if count and not (moments[0] >= latest and (moments[1:] >= moments[:-1]).all()):
            raise ProtocolError(f"times must not decrease: got {times} after {latest}")
        self._make_room(count)
        new = self._rows[self._stop : self._stop + count]
        new["id"], new["x"], new["y"], new["time"] = ids, x, y, times
        self._stop += count
        if isinstance(self._window, SimCount):
            self._start = max(self._start, self._stop - self._window.size)

    def expire(self, now: float) -> int:
        """Drop expired points, and return their number."""
        gone = int(np.searchsorted(self._all["time"], self._window.since(now)))
        self._start += gone
        return gone

    def in_range(self, rectangle: Rectangle, cells: CellRect, since: float, until: float) -> Points:
        """Return the points in a rectangle and in these cells, stored from since to until."""
        return self._in_cells(rectangle.of(self._between(since, until)), cells)

    def newest(self, count: int, cells: CellRect, until: float) -> Points:
        """Return the ``count`` newest points of these cells."""
        return newest_last(self._in_cells(self._between(-math.inf, until), cells))[-count:]

    @property
    def _all(self) -> Points:
        return self._rows[self._start : self._stop]

    def _between(self, since: float, until: float) -> Points:
        times = self._all["time"]
        return self._all[np.searchsorted(times, since) : np.searchsorted(times, until, "right")]

    def _in_cells(self, points: Points, cells: CellRect) -> Points:
        column, row = self._grid.place_points(points["x"], points["y"])
        return points[
            (column >= cells.col_start)
            & (column < cells.col_stop)
            & (row >= cells.row_start)
            & (row < cells.row_stop)
        ]

    def _make_room(self, count: int) -> None:
        if self._stop + count <= len(self._rows):
            return
        # Doubled, so that the cost of copying is constant per point on average.
        rows = np.empty(2 * (len(self) + count), dtype=POINT)
        rows[: len(self)] = self._all
        self._rows, self._start, self._stop = rows, 0, len(self)
