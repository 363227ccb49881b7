"""A random world for tests of the whole engine, an oracle for it, and changes of the plan.

A world is a list of batches: points, and operations on queries. From a seed it is always the
same. It is written as Parquet files that Spark's file source takes batch by batch, and the
oracle says what must come of it, row by row in plain Python: slow, and easy to believe.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparkswarm import ParquetPoints
from sparkswarm.config import SwarmConfig
from sparkswarm.geometry import CellRect
from sparkswarm.protocol.merge import Merge, find_merges
from sparkswarm.protocol.partition import (
    TICKETS,
    Partition,
    PlanChange,
    Shares,
    merged,
    moved,
    reshared,
    split,
)
from sparkswarm.protocol.plan import Plan
from sparkswarm.store.epochs import Epochs

BOUNDS = (-3.0, 10.0, 7.1, 17.3)
GRID = (20, 16)
"""Cells whose sides are no round numbers."""

LONG_AGO, FAR_AHEAD = 1_000_000_000_000_000, 4_000_000_000_000_000
"""The years 2001 and 2096, in microseconds."""

START = 1_700_000_000_000_000
"""When the first batch's events happen, in microseconds."""

STEP = 10_000_000
"""Microseconds from one batch's events to the next batch's."""

POINTS_SCHEMA = "id BIGINT, x DOUBLE, y DOUBLE, ts TIMESTAMP"
OPERATIONS_SCHEMA = (
    "op STRING, id BIGINT, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, "
    "expires TIMESTAMP"
)

FIRST_TIME = 1_600_000_000
"""When the first file pretends to have been written, in seconds since 1970."""


def config(**settings: Any) -> SwarmConfig:
    """Return settings for a world."""
    return SwarmConfig(**{"bounds": BOUNDS, "grid": GRID, "round_batches": 1, **settings})


class Point(NamedTuple):
    """A row of the points."""

    id: int | None
    x: float | None
    y: float | None
    ts: int | None


class Operation(NamedTuple):
    """A row of the operations."""

    op: str | None
    id: int | None
    min_x: float | None = None
    min_y: float | None = None
    max_x: float | None = None
    max_y: float | None = None
    expires: int | None = None

    @property
    def box(self) -> tuple[float | None, ...]:
        """The rectangle."""
        return self[2:6]


class Batch(NamedTuple):
    """What comes in one batch."""

    points: list[Point]
    operations: list[Operation]


