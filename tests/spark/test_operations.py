"""How operations reach the driver."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparkswarm import PointColumns, QueryColumns
from sparkswarm.spark.driver.layout import read_layout, union_stream
from sparkswarm.spark.driver.operations import parse_lines, separate_rows

from .world import make_world

TYPES = {"id": pa.int64(), "min_x": pa.float64(), "details": pa.string()}


def line(number, details):
    quoted = json.dumps(details).replace('"', '""')
    return f'{number},0.0,"{quoted}"\n'


def test_a_line_may_be_longer_than_a_block():
    """Keywords of megabytes are refused later, with a reason; they must not end the run."""
    details = [{"keywords": "a" * length} for length in (10, 3_000_000, 1 << 20, 0)]
    lines = pa.chunked_array([[line(i, one) for i, one in enumerate(details)]])
    read = parse_lines(lines, TYPES)
    assert read.column("id").to_pylist() == [0, 1, 2, 3]
    assert [json.loads(row) for row in read.column("details").to_pylist()] == details


def test_operations_are_the_same_as_rows_and_as_lines(spark, tmp_path):
    """Whatever ids and texts are made of; a plan that is not known takes the way by lines."""
    hostile = ["a,b", '"x"', "two\nlines", "", " space ", "\\", "ü\u2028", "NULL", None]
    n = len(hostile)
    values = [0.1, -0.0, 1e-300, 1e300, float("nan"), float("inf"), 123456789.123456789, 0.0, None]
    table = pa.table(
        {
            "op": pa.array(["register", " Update", "unregister", None, "x,\ny"] + ["register"] * 4),
            "id": pa.array(hostile),
            **{edge: pa.array(values) for edge in ("min_x", "min_y", "max_x", "max_y")},
            "expires": pa.array(np.arange(n) * 10**15, pa.timestamp("us", "UTC")),
            "note": pa.array(hostile[::-1]),
        }
    )
    (tmp_path / "points").mkdir()
    (tmp_path / "operations").mkdir()
    pq.write_table(table, tmp_path / "operations" / "a.parquet")
    points = pa.table({"id": [1], "x": [0.0], "y": [0.0]})
    pq.write_table(points, tmp_path / "points" / "a.parquet")
    read = spark.readStream
    schema = "op STRING, id STRING, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE"
    branches, layout = read_layout(
        read.schema("id BIGINT, x DOUBLE, y DOUBLE").parquet(str(tmp_path / "points")),
        read.schema(f"{schema}, expires TIMESTAMP, note STRING").parquet(
            str(tmp_path / "operations")
        ),
        PointColumns(),
        QueryColumns(expires="expires", include=("note",)),
        "points",
        None,
        None,
        fields=None,
    )
    stream = union_stream(branches, layout.queries)
    seen = []

    def look(rows, _):
        types = layout.queries.operation_types
        ways = separate_rows(rows, types), separate_rows(rows.where("true"), types)
        # As text: no number is that is no number.
        seen.append([str(one.operations.to_pylist()) for one in ways])
        seen.append([one.points.columns for one in ways])

    writer = stream.writeStream.foreachBatch(look).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    (rows, lines), (columns, all_columns) = seen
    assert rows == lines
    assert [*columns, "__operations"] == all_columns


def test_the_rows_of_a_batch_are_told_apart(spark, tmp_path):
    """No stage after reads an operation again."""
    world = make_world(3, batches=2, points=30, operations=8)
    folders = world.write(tmp_path / "world")
    branches, layout = read_layout(
        folders.read_points(spark),
        folders.read_operations(spark),
        PointColumns(),
        QueryColumns(expires="expires"),
        "points",
        None,
        None,
    )
    stream = union_stream(branches, layout.queries)
    seen = []

    def look(rows, _):
        found = separate_rows(rows, layout.queries.operation_types)
        seen.append((found.operations.num_rows, found.points.count()))

    writer = stream.writeStream.foreachBatch(look).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    sizes = [(len(one.operations), len(one.points)) for one in world.batches]
    assert seen == sizes
