"""The benchmark of fences: its report has the promised form, and both sides find the same."""

import json

import numpy as np
import pyarrow as pa
import shapely
from typer.testing import CliRunner

from sparkswarm.bench.fences import FenceSettings, make_fences, places, shapely_pairs
from sparkswarm.cli import app


class Given:
    def __init__(self, value):
        self.value = value


def test_fences_are_valid_and_both_forms_of_the_rival_find_the_same():
    rng = np.random.default_rng(3)
    cities = rng.uniform(10, 90, (5, 2))
    settings = FenceSettings(polygons=300, circles=100, countries=2)
    table = make_fences(settings, cities, rng)
    assert shapely.is_valid(shapely.from_wkb(table["geometry"].to_numpy())).all()
    xy = places(2000, cities, rng)
    batch = pa.record_batch({"id": np.arange(2000), "x": xy[:, 0].copy(), "y": xy[:, 1].copy()})
    found = [
        set(zip(*(column.to_pylist() for column in pairs.columns), strict=True))
        for prepared in (True, False)
        for pairs in shapely_pairs(Given(table), prepared, [batch])
    ]
    assert found[0] == found[1]
    assert len(found[0]) > 50


def test_the_report_has_the_promised_form():
    few = ["--polygons", "300", "--circles", "50", "--countries", "1", "--points", "2000"]
    few += ["--objects", "3000", "--queries", "500", "--cross", "0.1"]
    result = CliRunner().invoke(app, ["bench", "fences", *few, "--batches", "1", "--json", "-"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["oracle"] == {"checked": 200, "wrong": 0}
    assert report["match"]["points_per_s"] > 0
    assert {"points_per_s", "rivals", "ratio"} == report["match"].keys()
    assert report["match"]["rivals"]["shapely_in_spark"] > 0
    assert report["events"].keys() == {"points_per_s", "share_of_match", "objects"}
    assert report["events"]["objects"] == 3000
    assert report["strings"]["ratio_to_longs"] > 0
    assert report["nearest"]["asks_per_s"] > 0
