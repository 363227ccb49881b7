"""Workloads: where points appear, where queries wait, and how that changes.

A :class:`Density` says where things are: read one from a file (:func:`load_density`) or take
the built-in world of cities (:func:`cities_density`). A :class:`Hotspot` bends it for some
rounds. Everything random takes a :class:`numpy.random.Generator`, so a seed fixes a run.
"""

from sparkswarm.workloads.cities import (
    CITIES,
    CONTIGUOUS_US,
    WORLD,
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
