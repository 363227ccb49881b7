"""Files of geofences become queries."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from sparkswarm import InputError, read_fences

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