# -- the world ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """Batches of points and operations.

    Attributes
    ----------
    batches
        The batches.
    preload
        Queries to register before the first.
    event_time
        Whether points happen at their own time; otherwise they happen when their batch does.
    """

    batches: list[Batch]
    preload: list[Operation] = field(default_factory=list)
    event_time: bool = False

    def write(self, folder: Path, files: int = 2) -> Folders:
        """Write all batches as files, the points of each into so many."""
        folders = Folders(folder, files)
        for path in (folders.points, folders.operations, folders.preload):
            path.mkdir(parents=True)
        for number, batch in enumerate(self.batches):
            for part in range(files):
                name = f"{number:05d}-{part}.parquet"
                _write(point_table(batch.points[part::files]), folders.points / name, number)
            name = f"{number:05d}.parquet"
            _write(operation_table(batch.operations), folders.operations / name, number)
        if self.preload:
            _write(operation_table(self.preload), folders.preload / "preload.parquet", 0)
        return folders


@dataclass(frozen=True)
class Folders:
    """Where a world was written."""

    folder: Path
    files: int

    @property
    def points(self) -> Path:
        """The stream of points."""
        return self.folder / "points"

    @property
    def operations(self) -> Path:
        """The stream of operations."""
        return self.folder / "operations"

    @property
    def preload(self) -> Path:
        """The queries to preload."""
        return self.folder / "preload"

    def read_points(self, spark: Any, by_tasks: bool = False) -> Any:
        """Return the stream of points, a batch at a time; tasks may read the files themselves."""
        if by_tasks:
            return ParquetPoints(str(self.points), POINTS_SCHEMA, self.files)
        reader = spark.readStream.schema(POINTS_SCHEMA).option("maxFilesPerTrigger", self.files)
        return reader.parquet(str(self.points))

    def read_operations(self, spark: Any) -> Any:
        """Return the stream of operations, a batch at a time."""
        reader = spark.readStream.schema(OPERATIONS_SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.operations))

    def read_preload(self, spark: Any) -> Any:
        """Return the queries to preload."""
        return spark.read.schema(OPERATIONS_SCHEMA).parquet(str(self.preload))


def start_world(
    spark: Any,
    folders: Folders,
    checkpoint: Path,
    sink: Any,
    event_time: bool = False,
    **settings: Any,
) -> Any:
    """Start a run over all batches of a world, or go on with it; return its handle."""
    from sparkswarm import PointColumns, QueryColumns, Swarm

    return Swarm(spark, config(**{"executors": 3, **settings})).start(
        folders.read_points(spark, by_tasks=event_time),
        folders.read_operations(spark),
        sink=sink,
        checkpoint=str(checkpoint),
        point_columns=PointColumns(time="ts" if event_time else None),
        query_columns=QueryColumns(expires="expires"),
        preload=folders.read_preload(spark) if any(folders.preload.iterdir()) else None,
        trigger={"availableNow": True},
    )


def point_table(points: list[Point]) -> pa.Table:
    """Return points as Arrow has them."""
    types = (pa.int64(), pa.float64(), pa.float64(), pa.timestamp("us", "UTC"))
    return _table(Point._fields, types, points)


def operation_table(operations: list[Operation]) -> pa.Table:
    """Return operations as Arrow has them."""
    types = (pa.string(), pa.int64(), *[pa.float64()] * 4, pa.timestamp("us", "UTC"))
    return _table(Operation._fields, types, operations)


def _table(names: tuple[str, ...], types: tuple[pa.DataType, ...], rows: list[Any]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    # pyarrow would take NaN for null if this came from pandas; from Python lists it does not.
    arrays = [pa.array(list(column), kind) for column, kind in zip(columns, types, strict=True)]
    return pa.table(dict(zip(names, arrays, strict=True)))


def _write(table: pa.Table, path: Path, number: int) -> None:
    pq.write_table(table, path)
    # Spark's file source takes files in the order of these times.
    when = FIRST_TIME + 10 * number
    os.utime(path, (when, when))


def make_world(
    seed: int,
    batches: int = 5,
    points: int = 150,
    operations: int = 60,
    bad: float = 0.0,
    event_time: bool = False,
    preload: int = 0,
    alive: int | None = None,
) -> World:
    """Return the world of a seed.

    Parameters
    ----------
    seed
        Fixes everything.
    batches, points, operations
        How many, the latter two in each batch.
    bad
        The share of bad rows.
    event_time
        Whether points happen at their own time. Queries then expire now and then; otherwise
        they expire long ago or far ahead.
    preload
        How many queries there are before the first batch.
    alive
        How many queries are registered at once at most; without it they get more with every batch.
    """
    maker = _Maker(random.Random(seed), event_time, batches, alive)
    first = [maker.register() for _ in range(preload)]
    first = maker.spoilt(first, bad, maker.bad_query)
    return World(
        [
            Batch(
                maker.spoilt(maker.points(number, points), bad, maker.bad_point),
                maker.spoilt(
                    [maker.operation() for _ in range(operations)], bad, maker.bad_operation
                ),
            )
            for number in range(batches)
        ],
        first,
        event_time,
    )


class _Maker:
    """Draws rows; it remembers which queries there are, so that most operations make sense."""

    def __init__(
        self, rng: random.Random, event_time: bool, batches: int, alive: int | None
    ) -> None:
        self.rng = rng
        self.event_time = event_time
        self.batches = batches
        self.alive = alive
        self.registered: list[int] = []
        self.numbers = itertools.count()
        self.former: list[int] = []
        self.kinds: dict[str, itertools.count[int]] = defaultdict(itertools.count)

    def points(self, batch: int, count: int) -> list[Point]:
        """Return the good points of a batch; a few come twice."""
        drawn = [
            Point(
                batch * 100_000 + i,
                *self.place(),
                START + batch * STEP + self.rng.randrange(-2 * STEP, STEP),
            )
            for i in range(count)
        ]
        return drawn + self.rng.sample(drawn, min(2, count))

    def place(self) -> tuple[float, float]:
        """Return a place: anywhere, in a hot spot, or exactly on the borders of cells."""
        low_x, low_y, high_x, high_y = BOUNDS
        kind = self.rng.random()
        if kind < 0.5:
            return self.rng.uniform(low_x, high_x), self.rng.uniform(low_y, high_y)
        if kind < 0.8:
            return self.rng.uniform(0.0, 0.9), self.rng.uniform(12.0, 12.8)
        return self.border(0), self.border(1)

    def border(self, axis: int) -> float:
        """Return a coordinate between two cells, or at the edge of space."""
        low, high, cells = BOUNDS[axis], BOUNDS[axis + 2], GRID[axis]
        line = self.rng.randrange(cells + 1)
        return high if line == cells else low + line * (high - low) / cells

    def box(self) -> tuple[float, float, float, float]:
        """Return a rectangle, from a single place to all there is; some reach outside."""
        x, y = self.place()
        width, height = BOUNDS[2] - BOUNDS[0], BOUNDS[3] - BOUNDS[1]
        kind = self.rng.random()
        if kind < 0.1:
            return x, y, x, y
        if kind < 0.3:
            other_x, other_y = self.place()
            return min(x, other_x), min(y, other_y), max(x, other_x), max(y, other_y)
        if kind < 0.33:
            return BOUNDS[0] - 5.0, BOUNDS[1] - 5.0, BOUNDS[2] + 5.0, BOUNDS[3] + 5.0
        if kind < 0.36:
            return BOUNDS
        if kind < 0.4:
            return BOUNDS[2], BOUNDS[1], BOUNDS[2] + 1.0, BOUNDS[3]
        size = 10.0 ** self.rng.uniform(-3, 0)
        return x - size * width / 2, y - size * height / 2, x, y + size * height / 3

    def expires(self) -> int | None:
        """Return when a query expires, None for never."""
        if self.rng.random() < 0.7:
            return None
        if self.event_time:
            return START + self.rng.randrange(-3 * STEP, self.batches * STEP)
        return self.rng.choice([LONG_AGO, FAR_AHEAD])

    def fresh_id(self) -> int:
        """Return an id, anywhere among the 64-bit numbers, not used so far."""
        number = next(self.numbers)
        return [number, -number - 1, number * 0x1234567 - 2**62, 2**63 - 1 - number][number % 4]

    def register(self) -> Operation:
        """Return an operation that registers a new query."""
        self.registered.append(self.fresh_id())
        return Operation("register", self.registered[-1], *self.box(), self.expires())

    def operation(self) -> Operation:
        """Return any operation; one in ten or so repeats another, or undoes what is fresh."""
        kind = self.rng.random()
        if self.alive and len(self.registered) >= self.alive:
            # Anything but another one.
            kind = 0.45 + 0.55 * kind
        if kind < 0.45 or not self.registered:
            if self.former and self.rng.random() < 0.3:
                again = self.former.pop()
                self.registered.append(again)
                return Operation("register", again, *self.box(), self.expires())
            return self.register()
        # The last ones often: several operations on one query in one batch.
        recent = self.registered[-5:]
        known = self.rng.choice(recent if self.rng.random() < 0.4 else self.registered)
        if kind < 0.7:
            return Operation("update", known, *self.box(), self.expires())
        if kind < 0.9:
            self.registered.remove(known)
            self.former.append(known)
            return Operation("unregister", known)
        chosen = self.rng.choice(
            [
                Operation("register", known, *self.box()),
                Operation("update", self.fresh_id(), *self.box()),
                Operation("unregister", self.fresh_id()),
                Operation(" Update ", known, *self.box()),
                Operation("UNREGISTER", self.rng.choice(self.former or [known])),
            ]
        )
        if self.alive and chosen.op == "update":
            # It registers what was not.
            self.registered.append(chosen.id)
        return chosen

    # -- bad rows --------------------------------------------------------------------------

    def spoilt(self, rows: list[Any], share: float, make: Callable[[int], Any]) -> list[Any]:
        """Return the rows with bad ones among them, of every kind if there are enough."""
        kinds = self.kinds[make.__name__]
        result = []
        for row in rows:
            if self.rng.random() < share:
                result.append(make(next(kinds)))
            result.append(row)
        return result

    def bad_point(self, kind: int) -> Point:
        """Return a point that cannot be served."""
        x, y = self.place()
        number = 90_000_000 + next(self.numbers)
        ts = START
        rows = [
            Point(None, x, y, ts),
            Point(number, None, y, ts),
            Point(number, x, None, ts),
            Point(number, math.nan, y, ts),
            Point(number, x, math.inf, ts),
            Point(number, -math.inf, y, ts),
            Point(number, BOUNDS[2] + 1e-9, y, ts),
            Point(number, x, BOUNDS[1] - 100.0, ts),
            Point(number, x, y, None),
        ]
        return rows[kind % len(rows)]

    def bad_query(self, kind: int) -> Operation:
        """Return a query that cannot be registered."""
        low_x, low_y, high_x, high_y = box = self.box()
        number = self.fresh_id()
        rows = [
            Operation("register", None, *box),
            Operation("register", number, None, low_y, high_x, high_y),
            Operation("register", number, low_x, low_y, high_x, None),
            Operation("register", number, math.nan, low_y, high_x, high_y),
            Operation("register", number, low_x, low_y, math.inf, high_y),
            Operation("register", number, low_x, high_y + 1.0, high_x, low_y),
            Operation("register", number, BOUNDS[2] + 1.0, low_y, BOUNDS[2] + 2.0, high_y),
            Operation("register", self.rng.choice(self.registered or [number]), *box),
        ]
        return rows[kind % len(rows)]

    def bad_operation(self, kind: int) -> Operation:
        """Return an operation that cannot take effect."""
        box, number = self.box(), self.fresh_id()
        rows = [
            Operation("upsert", number, *box),
            Operation(None, number, *box),
            Operation("unregister", None),
            Operation("update", None, *box),
            Operation("update", number, *box),
            Operation("unregister", number),
        ]
        if kind % 2:
            return rows[kind // 2 % len(rows)]
        return self.bad_query(kind // 2)


# -- the oracle --------------------------------------------------------------------------------


@dataclass
class Expected:
    """What must come of a world.

    Attributes
    ----------
    matches
        How often each (batch, point, query) is a result.
    quarantine
        How many rows of each (batch, kind, reason) are quarantined.
    points, operations
        How many are good and take effect.
    replaced, ignored
        How many operations register what is registered, and unregister what is not.
    """

    matches: Counter[tuple[int, Any, int]] = field(default_factory=Counter)
    quarantine: Counter[tuple[int, str, str]] = field(default_factory=Counter)
    points: int = 0
    operations: int = 0
    replaced: int = 0
    ignored: int = 0

    @property
    def reasons(self) -> dict[tuple[str, str], int]:
        """How many rows are quarantined of each kind and reason, in all."""
        reasons: Counter[tuple[str, str]] = Counter()
        for (_, kind, reason), count in self.quarantine.items():
            reasons[kind, reason] += count
        return dict(reasons)


def expected(world: World) -> Expected:
    """Apply every operation, one by one, and compare every point with every query."""
    found = Expected()
    queries: dict[int, Operation] = {}
    clock = 0
    for number, (points, operations) in enumerate([Batch([], world.preload), *world.batches], -1):
        now = clock if world.event_time else (LONG_AGO + FAR_AHEAD) // 2
        for operation in operations:
            reason = fault_of_operation(operation)
            if reason is None:
                _apply(queries, operation, now, found)
            else:
                found.quarantine[number, "query", reason] += 1
        ids = list(queries)
        boxes = np.array([queries[i].box for i in ids], dtype=float).reshape(-1, 4)
        until = np.array([_end(queries[i]) for i in ids])
        for point in points:
            reason = fault_of_point(point, world.event_time)
            if reason is not None:
                found.quarantine[number, "point", reason] += 1
                continue
            found.points += 1
            when = point.ts if world.event_time else now
            clock = max(clock, when)
            inside = (boxes[:, 0] <= point.x) & (point.x <= boxes[:, 2])
            inside &= (boxes[:, 1] <= point.y) & (point.y <= boxes[:, 3]) & (when < until)
            for i in np.flatnonzero(inside):
                found.matches[number, point.id, ids[i]] += 1
    return found


def _end(query: Operation) -> int:
    return 2**63 - 1 if query.expires is None else query.expires


def _apply(
    queries: dict[int, Operation],
    operation: Operation,
    now: int,
    found: Expected,
) -> None:
    """Apply a good operation, and count it.

    A query that has expired is not registered any more, even if this batch registered it.
    """
    op = operation.op.strip().lower()
    known = operation.id in queries
    known = known and _end(queries[operation.id]) > now
    if op == "unregister" and not known:
        found.ignored += 1
        return
    found.operations += 1
    if op == "unregister":
        del queries[operation.id]
    else:
        found.replaced += known and op == "register"
        queries[operation.id] = operation


def fault_of_point(point: Point, event_time: bool) -> str | None:
    """Say what is wrong with a point by itself, None where nothing is."""
    if point.id is None:
        return "null id"
    if point.x is None or point.y is None:
        return "null coordinate"
    if math.isnan(point.x) or math.isnan(point.y):
        return "not a number"
    if math.isinf(point.x) or math.isinf(point.y):
        return "infinite coordinate"
    if not (BOUNDS[0] <= point.x <= BOUNDS[2] and BOUNDS[1] <= point.y <= BOUNDS[3]):
        return "outside the bounds"
    if event_time and point.ts is None:
        return "null time"
    return None


def fault_of_operation(operation: Operation) -> str | None:
    """Say what is wrong with an operation by itself, None where nothing is."""
    op = (operation.op or "").strip().lower()
    if op not in ("register", "update", "unregister"):
        return "unknown operation"
    if operation.id is None:
        return "null id"
    if op == "unregister":
        return None
    if None in operation.box:
        return "null coordinate"
    low_x, low_y, high_x, high_y = operation.box
    if any(map(math.isnan, operation.box)):
        return "not a number"
    if any(map(math.isinf, operation.box)):
        return "infinite coordinate"
    if low_x > high_x or low_y > high_y:
        return "inverted rectangle"
    if low_x > BOUNDS[2] or high_x < BOUNDS[0] or low_y > BOUNDS[3] or high_y < BOUNDS[1]:
        return "outside the bounds"
    return None


# -- what came of it ---------------------------------------------------------------------------


def matches_of(table: pa.Table, point_id: str = "id") -> Counter[tuple[int, Any, int]]:
    """Count (batch, point, query) in results that have the batch as a column."""
    if not table.num_rows:
        return Counter()
    if "query_ids" in table.column_names:
        parents = pc.list_parent_indices(table["query_ids"])
        flat = pc.list_flatten(table["query_ids"])
        table = table.select(["batch_id", point_id]).take(parents).append_column("query_id", flat)
    columns = (table[name].to_pylist() for name in ("batch_id", point_id, "query_id"))
    return Counter(zip(*columns, strict=True))


def matches_in(folder: Path) -> Counter[tuple[int, Any, int]]:
    """Count (batch, point, query) in what ParquetSink wrote."""
    found: Counter[tuple[int, Any, int]] = Counter()
    for batch in folder.glob("batch_id=*"):
        number = int(batch.name.partition("=")[2])
        for file in batch.glob("*.parquet"):
            table = pq.read_table(file, partitioning=None)
            numbers = pa.array([number] * table.num_rows, pa.int64())
            # Not +=, which looks at all that was found before.
            found.update(matches_of(table.append_column("batch_id", numbers)))
    return found


def quarantine_in(checkpoint: Path) -> list[tuple[int, str, str, str]]:
    """Return (batch, kind, reason, row) of all rows in a checkpoint's quarantine, sorted."""
    rows = []
    for file in (checkpoint / "swarm" / "quarantine").glob("batch_id=*/*.parquet"):
        number = int(file.parent.name.partition("=")[2])
        for row in pq.read_table(file, partitioning=None).to_pylist():
            rows.append((number, row["kind"], row["reason"], row["row"]))
    return sorted(rows)


