"""Synthetic workloads: distributions of points and queries, and how they change over time.

A :class:`Density` is a distribution over a grid, read from a file (:func:`load_density`) or made
from the built-in cities (:func:`cities_density`). A :class:`Hotspot` changes it for some rounds.
Everything random takes a :class:`numpy.random.Generator`, so that a seed determines a run.
"""

from sparkswarm.geometry import CONTIGUOUS_US, WORLD
from sparkswarm.workloads.cities import (
    CITIES,
    City,
    choose_density,
    cities_density,
    daylight,
)
from sparkswarm.workloads.density import QUERY_SIDE, Density, Rectangles, load_density
from sparkswarm.workloads.hotspot import Hotspot

__all__ = [
    "CITIES",
    "CONTIGUOUS_US",
    "QUERY_SIDE",
    "WORLD",
    "City",
    "Density",
    "Hotspot",
    "Rectangles",
    "choose_density",
    "cities_density",
    "daylight",
    "load_density",
]
