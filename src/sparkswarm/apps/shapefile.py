"""Shapefiles: polygons and points of a ``.shp`` file, and the table of its ``.dbf`` file.

Owns the two formats, as far as fences need them: bytes in, columns out. Coordinates are those of
the file, whatever its projection.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely

from sparkswarm.errors import InputError

_FILE_CODE = 9994
_HEADER, _RECORD_HEADER = 100, 8
_NULL = 0
_POINTS, _POLYGONS = (1, 11, 21), (5, 15, 25)
"""Types of shapes: plain, with z, with m, which come after x and y."""
_FIELD_BYTES = 32
_END_OF_FIELDS, _DELETED = 0x0D, b"*"


def read_shapes(path: str, content: bytes) -> list[bytes | None]:
    """Return the shapes of a ``.shp`` file as WKB; None for null shapes."""
    if len(content) < _HEADER or struct.unpack_from(">i", content)[0] != _FILE_CODE:
        raise InputError(f"{path} is not a shapefile; give the path of its .shp file")
    try:
        return [_shape(path, record) for record in _records(content)]
    except (struct.error, ValueError) as error:
        raise InputError(f"{path} is damaged: {error}; export it again") from error


def _records(content: bytes) -> Iterator[bytes]:
    at = _HEADER
    while at < len(content):
        _, words = struct.unpack_from(">ii", content, at)
        at += _RECORD_HEADER
        if at + 2 * words > len(content):
            raise ValueError("it ends within a shape")
        yield content[at : at + 2 * words]
        at += 2 * words


def _shape(path: str, record: bytes) -> bytes | None:
    (kind,) = struct.unpack_from("<i", record)
    if kind == _NULL:
        return None
    if kind in _POINTS:
        return bytes(shapely.to_wkb(shapely.Point(*struct.unpack_from("<2d", record, 4))))
    if kind not in _POLYGONS:
        raise InputError(
            f"{path} has shapes of type {kind}, which are neither polygons nor points; choose "
            "another layer"
        )
    parts, points = struct.unpack_from("<2i", record, 36)
    starts = np.frombuffer(record, "<i4", parts, 44)
    places = np.frombuffer(record, "<f8", 2 * points, 44 + 4 * parts).reshape(-1, 2)
    return bytes(shapely.to_wkb(_polygon(np.split(places, starts[1:]))))


def _polygon(rings: list[npt.NDArray[np.float64]]) -> Any:
    """Return the polygons of rings: shells run clockwise, holes the other way."""
    lines = [shapely.LinearRing(ring) for ring in rings]
    shells = [line for line in lines if not line.is_ccw] or lines
    holes = [line for line in lines if all(line is not shell for shell in shells)]
    areas = [shapely.Polygon(shell) for shell in shells]
    inner: list[list[Any]] = [[] for _ in shells]
    for hole in holes:
        around = [i for i, area in enumerate(areas) if area.covers(hole)]
        if around:
            inner[min(around, key=lambda i: areas[i].area)].append(hole)
        else:
            # Of files that keep to no direction.
            shells.append(hole)
            inner.append([])
    found = [shapely.Polygon(shell, some) for shell, some in zip(shells, inner, strict=True)]
    return found[0] if len(found) == 1 else shapely.MultiPolygon(found)


def read_table(path: str, content: bytes) -> dict[str, pa.Array]:
    """Return the columns of a ``.dbf`` file."""
    try:
        rows, header, width = struct.unpack_from("<IHH", content, 4)
        fields = list(_fields(content, header))
        lines = [content[header + i * width :][:width] for i in range(rows)]
        if any(len(line) < width for line in lines):
            raise ValueError("it ends within a row")
        if any(line[:1] == _DELETED for line in lines):
            raise ValueError("it has deleted rows, so that rows and shapes do not go together")
        return {
            name: _column(kind, [line[at : at + length] for line in lines])
            for name, kind, at, length in fields
        }
    except (struct.error, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}; export it again") from error


def _fields(content: bytes, header: int) -> Iterator[tuple[str, str, int, int]]:
    """Yield name, type, and place and length in a row of each field."""
    at = 1
    for start in range(_FIELD_BYTES, header - 1, _FIELD_BYTES):
        if content[start] == _END_OF_FIELDS:
            return
        name = content[start : start + 11].partition(b"\0")[0]
        length = content[start + 16]
        yield _text(name), chr(content[start + 11]), at, length
        at += length


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _column(kind: str, values: list[bytes]) -> pa.Array:
    texts = [_text(value).strip(" \0") for value in values]
    if kind in "NF":
        # Stars are what programs write where a number is too long.
        numbers = [None if not text or text.startswith("*") else text for text in texts]
        if all(text is None or text.lstrip("+-").isdigit() for text in numbers):
            return pa.array([None if text is None else int(text) for text in numbers], pa.int64())
        return pa.array([None if text is None else float(text) for text in numbers], pa.float64())
    if kind == "L":
        known = {"T": True, "Y": True, "F": False, "N": False}
        return pa.array([known.get(text.upper()) for text in texts], pa.bool_())
    if kind == "D":
        dates = [date(int(t[:4]), int(t[4:6]), int(t[6:8])) if t.isdigit() else None for t in texts]
        return pa.array(dates, pa.date32())
    return pa.array([text or None for text in texts], pa.string())
