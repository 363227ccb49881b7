"""Windows: which recent points snapshot queries see.

Owns the kinds of window, :data:`WINDOWS`, and where each of them starts. The driver asks when a
batch's blocks are dropped and when snapshot queries are answered; tasks weigh the points of blocks
at the start of a window. Pure functions of their arguments, so all of it may run again.

The kinds are those of the paper: sliding and tumbling in time, a count, a storage size. They are
windows of the whole stream, in event time (microseconds). ``now`` is the latest event time of all
committed batches, so an answer does not depend on when it is computed. Points of the same time are
either all in a window or all outside: a window may hold a few more points than asked for, and in
return depends on times alone, not on who received what in which order.

SWARM moves no data (paper, "Correctness of Query Execution"): when a partition is split or moved,
its successors inherit its blocks, each for its own cells (:class:`~sparkswarm.store.BlockRef`).
Every cell of every block belongs to at most one of them, so no point is seen twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa

from sparkswarm.compiled import LongArray
from sparkswarm.errors import ConfigError
from sparkswarm.geometry import CellRect, Grid
from sparkswarm.store.blocks import MIN_TIME, Block, BlockMeta, row_sizes
from sparkswarm.store.manifest import BlockRef
from sparkswarm.window.durations import LONGEST, microseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStart:
    """Where a window starts, as far as the metadata of blocks tells.

    Attributes
    ----------
    at_least
        The window starts at this time or later, exactly then if no block is to be read.
        :data:`~sparkswarm.store.blocks.MIN_TIME` if nothing is known.
    read
        Positions of the blocks to be read for the exact start, see :func:`exact_start`.
    remaining
        Weight that must be found in those blocks; all other weight of the window is in newer ones.
    """

    at_least: int
    read: tuple[int, ...] = ()
    remaining: int = 0


class Window(ABC):
    """Which recent points snapshot queries see.

    A new kind of window is a frozen dataclass with one field, registered in :data:`WINDOWS`.
    """

    __slots__ = ()

    name: ClassVar[str]
    """Its key in the ``[window]`` table of a run file."""
    takes: ClassVar[Literal["duration", "whole"]]
    """What its field is: a duration such as ``"10 minutes"``, or a whole number."""
    meaning: ClassVar[str]
    """One sentence for the reference of run files."""

    @abstractmethod
    def __init__(self, value: Any) -> None:
        """Every window has one argument."""

    @abstractmethod
    def start(self, now: int, blocks: Sequence[BlockRef]) -> WindowStart:
        """Return where the window starts; ``blocks`` are all recent points of the stream."""

    def weights(self, points: pa.Table) -> LongArray:
        """Return the weight of each point, for windows that are limited by weight."""
        return np.ones(points.num_rows, np.int64)


@dataclass(frozen=True, slots=True)
class _TimeWindow(Window):
    """A window of time; its length is a duration such as ``"10 minutes"``, or microseconds."""

    length: int | str

    takes = "duration"

    def __post_init__(self) -> None:
        length = microseconds(self.length) if isinstance(self.length, str) else self.length
        if isinstance(length, bool) or not isinstance(length, int) or not 0 < length <= LONGEST:
            raise ConfigError(
                f"the length of a window must be longer than nothing: a duration such as "
                f"'10 minutes', or microseconds; got {self.length!r}"
            )
        object.__setattr__(self, "length", length)


@dataclass(frozen=True, slots=True)
class Sliding(_TimeWindow):
    """The points of the last ``length`` before the newest point, both ends included."""

    name = "sliding"
    meaning = "Points of this last period, up to the latest point."

    def start(self, now: int, blocks: Sequence[BlockRef]) -> WindowStart:
        """Return ``now - length``."""
        return WindowStart(at_least=max(MIN_TIME, now - int(self.length)))


@dataclass(frozen=True, slots=True)
class Tumbling(_TimeWindow):
    """The points since the last multiple of ``length``, counted from 1970."""

    name = "tumbling"
    meaning = "Points since the last multiple of this period since 1970."

    def start(self, now: int, blocks: Sequence[BlockRef]) -> WindowStart:
        """Return the last multiple of ``length`` up to ``now``."""
        return WindowStart(at_least=max(MIN_TIME, now // int(self.length) * int(self.length)))


class _WeightWindow(Window):
    """A window of the newest points that reach some weight together."""

    __slots__ = ()

    takes = "whole"

    @property
    @abstractmethod
    def _weight(self) -> int:
        """Weight to be reached."""

    @abstractmethod
    def _block_weight(self, meta: BlockMeta) -> int:
        """Return the weight of a whole block."""

    def start(self, now: int, blocks: Sequence[BlockRef]) -> WindowStart:
        """Narrow the start down to the blocks around it."""
        weights = [self._block_weight(block.meta) for block in blocks]
        # If all points of a block had the time of its newest, the window would start at
        # ``latest``; if all had the time of its oldest, at ``at_least``.
        newest = [(b.meta.newest, w) for b, w in zip(blocks, weights, strict=True)]
        oldest = [(b.meta.oldest, w) for b, w in zip(blocks, weights, strict=True) if b.is_whole]
        latest, at_least = _reached(newest, self._weight), _reached(oldest, self._weight)
        if latest == MIN_TIME:
            return WindowStart(at_least=MIN_TIME, remaining=self._weight)
        read, remaining = [], self._weight
        for i, block in enumerate(blocks):
            if block.is_whole and block.meta.oldest > latest:
                remaining -= weights[i]
            elif block.meta.newest >= at_least:
                read.append(i)
        return WindowStart(at_least=at_least, read=tuple(read), remaining=remaining)


@dataclass(frozen=True, slots=True)
class Count(_WeightWindow):
    """The newest ``points`` points of the stream, and those as old as the oldest of them."""

    points: int

    name = "count"
    meaning = "This number of newest points."

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        """Refuse the argument of an earlier version."""
        if "size" in named:
            raise TypeError("Count(size=...) was renamed to Count(points=...)")
        return object.__new__(cls)

    def __post_init__(self) -> None:
        if self.points < 1:
            raise ConfigError(f"a window needs at least one point, got {self.points}")

    @property
    def _weight(self) -> int:
        return self.points

    def _block_weight(self, meta: BlockMeta) -> int:
        return meta.rows


@dataclass(frozen=True, slots=True)
class Bytes(_WeightWindow):
    """The newest points of the stream that reach ``limit`` bytes together.

    The bytes of a point are those of its values, see
    :func:`~sparkswarm.store.blocks.row_sizes`.
    """

    limit: int

    name = "bytes"
    meaning = "The newest points, up to this size in bytes."

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ConfigError(f"a window needs at least one byte, got {self.limit}")

    @property
    def _weight(self) -> int:
        return self.limit

    def _block_weight(self, meta: BlockMeta) -> int:
        return meta.size

    def weights(self, points: pa.Table) -> LongArray:
        """Return the bytes of each point."""
        return row_sizes(points)


WINDOWS: Mapping[str, type[Window]] = {
    window.name: window for window in (Sliding, Tumbling, Count, Bytes)
}
"""The kinds of window by name."""


def _reached(weights: Sequence[tuple[int, int]], wanted: int) -> int:
    """Return the latest of these times such that it and all later ones reach the weight."""
    total = 0
    for time, weight in sorted(weights, reverse=True):
        total += weight
        if total >= wanted:
            return time
    return MIN_TIME


# -- the exact start of a window that is limited by weight -------------------------------------


class TimeWeights(NamedTuple):
    """Distinct times in ascending order, and the weight of the points of each."""

    times: LongArray
    weights: LongArray


def time_weights(
    block: Block, cells: CellRect, grid: Grid, window: Window, since: int
) -> TimeWeights:
    """Return the weights of the points of a block in ``cells``, from ``since`` on."""
    rows = block.rows_in(cells, grid, since=since)
    times, position = np.unique(block.time[rows], return_inverse=True)
    weights = np.zeros(len(times), np.int64)
    np.add.at(weights, position, window.weights(block.points)[rows])
    return TimeWeights(times, weights)


def exact_start(found: Sequence[TimeWeights], remaining: int) -> int:
    """Return where a window starts, from the weights of the blocks in ``WindowStart.read``.

    MIN_TIME where they don't reach the remaining weight: then all points are in the window.
    """
    times = np.concatenate([np.empty(0, np.int64), *(part.times for part in found)])
    weights = np.concatenate([np.empty(0, np.int64), *(part.weights for part in found)])
    newest_first = np.argsort(times)[::-1]
    enough = np.searchsorted(np.cumsum(weights[newest_first]), remaining)
    return int(times[newest_first[enough]]) if enough < len(times) else MIN_TIME
