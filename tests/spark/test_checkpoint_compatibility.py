"""A run goes on with a checkpoint that an earlier version wrote.

``tests/data/checkpoint`` is in format 2: bases and deltas of segments and of the ledger, which
later formats do not have, state of queries, recent points, a shared cell, and a batch that was
under way. It is not to be written anew: that version's ``tests/data/write_checkpoint.py`` (commit
62566a3) wrote it, with what was given to the run and what came of it::

    checkpoint/         the checkpoint as a failure left it, with one batch under way
    points.parquet      the points given, batch by batch; also those of the batches that come after
    operations.parquet  the operations given; batch -1 is the preload
    results.parquet     rows of the three sinks, those of the continued run included:
    summaries.parquet     the batches from UNDER_WAY on are what a run that goes on with the
    answers.parquet       checkpoint must give
    explain.json        what ``sparkswarm explain --json`` says of the checkpoint

Rows that must be refused have a ``reason``; it is the reason in the quarantine. A new format gets a
folder of its own.
"""

import json
import os
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from sparkswarm import (
    Aggregates,
    MemorySink,
    PointColumns,
    QueryColumns,
    Sliding,
    Subscriptions,
    Swarm,
    SwarmConfig,
)
from sparkswarm.cli import app

from .kinds import (
    DELAY,
    MICROS,
    POINTS,
    POINTS_DDL,
    QUERIES,
    QUERIES_DDL,
    SECOND,
    START,
    answer,
    answered,
    expected,
    told,
)
from .world import difference, matches_of

DATA = Path(__file__).parents[1] / "data" / "checkpoint"
STREAM = "file:///stream"
"""Where the input was, for all that the stored checkpoint says."""

BOUNDS = (-10.3, 40.0, 6.4, 52.9)
BOX = dict(zip(("min_x", "min_y", "max_x", "max_y"), BOUNDS, strict=True))
WINDOW = Sliding("12 s")
OPERATIONS = pa.schema([*QUERIES, ("expires", MICROS)])
OPERATIONS_DDL = f"{QUERIES_DDL}, expires TIMESTAMP"

UNDER_WAY = 6
"""The batch that failed, and with which a run that goes on begins."""
BATCHES = 8
"""Batches in all, those of the continued run included."""


class Sinks(NamedTuple):
    """Where the rows of a run go."""

    results: MemorySink
    summaries: MemorySink
    answers: MemorySink


def start(spark, checkpoint, stream):
    """Go on with a checkpoint to the end of a stream; return the run and its sinks."""
    settings = SwarmConfig(
        bounds=BOUNDS,
        grid=(32, 32),
        executors=3,
        round_batches=1,
        replayable_batches=2,
        min_gain=0.0,
        merge_every_rounds=1,
        payback_rounds=1e9,
    )
    conditions = Subscriptions({"speed": "number", "kind": "text", "load": "number"})
    application = Aggregates(["speed", "load"], f"{DELAY // SECOND} seconds", of=conditions)
    reader = spark.readStream.option("maxFilesPerTrigger", 1)
    sinks = Sinks(MemorySink(), MemorySink(), MemorySink())
    handle = Swarm(spark, settings, application, WINDOW).start(
        reader.schema(POINTS_DDL).parquet(str(stream / "points")),
        reader.schema(OPERATIONS_DDL).parquet(str(stream / "operations")),
        sink=sinks.results,
        summaries=sinks.summaries,
        answers=sinks.answers,
        checkpoint=str(checkpoint),
        point_columns=PointColumns(time="ts", include=("load",)),
        query_columns=QueryColumns(since="since", until="until", expires="expires"),
        trigger={"availableNow": True},
    )
    handle.await_termination()
    return handle, sinks


