"""Snapshot queries find what a scan of all points finds, and answer by kind."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from sparkswarm.apps import snapshots
from sparkswarm.apps.application import PairFunction
from sparkswarm.apps.bound import BoundApplication
from sparkswarm.apps.snapshots import (
    SNAPSHOT_KINDS,
    SnapshotQueries,
    answer_columns,
    answers,
    find,
)
from sparkswarm.geometry import CellRect
from sparkswarm.store.blocks import Block
from sparkswarm.store.files import FileRef
from sparkswarm.store.manifest import BlockRef

from ..support.strategies import grid_of

GRID = grid_of(4, 4)
LEFT, RIGHT = CellRect(0, 0, 2, 4), CellRect(2, 0, 4, 4)
RETURNED = pa.schema([("id", pa.string()), ("time", pa.timestamp("us", "UTC")), (".n", pa.int64())])
QUERIES = pa.schema(
    {
        **{"op": pa.string(), "id": pa.int64()},
        **dict.fromkeys(("min_x", "min_y", "max_x", "max_y"), pa.float64()),
        **dict.fromkeys(("since", "until", "number", "partition"), pa.int64()),
    }
)

Point = tuple[str, float, float, int]
Asked = tuple[int, tuple[float, float, float, float], int | None, int | None]


def blocks_of(*blocks: list[Point]) -> tuple[dict[int, list[BlockRef]], dict[str, Block]]:
    """Return the blocks of partition 0, the left half, and 1, the right, and their contents."""
    refs: dict[int, list[BlockRef]] = {0: [], 1: []}
    contents = {}
    for number, points in enumerate(blocks):
        if not points:
            continue
        ids, x, y, time = zip(*points, strict=True)
        table = pa.table({"id": pa.array(ids), "x": x, "y": y, "time": time})
        block = Block.concat([table], GRID)
        assert block is not None
        file = FileRef(f"blocks/{number}", len(points), 0, 0)
        contents[file.name] = block
        for partition, cells in enumerate((LEFT, RIGHT)):
            ref = BlockRef(cells=cells, meta=block.meta, file=file, offset=0)
            if ref.within(cells):
                refs[partition].append(ref)
    return refs, contents


def queries_of(op: str, asked: list[Asked], start: int = 0, now: int = 100) -> SnapshotQueries:
    """Return queries, each with a row for both partitions."""
    rows = [
        {
            "op": op, "id": id, "since": since, "until": until, "number": number,
            "partition": partition,
            **dict(zip(("min_x", "min_y", "max_x", "max_y"), box, strict=True)),
        }
        for number, (id, box, since, until) in enumerate(asked)
        for partition in (0, 1)
    ]  # fmt: skip
    return SnapshotQueries.from_table(pa.Table.from_pylist(rows, QUERIES), start, now)


def answered(op, blocks, asked, application=None, **window):
    refs, contents = blocks_of(*blocks)
    queries = queries_of(op, asked, **window)
    found = find(
        queries,
        grid=GRID,
        blocks=refs,
        open_block=lambda ref: contents[ref.file.name],
        application=application,
    )
    tables = list(answers(SNAPSHOT_KINDS[op], queries, found, RETURNED, pa.int64()))
    assert all(table.column_names == ["query_id", "count", "id", "time", ".n"] for table in tables)
    return [row for table in tables for row in table.to_pylist()]


ALL = (0.0, 0.0, 4.0, 4.0)
SOME = [("a", 0.5, 0.5, 10), ("b", 3.5, 3.5, 20)], [("c", 0.5, 3.5, 30), ("d", 1.5, 0.5, 40)]


def test_a_range_has_a_row_for_each_point_with_its_columns():
    rows = answered("range", SOME, [(7, (0.0, 0.0, 4.0, 1.0), None, None)])
    assert sorted((row["query_id"], row["id"], row["count"], row[".n"]) for row in rows) == [
        (7, "a", None, None),
        (7, "d", None, None),
    ]
    assert {row["time"].microsecond for row in rows} == {10, 40}


def test_a_count_has_a_row_for_each_query_even_if_it_finds_nothing():
    asked = [(7, ALL, None, None), (7, ALL, 15, 30), (8, (3.0, 0.0, 4.0, 1.0), None, None)]
    rows = answered("count", SOME, asked)
    assert [(row["query_id"], row["count"], row["id"]) for row in rows] == [
        (7, 4, None),
        (7, 2, None),
        (8, 0, None),
    ]


def test_points_outside_the_window_are_not_found():
    rows = answered("range", SOME, [(1, ALL, None, 35), (2, ALL, 5, None)], start=20, now=30)
    assert sorted((row["query_id"], row["id"]) for row in rows) == [
        *((1, "b"), (1, "c"), (2, "b"), (2, "c")),
    ]


def test_the_application_decides_on_what_the_rectangle_contains():
    is_late = PairFunction(lambda point, query: point["time"] >= 30)
    application = BoundApplication(cloudpickle.dumps(is_late), pa.schema([]), {}, pa.schema([]))
    rows = answered("range", SOME, [(1, (0.0, 0.0, 2.0, 4.0), None, None)], application)
    assert sorted(row["id"] for row in rows) == ["c", "d"]


def test_blocks_that_cannot_have_a_point_are_not_opened():
    refs, _ = blocks_of([("a", 0.5, 0.5, 10), ("b", 1.5, 1.5, 40)])
    asked = [(1, (3.0, 0.0, 4.0, 1.0), None, None), (2, ALL, 41, None), (3, ALL, None, 9)]
    queries = queries_of("range", asked)
    opened = []
    list(find(queries, grid=GRID, blocks=refs, open_block=opened.append))
    assert opened == []


def test_large_answers_come_in_parts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(snapshots, "ANSWER_ROWS", 2)
    refs, contents = blocks_of(*SOME)
    queries = queries_of("range", [(1, ALL, None, None)])
    found = find(queries, grid=GRID, blocks=refs, open_block=lambda ref: contents[ref.file.name])
    tables = list(answers(SNAPSHOT_KINDS["range"], queries, found, RETURNED, pa.int64()))
    assert [table.num_rows for table in tables] == [3, 1]


def test_the_columns_of_answers_are_those_of_all_kinds():
    assert answer_columns(pa.string()).names == ["query_id", "count"]
    for op, kind in SNAPSHOT_KINDS.items():
        assert kind.op == op


side = st.integers(0, 8).map(lambda v: v / 2)
times = st.integers(0, 6)
points = st.lists(st.tuples(side, side, times), max_size=12)
asked = st.lists(
    st.tuples(side, side, side, side, st.none() | times, st.none() | times), min_size=1, max_size=4
)


@given(st.lists(points, max_size=3), asked, times, times)
def test_every_kind_finds_what_a_scan_finds(blocks, asked, start, now):
    named = [
        [(f"{b}-{i}", x, y, time) for i, (x, y, time) in enumerate(block)]
        for b, block in enumerate(blocks)
    ]
    some = [
        (number, (min(a, c), min(b, d), max(a, c), max(b, d)), since, until)
        for number, (a, b, c, d, since, until) in enumerate(asked)
    ]
    expected = {
        number: sorted(
            id
            for block in named
            for id, x, y, time in block
            if box[0] <= x <= box[2] and box[1] <= y <= box[3]
            if max(start, 0 if since is None else since) <= time
            if time <= min(now, 100 if until is None else until)
        )
        for number, box, since, until in some
    }
    rows = answered("range", named, some, start=start, now=now)
    for number, ids in expected.items():
        assert sorted(row["id"] for row in rows if row["query_id"] == number) == ids
    counts = answered("count", named, some, start=start, now=now)
    assert {r["query_id"]: r["count"] for r in counts} == {n: len(e) for n, e in expected.items()}
