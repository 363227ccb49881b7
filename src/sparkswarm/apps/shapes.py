"""Shapes as users write them: WKB, WKT or GeoJSON, and circles.

Owns how a column of geometries becomes records (:mod:`sparkswarm.index.shapes`), their bounding
rectangles, and the reasons why a geometry is rejected. Shapely parses and validates. Runs where
operations are checked: on the driver, and in the tasks of a bulk load.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely

from sparkswarm.apps.events.settings import Nearest
from sparkswarm.compiled import BoolArray, FloatArray, LongArray, compiled
from sparkswarm.index.shapes import CIRCLE, EARTH_RADIUS, POLYGON, SPHERE
from sparkswarm.store.queries import RADIUS, RADIUS_METRES, K

_POINT, _POLYGON, _MULTIPOLYGON = 0, 3, 6

NOT_PARSED = "geometry is neither WKB, WKT nor GeoJSON"
RADIUS_ALONE = "a radius needs a geometry, the POINT in the middle"
TWO_RADII = f"only one of {RADIUS} and {RADIUS_METRES} can be given"
NO_RADIUS = f"a POINT needs {RADIUS} or {RADIUS_METRES}"
NOT_A_CIRCLE = "only a POINT can have a radius"
BAD_RADIUS = "the radius must be a number of at least 0"
K_ALONE = f"{K} needs a geometry, the POINT whose nearest objects are wanted"
K_OF_AREA = f"only a POINT can have {K}"
BAD_K = f"{K} must be at least 1"
NOT_DEGREES = (
    f"the middle of a circle with {RADIUS_METRES} must be a longitude from -180 to 180 and a "
    "latitude from -90 to 90"
)
EMPTY = "geometry is empty"
BEYOND = "geometry goes beyond a longitude of 180; split it with split_antimeridian"
NOT_FINITE = "geometry has a coordinate that is not finite"

_WIDEN = 1e-9
"""Part by which the rectangle of a circle is widened, so that rounding loses no point."""


class ParsedShapes(NamedTuple):
    """Shapes of n queries.

    Attributes
    ----------
    records
        As in :mod:`sparkswarm.index.shapes`; null where a query has none, or is rejected.
    boxes
        Of shape (n, 4): their bounding rectangles; NaN where there is none.
    reasons
        Why each is rejected, or None.
    """

    records: pa.LargeBinaryArray
    boxes: FloatArray
    reasons: npt.NDArray[np.object_]

    @property
    def given(self) -> BoolArray:
        """Which queries have a shape or were rejected."""
        valid: BoolArray = self.records.is_valid().to_numpy(zero_copy_only=False)
        rejected: BoolArray = self.reasons != None  # noqa: E711 (elementwise)
        return valid | rejected


def parse_shapes(
    texts: pa.Array,
    radius: FloatArray,
    metres: FloatArray,
    k: FloatArray | None = None,
    nearest: Nearest | None = None,
    *,
    world: bool = False,
) -> ParsedShapes:
    """Parse geometries, given as text; the radii are NaN where there is none.

    A text is WKT, GeoJSON, or WKB as hexadecimal digits; null or empty if a query has no shape.
    With ``world``, coordinates are degrees of the whole world, and polygons must lie in it. With
    ``nearest``, a circle with ``k`` and a point without a radius are standing points.
    """
    number = len(texts)
    if k is None or nearest is None:
        k = np.full(number, np.nan)
    values = np.array(["" if t is None else t.strip() for t in texts.to_pylist()], dtype=object)
    given = values != ""
    reasons = np.full(number, None, dtype=object)
    reasons[~given & ~np.isnan(k)] = K_ALONE
    reasons[~given & ~(np.isnan(radius) & np.isnan(metres))] = RADIUS_ALONE
    geometries = np.full(number, None, dtype=object)
    for row in np.flatnonzero(given).tolist():
        geometries[row], reasons[row] = _parse(values[row])
    _reject_invalid(geometries, reasons)
    kinds = np.where(reasons == None, shapely.get_type_id(geometries), -1)  # noqa: E711
    circles = np.flatnonzero(kinds == _POINT)
    areas = np.flatnonzero((kinds == _POLYGON) | (kinds == _MULTIPOLYGON))
    others = (kinds >= 0) & ~np.isin(kinds, (_POINT, _POLYGON, _MULTIPOLYGON))
    for row in np.flatnonzero(others).tolist():
        name = geometries[row].geom_type
        reasons[row] = f"geometry is a {name}; give a Polygon, a MultiPolygon, or a Point"
    has_radius = ~np.isnan(radius[areas]) | ~np.isnan(metres[areas])
    has_k = ~np.isnan(k[areas])
    reasons[areas[has_k]] = K_OF_AREA
    reasons[areas[has_radius]] = NOT_A_CIRCLE
    areas = areas[~has_radius & ~has_k]
    boxes = np.full((number, 4), np.nan)
    boxes[areas] = shapely.bounds(geometries[areas]) if len(areas) else boxes[areas]
    if world:
        beyond = (boxes[areas, 0] < -180) | (boxes[areas, 2] > 180)
        reasons[areas[beyond]], boxes[areas[beyond]] = BEYOND, np.nan
        areas = areas[~beyond]
    records: list[bytes | None] = [None] * number
    for row, record in zip(areas.tolist(), _polygon_records(geometries[areas]), strict=True):
        records[row] = record
    for row in circles.tolist():
        x, y = geometries[row].x, geometries[row].y
        plane, sphere, wanted = radius[row], metres[row], k[row]
        if nearest is not None and np.isnan(plane) and np.isnan(sphere):
            given_radii = nearest.within, nearest.within_m
            plane, sphere = (np.nan if one is None else one for one in given_radii)
            wanted = nearest.k if np.isnan(wanted) else wanted
        reasons[row] = BAD_K if wanted < 1 else _circle_fault(x, y, plane, sphere)
        if reasons[row] is None:
            on_sphere = not np.isnan(sphere)
            r = float(sphere if on_sphere else plane)
            boxes[row] = sphere_box(x, y, r) if on_sphere else _circle_box(x, y, r)
            words = [SPHERE if on_sphere else CIRCLE, x, y, r]
            records[row] = np.array(words if np.isnan(wanted) else [*words, wanted]).tobytes()
    return ParsedShapes(pa.array(records, pa.large_binary()), boxes, reasons)


def _parse(text: str) -> tuple[Any, str | None]:
    """Return a geometry, or the reason why there is none."""
    try:
        if text[0] in "0123456789abcdefABCDEF" and set(text) <= _HEX:
            return shapely.force_2d(_from_bytes(bytes.fromhex(text))), None
        return shapely.force_2d(_from_text(text)), None
    except (shapely.errors.ShapelyError, ValueError, UnicodeDecodeError) as error:
        return None, f"{NOT_PARSED} [{str(error).strip()}]"


_HEX = frozenset("0123456789abcdefABCDEF")


def parse_geometry(content: bytes) -> Any:
    """Return a geometry in WKB, WKT or GeoJSON; None where it is neither."""
    try:
        return shapely.force_2d(_from_bytes(content))
    except (shapely.errors.ShapelyError, ValueError, UnicodeDecodeError):
        return None


def _from_bytes(content: bytes) -> Any:
    # WKB begins with the order of its bytes, 0 or 1, which no text does.
    if content[:1] in (b"\0", b"\1"):
        return shapely.from_wkb(content)
    return _from_text(content.decode().strip())


def _from_text(text: str) -> Any:
    return shapely.from_geojson(text) if text.startswith("{") else shapely.from_wkt(text)


def _reject_invalid(geometries: npt.NDArray[np.object_], reasons: npt.NDArray[np.object_]) -> None:
    """Set the reason of geometries that are empty, not finite or invalid."""
    parsed = np.flatnonzero(shapely.is_geometry(geometries))
    if not len(parsed):
        return
    some = geometries[parsed]
    finite = np.array([bool(np.isfinite(shapely.get_coordinates(one)).all()) for one in some])
    valid = shapely.is_valid(some)
    empty = shapely.is_empty(some)
    for at in np.flatnonzero(~valid).tolist():
        reasons[parsed[at]] = f"invalid geometry: {shapely.is_valid_reason(some[at])}"
    reasons[parsed[~finite]] = NOT_FINITE
    reasons[parsed[empty]] = EMPTY


def _polygon_records(geometries: npt.NDArray[np.object_]) -> list[bytes]:
    """Return the records of polygons and multipolygons."""
    if not len(geometries):
        return []
    polygons, geometry_of = shapely.get_parts(geometries, return_index=True)
    rings, polygon_of = shapely.get_rings(polygons, return_index=True)
    owner = geometry_of[polygon_of]
    vertices = shapely.get_num_coordinates(rings).astype(np.int64)
    coordinates = shapely.get_coordinates(rings)
    number = len(geometries)
    ring_starts = np.searchsorted(owner, np.arange(number + 1)).astype(np.int64)
    words, starts = _write_records(ring_starts, vertices, np.ascontiguousarray(coordinates))
    return [words[a:b].tobytes() for a, b in pairwise(starts.tolist())]


@compiled
def _write_records(
    ring_starts: LongArray, vertices: LongArray, coordinates: FloatArray
) -> tuple[FloatArray, LongArray]:
    """Write the records of polygons, given the rings of each and the vertices of each ring."""
    number = len(ring_starts) - 1
    starts = np.zeros(number + 1, np.int64)
    for i in range(number):
        rings = vertices[ring_starts[i] : ring_starts[i + 1]]
        starts[i + 1] = starts[i] + 2 + len(rings) + 2 * rings.sum()
    words = np.empty(starts[-1])
    vertex = 0
    for i in range(number):
        at = starts[i]
        rings = vertices[ring_starts[i] : ring_starts[i + 1]]
        words[at], words[at + 1] = POLYGON, len(rings)
        at += 2
        for size in rings:
            words[at] = size
            at += 1
        for _ in range(rings.sum()):
            words[at], words[at + 1] = coordinates[vertex, 0], coordinates[vertex, 1]
            vertex += 1
            at += 2
    return words, starts


def _circle_fault(x: float, y: float, radius: float, metres: float) -> str | None:
    """Return why a circle is rejected, or None."""
    given = [r for r in (radius, metres) if not np.isnan(r)]
    if not given:
        return NO_RADIUS
    if len(given) == 2:
        return TWO_RADII
    if not (given[0] >= 0 and np.isfinite(given[0])):
        return BAD_RADIUS
    if not np.isnan(metres) and not (-180 <= x <= 180 and -90 <= y <= 90):
        return NOT_DEGREES
    return None


def _circle_box(x: float, y: float, radius: float) -> tuple[float, float, float, float]:
    wide = radius * (1 + _WIDEN)
    return x - wide, y - wide, x + wide, y + wide


def sphere_box(
    longitude: float, latitude: float, metres: float
) -> tuple[float, float, float, float]:
    """Return the rectangle of longitudes and latitudes around a circle on the sphere.

    A circle around a pole has all longitudes. So has the rectangle of one across the
    anti-meridian, since a rectangle is not cut in two; the exact test takes the rest away.
    """
    # The least widening is far below a millimetre.
    angle = metres / EARTH_RADIUS * (1 + _WIDEN) + 1e-15
    south, north = latitude - np.degrees(angle), latitude + np.degrees(angle)
    if south <= -90 or north >= 90:
        return -180.0, max(south, -90.0), 180.0, min(north, 90.0)
    wide = float(np.degrees(np.arcsin(np.sin(angle) / np.cos(np.radians(latitude)))))
    wide += 1e-12
    west, east = longitude - wide, longitude + wide
    if west < -180 or east > 180:
        return -180.0, float(south), 180.0, float(north)
    return west, float(south), east, float(north)
