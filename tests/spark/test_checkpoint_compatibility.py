"""A run goes on with a checkpoint that an earlier version wrote.

The checkpoint is in ``tests/data/checkpoint``, in format 2. It holds bases and deltas of segments
and of the ledger, which later formats don't have, state of queries, recent points, a shared cell,
and a batch that was under way. What was given to the run lies beside it, and so does what came of
it then: see ``tests/data/write_checkpoint.py``, which wrote it all.
"""

import json
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ..data.write_checkpoint import (
    BATCHES,
    BOUNDS,
    STREAM,
    UNDER_WAY,
    WINDOW,
    Sinks,
    explain,
    relocate,
    sorted_rows,
    start,
    write_stream,
)
from .kinds import answer, answered, expected, told
from .world import difference, matches_of

DATA = Path(__file__).parents[1] / "data" / "checkpoint"
BOX = dict(zip(("min_x", "min_y", "max_x", "max_y"), BOUNDS, strict=True))


@pytest.fixture(scope="module")
def continued(spark, tmp_path_factory):
    """Go on with a copy of the checkpoint to the end of the input."""
    folder = tmp_path_factory.mktemp("continued")
    checkpoint, stream = folder / "checkpoint", folder / "stream"
    shutil.copytree(DATA / "checkpoint", checkpoint)
    relocate(checkpoint, STREAM, stream.as_uri())
    write_stream(stream, DATA, range(UNDER_WAY, BATCHES))
    sinks = Sinks.in_memory()
    handle = start(spark, checkpoint, stream, sinks)
    handle.await_termination()
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
    _assert_includes(explain(DATA / "checkpoint", "--verify"), stored)


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
    rows = sorted_rows(getattr(continued.sinks, name).table()).to_pylist()
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
    found = explain(continued.checkpoint, "--verify")
    assert (found["last_batch"], found["under_way"]) == (BATCHES - 1, None)
    assert not found["missing"] + found["damaged"]
    quarantined = {(row["kind"], row["reason"]): row["rows"] for row in found["quarantined"]}
    assert quarantined == _bad_rows(range(-1, BATCHES))
