"""Files of geofences become queries."""

import json
import struct
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from sparkswarm import ConfigError, InputError, read_fences, split_antimeridian

SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}


def feature(properties, **more):
    return {"type": "Feature", "geometry": SQUARE, "properties": properties, **more}


def written(tmp_path, content):
    path = tmp_path / "fences.geojson"
    path.write_text(json.dumps(content))
    return str(path)


def collection(*features):
    return {"type": "FeatureCollection", "features": list(features)}


def test_features_become_queries_with_their_properties(spark, tmp_path):
    path = written(
        tmp_path,
        collection(
            feature({"name": "a", "id": 7, "tags": ["x"], "level": 1}, id=1),
            feature({"radius_m": 2.5, "level": "low"}, id="2"),
            feature(None, id=3, geometry=None),
        ),
    )
    frame = read_fences(spark, path)
    kinds = dict(frame.dtypes)
    assert (kinds["id"], kinds["geometry"], kinds["radius_m"]) == ("bigint", "string", "double")
    rows = [row.asDict() for row in frame.orderBy("id").collect()]
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert json.loads(rows[0]["geometry"]) == SQUARE
    assert rows[2]["geometry"] is None
    assert [row["name"] for row in rows] == ["a", None, None]
    assert [row["property_id"] for row in rows] == [7, None, None]
    assert [row["tags"] for row in rows] == ['["x"]', None, None]
    assert [row["level"] for row in rows] == ["1", '"low"', None]


def test_ids_are_text_where_not_all_are_whole_numbers(spark, tmp_path):
    for ids in (["zone-a", 7], ["007", "8"], [2**70, 1]):
        path = written(tmp_path, collection(*(feature({}, id=one) for one in ids)))
        found = [row.id for row in read_fences(spark, path).collect()]
        assert found == [str(one) for one in ids]


def test_the_id_may_be_a_property(spark, tmp_path):
    path = written(tmp_path, collection(feature({"zone": 5}, id="z"), feature({"zone": 6})))
    assert [row.id for row in read_fences(spark, path, id="zone").collect()] == [5, 6]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (collection(feature({"name": "a"})), "feature 0 of .* has None as its id"),
        (collection(feature({}, id=1.5)), "has 1.5 as its id, which is neither"),
        (SQUARE, "its type is 'Polygon'"),
        ([1], "its type is None"),
    ],
)
def test_what_is_no_collection_with_ids_is_refused(spark, tmp_path, content, reason):
    with pytest.raises(InputError, match=reason):
        read_fences(spark, written(tmp_path, content))


def geo_parquet(path, encoding="WKB", **columns):
    table = pa.table({"shape": [shapely.to_wkb(shapely.box(0, 0, 1, 1))], **columns})
    about = {"primary_column": "shape", "columns": {"shape": {"encoding": encoding}}}
    pq.write_table(table.replace_schema_metadata({"geo": json.dumps(about)}), path)
    return str(path)


def test_geoparquet_becomes_queries(spark, tmp_path):
    path = geo_parquet(tmp_path / "a.parquet", number=[4], id=["x"], name=["a"])
    (row,) = read_fences(spark, path, id="number").collect()
    assert row.asDict() == {
        "geometry": shapely.to_wkb(shapely.box(0, 0, 1, 1)),
        "id": 4,
        "property_id": "x",
        "name": "a",
    }


def test_geoparquet_that_cannot_be_used_is_refused(spark, tmp_path):
    with pytest.raises(InputError, match="no column 'zone'; name one as id"):
        read_fences(spark, geo_parquet(tmp_path / "a.parquet", id=["x"]), id="zone")
    with pytest.raises(InputError, match="encoded as 'point'"):
        read_fences(spark, geo_parquet(tmp_path / "b.parquet", "point", id=[1]))
    pq.write_table(pa.table({"id": [1]}), tmp_path / "c.parquet")
    with pytest.raises(InputError, match="without GeoParquet's metadata"):
        read_fences(spark, str(tmp_path / "c.parquet"))


FIJI = {
    "type": "Polygon",
    "coordinates": [[[177, -20], [-178, -20], [-178, -15], [177, -15], [177, -20]]],
}


def test_polygons_across_the_anti_meridian_are_split_where_asked(spark, tmp_path):
    path = written(tmp_path, collection(feature({}, id=1), {**feature({}, id=2), "geometry": FIJI}))
    kept, cut = (
        {row.id: row.geometry for row in read_fences(spark, path, antimeridian=how).collect()}
        for how in ("keep", "split")
    )
    assert kept[2] == json.dumps(FIJI)
    assert shapely.from_geojson(bytes(cut[1]).decode()).equals(
        shapely.from_geojson(json.dumps(SQUARE))
    )
    wanted = shapely.union(shapely.box(177, -20, 180, -15), shapely.box(-180, -20, -178, -15))
    assert shapely.from_wkb(bytes(cut[2])).equals(wanted)
    with pytest.raises(ConfigError, match="antimeridian must be 'keep' or 'split'"):
        read_fences(spark, path, antimeridian="cut")
    with pytest.raises(InputError, match="no column 'shape'"):
        split_antimeridian(read_fences(spark, path), "shape")


