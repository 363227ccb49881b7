"""Write a checkpoint, with what was given to the run and what came of it.

    python tests/data/write_checkpoint.py FOLDER

A small stream runs on local Spark until a batch cannot read its points. FOLDER then holds::

    checkpoint/         the checkpoint as the failure left it, with one batch under way
    points.parquet      the points given, batch by batch; also those of the batches that come after
    operations.parquet  the operations given; batch -1 is the preload
    results.parquet     rows of the three sinks, those of the continued run included:
    summaries.parquet     the batches from UNDER_WAY on are what a run that goes on with the
    answers.parquet       checkpoint must give
    explain.json        what ``sparkswarm explain --json`` says of the checkpoint

Rows that must be refused have a ``reason``; it is the reason in the quarantine.

``tests/data/checkpoint`` was written so, by format 2 of the checkpoint, and is not to be written
anew: ``tests/spark/test_checkpoint_compatibility.py`` goes on with it, to see that later versions
read what earlier ones wrote. A new format gets a folder of its own.

Only public names of sparkswarm are used, all of those that say how to run in :func:`start`. The
test imports this module for that.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from typer.testing import CliRunner

from sparkswarm import (
    Aggregates,
    Handle,
    MemorySink,
    PointColumns,
    QueryColumns,
    Sliding,
    Subscriptions,
    Swarm,
    SwarmConfig,
    session,
)
from sparkswarm.cli import app

BOUNDS = (-10.3, 40.0, 6.4, 52.9)
GRID = (32, 32)
SECOND = 1_000_000
START = 1_700_000_000 * SECOND
DELAY = 4 * SECOND
WINDOW = Sliding("12 s")

PHASES = [
    ("static_uniform", 3, 1),
    ("static_uniform", 2, 1),
    ("static_uniform", 3, 1),
    ("swarm", 3, 3),
]
"""Starts of the run: policy, executors, and batches that come to their end.

