"""Reads points from Parquet files in the tasks that match or route them.

Runs in tasks, for the files that Spark gave each of them. A task that runs again reads the same
files; they must not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from sparkswarm.errors import InputError
from sparkswarm.store.files import arrow_uri
from sparkswarm.store.queries import TIME, X, Y

if TYPE_CHECKING:
    from sparkswarm.spark.task_input import PointFiles


def read_point_files(
    paths: Iterable[str], wanted: PointFiles, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the points of files in batches of at most ``batch_rows`` rows."""
    names = [wanted.columns[name] for name in wanted.schema.names]
    for path in paths:
        with _open(path) as file:
            _check_columns(path, file.schema_arrow, names)
            # A column may stand for several of ours.
            columns = list(dict.fromkeys(names))
            for batch in file.iter_batches(batch_rows, columns=columns, use_threads=False):
                arrays = [
                    _as_wanted(path, batch.column(name), name, field, wanted.time_zone)
                    for name, field in zip(names, wanted.schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=wanted.schema)


def _open(path: str) -> pq.ParquetFile:
    system, name = _located(path)
    try:
        source = system.open_input_file(name)
        return pq.ParquetFile(source)
    except FileNotFoundError as error:
        raise InputError(
            f"the file of points {path} is gone: files must stay until the batch that reads them "
            "is committed; put it back, or begin anew with another checkpoint"
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path} cannot be read as a Parquet file of points ({error}); mend it, or begin anew "
            "with another checkpoint and without it. A file must be complete when it appears: "
            "write it under a hidden name, then rename it"
        ) from error


def _located(path: str) -> tuple[fs.FileSystem, str]:
    """Return the filesystem of a file, and its name there. Spark's names are not quoted."""
    if path.startswith("file:"):
        return fs.LocalFileSystem(use_mmap=True), "/" + path.removeprefix("file:").lstrip("/")
    located: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(quote(arrow_uri(path), ":/@"))
    return located


def _check_columns(path: str, schema: pa.Schema, names: list[str]) -> None:
    missing = [name for name in dict.fromkeys(names) if schema.get_field_index(name) < 0]
    if missing:
        raise InputError(
            f"the file of points {path} has no column {', '.join(missing)}; it has "
            f"{', '.join(schema.names)}. All files need the columns that the run began with"
        )


def _as_wanted(path: str, values: pa.Array, name: str, field: pa.Field, zone: str) -> pa.Array:
    """Return a column of a file with the type that matching gets."""
    try:
        if field.name == TIME:
            return _micros(values, zone)
        if values.type == field.type:
            return values
        # Coordinates become doubles as Spark's cast makes them, the nearest ones.
        return values.cast(field.type, safe=field.name not in (X, Y))
    except (pa.ArrowException, NotImplementedError) as error:
        raise InputError(
            f"column {name} of the file of points {path} has the type {values.type}, which does "
            f"not become {field.type} ({error}). All files need the types that the run began with"
        ) from error


def _micros(times: pa.Array, zone: str) -> pa.Array:
    """Return times as microseconds since 1970."""
    if not pa.types.is_timestamp(times.type) or times.type.tz is None:
        naive = times.cast(pa.timestamp("us"), safe=False)
        times = pc.assume_timezone(naive, zone, ambiguous="earliest", nonexistent="latest")
    return times.cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64())
