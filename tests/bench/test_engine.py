"""The figures of the engine's benchmark, and the plans that it forces."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.bench.engine import cut, halved
from sparkswarm.bench.engine_report import MEASUREMENTS, EngineRun, EngineSettings
from sparkswarm.errors import ConfigError
from sparkswarm.geometry import Bounds, CellRect, Grid
from sparkswarm.protocol.plan import Plan

RATIOS = {
    "plain_spark",
    "plain_spark_lists",
    "duckdb",
    "empty_pipeline",
    "churn_to_calm",
    "direct_sink",
    "one_host_to_shuffled",
}


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 60))
def test_pieces_tile_the_cells(columns, rows, pieces):
    parts = halved(CellRect(2, 3, 2 + columns, 3 + rows), pieces)
    cells = [(x, y) for p in parts for x in range(*p[::2]) for y in range(*p[1::2])]
    assert len(cells) == len(set(cells)) == columns * rows
    assert len(parts) <= pieces
    if pieces * 2 <= min(columns, rows):
        assert len(parts) == pieces


@pytest.mark.parametrize(("few", "many"), [(8, 300), (3, 3), (5, 2)])
def test_a_plan_is_cut_finely_and_owners_keep_their_cells(few, many):
    plan = Plan.initial(Grid(Bounds(0, 0, 1, 1), 100, 100), few)
    finer, changes = cut(plan, many)
    assert max(1, many * 0.9) <= len(finer.partitions) <= max(few, many)
    assert len(changes) == few

    def cells_of(some):
        owned = dict.fromkeys(range(few), 0)
        for partition in some.partitions:
            owned[partition.owners[0]] += partition.cells.area
        return owned

    assert cells_of(finer) == cells_of(plan)


def test_ratios_are_of_medians_and_missing_where_nothing_was_measured():
    run = EngineRun(EngineSettings(points=100))
    assert run.to_json()["ratio"].keys() >= RATIOS
    assert run.to_json()["ratio"]["plain_spark"] is None
    run.seconds |= {name: [] for name in MEASUREMENTS}
    run.seconds |= {"pairs": [1.0, 9.0, 2.0], "plain_spark": [4.0], "churn": [3.0]}
    found = json.loads(json.dumps(run.to_json()))
    assert found["points_per_s_pairs"] == 50
    assert found["ratio"]["plain_spark"] == 2.0
    assert found["ratio"]["churn_to_calm"] == 1.5
    assert found["ratio"]["duckdb"] is None


def test_measurements_are_chosen_by_name():
    chosen = EngineSettings(only=("pairs", "small"))
    assert (chosen.in_turns, chosen.once) == (("pairs",), ("small",))
    assert "memory" in EngineSettings().once
    assert "memory" not in EngineSettings(many_queries=0).once
    with pytest.raises(ConfigError, match="only has pears"):
        EngineSettings(only=("pears",))
