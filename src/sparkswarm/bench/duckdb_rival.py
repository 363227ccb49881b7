"""DuckDB as a rival in ``sparkswarm bench engine``.

One process on the same files, no Spark: what a user without a cluster would try first. Queries are
exploded to cells in SQL, once; for each batch, points are joined with them by cell and compared,
and pairs are written to a Parquet file. Needs the extra ``bench``.
"""

from __future__ import annotations

import time
from math import ceil
from pathlib import Path

from sparkswarm.bench.inputs import Inputs
from sparkswarm.errors import missing_extra

CELL_SIDE = 2.0
"""Side of a cell relative to that of a query. 0.5 to 2 take the same time, 2 the least memory."""


def run_duckdb(inputs: Inputs, batches: int, cores: int, folder: Path) -> list[float]:
    """Match the first batches; return the seconds of each.

    Pairs of a batch are left in ``folder``, in a file named after its number.

    Raises
    ------
    MissingExtraError
        If DuckDB is not installed.
    """
    try:
        import duckdb
    except ImportError as error:
        raise missing_extra("duckdb", "bench") from error

    folder.mkdir(parents=True, exist_ok=True)
    columns = ceil(1 / (inputs.side * CELL_SIDE))
    seconds = []
    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {cores}")
        connection.execute("SET preserve_insertion_order = false")
        connection.execute(f"CREATE TABLE cells AS {_exploded(inputs, columns)}")
        for batch in range(batches):
            began = time.monotonic()
            connection.execute(
                f"COPY ({_pairs(inputs, columns, batch)}) TO '{folder / str(batch)}.parquet' "
                "(FORMAT parquet, COMPRESSION snappy)"
            )
            seconds.append(time.monotonic() - began)
    return seconds


def _exploded(inputs: Inputs, columns: int) -> str:
    """Return a query for a row for every query and every cell that it overlaps."""
    lines = {
        axis: f"unnest(range({_line(inputs, columns, axis, f'min_{axis}')}, "
        f"{_line(inputs, columns, axis, f'max_{axis}')} + 1))"
        for axis in ("x", "y")
    }
    source = f"read_parquet('{inputs.queries_folder}/*.parquet', hive_partitioning = false)"
    return (
        f"SELECT (line_y * {columns} + line_x)::INTEGER AS cell, id AS query, min_x, min_y, max_x, "
        f"max_y FROM (SELECT *, {lines['x']} AS line_x FROM "
        f"(SELECT *, {lines['y']} AS line_y FROM {source})) ORDER BY cell"
    )


def _pairs(inputs: Inputs, columns: int, batch: int) -> str:
    """Return a query for the results of a batch."""
    files = [str(inputs.points_file(batch, part)) for part in range(inputs.files_per_batch)]
    cell = f"{_line(inputs, columns, 'y', 'y')} * {columns} + {_line(inputs, columns, 'x', 'x')}"
    return (
        "SELECT points.id, cells.query FROM "
        f"(SELECT id, x, y, ({cell})::INTEGER AS cell FROM "
        f"read_parquet({files}, hive_partitioning = false)) points JOIN cells USING (cell) "
        "WHERE x BETWEEN min_x AND max_x AND y BETWEEN min_y AND max_y"
    )


def _line(inputs: Inputs, columns: int, axis: str, value: str) -> str:
    """Return the number of the column (axis x) or row (axis y) of cells of a value."""
    b = inputs.bounds
    start, length = (b.min_x, b.width) if axis == "x" else (b.min_y, b.height)
    line = f"floor(({value} - ({start!r})) / {length / columns!r})::INTEGER"
    return f"least(greatest({line}, 0), {columns - 1})"
