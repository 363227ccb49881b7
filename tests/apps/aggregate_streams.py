"""Random streams of aggregate queries and points, and an oracle in plain Python."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from sparkswarm.apps.aggregates.specs import AGGREGATES, QUERY_COLUMNS, Measure
from sparkswarm.apps.aggregates.windows import result_schema
from sparkswarm.apps.application import Pairs, Watermarks
from sparkswarm.geometry import CellRect
from sparkswarm.store.blocks import MIN_TIME

from ..support.strategies import grid_of

MEASURES = (Measure("speed"), Measure("load", whole=True))
GRID = grid_of(4, 4)


class Query(NamedTuple):
    """A query as it is registered; ``slide`` is None if its windows tumble."""

    aggregate: str
    window: int
    slide: int | None
    cell: tuple[int, int] = (0, 0)

    @property
    def step(self) -> int:
        return self.slide or self.window


class Point(NamedTuple):
    """A point and the ids of the queries that it matches."""

    time: int
    speed: float | None
    load: int | None
    matches: frozenset[int]


def queries_table(queries: dict[int, Query]) -> pa.Table:
    """Return queries as ``build`` gets them; their cell becomes their home."""
    rows = list(queries.values())
    texts = {
        "aggregate": [q.aggregate for q in rows],
        "window": [None if q.window is None else f"{q.window} us" for q in rows],
        "slide": [None if q.slide is None else f"{q.slide} us" for q in rows],
    }
    return pa.table(
        {
            "id": pa.array(list(queries), pa.int64()),
            "home": pa.array([q.cell[1] * GRID.columns + q.cell[0] for q in rows], pa.int64()),
            **{name: pa.array(texts[name], pa.string()) for name in QUERY_COLUMNS},
        }
    )


def points_table(points: list[Point]) -> pa.Table:
    return pa.table(
        {
            "time": pa.array([p.time for p in points], pa.int64()),
            "speed": pa.array([p.speed for p in points], pa.float64()),
            "load": pa.array([p.load for p in points], pa.int64()),
        }
    )


def pairs_of(queries: dict[int, Query], points: list[Point]) -> Pairs:
    pairs = [
        (i, j) for i, p in enumerate(points) for j, key in enumerate(queries) if key in p.matches
    ]
    return Pairs(*np.array(pairs, np.int64).reshape(-1, 2).T.copy())


# -- what the engine does to tables of state ---------------------------------------------------


def stored(state: pa.Table) -> pa.Table:
    """Write a table as an Arrow file and read it again."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, state.schema) as writer:
        writer.write_table(state, max_chunksize=2)
    return pa.ipc.open_file(sink.getvalue()).read_all()


def of_cells(state: pa.Table, cells: CellRect) -> pa.Table:
    """Return the state of the queries at home in these cells."""
    row, column = np.divmod(state.column("home").to_numpy(), GRID.columns)
    inside = (column >= cells.col_start) & (column < cells.col_stop)
    inside &= (row >= cells.row_start) & (row < cells.row_stop)
    return state.filter(pa.array(inside))


def without(state: pa.Table, ids: frozenset[int]) -> pa.Table:
    """Drop the state of some queries."""
    keep = [key not in ids for key in state.column("id").to_pylist()]
    return state.filter(pa.array(keep, pa.bool_()))


# -- the oracle --------------------------------------------------------------------------------


def aggregated(query: Query, points: list[Point]) -> dict[str, Any]:
    """Return the row of one window of a query."""
    row: dict[str, Any] = dict.fromkeys(result_schema(MEASURES).names)
    wanted = {term.strip() for term in query.aggregate.split(",")}
    if "count" in wanted:
        row["count"] = len(points)
    for name in ("speed", "load"):
        # Zero has no sign: -0.0 + 0 is 0.0.
        values = [v + 0 for p in points if (v := getattr(p, name)) is not None]
        found = {f"count({name})": len(values)}
        if values:
            finite = all(map(math.isfinite, values))
            total = sum(map(Fraction, values)) if finite else sum(values)
            whole = int(total) if name == "load" and -(2**63) <= total < 2**63 else None
            # NaN is larger than any number.
            ranked = sorted(values, key=lambda v: (math.isnan(v), v))
            found[f"sum({name})"] = whole if name == "load" else rounded(total)
            found[f"mean({name})"] = rounded(total / len(values))
            found[f"min({name})"], found[f"max({name})"] = ranked[0], ranked[-1]
        for term in wanted & found.keys():
            row[term.replace("(", "_").rstrip(")")] = found[term]
    return row