def shapefile(folder, shapes, fields, rows):
    """Write a shapefile: shapes as (type, rings), fields as (name, type, length)."""
    records = b""
    for number, (kind, rings) in enumerate(shapes):
        content = struct.pack("<i", kind)
        if kind == 1:
            content += struct.pack("<2d", *rings)
        elif kind:
            places = [place for ring in rings for place in ring]
            starts = [sum(map(len, rings[:i])) for i in range(len(rings))]
            content += struct.pack("<4d2i", 0, 0, 0, 0, len(rings), len(places))
            content += struct.pack(f"<{len(starts)}i", *starts)
            content += b"".join(struct.pack("<2d", *place) for place in places)
        records += struct.pack(">2i", number + 1, len(content) // 2) + content
    header = struct.pack(">i20xi", 9994, 50 + len(records) // 2).ljust(100, b"\0")
    (folder / "zones.shp").write_bytes(header + records)
    table = b"".join(
        name.encode().ljust(11, b"\0") + kind.encode() + bytes(4) + bytes([length]) + bytes(15)
        for name, kind, length in fields
    )
    lines = b"".join(
        b" " + b"".join(text.encode().ljust(n) for text, (*_, n) in zip(row, fields, strict=True))
        for row in rows
    )
    width = 1 + sum(length for *_, length in fields)
    start = struct.pack("<4xIHH20x", len(rows), 33 + len(table), width)
    (folder / "zones.dbf").write_bytes(start + table + b"\r" + lines + b"\x1a")
    return str(folder / "zones.shp")


SHELL = [(0, 0), (0, 4), (4, 4), (4, 0), (0, 0)]
HOLE = [(1, 1), (3, 1), (3, 3), (1, 3), (1, 1)]
ISLAND = [(9, 9), (9, 10), (10, 10), (10, 9), (9, 9)]


def test_a_shapefile_becomes_queries_with_its_columns(spark, tmp_path):
    fields = [("CODE", "C", 8), ("id", "N", 4), ("SIZE", "N", 8), ("DAY", "D", 8), ("OPEN", "L", 1)]
    rows = [
        ("a", "7", "1.5", "20260102", "T"),
        ("bé", "", "", "", "?"),
        ("c", "9", "***", "20251231", "F"),
    ]
    path = shapefile(tmp_path, [(5, [SHELL, HOLE, ISLAND]), (1, (5, 6)), (0, None)], fields, rows)
    frame = read_fences(spark, path, id="CODE")
    found = {row.id: row.asDict() for row in frame.collect()}
    assert list(found) == ["a", "bé", "c"]
    shape = shapely.from_wkb(bytes(found["a"]["geometry"]))
    wanted = shapely.MultiPolygon([shapely.Polygon(SHELL, [HOLE]), shapely.Polygon(ISLAND)])
    assert shape.equals(wanted)
    assert shapely.from_wkb(bytes(found["bé"]["geometry"])) == shapely.Point(5, 6)
    assert found["c"]["geometry"] is None
    assert [row["property_id"] for row in found.values()] == [7, None, 9]
    assert [row["SIZE"] for row in found.values()] == [1.5, None, None]
    assert [row["DAY"] for row in found.values()] == [date(2026, 1, 2), None, date(2025, 12, 31)]
    assert [row["OPEN"] for row in found.values()] == [True, None, False]


def test_holes_of_a_file_without_directions_are_shells(spark, tmp_path):
    path = shapefile(tmp_path, [(15, [SHELL[::-1], ISLAND[::-1]])], [("id", "N", 3)], [("1",)])
    (row,) = read_fences(spark, path).collect()
    assert shapely.from_wkb(bytes(row.geometry)).area == 17


def test_shapefiles_that_are_none_are_refused(spark, tmp_path):
    path = shapefile(tmp_path, [(3, [SHELL])], [("id", "N", 3)], [("1",)])
    with pytest.raises(InputError, match="type 3, which are neither polygons nor points"):
        read_fences(spark, path)
    path = shapefile(tmp_path, [(5, [SHELL])], [("id", "N", 3)], [("1",), ("2",)])
    with pytest.raises(InputError, match="2 rows for 1 shapes"):
        read_fences(spark, path)
    with pytest.raises(InputError, match="no column 'code'; name one as id"):
        read_fences(spark, path, id="code")
    whole = (tmp_path / "zones.shp").read_bytes()
    (tmp_path / "zones.shp").write_bytes(whole[:-9])
    with pytest.raises(InputError, match="is damaged"):
        read_fences(spark, path)
    (tmp_path / "zones.shp").write_bytes(b"PK" * 99)
    with pytest.raises(InputError, match="is not a shapefile"):
        read_fences(spark, path)
    (tmp_path / "zones.shp").write_bytes(whole)
    (tmp_path / "zones.dbf").unlink()
    with pytest.raises(InputError, match=r"zones\.dbf cannot be read"):
        read_fences(spark, path)
