"""Random applications for simulated runs, and the column values of their queries and points.

A run has subscriptions (matched column by column), circles (matched by a plain function) or no
application. Values are drawn so that about half of the conditions hold, nulls occur, and some
queries have no condition.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa

from sparkswarm.apps.application import PairFunction
from sparkswarm.apps.subscriptions.application import Subscriptions
from sparkswarm.sim.matching import Matching
from sparkswarm.sim.tuples import Details


class Theme(NamedTuple):
    """An application, and functions that draw the details of a query and of a point."""

    matching: Matching
    query: Callable[[random.Random], Details]
    point: Callable[[random.Random], Details]


def draw_theme(rng: random.Random) -> Theme:
    """Draw the application of a run."""
    return rng.choice((_subscriptions, _circles))()


# -- subscriptions -----------------------------------------------------------------------------

_WORDS = ("flood", "fire", "storm")
_CONDITIONS = (
    None,
    "speed > 5",
    "speed <= 5 and kind = 'bus'",
    "kind in ('taxi', 'tram') or active",
    "not active",
    "kind is null",
)


def _subscriptions() -> Theme:
    words = pa.list_(pa.string())
    matching = Matching(
        Subscriptions({"speed": "number", "kind": "text", "active": "boolean"}, keywords="words"),
        pa.schema({"where": pa.string(), "all_of": words, "any_of": words}),
        pa.schema(
            {"speed": pa.float64(), "kind": pa.string(), "active": pa.bool_(), "words": words}
        ),
    )
    return Theme(matching, _subscription, _report)


def _subscription(rng: random.Random) -> Details:
    return (
        rng.choice(_CONDITIONS),
        rng.choice((None, None, (), _some_words(rng, 1))),
        rng.choice((None, None, (), _some_words(rng, 2))),
    )


def _report(rng: random.Random) -> Details:
    return (
        rng.choice((None, rng.randrange(11) * 1.0)),
        rng.choice((None, "taxi", "bus", "tram")),
        rng.choice((None, False, True)),
        rng.choice((None, _some_words(rng, 2))),
    )


def _some_words(rng: random.Random, most: int) -> tuple[str, ...]:
    return tuple(rng.sample(_WORDS, rng.randint(0, most)))


# -- circles -----------------------------------------------------------------------------------


def _circles() -> Theme:
    application = PairFunction(_is_in_circle, {"radius": "DOUBLE"})
    radius = pa.schema({"radius": pa.float64()})
    return Theme(Matching(application, radius, pa.schema([])), _radius, lambda rng: ())


def _radius(rng: random.Random) -> Details:
    return (rng.choice((None, 0.5, 1.0, 2.0, 4.0)),)


def _is_in_circle(point: dict[str, Any], query: dict[str, Any]) -> bool:
    middle_x = (query["min_x"] + query["max_x"]) / 2
    middle_y = (query["min_y"] + query["max_y"]) / 2
    radius = query["radius"]
    return radius is None or math.hypot(point["x"] - middle_x, point["y"] - middle_y) <= radius
