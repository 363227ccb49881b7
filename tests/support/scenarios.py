"""Streams for applications and the expected matches, the same on every runtime.

A scenario is an application, batches of operations and points, and a plain Python function that
says of one point and one query whether they match. Nothing here knows what runs it. Operations of
a batch are done before its points come.

A runtime takes the batches, as rows or as Arrow tables, and gives back which query matched which
point; :attr:`Scenario.expected` says what that must be.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.apps.application import Application, PairFunction
from sparkswarm.apps.subscriptions.application import Subscriptions

SIDE = 16
"""All coordinates are between 0 and SIDE."""

BATCHES = 3

Row = dict[str, Any]
EDGES = ("min_x", "min_y", "max_x", "max_y")


class Batch(NamedTuple):
    """Operations and points; ids are never used again."""

    operations: list[Row]
    points: list[Row]


class Scenario(NamedTuple):
    """An application, its input, and the oracle.

    ``query_columns`` and ``point_columns`` are the application's columns with their types;
    ``matches`` is asked about a point and a query whose rectangle contains it.
    """

    name: str
    application: Application
    query_columns: pa.Schema
    point_columns: pa.Schema
    batches: tuple[Batch, ...]
    matches: Callable[[Row, Row], bool]

    def __str__(self) -> str:
        return self.name

    @property
    def expected(self) -> Counter[tuple[int, int]]:
        """All pairs of a query and a point that must match, each once."""
        found: Counter[tuple[int, int]] = Counter()
        live: dict[int, Row] = {}
        for batch in self.batches:
            for row in batch.operations:
                if row["op"] == "unregister":
                    del live[row["id"]]
                else:
                    live[row["id"]] = row
            for point in batch.points:
                for key, query in live.items():
                    if contains(query, point) and self.matches(point, query):
                        found[key, point["id"]] += 1
        return found

    def operations_table(self, number: int) -> pa.Table:
        """Return the operations of a batch."""
        edges = dict.fromkeys(EDGES, pa.float64())
        schema = pa.schema({"op": pa.string(), "id": pa.int64(), **edges})
        schema = pa.unify_schemas([schema, self.query_columns])
        return pa.Table.from_pylist(self.batches[number].operations, schema)

    def points_table(self, number: int) -> pa.Table:
        """Return the points of a batch."""
        schema = pa.schema({"id": pa.int64(), "x": pa.float64(), "y": pa.float64()})
        schema = pa.unify_schemas([schema, self.point_columns])
        return pa.Table.from_pylist(self.batches[number].points, schema)


def contains(query: Row, point: Row) -> bool:
    """Return whether a point is in a rectangle, edges included."""
    return (
        query["min_x"] <= point["x"] <= query["max_x"]
        and query["min_y"] <= point["y"] <= query["max_y"]
    )


def streams(
    seed: int, query: Callable[[random.Random], Row], point: Callable[[random.Random], Row]
) -> tuple[Batch, ...]:
    """Draw batches: a hotspot that moves, and queries that are registered, updated, unregistered.

    Half of the updates leave the rectangle as it is, and change what the application needs alone.
    """
    draw = random.Random(seed)
    live: dict[int, Row] = {}
    batches, last = [], 0
    for number in range(BATCHES):
        operations: list[Row] = []
        for _ in range(30 - 6 * number):
            # At most one operation on a query in a batch: which comes first is not the subject.
            known = sorted(live.keys() - {row["id"] for row in operations})
            what = draw.choice(["register", "update", "update", "unregister"])
            if not known or what == "register" or not number:
                last += 1
                row = {"op": "register", "id": last, **_rectangle(draw), **query(draw)}
            elif what == "update":
                key = draw.choice(known)
                row = live[key] if draw.random() < 0.5 else _rectangle(draw)
                row = {**row, "op": "update", "id": key, **query(draw)}
            else:
                row = {"op": "unregister", "id": draw.choice(known)}
            if what == "unregister" and row["op"] == what:
                del live[row["id"]]
            else:
                live[row["id"]] = row
            operations.append(row)
        spot = draw.uniform(1, SIDE - 1), draw.uniform(1, SIDE - 1)
        points = [
            {"id": 1000 * number + i, **_place(draw, spot), **point(draw)} for i in range(120)
        ]
        batches.append(Batch(operations, points))
    return tuple(batches)


def _rectangle(draw: random.Random) -> Row:
    x, y, w, h = (draw.uniform(0, SIDE) for _ in range(4))
    edges = x - w / 3, y - h / 3, x + w / 3, y + h / 3
    if draw.random() < 0.3:
        edges = tuple(map(round, edges))
    return {name: min(max(float(e), 0.0), SIDE) for name, e in zip(EDGES, edges, strict=True)}


def _place(draw: random.Random, spot: tuple[float, float]) -> Row:
    """Draw coordinates: mostly near the hotspot, often on the border of cells."""
    near = draw.random() < 0.7
    x, y = (c + draw.uniform(-1, 1) if near else draw.uniform(0, SIDE) for c in spot)
    if draw.random() < 0.2:
        x, y = round(x), round(y)
    return {"x": min(max(float(x), 0.0), SIDE), "y": min(max(float(y), 0.0), SIDE)}


# -- subscriptions -----------------------------------------------------------------------------

CONDITIONS: dict[str | None, Callable[[Row], bool]] = {
    None: lambda p: True,
    "speed > 5": lambda p: p["speed"] is not None and p["speed"] > 5,
    "kind in ('taxi', 'bus')": lambda p: p["kind"] in ("taxi", "bus"),
    "speed <= 5 and not kind = 'bus'": lambda p: (
        p["speed"] is not None and p["speed"] <= 5 and p["kind"] not in (None, "bus")
    ),
    "speed is null or kind = 'tram'": lambda p: p["speed"] is None or p["kind"] == "tram",
}
WORDS = ("flood", "fire", "storm")


def _subscription(draw: random.Random) -> Row:
    return {
        "where": draw.choice(list(CONDITIONS)),
        "all_of": draw.choice([None, None, [], draw.sample(WORDS, 1)]),
        "any_of": draw.choice([None, None, [], draw.sample(WORDS, 2)]),
    }


def _report(draw: random.Random) -> Row:
    return {
        "speed": draw.choice([None, float(draw.randrange(11))]),
        "kind": draw.choice([None, "taxi", "bus", "tram"]),
        "message": draw.choice([None, " ".join(draw.sample(WORDS, draw.randrange(4))).title()]),
    }


def _is_subscribed(point: Row, query: Row) -> bool:
    words = set((point["message"] or "").lower().split())
    return (
        CONDITIONS[query["where"]](point)
        and words.issuperset(query["all_of"] or ())
        and (not query["any_of"] or bool(words.intersection(query["any_of"])))
    )


def _subscriptions(name: str, seed: int, query: Callable[[random.Random], Row]) -> Scenario:
    words = pa.list_(pa.string())
    return Scenario(
        name,
        Subscriptions({"speed": "number", "kind": "text"}, keywords="message"),
        pa.schema({"where": pa.string(), "all_of": words, "any_of": words}),
        pa.schema({"speed": pa.float64(), "kind": pa.string(), "message": pa.string()}),
        streams(seed, query, _report),
        _is_subscribed,
    )


# -- circles -----------------------------------------------------------------------------------


class Circles(Application):
    """Points of a colour within a circle around the middle of the rectangle, by column."""

    query_columns = {"radius": "DOUBLE", "colour": "STRING"}  # noqa: RUF012
    point_columns = ("colour",)

    def build(self, queries: pa.Table) -> Any:
        low_x, low_y, high_x, high_y = (queries.column(name).to_numpy() for name in EDGES)
        radius = pc.fill_null(queries.column("radius"), math.inf).to_numpy()
        colour = np.array(queries.column("colour").to_pylist(), object)
        return (low_x + high_x) / 2, (low_y + high_y) / 2, radius, colour

    def match(self, built: Any, points: pa.Table, pairs: Any) -> Any:
        x, y, radius, wanted = (column[pairs.queries] for column in built)
        point_x, point_y = (points.column(c).to_numpy()[pairs.points] for c in ("x", "y"))
        colour = np.array(points.column("colour").to_pylist(), object)[pairs.points]
        near = np.hypot(point_x - x, point_y - y) <= radius
        return near & (np.equal(wanted, None) | (wanted == colour)).astype(bool)


def is_in_circle(point: Row, query: Row) -> bool:
    """Decide on one pair, as Circles does."""
    x = (query["min_x"] + query["max_x"]) / 2
    y = (query["min_y"] + query["max_y"]) / 2
    near = query["radius"] is None or np.hypot(point["x"] - x, point["y"] - y) <= query["radius"]
    return bool(near) and query["colour"] in (None, point["colour"])


def _circles(name: str, seed: int, application: Application) -> Scenario:
    return Scenario(
        name,
        application,
        pa.schema({"radius": pa.float64(), "colour": pa.string()}),
        pa.schema({"colour": pa.string()}),
        streams(
            seed,
            lambda draw: {
                "radius": draw.choice([None, 0.5, 1.0, 2.0, 4.0]),
                "colour": draw.choice([None, "red", "green"]),
            },
            lambda draw: {"colour": draw.choice([None, "red", "green", "blue"])},
        ),
        is_in_circle,
    )


def _nothing(draw: random.Random) -> Row:
    return dict.fromkeys(Subscriptions.query_columns)


SCENARIOS = (
    _subscriptions("subscriptions", 1, _subscription),
    _subscriptions("subscriptions that ask for nothing", 2, _nothing),
    _circles("a class of one's own", 3, Circles()),
    _circles(
        "a function of one's own", 4, PairFunction(is_in_circle, Circles.query_columns, ["colour"])
    ),
)
