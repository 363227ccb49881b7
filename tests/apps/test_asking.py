"""Questions about objects in the stream of operations."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from sparkswarm import Events
from sparkswarm.apps.events.asking import (
    BAD_K,
    NO_ABOUT,
    NO_OBJECTS,
    NO_PLACE,
    answer_asks,
    check_asks,
)
from sparkswarm.apps.events.objects import BoundEvents, buckets_of, object_schema
from sparkswarm.index.layout import NEVER
from sparkswarm.store.names import hash_name

NAMED = BoundEvents(Events(), pa.string(), pa.string())
NUMBERED = BoundEvents(Events(), pa.int32(), pa.int64())
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MICROS = int(NOON.timestamp() * 1e6)


def ask(op: str, **more: Any) -> dict[str, Any]:
    blank = dict.fromkeys(("about", "k", "within", "min_x", "min_y"))
    return {"op": op, "id": "q", **blank, **more}


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    types = {"op": pa.string(), "id": pa.string(), "about": pa.string(), "k": pa.int64()}
    types |= dict.fromkeys(("within", "min_x", "min_y"), pa.float64())
    return pa.Table.from_pylist(rows, schema=pa.schema(types))


def known(events: BoundEvents, places: dict[Any, tuple[float, list[str]]]) -> Any:
    """Return a function that gives the objects of a bucket, which are at (x, 0)."""
    tables: dict[int, pa.Table] = {}
    for name, (x, fences) in places.items():
        (bucket,) = buckets_of(pa.array([name], events.object_type)).tolist()
        row: dict[str, Any] = {"object": name, "time": MICROS, "x": x, "y": 0.0}
        row["fences"] = [hash_name(f.encode()) if events.has_names else int(f) for f in fences]
        row |= {"until": [NEVER] * len(fences), "since": [MICROS - 5_000_000] * len(fences)}
        row |= {"dwelt": [0] * len(fences), "names": fences}
        one = pa.Table.from_pylist([row], schema=object_schema(events))
        tables[bucket] = pa.concat_tables([tables[bucket], one]) if bucket in tables else one
    return lambda bucket: [t for b, t in tables.items() if bucket in (None, b)]


def test_questions_are_answered_by_name():
    tables = known(NAMED, {"van-1": (1.0, ["a", "b"]), "van-2": (3.0, []), "van-3": (7.0, ["b"])})
    asks = [
        ask("inside", id="1", about="b"),
        ask("inside", id="2", about="nowhere"),
        ask("where", id="3", about="van-1"),
        ask("where", id="4", about="van-2"),
        ask("where", id="5", about="unknown"),
        ask("nearest", id="6", min_x=2.5, min_y=0.0, k=2),
        ask("nearest", id="7", min_x=2.5, min_y=0.0, k=5, within=2.0),
        ask("nearest", id="8", min_x=2.5, min_y=0.0),
    ]
    assert not check_asks(table_of(asks), NAMED).any()
    answers = answer_asks(table_of(asks), tables, {}, NAMED).to_pylist()
    found: dict[str, set[Any]] = {}
    for row in answers:
        assert row["time"] == NOON
        about = row["fence"], row["seconds"], row["distance"]
        found.setdefault(row["query_id"], set()).add((row["object"], *about))
    assert found == {
        "1": {("van-1", None, 5.0, None), ("van-3", None, 5.0, None)},
        "3": {("van-1", "a", 5.0, None), ("van-1", "b", 5.0, None)},
        "4": {("van-2", None, None, None)},
        "6": {("van-2", None, None, 0.5), ("van-1", None, None, 1.5)},
        "7": {("van-2", None, None, 0.5), ("van-1", None, None, 1.5)},
        "8": {("van-2", None, None, 0.5)},
    }


def test_a_fence_whose_name_was_renumbered_is_found_by_its_number():
    tables = known(NAMED, {"van-1": (1.0, ["a"])})
    asks = table_of([ask("inside", about="other")])
    assert answer_asks(asks, tables, {}, NAMED).num_rows == 0
    assert answer_asks(asks, tables, {b"other": hash_name(b"a")}, NAMED).num_rows == 1


def test_ids_that_are_numbers_are_read_from_text():
    tables = known(NUMBERED, {7: (1.0, ["4"])})
    rows = [ask("inside", about="4"), ask("where", about="7")]
    asks = table_of(rows).set_column(1, "id", pa.array([10, 11]))
    answers = answer_asks(asks, tables, {}, NUMBERED)
    assert answers["object"].to_pylist() == [7, 7]
    assert answers["fence"].to_pylist() == [None, 4]
    assert answers["query_id"].to_pylist() == [10, 11]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (ask("inside"), NO_ABOUT),
        (ask("inside", about="four"), NO_ABOUT),
        (ask("where", about="9999999999"), NO_ABOUT),
        (ask("nearest", min_x=1.0), NO_PLACE),
        (ask("nearest", min_x=1.0, min_y=float("inf")), NO_PLACE),
        (ask("nearest", min_x=1.0, min_y=1.0, k=0), BAD_K),
        (ask("nearest", min_x=1.0, min_y=1.0, within=-1.0), BAD_K),
        (ask("nearest", min_x=1.0, min_y=1.0, within=float("nan")), BAD_K),
    ],
)
def test_a_question_that_makes_no_sense_is_rejected(row, reason):
    assert check_asks(table_of([row]), NUMBERED).tolist() == [reason]
    assert check_asks(table_of([row]), None).tolist() == [NO_OBJECTS]
