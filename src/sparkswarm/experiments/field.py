"""The field: points and queries as densities over the cells, summed up to be read quickly.

Owns how likely a point is to fall in each cell and how many queries it meets there, for the
density and for each hotspot, and sums of both over any rectangle of cells in four reads.
A run mixes them with shares that change in time, so nothing need be summed twice.
"""

from __future__ import annotations

import numpy as np

from sparkswarm.compiled import FloatArray, LongArray
from sparkswarm.experiments.scenarios import Scenario
from sparkswarm.geometry import CellRect, Grid, QueryCells
from sparkswarm.workloads import QUERY_SIDE, Density
from sparkswarm.workloads.hotspot import Hotspot

SAMPLE = 200_000
"""Queries that are drawn one by one, for the statistics; each stands for several."""


class Field:
    """What a scenario can mix: the density first, then its hotspots.

    Parameters
    ----------
    density
        Where points appear and queries wait.
    scenario
        Its hotspots.
    queries
        Queries registered before the run.
    seed
        Fixes the sample of queries.
    sample
        Queries of the density that are drawn one by one; None is :data:`SAMPLE`.

    Attributes
    ----------
    points
        For each source, the probability of each cell, of shape (sources, cells used).
    matches
        For each source, how many of its queries, all registered, contain a point that is
        somewhere in the cell: the mean, in the same shape.
    rows, columns
        The cells used: those where a point can fall.
    counts
        For each source, how many queries it has.
    sample
        For each source, a sample of them, as cells.
    weight
        How many queries each of the sample stands for.
    """

    def __init__(
        self,
        density: Density,
        scenario: Scenario,
        queries: int,
        seed: int = 0,
        sample: int | None = None,
    ) -> None:
        rng = np.random.default_rng(seed)
        hotspots = [trouble.hotspot for trouble in scenario.troubles]
        self.density = density
        self.grid: Grid = density.grid
        self.counts = [queries, *(round(queries * t.queries) for t in scenario.troubles)]
        self.weight = max(1.0, queries / (sample or SAMPLE))
        self.sample = [
            _sampled(density, hotspot, round(count / self.weight), rng)
            for hotspot, count in zip([None, *hotspots], self.counts, strict=True)
        ]
        places = [density.weights, *(h.points_density(density).weights for h in hotspots)]
        met = [
            count * containing(place, self.grid)
            for place, count in zip(places, self.counts, strict=True)
        ]
        rows, columns = np.nonzero(np.sum(places, axis=0))
        self.rows, self.columns = rows.astype(np.int32), columns.astype(np.int32)
        self.points: FloatArray = np.stack([place[rows, columns] for place in places])
        self.matches: FloatArray = np.stack([m[rows, columns] for m in met])
        self._point_sums = np.stack([_sums(place) for place in places])
        self._match_sums = np.stack([[_sums(place * m) for m in met] for place in places])

    @property
    def sources(self) -> int:
        """How many there are to mix."""
        return len(self.counts)

    def within(self, rects: list[CellRect]) -> tuple[FloatArray, FloatArray]:
        """Sum up rectangles of cells.

        Returns
        -------
        points
            Of shape (rectangles, sources): the share of a source's points that falls there.
        matches
            Of shape (rectangles, sources of points, sources of queries): the matches there of
            one point of a source, all queries registered.
        """
        edges = np.array(rects, dtype=np.int64).reshape(-1, 4)
        return (
            np.moveaxis(_between(self._point_sums, edges), -1, 0),
            np.moveaxis(_between(self._match_sums, edges), -1, 0),
        )

    def by_label(self, labels: LongArray, number: int) -> tuple[FloatArray, FloatArray]:
        """Sum up groups of cells, by a label for each cell used; shapes as in :meth:`within`."""
        points = np.stack([np.bincount(labels, p, number) for p in self.points], axis=-1)
        matches = np.stack(
            [
                np.stack([np.bincount(labels, p * m, number) for m in self.matches], axis=-1)
                for p in self.points
            ],
            axis=1,
        )
        return np.asarray(points, np.float64), np.asarray(matches, np.float64)


def containing(place: FloatArray, grid: Grid) -> FloatArray:
    """Return how likely a query, centred as ``place`` says, is to contain a point of each cell.

    Centre and point are anywhere in their cells, so their distance along an axis is that of
    the cells plus a difference with a triangular distribution.
    """
    along = _smeared(place, QUERY_SIDE * grid.rows / 2)
    return _smeared(along.T, QUERY_SIDE * grid.columns / 2).T


def _smeared(place: FloatArray, half: float) -> FloatArray:
    """Spread each line over the lines that a query of so many lines to either side reaches."""
    reach = min(int(np.ceil(half)) + 1, len(place) - 1)
    out = np.zeros_like(place)
    for offset in range(-reach, reach + 1):
        inside = _below(half - offset) - _below(-half - offset)
        if inside > 0:
            first, last = max(0, -offset), len(place) - max(0, offset)
            out[first + offset : last + offset] += inside * place[first:last]
    return out


def _below(value: float) -> float:
    """How likely the difference of two uniform numbers of [0, 1) is to be at most the value."""
    value = min(max(value, -1.0), 1.0)
    return (1 + value) ** 2 / 2 if value <= 0 else 1 - (1 - value) ** 2 / 2


def _sampled(
    density: Density, hotspot: Hotspot | None, count: int, rng: np.random.Generator
) -> QueryCells:
    rectangles = (
        hotspot.sample_queries(rng, count, QUERY_SIDE, density.bounds)
        if hotspot
        else density.sample_queries(rng, count, QUERY_SIDE)
    )
    return density.grid.place_queries(*rectangles)


def _sums(values: FloatArray) -> FloatArray:
    sums = np.zeros((values.shape[0] + 1, values.shape[1] + 1))
    sums[1:, 1:] = values.cumsum(axis=0).cumsum(axis=1)
    return sums


def _between(sums: FloatArray, edges: LongArray) -> FloatArray:
    left, low, right, high = edges.T
    total = sums[..., high, right] - sums[..., low, right]
    total -= sums[..., high, left] - sums[..., low, left]
    # Differences of large sums may fall a rounding error below nothing.
    return np.maximum(total, 0.0)
