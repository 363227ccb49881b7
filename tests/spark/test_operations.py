"""How operations reach the driver."""

import json

import pyarrow as pa

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
        points = found.points.where("__operations IS NULL").count()
        seen.append((found.operations.num_rows, found.points.count(), points))

    writer = stream.writeStream.foreachBatch(look).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    sizes = [(len(one.operations), len(one.points)) for one in world.batches]
    assert seen == [(operations, points, points) for operations, points in sizes]
