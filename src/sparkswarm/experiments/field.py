"""The field: densities of points and queries over the cells, with summed-area tables.

For the base density and for each hotspot: the probability of a point in each cell, the number of
queries that it matches there, and sums of both over any rectangle of cells in constant time.
A run mixes these sources with shares that change over time, so each is summed only once.
"""

from __future__ import annotations

import numpy as np

from sparkswarm.bench.world import sample_cells
from sparkswarm.compiled import FloatArray, LongArray
from sparkswarm.experiments.scenarios import Scenario
from sparkswarm.geometry import CellRect, Grid
from sparkswarm.workloads import QUERY_SIDE, Density

SAMPLE = 200_000
"""Queries that are drawn individually, for the statistics; each represents several."""


class Field:
    """The sources of a scenario: the base density, then its hotspots.

    Parameters
    ----------
    density
        Distribution of points and queries.
    scenario
        Its hotspots.
    queries
        Queries registered before the run.
    seed
        Fixes the sample of queries.
    sample
        Queries of the density that are drawn individually; None is :data:`SAMPLE`.

    Attributes
    ----------
    points
        For each source, the probability of each cell, of shape (sources, cells used).
    matches
        For each source, the mean number of its queries that contain a point in the cell, once
        all are registered; same shape.
    rows, columns
        The cells used: those with a probability above 0.
    counts
        For each source, its number of queries.
    sample
        For each source, a sample of its queries, as cells.
    weight
        Number of queries that each one in the sample represents.
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
        hotspots = [hotspot.spatial for hotspot in scenario.hotspots]
        self.density = density
        self.grid: Grid = density.grid
        self.counts = [queries, *(round(queries * h.queries) for h in scenario.hotspots)]
        self.weight = max(1.0, queries / (sample or SAMPLE))
        self.sample = [
            sample_cells(density, rng, round(count / self.weight), hotspot)
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
        """Number of sources."""
        return len(self.counts)

    def within(self, rects: list[CellRect]) -> tuple[FloatArray, FloatArray]:
        """Sum over rectangles of cells.

        Returns
        -------
        points
            Of shape (rectangles, sources): share of a source's points in the rectangle.
        matches
            Of shape (rectangles, sources of points, sources of queries): mean matches in the
            rectangle of a point of a source, once all queries are registered.
        """
        edges = np.array(rects, dtype=np.int64).reshape(-1, 4)
        return (
            np.moveaxis(_between(self._point_sums, edges), -1, 0),
            np.moveaxis(_between(self._match_sums, edges), -1, 0),
        )

    def by_label(self, labels: LongArray, number: int) -> tuple[FloatArray, FloatArray]:
        """Sum over groups of cells, by a label of each cell used; shapes as in :meth:`within`."""
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
    """Return the probability that a query, with its centre drawn from ``place``, contains a point.

    One value per cell of the point. Centre and point are uniform in their cells, so their
    distance along an axis is that of the cells plus a triangularly distributed difference.
    """
    along = _smeared(place, QUERY_SIDE * grid.rows / 2)
    return _smeared(along.T, QUERY_SIDE * grid.columns / 2).T


def _smeared(place: FloatArray, half: float) -> FloatArray:
    """Spread each line over the lines within ``half`` of it, the reach of a query."""
    reach = min(int(np.ceil(half)) + 1, len(place) - 1)
    out = np.zeros_like(place)
    for offset in range(-reach, reach + 1):
        inside = _below(half - offset) - _below(-half - offset)
        if inside > 0:
            first, last = max(0, -offset), len(place) - max(0, offset)
            out[first + offset : last + offset] += inside * place[first:last]
    return out


def _below(value: float) -> float:
    """Probability that the difference of two uniform numbers of [0, 1) is at most ``value``."""
    value = min(max(value, -1.0), 1.0)
    return (1 + value) ** 2 / 2 if value <= 0 else 1 - (1 - value) ** 2 / 2


def _sums(values: FloatArray) -> FloatArray:
    sums = np.zeros((values.shape[0] + 1, values.shape[1] + 1))
    sums[1:, 1:] = values.cumsum(axis=0).cumsum(axis=1)
    return sums


def _between(sums: FloatArray, edges: LongArray) -> FloatArray:
    left, low, right, high = edges.T
    total = sums[..., high, right] - sums[..., low, right]
    total -= sums[..., high, left] - sums[..., low, left]
    # Rounding errors of large sums may make a difference negative.
    return np.maximum(total, 0.0)