def write_stream(stream, batches):
    """Write some batches of the input as files that Spark takes one by one."""
    for name, schema in (("points", POINTS), ("operations", OPERATIONS)):
        rows = _input(name)
        (stream / name).mkdir(parents=True)
        for batch in batches:
            path = stream / name / f"{batch:05}.parquet"
            some = rows.filter(pc.equal(rows["batch"], batch))
            pq.write_table(some.select(schema.names), path)
            # Spark takes files in the order of these times.
            os.utime(path, (START // SECOND + batch,) * 2)


def relocate(checkpoint, stream):
    """Say in Spark's part of a checkpoint where the files of the stream are."""
    for path in (checkpoint / "spark" / "sources").rglob("*"):
        if path.is_file():
            path.write_text(path.read_text().replace(f"{STREAM}/", f"{stream.as_uri()}/"))


def explain(checkpoint):
    """Return what ``sparkswarm explain`` says of a checkpoint that is whole."""
    told = CliRunner().invoke(app, ["explain", str(checkpoint), "--json", "-", "--verify"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    del found["checkpoint"]
    return found


def sorted_rows(table):
    """Return rows of a sink in an order of their own; so are the ids of queries in an array."""
    rows = table.to_pylist()
    for row in rows:
        if "query_ids" in row:
            row["query_ids"].sort()
    first = [name for name in ("batch_id", "query_id", "id", "window_end") if name in rows[0]]
    return sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in first])


@pytest.fixture(scope="module")
def continued(spark, tmp_path_factory):
    """Go on with a copy of the checkpoint to the end of the input."""
    folder = tmp_path_factory.mktemp("continued")
    checkpoint, stream = folder / "checkpoint", folder / "stream"
    shutil.copytree(DATA / "checkpoint", checkpoint)
    relocate(checkpoint, stream)
    write_stream(stream, range(UNDER_WAY, BATCHES))
    handle, sinks = start(spark, checkpoint, stream)
    return SimpleNamespace(checkpoint=checkpoint, sinks=sinks, handle=handle)


@pytest.fixture(scope="module")
def given():
    """The good rows of all batches as the oracle takes them, the preload in the first."""
    points, operations = (_good_rows(name) for name in ("points", "operations"))
    operations[0] = operations[-1] + operations[0]
    return SimpleNamespace(batches=[(operations[batch], points[batch]) for batch in range(BATCHES)])


def _input(name):
    return pq.read_table(DATA / f"{name}.parquet")


def _good_rows(name):
    table = _input(name)
    table = table.filter(pc.is_null(table["reason"])).drop_columns("reason")
    for i, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(i, field.name, table[field.name].cast(pa.int64()))
    rows = {batch: [] for batch in range(-1, BATCHES)}
    for row in table.to_pylist():
        rows[row.pop("batch")].append(row)
    return rows


REPEATED = ("duplicate id", "unknown id")
"""Reasons for which only versions of format 2 refused operations."""


def _bad_rows(batches):
    """Count the rows that must be refused, by kind and reason."""
    return Counter(
        (kind, row["reason"])
        for name, kind in (("points", "point"), ("operations", "query"))
        for row in _input(name).to_pylist()
        if row["reason"] is not None
        and row["batch"] in batches
        and not (row["batch"] >= UNDER_WAY and row["reason"] in REPEATED)
    )


def _continued(rows):
    """Return what the oracle expects of the batches that run now."""
    return Counter({row: count for row, count in rows.items() if row[0] >= UNDER_WAY})


# -- what was stored ---------------------------------------------------------------------------


def test_what_is_stored_beside_the_checkpoint_is_right(given):
    wanted = expected(given, WINDOW)
    for name, read, rows in (
        ("results", matches_of, wanted.matches),
        ("summaries", told, wanted.summaries),
        ("answers", answered, wanted.answers),
    ):
        assert not difference(read(_input(name)), rows), name
        assert len(_continued(rows)) > 10, name


def test_explain_reads_it():
    stored = json.loads((DATA / "explain.json").read_text())
    del stored["files"]["ledger"], stored["buckets"]
    for partition in stored["plan"]["partitions"]:
        # How a decision is put into words may change.
        del partition["why"]
    _assert_includes(explain(DATA / "checkpoint"), stored)


def _assert_includes(found, stored, where="explain"):
    """Check that all that was said is said still; there may be more."""
    if isinstance(stored, dict):
        assert found.keys() >= stored.keys(), where
        for key, value in stored.items():
            _assert_includes(found[key], value, f"{where}.{key}")
    elif isinstance(stored, list):
        assert len(found) == len(stored), where
        for i, (one, other) in enumerate(zip(found, stored, strict=True)):
            _assert_includes(one, other, f"{where}[{i}]")
    else:
        assert found == stored, where


# -- the run that goes on ----------------------------------------------------------------------


@pytest.mark.parametrize("name", Sinks._fields)
def test_its_rows_are_those_of_then(continued, name):
    rows = sorted_rows(getattr(continued.sinks, name).table())
    assert rows == [row for row in _input(name).to_pylist() if row["batch_id"] >= UNDER_WAY]


def test_its_rows_are_right(continued, given):
    wanted, before = expected(given, WINDOW), SimpleNamespace(batches=given.batches[:UNDER_WAY])
    sinks = continued.sinks
    assert not difference(matches_of(sinks.results.table()), _continued(wanted.matches))
    assert not difference(told(sinks.summaries.table()), _continued(wanted.summaries))
    assert not difference(answered(sinks.answers.table()), _continued(wanted.answers))
    assert continued.handle.status().late == wanted.late - expected(before, WINDOW).late


def test_bad_rows_go_to_the_quarantine(continued):
    found = continued.handle.status().quarantined
    assert found == _bad_rows(range(UNDER_WAY, BATCHES))


def test_a_snapshot_query_sees_the_recent_points(continued, given):
    past = [point for _, points in given.batches for point in points]
    wanted = {point["id"]: point["load"] for point in answer(BOX, past, WINDOW)}
    # Some were stored by the run before.
    assert min(wanted) <= max(point["id"] for point in given.batches[UNDER_WAY - 1][1])
    found = continued.handle.ask(**BOX)
    assert found.num_rows == len(wanted)
    assert dict(zip(found["id"].to_pylist(), found["load"].to_pylist(), strict=True)) == wanted
    assert continued.handle.ask(**BOX, count=True)["count"].to_pylist() == [len(wanted)]


def test_explain_reads_what_it_left(continued):
    found = explain(continued.checkpoint)
    assert (found["last_batch"], found["under_way"]) == (BATCHES - 1, None)
    assert not found["missing"] + found["damaged"]
    quarantined = {(row["kind"], row["reason"]): row["rows"] for row in found["quarantined"]}
    assert quarantined == _bad_rows(range(-1, BATCHES))
