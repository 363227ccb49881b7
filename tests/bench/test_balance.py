"""The balance benchmark: its world is honest and its report has the promised form."""

import json
from pathlib import Path

import numpy as np
import pytest

from sparkswarm.bench.balance import HOTSPOT, run_balance, variants
from sparkswarm.bench.pictures import draw_balance, draw_plans
from sparkswarm.bench.world import CHECK_WORK, RoundWorld
from sparkswarm.config import SwarmConfig
from sparkswarm.workloads import CONTIGUOUS_US, Density, Hotspot, cities_density


@pytest.fixture(scope="module")
def density() -> Density:
    return cities_density(CONTIGUOUS_US, 60, 60)


def world(density, hotspot=None, executors=5, **kwargs):
    b = density.bounds
    config = SwarmConfig(
        bounds=(b.min_x, b.min_y, b.max_x, b.max_y), grid=(60, 60), executors=executors
    )
    return RoundWorld(config, density, hotspot, points=20_000, queries=2_000, **kwargs)


def test_all_work_is_done_by_somebody_and_only_once(density):
    w = world(density, Hotspot(start=3, stop=6))
    for _ in range(9):
        played = w.play()
        assert played.work.sum() == pytest.approx(played.static_work.sum())
        assert played.work.sum() >= 20_000


def test_lending_does_the_same_work_and_is_even_in_the_first_round(density):
    w = world(density)
    for _ in range(3):
        played = w.play()
        assert played.lent_work.sum() == pytest.approx(played.work.sum())
        assert played.lent_efficiency > 0.98
        assert played.lent_efficiency >= played.efficiency


def test_the_queries_of_a_cell_are_counted_as_they_lie(density):
    w = world(density, Hotspot(start=1, stop=2))
    for round_number in range(3):
        w.play()
        live = w._cells if round_number == 1 else w._cells.take(np.arange(2_000))
        expected = np.zeros((60, 60))
        for i in range(len(live.fault)):
            expected[live.rect(i).slices] += 1
        assert (w._checks == expected).all()


def test_statistics_of_queries_stay_exact_through_all_changes(density):
    w = world(density, Hotspot(start=4, stop=9))
    for _ in range(12):
        w.play()
        for unit in w.swarm.units:
            for partition in unit.partitions:
                held = w._queries_of(partition)
                assert unit.statistics(partition.id).queries == len(held.fault)


def test_a_hotspot_unbalances_and_swarm_recovers(density):
    w = world(density, Hotspot(start=10, stop=20), executors=6)
    seen = [w.play() for _ in range(20)]
    assert seen[9].efficiency > 0.85
    assert seen[10].efficiency < 0.7
    assert min(played.efficiency for played in seen[13:]) > 0.8
    assert max(played.static_efficiency for played in seen) < 0.6


def test_throttled_sources_send_what_the_slowest_executor_takes(density):
    w = world(density, throttled=True)
    first, second = w.play(), w.play()
    assert second.work.sum() < 0.9 * first.work.sum()
    assert CHECK_WORK == 0.02


def test_every_variant_runs_and_reports_in_the_promised_form(density, tmp_path: Path):
    rounds = []
    runs = run_balance(density, 4, 32, 5_000, 500, 0, lambda _, number: rounds.append(number))
    expected = list(variants(4))
    assert len(rounds) == 32 * len(expected)
    assert [run.variant for run in runs] == expected
    for run in json.loads(json.dumps([run.to_json() for run in runs])):
        assert {"cost_model", "moves_per_round", "shared_cells", "executors"} <= run.keys()
        assert len(run["efficiency"]) == 32
        assert all(0 < value <= 1 for value in run["efficiency"])
    draw_balance(runs, "a test", tmp_path / "new" / "balance.png")
    assert (tmp_path / "new" / "balance.png").stat().st_size > 10_000


def test_the_hotspot_is_the_one_that_the_report_speaks_of():
    assert (HOTSPOT.start, HOTSPOT.stop, HOTSPOT.side) == (30, 50, 0.15)
    assert (HOTSPOT.point_share, HOTSPOT.query_share) == (0.40, 0.20)


def test_plans_can_be_drawn(density, tmp_path: Path):
    w = world(density)
    first = w.swarm.plan
    w.play()
    draw_plans([("first", first), ("then", w.swarm.plan)], density, tmp_path / "plans.png")
    assert (tmp_path / "plans.png").stat().st_size > 10_000