To divide the space by fewer executors joins partitions, and then the next operation on their
queries writes a base. SWARM begins with an even division and shares a hot cell.
"""
UNDER_WAY = sum(batches for _, _, batches in PHASES)
"""The batch that fails, and with which a run that goes on begins."""
BATCHES = UNDER_WAY + 2
"""Batches in all, those of the continued run included."""

STREAM = "file:///stream"
"""Where the input was, for all that the stored checkpoint says."""

MICROS = pa.timestamp("us", "UTC")
POINTS = pa.schema(
    [
        *(("id", pa.int64()), ("x", pa.float64()), ("y", pa.float64()), ("ts", MICROS)),
        *(("speed", pa.float64()), ("kind", pa.string()), ("load", pa.int32())),
    ]
)
OPERATIONS = pa.schema(
    [
        *(("op", pa.string()), ("id", pa.int64())),
        *((edge, pa.float64()) for edge in ("min_x", "min_y", "max_x", "max_y")),
        *((name, pa.string()) for name in ("where", "aggregate", "window", "slide")),
        *((name, MICROS) for name in ("since", "until", "expires")),
    ]
)
POINTS_DDL = "id BIGINT, x DOUBLE, y DOUBLE, ts TIMESTAMP, speed DOUBLE, kind STRING, load INT"
OPERATIONS_DDL = (
    "op STRING, id BIGINT, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, where STRING, "
    "aggregate STRING, window STRING, slide STRING, since TIMESTAMP, until TIMESTAMP, "
    "expires TIMESTAMP"
)

Row = dict[str, Any]


# -- the run -----------------------------------------------------------------------------------


class Sinks(NamedTuple):
    """Where the rows of a run go."""

    results: Any
    summaries: Any
    answers: Any

    @classmethod
    def in_memory(cls) -> Sinks:
        """Return sinks that keep everything."""
        return cls(MemorySink(), MemorySink(), MemorySink())


def start(
    spark: Any,
    checkpoint: Path,
    stream: Path,
    sinks: Sinks,
    policy: str = "swarm",
    executors: int = 3,
    preload: Any = None,
) -> Handle:
    """Start the run on what the files of the stream hold, or go on with it."""
    config = SwarmConfig(
        bounds=BOUNDS,
        grid=GRID,
        executors=executors,
        policy=policy,
        round_batches=1,
        replayable_batches=2,
        min_gain=0.0,
        merge_every_rounds=1,
        payback_rounds=1e9,
    )
    conditions = Subscriptions({"speed": "number", "kind": "text", "load": "number"})
    application = Aggregates(["speed", "load"], f"{DELAY // SECOND} seconds", of=conditions)
    reader = spark.readStream.option("maxFilesPerTrigger", 1)
    return Swarm(spark, config, application, WINDOW).start(
        reader.schema(POINTS_DDL).parquet(str(stream / "points")),
        reader.schema(OPERATIONS_DDL).parquet(str(stream / "operations")),
        sink=sinks.results,
        summaries=sinks.summaries,
        answers=sinks.answers,
        checkpoint=str(checkpoint),
        preload=preload,
        point_columns=PointColumns(time="ts", include=("load",)),
        query_columns=QueryColumns(since="since", until="until", expires="expires"),
        trigger={"availableNow": True},
    )


def write_stream(stream: Path, folder: Path, batches: Iterable[int]) -> None:
    """Write some batches of the input in ``folder`` as files that Spark takes one by one."""
    for name, schema in (("points", POINTS), ("operations", OPERATIONS)):
        rows = pq.read_table(folder / f"{name}.parquet")
        (stream / name).mkdir(parents=True, exist_ok=True)
        for batch in batches:
            path = path_of(stream, name, batch)
            some = rows.filter(pc.equal(rows["batch"], batch))
            pq.write_table(some.select(schema.names), path)
            set_time(path, batch)


def path_of(stream: Path, name: str, batch: int) -> Path:
    """Return the file of a stream that holds a batch."""
    return stream / name / f"{batch:05}.parquet"


def set_time(path: Path, batch: int) -> None:
    """Say when a file was written: Spark takes them in this order, and none that is far older."""
    os.utime(path, (START // SECOND + batch,) * 2)


def relocate(checkpoint: Path, old: str, new: str) -> None:
    """Say in Spark's part of a checkpoint that the files of the stream are elsewhere."""
    for path in (checkpoint / "spark" / "sources").rglob("*"):
        if path.is_file():
            path.write_text(path.read_text().replace(f"{old}/", f"{new}/"))


def explain(checkpoint: Path, *options: str) -> Row:
    """Return what ``sparkswarm explain`` says of a checkpoint that is whole."""
    told = CliRunner().invoke(app, ["explain", str(checkpoint), "--json", "-", *options])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    del found["checkpoint"]
    return found


# -- the input ---------------------------------------------------------------------------------