def reasons_of(rows: Iterable[tuple[int, str, str, str]]) -> Counter[tuple[int, str, str]]:
    """Count rows of the quarantine by (batch, kind, reason)."""
    return Counter(row[:3] for row in rows)


def difference(got: Counter[Any], wanted: Counter[Any]) -> str:
    """Say in few words how two multisets differ; empty where they do not."""
    missing, extra = wanted - got, got - wanted
    if not missing and not extra:
        return ""
    return (
        f"{sum(missing.values())} missing, such as {sorted(missing, key=str)[:5]}; "
        f"{sum(extra.values())} too many, such as {sorted(extra, key=str)[:5]}"
    )


# -- changes of the plan -----------------------------------------------------------------------


KINDS = ("move", "split", "split", "carve", "merge", "share", "unshare")


def upset(rng: random.Random, most: int = 5) -> Callable[[Plan], tuple[Plan, list[PlanChange]]]:
    """Return something that makes random changes to a plan; a shared cell is among them."""

    def change(plan: Plan) -> tuple[Plan, list[PlanChange]]:
        changes: list[PlanChange] = []
        for kind in ["carve", *rng.choices(KINDS, k=rng.randint(0, most))]:
            for one in _some_change(plan, kind, rng):
                plan = plan.apply([one])
                changes.append(one)
            plan = _with_ids(plan)
        return plan, changes

    return lambda plan: change(_with_ids(plan))


