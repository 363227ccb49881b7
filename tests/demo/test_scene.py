"""What the demo streams, drawn without Spark."""

import numpy as np
import pyarrow as pa
import pytest

from sparkswarm.demo.scene import (
    BOUNDS,
    CHANGES,
    HOTSPOT_SHARE,
    POINTS,
    QUERIES,
    WAITING_SHARE,
    Scene,
)
from sparkswarm.workloads.synthetic_options import CitiesOptions, QueriesOptions, parse_options
from sparkswarm.workloads.synthetic_rows import read_rows

SCENE = Scene(batches=60, executors=8, seed=0)


def rows(kind, options, start, stop):
    checked = parse_options(kind, {name: str(value) for name, value in options.items()})
    return pa.Table.from_batches(read_rows(checked, start, stop))


def points(batch, some=20_000):
    """Return longitudes and latitudes of some good points in the middle of a batch."""
    start = POINTS * batch + POINTS // 2
    table = rows(CitiesOptions, SCENE.point_options(), start, start + some)
    x, y = (table[name].to_numpy(zero_copy_only=False) for name in ("x", "y"))
    good = (x >= BOUNDS.min_x) & (x <= BOUNDS.max_x) & (y >= BOUNDS.min_y) & (y <= BOUNDS.max_y)
    return x[good], y[good]


def in_hotspot(x, y, batch):
    """Return whether places are in the square, which has come so far; with a degree to spare."""
    way = (batch + 0.5 - SCENE.during.start) / len(SCENE.during)
    west = -180 + 360 * (0.465 + way * (0.4515 - 0.465))
    south = -60 + 135 * (0.685 + way * (0.675 - 0.685))
    inside_x = (x > west - 1) & (x < west + 3.6 + 1)
    return inside_x & (y > south - 1) & (y < south + 1.35 + 1)


@pytest.mark.parametrize("batches", [3, 4, 5, 40, 60])
def test_every_batch_is_in_one_phase(batches):
    phases = Scene(batches, 2, 0).phases
    assert [b for some in phases.values() for b in some] == list(range(batches))
    assert all(phases.values())


def test_sixty_batches_are_a_day():
    hours = [SCENE.hour(batch) for batch in range(60)]
    assert hours == sorted(hours)
    assert hours[0] == pytest.approx(0.2, abs=0.01)
    assert hours[-1] == pytest.approx(23.8, abs=0.1)


def test_points_follow_the_sun():
    """It is evening in America first, then in Asia, in Europe and Africa at last."""
    where = {"America": (-130, -34), "Asia": (60, 150), "Europe and Africa": (-20, 60)}
    busiest = {}
    for name, (west, east) in where.items():
        shares = {b: np.mean((x > west) & (x < east)) for b in (0, 14, 45) for x, _ in [points(b)]}
        busiest[name] = max(shares, key=shares.get)
        assert max(shares.values()) > 1.3 * min(shares.values()), name
    assert busiest == {"America": 0, "Asia": 14, "Europe and Africa": 45}


@pytest.mark.parametrize(
    ("batch", "share"), [(19, 0.0), (20, HOTSPOT_SHARE), (39, HOTSPOT_SHARE), (40, 0.0)]
)
def test_the_hotspot_comes_glides_and_goes(batch, share):
    assert np.mean(in_hotspot(*points(batch), batch)) == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize(("batch", "share"), [(5, 0.0), (30, 1.0), (50, 0.0)])
def test_new_subscriptions_are_in_the_hotspot_while_it_is_there(batch, share):
    start = QUERIES + CHANGES * (batch - 1)
    table = rows(QueriesOptions, SCENE.query_options(), start, start + CHANGES).drop_null()
    x, y = (table[edge].to_numpy() for edge in ("min_x", "min_y"))
    assert np.mean(in_hotspot(x, y, batch)) == pytest.approx(share, abs=0.03)


def test_subscriptions_wait_for_the_hotspot_from_the_start():
    table = rows(QueriesOptions, SCENE.query_options(), 0, QUERIES).drop_null()
    x, y = (table[edge].to_numpy() for edge in ("min_x", "min_y"))
    everywhere = [in_hotspot(x, y, batch) for batch in SCENE.during]
    assert np.mean(np.any(everywhere, axis=0)) == pytest.approx(WAITING_SHARE, abs=0.03)
    assert min(map(np.mean, everywhere)) > WAITING_SHARE / 4


@pytest.mark.parametrize(
    ("seconds", "streams", "batches"), [(60, 1, 60), (60, 2, 30), (3, 2, 3), (7, 2, 3)]
)
def test_two_streams_in_turn_take_as_long_as_one(seconds, streams, batches):
    scene = Scene.lasting(seconds, 8, 0, streams)
    assert scene.batches == batches
    assert scene.pace == streams


def test_both_streams_end_with_the_last_batch():
    """A stream that went on would have a batch under way when the demo stops."""
    options = SCENE.point_options(), SCENE.query_options()
    assert options[0]["limit"] == 60 * POINTS
    assert options[1]["limit"] == QUERIES + 59 * CHANGES
