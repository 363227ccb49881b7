"""Hotspots: squares that attract points and queries for some rounds.

Owns where a hotspot is, when it is active and what it draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from sparkswarm.compiled import FloatArray
from sparkswarm.errors import WorkloadError
from sparkswarm.geometry import Bounds
from sparkswarm.workloads import _checks
from sparkswarm.workloads.density import Density, Rectangles, rectangles_around

Shape = Literal["uniform", "normal"]

NORMAL_DEVIATION = 0.20
"""Standard deviation of the normal shape, as a share of the hotspot's side."""

_ROUNDING = 1e-12
"""By how much ``corner + side`` may exceed 1 because decimal fractions are not binary ones."""


@dataclass(frozen=True, slots=True)
class Hotspot:
    """A square that attracts part of the stream (paper, "Reaction to Hotspots").

    Parameters
    ----------
    start, stop
        Active in the rounds ``start <= round < stop``.
    side
        Side of the square as a share of each side of the bounds.
    point_share, query_share
        Share of the points and of the new queries of a round that the hotspot attracts.
    corner
        Lower-left corner of the square, as shares of the sides of the bounds.
    shape
        ``"uniform"``: uniform in the square. ``"normal"``: a normal distribution around
        its centre, cut off at its edges.

    Raises
    ------
    WorkloadError
        If a value is out of its range or the square does not fit inside the bounds.

    Notes
    -----
    The paper's normal hotspot has "variance 20% of the hotspot's spatial side length". A
    variance is an area and cannot be a share of a length, so this is read as the standard
    deviation: 20% of the side along each axis, which puts the edges 2.5 deviations from the
    centre and leaves 1.2% of the distribution beyond them on each axis. The other reading, a
    variance of 0.2 of a square of side 1, is a deviation of 45% of the side: nearly uniform
    once cut off, and without the "higher levels of spatial overlap" that the paper reports.

    Differs: the share is constant while the hotspot is active (the paper's step intensity);
    a chain of short hotspots with growing and shrinking shares makes the paper's bell.
    """

    start: int
    stop: int
    side: float = 0.15
    point_share: float = 0.40
    query_share: float = 0.20
    corner: tuple[float, float] = (0.05, 0.05)
    shape: Shape = "uniform"

    def __post_init__(self) -> None:
        """Refuse what cannot be; a corner given as a list becomes a tuple."""
        _checks.whole_number("start", self.start, 0)
        _checks.whole_number("stop", self.stop, 1)
        if self.start >= self.stop:
            raise WorkloadError(
                f"a hotspot needs start < stop, got start={self.start}, stop={self.stop}; "
                "stop is the first round in which it is no longer active"
            )
        _checks.side("the side of a hotspot", self.side)
        _checks.share("point_share", self.point_share)
        _checks.share("query_share", self.query_share)
        if not isinstance(self.corner, Sequence) or len(self.corner) != 2:
            raise WorkloadError(f"corner must be a pair of shares, got {self.corner!r}")
        object.__setattr__(self, "corner", tuple(_checks.share("corner", c) for c in self.corner))
        if max(self.corner) + self.side > 1 + _ROUNDING:
            raise WorkloadError(
                f"a hotspot of side {self.side} with its lower-left corner at {self.corner} does "
                f"not fit inside the bounds; use shares from 0 to {1 - self.side:g}"
            )
        if self.shape not in get_args(Shape):
            raise WorkloadError(
                f"shape must be one of {', '.join(get_args(Shape))}, got {self.shape!r}"
            )

    def active(self, round_number: int) -> bool:
        """Return whether the hotspot is active in this round."""
        return self.start <= round_number < self.stop

    def region(self, bounds: Bounds) -> Bounds:
        """Return the square, which has the aspect ratio of the bounds."""
        x, y = self.corner
        return Bounds(
            bounds.min_x + x * bounds.width,
            bounds.min_y + y * bounds.height,
            min(bounds.min_x + (x + self.side) * bounds.width, bounds.max_x),
            min(bounds.min_y + (y + self.side) * bounds.height, bounds.max_y),
        )

    def points_density(self, density: Density) -> Density:
        """Return the density of points while the hotspot is active.

        ``(1 - point_share)`` of the given density plus ``point_share`` of the hotspot. A cell
        that the square covers in part receives that part; points are drawn from the whole cell,
        as with every density.
        """
        rows, columns = density.weights.shape
        x, y = self.corner
        hotspot = np.outer(self._shares(y, rows), self._shares(x, columns))
        mixed = (1 - self.point_share) * density.weights + self.point_share * hotspot
        return Density(f"{density.name} with hotspot", density.bounds, mixed)

    def sample_queries(
        self, rng: np.random.Generator, n: int, side: float, bounds: Bounds
    ) -> Rectangles:
        """Return ``n`` query rectangles centred inside the hotspot.

        ``side`` is a share of each side of the bounds, as in :meth:`Density.sample_queries`.
        """
        side = _checks.side("the side of a query", side)
        n = _checks.whole_number("n", n, 0)
        region = self.region(bounds)
        x = region.min_x + self._places(rng, n) * region.width
        y = region.min_y + self._places(rng, n) * region.height
        return rectangles_around(
            np.minimum(x, region.max_x), np.minimum(y, region.max_y), side, bounds
        )

    def _shares(self, corner: float, cells: int) -> FloatArray:
        """Return the share of the hotspot in each line of cells along one axis."""
        place = np.clip((np.arange(cells + 1) / cells - corner) / self.side, 0, 1)
        if self.shape == "normal":
            scale = 1 / (NORMAL_DEVIATION * math.sqrt(2))
            below = np.array([math.erf((p - 0.5) * scale) for p in place.tolist()])
        else:
            below = place
        shares = np.diff(below)
        return np.asarray(shares / shares.sum())

    def _places(self, rng: np.random.Generator, n: int) -> FloatArray:
        """Draw ``n`` positions along one axis of the square, from 0 to 1."""
        if self.shape == "uniform":
            return rng.random(n)
        places = rng.normal(0.5, NORMAL_DEVIATION, n)
        while (outside := np.flatnonzero((places < 0) | (places > 1))).size:
            places[outside] = rng.normal(0.5, NORMAL_DEVIATION, outside.size)
        return places
