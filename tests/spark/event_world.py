"""A world of objects that walk through fences, and the events that must come of it."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
import shapely

from sparkswarm import Events

from ..apps.event_oracle import EventOracle, Fix
from .driver_main import EVENTS as TOLD
from .world import (
    BOUNDS,
    START,
    STEP,
    Batch,
    Expected,
    Operation,
    Point,
    World,
    _apply,
    _end,
    fault_of_operation,
    fault_of_point,
    make_world,
)

EVENTS = Events(*TOLD)


def walking_world(
    seed: int, batches: int = 9, objects: int = 40, operations: int = 25, **more: Any
) -> World:
    """Return a world in which few objects have many fixes, some late, some repeated.

    One batch has no points and one no operations; objects are silent now and then.
    """
    made = make_world(
        seed, batches, points=10, operations=operations, event_time=True, preload=40, **more
    )
    rng = random.Random(f"walk {seed}")
    places = {i: (rng.uniform(-3, 7), rng.uniform(10, 17)) for i in range(objects)}
    walked = []
    for number, batch in enumerate(made.batches):
        points = [point for point in batch.points if fault_of_point(point, True)]
        for i in range(objects):
            if number % 4 != 2 and ((number + i) % 6 < 2 or rng.random() < 0.2):
                for _ in range(rng.randrange(1, 4)):
                    x, y = places[i]
                    x = min(max(x + rng.uniform(-1, 1), BOUNDS[0]), BOUNDS[2])
                    y = min(max(y + rng.uniform(-1, 1), BOUNDS[1]), BOUNDS[3])
                    places[i] = x, y
                    late = rng.random() < 0.1
                    ts = START + number * STEP + rng.randrange(STEP // 1000) * 1000
                    points.append(Point(i, x, y, ts - late * rng.randrange(5) * STEP))
        if points:
            points += rng.sample(points, min(2, len(points)))
        operations_here = [] if number % 4 == 3 else batch.operations
        walked.append(Batch(points, operations_here))
    return World(walked, made.preload, True)


@dataclass
class ExpectedEvents:
    """What must come of a world: (batch, event) and what is known of objects at the end."""

    events: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    nearest: dict[tuple[int, int], tuple[list[int], list[int]]] = field(default_factory=dict)
    """By batch and circle: the answer before and after, where they differ."""
    oracle: EventOracle = field(default_factory=lambda: EventOracle(1))


Contains = Callable[[Point, Operation], bool]
"""Whether a point is in the place of a query."""


def _rectangle_contains(p: Point, q: Operation) -> bool:
    return q.min_x <= p.x <= q.max_x and q.min_y <= p.y <= q.max_y


_PLAIN = """min_x < max_x AND min_y < max_y AND abs(min_x) < 100 AND abs(max_x) < 100
            AND abs(min_y) < 100 AND abs(max_y) < 100"""
_ROUND = f"""pmod(id, 3) = 0 AND min_x BETWEEN {BOUNDS[0]} AND {BOUNDS[2]}
            AND min_y BETWEEN {BOUNDS[1]} AND {BOUNDS[3]} AND {_PLAIN}"""
SHAPED = f"""
CASE WHEN {_ROUND} THEN concat('POINT (', min_x, ' ', min_y, ')')
     WHEN pmod(id, 3) = 1 AND {_PLAIN}
     THEN concat('POLYGON ((', min_x, ' ', min_y, ', ', max_x, ' ', max_y, ', ',
                 min_x, ' ', max_y, ', ', min_x, ' ', min_y, '))')
