"""Continuous k nearest, without Spark: against brute force, and by hand."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.apps.events.nearest import (
    best,
    both_sides,
    candidates,
    changed_answers,
    joined_sides,
    nearest_of,
)
from sparkswarm.apps.events.objects import BoundEvents, object_schema
from sparkswarm.apps.events.settings import Events, Nearest
from sparkswarm.errors import ConfigError
from sparkswarm.index.shapes import CIRCLE, SPHERE

BOUND = BoundEvents(Events(nearest=Nearest()), pa.string())
MIDDLES = {0: (0.0, 0.0), 1: (3.0, 1.0), 2: (1.0, 1.0)}
K = {0: 1, 1: 2, 2: 5}
PLAIN = 9
"""A fence that is no standing point."""


def table(rows: dict[str, tuple[int, int, int, list[int]]], bound: BoundEvents = BOUND) -> pa.Table:
    """Return objects, given the time, the place and the fences of each."""
    return pa.Table.from_pylist(
        [
            {
                "object": name, "time": time, "x": float(x), "y": float(y), "fences": fences,
                "until": [0] * len(fences), "since": [0] * len(fences), "dwelt": [0] * len(fences),
                "standing": [
                    "" if f == PLAIN else f"{CIRCLE} {K[f]} {MIDDLES[f][0]!r} {MIDDLES[f][1]!r}"
                    for f in fences
                ],
            }
            for name, (time, x, y, fences) in rows.items()
        ],
        schema=object_schema(bound),
    )  # fmt: skip


OBJECTS = st.dictionaries(
    st.sampled_from([f"van-{i}" for i in range(12)]),
    st.tuples(
        st.integers(0, 3),
        st.integers(-3, 3),
        st.integers(-3, 3),
        st.lists(st.sampled_from([0, 1, 2, PLAIN]), unique=True),
    ),
)


def wanted(rows: dict[str, Any]) -> dict[int, list[str]]:
    """Return the answer of each standing point that has one."""
    answers: dict[int, list[str]] = {}
    for fence, middle in MIDDLES.items():
        inside = [name for name, row in rows.items() if fence in row[3]]
        inside.sort(key=lambda n: (math.dist(middle, rows[n][1:3]), -rows[n][0], n))
        if inside:
            answers[fence] = inside[: K[fence]]
    return answers


def found_in(rows: dict[str, Any], cut: int) -> pa.Table:
    """Return the best candidates of objects that several tasks keep."""
    names = sorted(rows)
    parts = [names[:cut], names[cut:]]
    return best([candidates([table({n: rows[n] for n in part})], BOUND) for part in parts])


@given(OBJECTS, OBJECTS, st.integers(0, 12), st.integers(0, 12))
def test_an_answer_is_told_when_its_objects_or_their_order_change(
    old: dict[str, Any], new: dict[str, Any], cut: int, other: int
) -> None:
    before, after = both_sides(joined_sides(found_in(old, cut), found_in(new, other)))
    told = {row["query_id"]: row for row in changed_answers(before, after, BOUND).to_pylist()}
    was, now = wanted(old), wanted(new)
    assert {
        query: (row["before"], [one["object"] for one in row["objects"]])
        for query, row in told.items()
    } == {
        query: (was.get(query, []), now.get(query, []))
        for query in MIDDLES
        if was.get(query, []) != now.get(query, [])
    }
    for query, row in told.items():
        for one in row["objects"]:
            assert (one["x"], one["y"]) == new[one["object"]][1:3]
            assert one["distance"] == pytest.approx(math.dist(MIDDLES[query], (one["x"], one["y"])))
    for query in MIDDLES:
        answer = nearest_of([table(old)], query, BOUND)
        assert answer["object"].to_pylist() == was.get(query, [])


def test_distances_on_the_sphere_are_metres() -> None:
    schema = object_schema(BOUND)
    row = {
        "object": "ship", "time": 0, "x": -179.5, "y": 0.0, "fences": [7], "until": [0],
        "since": [0], "dwelt": [0], "standing": [f"{SPHERE} 1 179.5 0.0"],
    }  # fmt: skip
    found = candidates([pa.Table.from_pylist([row], schema=schema)], BOUND)
    assert found["distance"].to_pylist() == pytest.approx([math.radians(1) * 6_371_008.8])


def test_answers_have_the_names_and_columns_of_queries() -> None:
    bound = BoundEvents(Events(nearest=Nearest()), pa.int64(), pa.string(), properties=True)
    rows = [
        {
            "object": i, "time": 0, "x": float(i), "y": 0.0, "fences": [5], "until": [0],
            "since": [0], "dwelt": [0], "standing": [f"{CIRCLE} 1 0.0 0.0"], "names": ["shop"],
            "properties": ['{"level":1}'],
        }
        for i in (1, 2)
    ]  # fmt: skip
    some = candidates([pa.Table.from_pylist(rows, schema=object_schema(bound))], bound)
    none = candidates([], bound)
    (came,) = changed_answers(none, some, bound).to_pylist()
    assert came["query_id"] == "shop"
    assert came["properties"] == '{"level":1}'
    assert [one["object"] for one in came["objects"]] == [1]
    (gone,) = changed_answers(some, none, bound).to_pylist()
    assert gone == {"query_id": "shop", "objects": [], "before": [1], "properties": '{"level":1}'}


def test_objects_that_were_kept_before_anybody_asked_are_no_candidates() -> None:
    kept = table({"van-1": (0, 0, 0, [0])}, BOUND).drop_columns(["standing"])
    assert candidates([kept], BOUND).num_rows == 0


@pytest.mark.parametrize(
    "bad",
    [{"k": 0}, {"k": True}, {"k": 1.5}, {"within": -1.0}, {"within_m": math.inf},
     {"within": 1.0, "within_m": 1.0}],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Nearest(**bad)