def _with_ids(plan: Plan) -> Plan:
    return plan.reserve(100)[1]


def _some_change(plan: Plan, kind: str, rng: random.Random) -> list[PlanChange]:
    fresh = plan.next_id - 100
    if kind == "merge":
        some = rng.sample(plan.partitions, (len(plan.partitions) + 1) // 2)
        for merge in find_merges(some)[:1]:
            return _gathered(merge, rng.randrange(plan.executors), fresh)
    shared = [p for p in plan.partitions if p.is_shared]
    if kind == "unshare" and shared:
        partition = rng.choice(shared)
        return [reshared(partition, {rng.randrange(plan.executors): TICKETS}, fresh)]
    partition = rng.choice(plan.partitions)
    if kind == "share":
        return [reshared(partition, _shares(plan, rng, 1, 3), fresh)]
    if kind == "carve" and partition.cells.area > 1:
        pieces = [(cells, _shares(plan, rng, 1, 1)) for cells in _around(partition, rng)]
        pieces[0] = (pieces[0][0], _shares(plan, rng, 2, 3))
        return [split(partition, pieces, fresh)]
    if kind == "split" and partition.cells.area > 1:
        halves = _halves(partition.cells, rng)
        return [split(partition, [(half, _shares(plan, rng, 1, 1)) for half in halves], fresh)]
    giver = rng.choice(partition.owners)
    takers = [m for m in range(plan.executors) if m != giver]
    return [moved(partition, giver, rng.choice(takers), fresh)] if takers else []


def _gathered(merge: Merge, m: int, fresh: int) -> list[PlanChange]:
    """Give all the partitions to one executor and make one of them."""
    ids = itertools.count(fresh)
    moves = {p: moved(p, p.owners[0], m, next(ids)) for p in merge.partitions if p.owners != (m,)}
    held = tuple(moves[p].created[0] if p in moves else p for p in merge.partitions)
    return [*moves.values(), merged(held, merge.cells, next(ids))]


def _halves(cells: CellRect, rng: random.Random) -> tuple[CellRect, CellRect]:
    if cells.columns > 1 and (cells.rows == 1 or rng.random() < 0.5):
        return cells.split_columns(rng.randrange(1, cells.columns))
    return cells.split_rows(rng.randrange(1, cells.rows))


def _around(partition: Partition, rng: random.Random) -> list[CellRect]:
    """Cut out one cell; return it first and then the rest, in up to four rectangles."""
    cells = partition.cells
    column = rng.randrange(cells.col_start, cells.col_stop)
    row = rng.randrange(cells.row_start, cells.row_stop)
    pieces = [
        CellRect(column, row, column + 1, row + 1),
        cells._replace(row_stop=row),
        cells._replace(row_start=row + 1),
        CellRect(cells.col_start, row, column, row + 1),
        CellRect(column + 1, row, cells.col_stop, row + 1),
    ]
    return [piece for piece in pieces if piece.area]


def _shares(plan: Plan, rng: random.Random, least: int, most: int) -> Shares:
    """Deal the tickets out to so many executors, as far as there are."""
    owners = rng.sample(range(plan.executors), min(plan.executors, rng.randint(least, most)))
    cuts = [0, *sorted(rng.sample(range(1, TICKETS), len(owners) - 1)), TICKETS]
    return {m: high - low for m, (low, high) in zip(owners, itertools.pairwise(cuts), strict=True)}


@dataclass
class Restless:
    """A sink that passes results on, and changes the plan after every batch.

    Attributes
    ----------
    sink
        Who gets the results.
    seed
        Fixes the changes, together with the batch.
    executors
        Numbers of executors to go through, one for each batch, again and again.
    changes
        Whether partitions move, split, merge and are shared as well.
    handle
        The run; batches wait for it.
    """

    sink: Callable[[Any, int], None]
    seed: int
    executors: tuple[int, ...] = ()
    changes: bool = True
    handle: Any = None
    plans: list[Plan] = field(default_factory=list)
    _known: threading.Event = field(default_factory=threading.Event)

    def watch(self, handle: Any) -> None:
        """Say which run this is the sink of."""
        self.handle = handle
        self._known.set()

    def __call__(self, results: Any, batch_id: int) -> None:
        """Pass the results on, and see to it that the next batch has another plan."""
        self.sink(results, batch_id)
        assert self._known.wait(60), "nobody said which run this is"
        run = self.handle._run
        self.plans.append(run.batch_plan)
        if self.executors:
            self.handle.set_executors(self.executors[batch_id % len(self.executors)])
        if self.changes:
            run.force_changes(upset(random.Random(f"{self.seed}/{batch_id}")))


# -- processes ---------------------------------------------------------------------------------


def last_json(said: str) -> str:
    """Return the last line of a driver's output that is its own; Spark may have the last word."""
    return next(line for line in reversed(said.splitlines()) if line.startswith("{"))


def fail_one_commit(monkeypatch, batch):
    """Let the first commit of a batch fail, after all of its work is done."""
    commit, failed = Epochs.commit, []

    def failing(self, what):
        if what.batch == batch and not failed:
            failed.append(batch)
            raise OSError("the disk is full")
        return commit(self, what)

    monkeypatch.setattr(Epochs, "commit", failing)
