"""Reads files of geofences as a DataFrame of queries.

Owns how GeoJSON, GeoParquet and shapefiles become the columns of queries. Geometries are not
checked here: the engine does that, and puts bad ones into the quarantine. Runs on the driver,
before a start.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.dataset
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType

from sparkswarm.apps.antimeridian import split_geometries
from sparkswarm.apps.shapefile import read_shapes, read_table
from sparkswarm.arguments import check_argument
from sparkswarm.errors import ConfigError, InputError
from sparkswarm.spark.columns import QueryColumns
from sparkswarm.spark.failures import not_found

_ID, _GEOMETRY = QueryColumns().id, QueryColumns().geometry
_GEOJSON = (".json", ".geojson")
_SHAPEFILE = ".shp"


def read_fences(
    spark: SparkSession,
    path: str | Path,
    *,
    id: str | None = None,
    antimeridian: Literal["keep", "split"] = "keep",
) -> DataFrame:
    """Return the geofences of a file as queries, ready for ``preload``.

    Parameters
    ----------
    path
        A GeoJSON file, whose name ends with ``.geojson`` or ``.json``, with a FeatureCollection or
        a Feature; a shapefile, whose name ends with ``.shp``, with its ``.dbf`` beside it; or a
        GeoParquet file, or a folder of such files. Coordinates are taken as they are.
    id
        The property or column with the id of a fence. By default a feature's own ``id``, or the
        property or column ``id``. In GeoJSON ids are whole numbers if all of them are, else text.
    antimeridian
        ``split`` to cut what crosses the anti-meridian, as :func:`split_antimeridian` does;
        ``keep`` for files that have it cut, as RFC 7946 demands, or that are not in degrees.

    Returns
    -------
    DataFrame
        The columns ``id`` and ``geometry``, and the others as they are called. Properties
        ``radius`` and ``radius_m`` make circles of points. A property ``id`` or ``geometry`` beside
        a column of this name becomes ``property_id`` or ``property_geometry``; properties that are
        lists, objects or of several types become JSON.

    Raises
    ------
    InputError
        If the file is none of these, or a fence has no id.
    """
    if antimeridian not in ("keep", "split"):
        raise ConfigError(f"antimeridian must be 'keep' or 'split', got {antimeridian!r}")
    check_argument("path", path, (str, Path), "the path of a file", optional=False)
    path = str(path)
    try:
        if path.lower().endswith(_GEOJSON):
            fences = _read_geojson(spark, path, id)
        elif path.lower().endswith(_SHAPEFILE):
            fences = _read_shapefile(spark, path, id or _ID)
        else:
            fences = _read_geoparquet(spark, path, id or _ID)
    except AnalysisException as error:
        raise not_found(path, error) from error
    return split_antimeridian(fences) if antimeridian == "split" else fences


def split_antimeridian(queries: DataFrame, geometry: str = _GEOMETRY) -> DataFrame:
    """Return queries in degrees whose polygons are cut at the anti-meridian.

    An edge over more than 180 degrees of longitude is taken to go the other way around, as one from
    179 to -179 does, and longitudes beyond 180 go on around the earth. A ring that goes once around
    encloses the pole on whose side it lies; where it is on both sides of the equator, the pole to
    its left. What does not cross stays as it is.

    Parameters
    ----------
    queries
        A static or streaming DataFrame.
    geometry
        Its column of geometries, which becomes binary.
    """
    check_argument("queries", queries, DataFrame, "a DataFrame", optional=False)
    if geometry not in queries.columns:
        raise InputError(f"queries have no column {geometry!r}; they have {queries.columns}")
    at = queries.columns.index(geometry)
    fields = [StructField(f.name, f.dataType) for f in queries.schema]
    fields[at] = StructField(geometry, BinaryType())

    def split(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.set_column(at, geometry, split_geometries(batch.column(at)))

    return queries.mapInArrow(split, StructType(fields))


def _read_geojson(spark: SparkSession, path: str, id_name: str | None) -> DataFrame:
    features = [
        feature
        for row in spark.read.text(path, wholetext=True).collect()
        for feature in _features(path, row.value)
    ]
    ids, geometries = [], []
    properties: dict[str, list[Any]] = {}
    for number, feature in enumerate(features):
        some = dict(feature.get("properties") or {})
        ids.append(_feature_id(path, number, feature, some, id_name))
        geometry = feature.get("geometry")
        geometries.append(None if geometry is None else json.dumps(geometry))
        for name, value in some.items():
            column = f"property_{name}" if name in (_ID, _GEOMETRY) else name
            properties.setdefault(column, [None] * number).append(value)
        for values in properties.values():
            values.extend([None] * (number + 1 - len(values)))
    table = pa.table(
        {
            _ID: _id_column(ids),
            _GEOMETRY: pa.array(geometries, pa.string()),
            **{name: _column(values) for name, values in properties.items()},
        }
    )
    return spark.createDataFrame(table)


def _features(path: str, text: str) -> list[Mapping[str, Any]]:
    """Return the features of a GeoJSON text."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path} is not GeoJSON: {error}") from error
    kind = content.get("type") if isinstance(content, dict) else None
    if kind == "Feature":
        return [content]
    if kind != "FeatureCollection" or not isinstance(content.get("features"), list):
        raise InputError(
            f"{path} is neither a FeatureCollection nor a Feature, its type is {kind!r}; "
            "export the fences as a FeatureCollection"
        )
    return list(content["features"])


