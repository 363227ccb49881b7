"""Applications for drawn runs, and the details of queries and points for them.

Owns what a run is about beside rectangles: subscriptions, decided by column, or circles, decided
by a plain function. Drawn so that conditions hold about as often as not, that nulls occur, and
that some queries ask for nothing.
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
    """An application, and how to draw the details of a query and of a point."""

    matching: Matching
    query: Callable[[random.Random], Details]
    point: Callable[[random.Random], Details]


def draw_theme(luck: random.Random) -> Theme:
    """Return what a run is about."""
    return luck.choice((_subscriptions, _circles))()


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


def _subscription(luck: random.Random) -> Details:
    return (
        luck.choice(_CONDITIONS),
        luck.choice((None, None, (), _some_words(luck, 1))),
        luck.choice((None, None, (), _some_words(luck, 2))),
    )


def _report(luck: random.Random) -> Details:
    return (
        luck.choice((None, luck.randrange(11) * 1.0)),
        luck.choice((None, "taxi", "bus", "tram")),
        luck.choice((None, False, True)),
        luck.choice((None, _some_words(luck, 2))),
    )


def _some_words(luck: random.Random, most: int) -> tuple[str, ...]:
    return tuple(luck.sample(_WORDS, luck.randint(0, most)))


# -- circles -----------------------------------------------------------------------------------


def _circles() -> Theme:
    application = PairFunction(_is_in_circle, {"radius": "DOUBLE"})
    radius = pa.schema({"radius": pa.float64()})
    return Theme(Matching(application, radius, pa.schema([])), _radius, lambda luck: ())


def _radius(luck: random.Random) -> Details:
    return (luck.choice((None, 0.5, 1.0, 2.0, 4.0)),)


def _is_in_circle(point: dict[str, Any], query: dict[str, Any]) -> bool:
    middle_x = (query["min_x"] + query["max_x"]) / 2
    middle_y = (query["min_y"] + query["max_y"]) / 2
    radius = query["radius"]
    return radius is None or math.hypot(point["x"] - middle_x, point["y"] - middle_y) <= radius
