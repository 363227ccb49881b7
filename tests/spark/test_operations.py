"""How operations reach the driver."""

import json

import pyarrow as pa

from sparkswarm.spark.driver.operations import parse_lines

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