class Maker:
    """Draws points and operations; it remembers which queries can be changed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._live: list[int] = []
        self._queries = self._points = 0

    def preload(self) -> list[Row]:
        """Return as many queries of one bucket as make a base of the ledger.

        Most of them have expired long ago, so that segments need not hold them.
        """
        numbers = (number for number in itertools.count() if _hash(number) % 3 == 0)
        rows: list[Row] = []
        for i, number in enumerate(itertools.islice(numbers, 1025)):
            if i % 64 == 0:
                rows.append({"op": "register", "id": number, **self._box()})
            else:
                rows.append({**rows[i - i % 64], "id": number, "expires": SECOND})
        self._live += [row["id"] for row in rows if "expires" not in row]
        return [*rows, {**rows[0], "reason": "duplicate id"}]

    def operations(self, batch: int) -> list[Row]:
        """Return operations of all kinds."""
        rng = self._rng
        rows = [self._register("continuous"), self._register("aggregates"), self._snapshot(batch)]
        for _ in range(6):
            kind = rng.choice(["continuous", "aggregates"])
            what = rng.choice(["register", "register", "register", "update", "unregister", "ask"])
            if what == "ask":
                rows.append(self._snapshot(batch))
            elif what == "register" or not self._live:
                rows.append(self._register(kind))
            elif what == "update":
                rows.append({"op": what, "id": rng.choice(self._live), **self._query(kind)})
            else:
                gone = self._live.pop(rng.randrange(len(self._live)))
                rows.append({"op": what, "id": gone})
        if batch % 3 == 1:
            rows.append({"op": "unregister", "id": -1, "reason": "unknown id"})
        return rows

    def points(self, batch: int) -> list[Row]:
        """Return points, many of them in one cell."""
        rows = [self._point(batch) for _ in range(42)]
        if batch % 3 == 1:
            rows.append({**self._point(batch), "x": math.nan, "reason": "not a number"})
        return rows

    def _register(self, kind: str) -> Row:
        self._queries += 1
        # All over the 64-bit numbers.
        number = [10**6, -(10**6), 2**62, -(2**62)][self._queries % 4] + self._queries
        query = {"op": "register", "id": number, **self._query(kind)}
        if kind == "continuous" and self._rng.random() < 0.3:
            query["expires"] = START + self._rng.randrange(5 * BATCHES) * SECOND
        else:
            self._live.append(number)
        return query

    def _query(self, kind: str) -> Row:
        rng = self._rng
        where = rng.choice([None, "speed > 50", "kind = 'bus' or load between 2 and 4"])
        query: Row = {**self._box(), "where": where}
        if kind == "aggregates":
            query["aggregate"] = rng.choice(
                ["count", "count, mean(speed)", "sum(load), min(speed), max(speed), sum(speed)"]
            )
            query["window"], query["slide"] = rng.choice(
                [("10 s", None), ("10 s", "5 s"), ("3 s", "1 s")]
            )
        return query

    def _snapshot(self, batch: int) -> Row:
        rng = self._rng
        self._queries += 1
        row = {"op": rng.choice(["range", "count"]), "id": self._queries, **self._box()}
        row["where"] = rng.choice([None, "speed > 50"])
        now = START + 5 * SECOND * batch
        if rng.random() < 0.3:
            row["since"] = now - rng.randrange(10) * SECOND
        elif rng.random() < 0.3:
            row["until"] = now - rng.randrange(10) * SECOND
        return row

    def _box(self) -> Row:
        """Return a rectangle; some contain the hot cell."""
        x, y = self._place()
        left, below, right, above = (self._rng.uniform(0.05, 5.0) for _ in range(4))
        edges = {"min_x": x - left, "min_y": y - below, "max_x": x + right, "max_y": y + above}
        return {edge: round(value, 3) for edge, value in edges.items()}

    def _place(self) -> tuple[float, float]:
        if self._rng.random() < 0.5:
            return self._rng.uniform(-8.7, -8.25), self._rng.uniform(41.25, 41.6)
        low_x, low_y, high_x, high_y = BOUNDS
        return self._rng.uniform(low_x, high_x), self._rng.uniform(low_y, high_y)

    def _point(self, batch: int) -> Row:
        rng = self._rng
        self._points += 1
        late = rng.randrange(15 * SECOND) if rng.random() < 0.15 else 0
        x, y = self._place()
        return {
            "id": self._points,
            "x": round(x, 3),
            "y": round(y, 3),
            "ts": START + 5 * SECOND * batch + rng.randrange(5 * SECOND) - late,
            "speed": rng.choice([None, round(rng.uniform(0, 100), 2), 0.1]),
            "kind": rng.choice([None, "bus", "täxi"]),
            "load": rng.randrange(6),
        }


def _hash(number: int) -> int:
    """Return what says in which bucket of the ledger a query is: the end of splitmix64."""
    whole = 2**64 - 1
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & whole
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & whole
    return number ^ (number >> 31)


def write_input(folder: Path) -> None:
    """Draw the input of all batches."""
    maker = Maker(21)
    operations = {-1: maker.preload()}
    points: dict[int, list[Row]] = {}
    for batch in range(BATCHES):
        operations[batch], points[batch] = maker.operations(batch), maker.points(batch)
    for name, schema, rows in (("points", POINTS, points), ("operations", OPERATIONS, operations)):
        schema = pa.schema([("batch", pa.int32()), *schema, ("reason", pa.string())])
        flat = [{"batch": batch, **row} for batch, some in rows.items() for row in some]
        _store(pa.Table.from_pylist(flat, schema), folder / f"{name}.parquet")


def _store(rows: pa.Table, path: Path) -> None:
    pq.write_table(rows, path, compression="zstd", write_statistics=False)


# -- the checkpoint ----------------------------------------------------------------------------


def write(folder: Path) -> None:
    """Write the checkpoint, and all that belongs to it."""
    folder.mkdir(parents=True)
    write_input(folder)
    spark = session(
        master="local[2]",
        config={
            "spark.ui.enabled": False,
            "spark.ui.showConsoleProgress": False,
            "spark.log.level": "OFF",
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.session.timeZone": "UTC",
        },
    )
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint, stream = Path(scratch, "checkpoint"), Path(scratch, "stream")
        operations = pq.read_table(folder / "operations.parquet")
        preload = operations.filter(pc.equal(operations["batch"], -1)).select(OPERATIONS.names)
        sinks, begun = Sinks.in_memory(), 0
        for policy, executors, batches in PHASES:
            write_stream(stream, folder, range(begun, begun + batches))
            begun += batches
            if begun == UNDER_WAY:
                write_stream(stream, folder, [begun])
                damaged = path_of(stream, "points", begun)
                damaged.write_bytes(b"these are no points")
                set_time(damaged, begun)
            registered = spark.createDataFrame(preload, OPERATIONS_DDL)
            handle = start(spark, checkpoint, stream, sinks, policy, executors, registered)
            with contextlib.suppress(StreamingQueryException):
                handle.await_termination()
        stored = folder / "checkpoint"
        # Without Hadoop's checksums, which would not fit what relocate makes of the files, and
        # without statistics, which every start deletes.
        shutil.copytree(checkpoint, stored, ignore=shutil.ignore_patterns(".*.crc", "soft"))
        relocate(stored, stream.as_uri(), STREAM)
        explained = explain(stored, "--verify")
        (folder / "explain.json").write_text(json.dumps(explained, indent=1) + "\n")
        check_all_is_there(explained)
        write_stream(stream, folder, range(UNDER_WAY, BATCHES))
        start(spark, checkpoint, stream, sinks).await_termination()
    spark.stop()
    for name, sink in zip(sinks._fields, sinks, strict=True):
        _store(sorted_rows(sink.table()), folder / f"{name}.parquet")


def sorted_rows(table: pa.Table) -> pa.Table:
    """Return rows of a sink in an order of their own; so are the ids of queries in an array."""
    rows = table.to_pylist()
    for row in rows:
        if "query_ids" in row:
            row["query_ids"].sort()
    first = [name for name in ("batch_id", "query_id", "id", "window_end") if name in rows[0]]
    rows.sort(key=lambda row: [(row[name] is not None, row[name]) for name in first])
    return pa.Table.from_pylist(rows, table.schema)


def check_all_is_there(found: Row) -> None:
    """Refuse a checkpoint that lacks something which later versions must be seen to read."""
    for folder in ("segments", "ledger"):
        for kind in ("base", "delta"):
            assert found["files"][folder][kind]["rows"], f"no {kind} in {folder}"
    assert found["states"]["rows"], "no state"
    assert found["blocks"]["rows"], "no recent points"
    assert found["plan"]["version"] >= 3, "too few plans"
    assert any(len(p["owners"]) > 1 for p in found["plan"]["partitions"]), "no cell is shared"
    assert found["under_way"] == UNDER_WAY, "no batch is under way"
    assert found["quarantined"], "nothing in the quarantine"
    assert found["decisions"], "no decision in the journal"


if __name__ == "__main__":
    write(Path(sys.argv[1]))