END AS geometry
"""
"""A third of the rectangles becomes circles around their lower corner, a third triangles."""

RADIUS = f"IF({_ROUND}, max_x - min_x, NULL) AS radius"
STANDING = f"IF({_ROUND}, 1 + pmod(id, 4), NULL) AS k"
"""The circles ask for the nearest objects."""


def shape_contains(p: Point, q: Operation) -> bool:
    """Return whether a point is in the shape that SQL makes of a rectangle."""
    if not _is_shaped(q):
        return _rectangle_contains(p, q)
    if q.id % 3 == 1:
        return bool(shape_of(q).covers(shapely.Point(p.x, p.y)))
    dx, dy, radius = p.x - q.min_x, p.y - q.min_y, q.max_x - q.min_x
    return dx * dx + dy * dy <= radius * radius


def _is_shaped(q: Operation) -> bool:
    """Return whether SQL makes a circle or a triangle of a rectangle."""
    edges = (q.min_x, q.min_y, q.max_x, q.max_y)
    shaped = q.min_x < q.max_x and q.min_y < q.max_y and max(map(abs, edges)) < 100
    return shaped and (q.id % 3 == 1 or _is_round(q))


def _rectangle_of(q: Operation) -> shapely.Geometry:
    return shapely.box(q.min_x, q.min_y, q.max_x, q.max_y)


def shape_of(q: Operation) -> shapely.Geometry:
    """Return the shape that SQL makes of a rectangle; of a circle its middle."""
    if not _is_shaped(q):
        return _rectangle_of(q)
    if q.id % 3 == 1:
        return shapely.Polygon([(q.min_x, q.min_y), (q.max_x, q.max_y), (q.min_x, q.max_y)])
    return shapely.Point(q.min_x, q.min_y)


def expected_events(
    world: World, settings: Events = EVENTS, contains: Contains = _rectangle_contains
) -> ExpectedEvents:
    """Apply every operation, compare every point with every query, and walk every object."""
    queries: dict[int, Operation] = {}
    shape = _rectangle_of if contains is _rectangle_contains else shape_of

    def crossed(leg: tuple[float, ...], time: int) -> list[int]:
        line = shapely.LineString([leg[:2], leg[2:]])
        ends = [Point(0, x, y, time) for x, y in (leg[:2], leg[2:])]
        return [
            i
            for i, q in queries.items()
            if time < _end(q)
            and line.distance(place := shape(q))
            <= (q.max_x - q.min_x) * (place.geom_type == "Point")
            and not any(contains(end, q) for end in ends)
        ]

    found = ExpectedEvents(
        oracle=EventOracle(
            settings.silent_micros,
            settings.dwell_micros,
            settings.inside,
            settings.cross or 0,
            crossed,
        )
    )
    answers: dict[int, list[int]] = {}
    clock = 0
    for number, (points, operations) in enumerate([Batch([], world.preload), *world.batches], -1):
        before = dict(queries)
        for operation in operations:
            if fault_of_operation(operation) is None:
                _apply(queries, operation, clock, Expected())
        ids = {operation.id for operation in operations}
        changes = {
            i: i in queries for i in ids if i is not None and queries.get(i) is not before.get(i)
        }
        fixes = [
            Fix(
                p.id,
                p.ts,
                p.x,
                p.y,
                {i: _end(q) for i, q in queries.items() if p.ts < _end(q) and contains(p, q)},
            )
            for p in points
            if fault_of_point(p, True) is None
        ]
        for event in found.oracle.batch(fixes, changes, clock):
            found.events[(number, *event)] += 1
        old, answers = answers, _answers(queries, found.oracle)
        for i in old.keys() | answers.keys():
            if old.get(i) != answers.get(i):
                found.nearest[number, i] = old.get(i, []), answers.get(i, [])
        clock = max([clock, *(fix.time for fix in fixes)])
    return found


def _answers(queries: dict[int, Operation], oracle: EventOracle) -> dict[int, list[int]]:
    """Return the objects nearest to the centre of each circle, of those that are in it."""
    answers = {}
    for i, q in queries.items():
        inside = [name for name, known in oracle.objects.items() if i in known.fences]
        if inside and _is_round(q):
            places = {name: oracle.objects[name] for name in inside}
            middle = q.min_x, q.min_y
            inside.sort(key=lambda n: (math.dist(middle, places[n].place), -places[n].time, n))
            answers[i] = inside[: 1 + i % 4]
    return answers


def _is_round(q: Operation) -> bool:
    edges = (q.min_x, q.min_y, q.max_x, q.max_y)
    within = BOUNDS[0] <= q.min_x <= BOUNDS[2] and BOUNDS[1] <= q.min_y <= BOUNDS[3]
    shaped = q.min_x < q.max_x and q.min_y < q.max_y and max(map(abs, edges)) < 100
    return q.id % 3 == 0 and within and shaped


def told_answers(table: pa.Table) -> dict[tuple[int, int], tuple[list[int], list[int]]]:
    """Return answers of circles as the oracle has them; each is told once."""
    rows = table.to_pylist()
    found = {
        (row["batch_id"], row["query_id"]): (
            row["before"],
            [one["object"] for one in row["objects"]],
        )
        for row in rows
    }
    assert len(found) == len(rows)
    return found


def told_events(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """Return events as the oracle has them."""
    names = ("object", "fence", "event", "reason", "time", "from_x", "from_y", "x", "y", "seconds")
    found: Counter[tuple[Any, ...]] = Counter()
    for row in table.to_pylist():
        row["time"] = micros(row["time"])
        found[(row["batch_id"], *(row[name] for name in names))] += 1
    return found


def micros(when: datetime) -> int:
    """Return a time in microseconds."""
    return round(when.timestamp() * 1_000_000)