def rounded(exact: Fraction | float) -> float:
    try:
        return exact.numerator / exact.denominator if isinstance(exact, Fraction) else exact
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def comparable(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return rows sorted, values as text: NaN equals NaN, and 0.0 neither 0 nor -0.0."""
    return sorted([repr(value) for value in row.values()] for row in rows)


def listed(results: pa.Table) -> list[dict[str, Any]]:
    """Check the schema of results; return them by row."""
    assert results.schema == result_schema(MEASURES)
    for name in ("window_start", "window_end"):
        at = results.schema.get_field_index(name)
        results = results.set_column(at, name, results.column(name).cast(pa.int64()))
    rows = results.to_pylist()
    keys = [(row["query_id"], row["window_start"]) for row in rows]
    assert keys == sorted(set(keys)), "a window comes twice or out of order"
    return rows


# -- random streams ----------------------------------------------------------------------------

IDS = st.integers(-2, 3)
TERMS = ["count", *(f"{name}({of})" for name in AGGREGATES for of in ("speed", "load"))]
QUERIES = st.builds(
    lambda terms, slide, panes, explicit, cell: Query(
        ", ".join(terms), slide * panes, slide if explicit or panes > 1 else None, cell
    ),
    st.lists(st.sampled_from(TERMS), min_size=1, max_size=4),
    st.integers(1, 7),
    st.integers(1, 5),
    st.booleans(),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
SOME_QUERIES = st.dictionaries(IDS, QUERIES, min_size=1)
SPEEDS = st.one_of(
    st.none(),
    st.sampled_from([0.0, -0.0, 0.1, 0.2, 0.3, -1e16, 1e16, 1e308, math.nan, math.inf, -math.inf]),
    st.floats(-100, 100),
)
LOADS = st.one_of(st.none(), st.integers(-5, 5), st.sampled_from([2**63 - 1, -(2**63)]))
POINTS = st.builds(
    Point, st.integers(-20, 40), SPEEDS, LOADS, st.frozensets(IDS, min_size=1, max_size=4)
)


class Batch(NamedTuple):
    """Queries to remove, to add or to change, points, and how far the watermark advances."""

    removed: frozenset[int]
    changed: dict[int, Query]
    points: list[Point]
    passes: int


BATCHES = st.builds(
    Batch,
    st.one_of(st.just(frozenset()), st.frozensets(IDS, max_size=2)),
    st.one_of(st.just({}), st.dictionaries(IDS, QUERIES, max_size=2)),
    st.lists(POINTS, max_size=12),
    st.integers(0, 15),
)


THE_END = Batch(frozenset(), {}, [], 10_000)
"""The watermark that a batch gives is that of the next batch."""


class Step(NamedTuple):
    """The content of a batch, and what it must give.

    ``queries`` are those after its operations, ``gone`` the ids whose state is dropped.
    """

    queries: dict[int, Query]
    gone: frozenset[int]
    points: list[Point]
    watermarks: Watermarks
    results: list[dict[str, Any]]
    late: int


def steps(queries: dict[int, Query], batches: list[Batch]) -> Iterator[Step]:
    """Run batches with plain loops, and two more in which all windows close."""
    history: list[tuple[int, int, Point]] = []
    before, watermark, began = MIN_TIME, MIN_TIME, dict.fromkeys(queries, 0)
    for number, batch in enumerate([*batches, THE_END, THE_END]):
        gone = batch.removed | batch.changed.keys()
        queries = {k: q for k, q in queries.items() if k not in batch.removed} | batch.changed
        began |= dict.fromkeys(gone, number)
        results, late = [], 0
        for key, query in queries.items():

            def ends(point: Point, query: Query = query) -> range:
                first = point.time // query.step * query.step + query.step
                return range(first, first + query.window, query.step)

            mine = [(w, p) for w, b, p in history if key in p.matches and b >= began[key]]
            due = {e for _, p in mine for e in ends(p) if before < e <= watermark}
            for end in due:
                inside = [p for w, p in mine if w < end and end in ends(p)]
                if inside:
                    row = aggregated(query, inside)
                    row |= {"query_id": key, "window_start": end - query.window, "window_end": end}
                    results.append(row)
            matched = [p for p in batch.points if key in p.matches]
            late += sum(max(ends(p)) <= watermark for p in matched)
        yield Step(queries, gone, batch.points, Watermarks(before, watermark), results, late)
        history += [(watermark, number, p) for p in batch.points]
        before = watermark
        watermark = max(watermark, -20) + batch.passes


def divided(items: list[Any], parts: int, rng: random.Random) -> list[list[Any]]:
    """Divide items into random parts, in any order."""
    lots: list[list[Any]] = [[] for _ in range(parts)]
    for item in rng.sample(items, len(items)):
        rng.choice(lots).append(item)
    return lots
