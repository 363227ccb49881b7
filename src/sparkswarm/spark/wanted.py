"""What the tasks of a batch return: results, and parcels with what was added to state among them.

Owns the columns of both. They come from one task, because points are matched once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from sparkswarm.spark.columns import column_of
from sparkswarm.spark.tasks.packing import SCHEMA, Parcel, parcels

_OURS = "__"
"""How the columns of parcels begin that are among results: nobody's column does."""


@dataclass(frozen=True)
class Wanted:
    """What the tasks of a batch return.

    Attributes
    ----------
    schema
        Of the results: the point's id, the columns that come back, and the ids of its queries.
        None where nobody wants them.
    keep
        The columns that come back, by our names.
    partials
        Whether what was added to the state of queries is returned, as parcels among the results.
    names
        What the user calls the columns of the points.
    """

    schema: StructType | None
    keep: tuple[str, ...]
    partials: bool
    names: Mapping[str, str]

    @property
    def fields(self) -> StructType:
        """All columns that are returned."""
        fields = StructType(list(self.schema.fields) if self.schema else [])
        if self.partials:
            for field in from_arrow_schema(SCHEMA):
                fields.add(f"{_OURS}{field.name}", field.dataType)
        return fields

    def results(self, executed: DataFrame) -> DataFrame:
        """Return the results among what was returned."""
        assert self.schema is not None
        if not self.partials:
            return executed
        chosen = executed.where(F.col(f"{_OURS}kind").isNull())
        return chosen.select(*(column_of(chosen, name) for name in self.schema.names))

    def parcels(self, executed: DataFrame) -> DataFrame:
        """Return the parcels among what was returned."""
        names = SCHEMA.names
        chosen = executed.where(F.col(f"{_OURS}kind").isNotNull())
        return chosen.select(*(F.col(f"{_OURS}{name}").alias(name) for name in names))


class Returned:
    """The columns that a task returns: those of results, then those of parcels.

    All that one task returns must have the same types, to the time zone of a column.
    """

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self._names: list[str] = wanted.fields.names
        schema = to_arrow_schema(wanted.schema, timezone="UTC") if wanted.schema else ()
        self._types = [field.type for field in schema]

    def of_results(self, columns: list[pa.Array]) -> pa.RecordBatch:
        """Return results."""
        self._types = [column.type for column in columns]
        nothing = []
        if self.wanted.partials:
            nothing = [pa.nulls(len(columns[0]), field.type) for field in SCHEMA]
        return pa.RecordBatch.from_arrays([*columns, *nothing], self._names)

    def of_parcels(self, some: Iterable[Parcel]) -> pa.RecordBatch:
        """Return parcels."""
        packed = parcels(some)
        nothing = [pa.nulls(packed.num_rows, kind) for kind in self._types]
        return pa.RecordBatch.from_arrays([*nothing, *packed.columns], self._names)
