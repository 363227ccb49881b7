"""The anti-meridian: polygons in degrees that cross it are cut, so that the plane has them right.

The engine takes longitude and latitude as a plane from -180 to 180. RFC 7946 (GeoJSON) wants
polygons that cross the anti-meridian cut in two; many are not: their longitudes jump from 179 to
-179, or go on beyond 180. An edge over more than 180 degrees of longitude is taken to go the other
way around. A ring that then goes once around the earth encloses the pole on whose side it lies; one
on both sides of the equator encloses the pole to its left, as RFC 7946 orients shells.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely

from sparkswarm.apps.shapes import parse_geometry
from sparkswarm.compiled import FloatArray

_HALF, _WHOLE = 180.0, 360.0


def split_geometries(values: pa.Array) -> pa.BinaryArray:
    """Split a column of geometries, as :func:`split_antimeridian` does; return bytes.

    A value that is no geometry is returned as it is, for the engine to reject.
    """
    found: list[bytes | None] = []
    for value in values.to_pylist():
        given = value.encode() if isinstance(value, str) else value
        geometry = None if not given else parse_geometry(given)
        split = geometry if geometry is None else split_antimeridian(geometry)
        found.append(given if split is geometry else shapely.to_wkb(split))
    return pa.array(found, pa.binary())


def split_antimeridian(geometry: Any) -> Any:
    """Return a point or a polygon with longitudes from -180 to 180, cut at the anti-meridian.

    What lies in that range and has no edge over more than 180 degrees is returned as it is. A
    polygon that is invalid is returned with longitudes that go on, still invalid.
    """
    if geometry.is_empty or not np.isfinite(shapely.get_coordinates(geometry)).all():
        return geometry
    if geometry.geom_type == "Point":
        x = geometry.x
        return geometry if abs(x) <= _HALF else shapely.Point(_wrapped(x), geometry.y)
    if geometry.geom_type not in ("Polygon", "MultiPolygon"):
        return geometry
    polygons = shapely.get_parts(geometry)
    rings = [shapely.get_rings(polygon) for polygon in polygons]
    if not any(_is_over(shapely.get_coordinates(ring)[:, 0]) for some in rings for ring in some):
        return geometry
    parts = []
    for shell, *holes in rings:
        areas = [_area(shapely.get_coordinates(ring)) for ring in (shell, *holes)]
        for area in areas:
            if not area.is_valid:
                return area
        parts.append(shapely.difference(_cut(areas[0]), shapely.union_all([*map(_cut, areas[1:])])))
    return shapely.union_all(parts)


def _wrapped(x: float) -> float:
    return (x + _HALF) % _WHOLE - _HALF


def _is_over(x: FloatArray) -> bool:
    """Return whether a ring has to be cut."""
    return bool((np.abs(x) > _HALF).any() or (np.abs(np.diff(x)) > _HALF).any())


def _area(ring: npt.NDArray[np.float64]) -> Any:
    """Return what a ring encloses, its longitudes going on beyond 180."""
    steps = np.diff(ring[:, 0])
    turns = np.where(np.abs(steps) > _HALF, -np.round(steps / _WHOLE), 0.0)
    x = ring[:, 0] + _WHOLE * np.concatenate([[0.0], np.cumsum(turns)])
    places = np.column_stack([x, ring[:, 1]])
    around = x[-1] - x[0]
    if abs(around) > _HALF:
        north = around > 0
        if (ring[:, 1] > 0).all() or (ring[:, 1] < 0).all():
            north = bool(ring[0, 1] > 0)
        pole = 90.0 if north else -90.0
        places = np.concatenate([places, [[x[-1], pole], [x[0], pole]]])
    return shapely.Polygon(places)


def _cut(area: Any) -> Any:
    """Return an area in longitudes from -180 to 180."""
    low_x, low_y, high_x, high_y = area.bounds
    pieces = []
    for turn in range(math.floor((low_x + _HALF) / _WHOLE), math.ceil((high_x + _HALF) / _WHOLE)):
        shift = turn * _WHOLE
        band = shapely.box(shift - _HALF, low_y, shift + _HALF, high_y)
        piece = shapely.get_parts(shapely.intersection(area, band))
        polygons = piece[shapely.get_type_id(piece) == shapely.GeometryType.POLYGON]
        pieces += [shapely.transform(one, lambda xy, s=shift: xy - (s, 0.0)) for one in polygons]
    return shapely.union_all(pieces)
