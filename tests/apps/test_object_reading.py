"""What is known of objects can be read: who is inside, where, and nearest."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.apps.events.objects import BoundEvents, object_schema
from sparkswarm.apps.events.reading import (
    Positions,
    bucket_of,
    object_position,
    objects_inside,
)
from sparkswarm.apps.events.settings import Events
from sparkswarm.errors import InputError

EVENTS = BoundEvents(Events(), pa.string())

PLACES = st.integers(-4, 4).map(float)
OBJECTS = st.lists(
    st.tuples(st.text(max_size=3), st.integers(0, 9), PLACES, PLACES, st.sets(st.integers(0, 3))),
    max_size=12,
    unique_by=lambda row: row[0],
)


def table(rows: list[Any]) -> pa.Table:
    """Return objects; the fence f is entered at f microseconds before the last fix."""
    made = [
        {
            "object": name, "time": time, "x": x, "y": y, "fences": sorted(fences),
            "until": [99] * len(fences), "since": [time - f for f in sorted(fences)],
            "dwelt": [0] * len(fences),
        }
        for name, time, x, y, fences in rows
    ]  # fmt: skip
    return pa.Table.from_pylist(made, schema=object_schema(EVENTS))


@given(rows=OBJECTS, cut=st.integers(0, 12))
def test_objects_in_a_fence_are_found_in_all_tables(rows: list[Any], cut: int) -> None:
    whole = table(rows)
    for fence in range(5):
        found = objects_inside([whole.slice(0, cut), whole.slice(cut)], fence, EVENTS)
        names = ["object", "x", "y", "seconds"]
        assert [tuple(row[n] for n in names) for row in found.to_pylist()] == [
            (name, x, y, pytest.approx(fence / 1e6))
            for name, _, x, y, fences in rows
            if fence in fences
        ]


@given(
    rows=OBJECTS, cut=st.integers(0, 12), k=st.integers(1, 5), within=st.none() | PLACES.map(abs)
)
def test_the_nearest_are_those_of_brute_force(
    rows: list[Any], cut: int, k: int, within: float | None
) -> None:
    whole = table(rows)
    found = Positions([whole.slice(0, cut), whole.slice(cut)], EVENTS).nearest(0.0, 1.0, k, within)
    ranked = sorted(
        (float(np.hypot(x, y - 1.0)), -time, name.encode()) for name, time, x, y, _ in rows
    )
    wanted = [
        name.decode() for d, _, name in ranked if d <= (math.inf if within is None else within)
    ]
    assert found["object"].to_pylist() == wanted[:k]


def test_the_nearest_of_many_are_those_of_brute_force() -> None:
    rng = np.random.default_rng(5)
    places = np.concatenate([rng.normal(0, 1, (3000, 2)), rng.uniform(-50, 50, (2000, 2))])
    rows = [(f"o{i}", i, x, y, set()) for i, (x, y) in enumerate(places.tolist())]
    positions = Positions([table(rows[:1000]), table(rows[1000:])], EVENTS)
    for x, y in [*rng.uniform(-60, 60, (40, 2)).tolist(), (1e6, -1e6)]:
        distance = np.hypot(places[:, 0] - x, places[:, 1] - y)
        ranked = np.argsort(distance)
        for k, within in ((1, None), (20, None), (6000, None), (50, 3.0), (5, 0.0)):
            wanted = ranked[: min(k, int((distance <= (within or math.inf)).sum()))]
            if within == 0.0:
                wanted = wanted[:0]
            found = positions.nearest(x, y, k, within)
            assert found["object"].to_pylist() == [f"o{i}" for i in wanted.tolist()]


def test_an_object_is_found_by_its_id() -> None:
    whole = table([("a", 5, 1.0, 2.0, {3}), ("b", 6, 0.0, 0.0, set())])
    at = object_position(whole, "a", EVENTS)
    assert at is not None
    assert (at.x, at.y, at.time.microsecond) == (1.0, 2.0, 5)
    assert {fence: since.microsecond for fence, since in at.fences.items()} == {3: 2}
    assert object_position(whole, "c", EVENTS) is None


@pytest.mark.parametrize("name", [None, 5, ["a"]])
def test_an_id_of_another_type_is_refused(name: object) -> None:
    with pytest.raises(InputError, match=r"ids of type string|got None"):
        bucket_of(name, EVENTS)


@pytest.mark.parametrize(
    "bad", [(0.0, 0.0, 0, None), (math.nan, 0.0, 1, None), (0.0, 0.0, 1, -1.0)]
)
def test_a_search_that_makes_no_sense_is_refused(bad: Any) -> None:
    with pytest.raises(InputError):
        Positions([], EVENTS).nearest(*bad)