def _feature_id(
    path: str,
    number: int,
    feature: Mapping[str, Any],
    properties: dict[str, Any],
    id_name: str | None,
) -> int | str:
    """Return the id of a feature; a property that is the id is taken out."""
    if id_name is None and feature.get("id") is not None:
        value = feature["id"]
    else:
        value = properties.pop(id_name or _ID, None)
    if isinstance(value, int | str) and not isinstance(value, bool):
        return value
    raise InputError(
        f"feature {number} of {path} has {value!r} as its id, which is neither a whole number nor "
        "text; name a property with either as id, or add one"
    )


def _id_column(ids: list[int | str]) -> pa.Array:
    """Return ids as whole numbers where all are, however they are written, else as text."""
    texts = [str(one) for one in ids]
    try:
        numbers = pa.array([int(text) for text in texts], pa.int64())
    except (ValueError, OverflowError):
        return pa.array(texts)
    # 007 is not 7.
    return numbers if [str(one) for one in numbers.to_pylist()] == texts else pa.array(texts)


def _column(values: list[Any]) -> pa.Array:
    """Return a property of all features; as JSON where Spark has no plain type for it."""
    if not any(isinstance(value, list | dict) for value in values):
        try:
            column = pa.array(values)
            return column.cast(pa.string()) if pa.types.is_null(column.type) else column
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            pass
    return pa.array([None if value is None else json.dumps(value) for value in values])


def _read_shapefile(spark: SparkSession, path: str, id_name: str) -> DataFrame:
    shapes = read_shapes(path, _bytes_of(spark, path))
    beside = path[: -len(_SHAPEFILE)] + (".dbf" if path.endswith(_SHAPEFILE) else ".DBF")
    columns = read_table(beside, _bytes_of(spark, beside))
    if id_name not in columns:
        raise InputError(f"{beside} has no column {id_name!r}; name one as id, of {[*columns]}")
    ids = columns.pop(id_name)
    if len(ids) != len(shapes):
        raise InputError(f"{beside} has {len(ids)} rows for {len(shapes)} shapes; export it again")
    others = {f"property_{n}" if n in (_ID, _GEOMETRY) else n: c for n, c in columns.items()}
    geometries = pa.array(shapes, pa.binary())
    return spark.createDataFrame(pa.table({_ID: ids, _GEOMETRY: geometries, **others}))


def _bytes_of(spark: SparkSession, path: str) -> bytes:
    try:
        (row,) = spark.read.format("binaryFile").load(path).select("content").collect()
    except (PySparkException, ValueError) as error:
        raise InputError(f"{path} cannot be read; is it there?") from error
    return bytes(row.content)


def _read_geoparquet(spark: SparkSession, path: str, id_name: str) -> DataFrame:
    try:
        metadata = pyarrow.dataset.dataset(path, format="parquet").schema.metadata or {}
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as GeoParquet: {error}") from error
    if b"geo" not in metadata:
        raise InputError(
            f"{path} is Parquet without GeoParquet's metadata; read it with spark.read.parquet and "
            f"call its column of geometries {_GEOMETRY!r}"
        )
    geo = json.loads(metadata[b"geo"])
    primary = geo["primary_column"]
    encoding = geo["columns"][primary]["encoding"]
    if encoding != "WKB":
        raise InputError(
            f"column {primary!r} of {path} is encoded as {encoding!r}; write it as WKB"
        )
    frame = spark.read.parquet(path)
    if id_name not in frame.columns:
        raise InputError(f"{path} has no column {id_name!r}; name one as id, of {frame.columns}")
    names = {primary: _GEOMETRY, id_name: _ID}
    taken = {_ID, _GEOMETRY} - names.keys()
    chosen = [
        frame[f"`{name}`"].alias(names.get(name, f"property_{name}" if name in taken else name))
        for name in frame.columns
    ]
    return frame.select(*chosen)
