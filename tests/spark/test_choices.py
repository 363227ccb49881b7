"""Settings that nobody gave are chosen from the first rows, and what was chosen is said."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from sparkswarm import ConfigError, Events, Swarm, SwarmConfig
from sparkswarm.geometry import CONTIGUOUS_US, WORLD
from sparkswarm.spark.driver.choices import FirstRows, OutsideWatch, bounds_around, grid_side

from ..support.runs import first_plan, progress
from .world import Batch, Operation, Point, World, matches_of


def caught(caplog, word):
    return [r.getMessage() for r in caplog.records if word in r.getMessage()]


# -- without Spark -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("box", "bounds"),
    [
        (None, WORLD.edges),
        ((10.0, 20.0, 14.0, 22.0), (8.0, 19.0, 16.0, 23.0)),
        ((-170.0, -80.0, 170.0, 80.0), WORLD.edges),
        ((1000.0, 2000.0, 1400.0, 2200.0), (800.0, 1900.0, 1600.0, 2300.0)),
    ],
    ids=[
        "without rows it is the world",
        "a margin of half the length on each side",
        "longitudes and latitudes stay such",
        "metres may go anywhere",
    ],
)
def test_bounds_are_chosen_around_the_first_rows(box, bounds):
    assert bounds_around(box) == pytest.approx(bounds)


@pytest.mark.parametrize("at", [0.0, 7.25, 4.5e6, -1e12])
def test_a_single_place_has_bounds_around_it(at):
    west, south, east, north = bounds_around((at, 1e7, at, 1e7))
    assert west < at < east
    assert south < 1e7 < north


@pytest.mark.parametrize(
    ("queries", "side"), [(0, 100), (10_000, 100), (10_001, 200), (90_000, 300), (10**8, 1000)]
)
def test_a_grid_has_about_as_many_cells_as_there_are_queries(queries, side):
    assert grid_side(queries) == side


def test_what_was_seen_adds_up():
    some = FirstRows(3, 0, (0.0, 5.0, 1.0, 6.0)) + FirstRows(0, 2, (-1.0, 5.5, 0.5, 9.0))
    assert some == FirstRows(3, 2, (-1.0, 5.0, 1.0, 9.0))
    assert FirstRows() + some == some + FirstRows() == some


def test_many_points_outside_of_the_bounds_are_said_once(caplog):
    watch = OutsideWatch(SwarmConfig())
    few = progress(1, first_plan())  # 3 of 1,004
    watch(few)
    assert not caplog.records
    many = progress(2, first_plan())
    many.quarantined["point", "outside the bounds"] = 500
    for _ in range(3):
        watch(many)
    assert [r.getMessage() for r in caplog.records] == [
        "Batch 2: 500 of 1502 points are outside of the bounds (-180, -90, 180, 90) and were "
        "rejected; they are in the quarantine. Start on a new checkpoint with other bounds, such "
        "as bounds='world'"
    ]


# -- on Spark ----------------------------------------------------------------------------------

FENCES = [Operation("register", n, 10.0 + n, 50.0, 10.5 + n, 50.5) for n in range(3)]
POINTS = [Point(n, 10.0 + n / 4, 50.25, None) for n in range(10)]


def streams(spark, folder, world, by_tasks=False):
    written = world.write(folder)
    return written.read_points(spark, by_tasks), written.read_operations(spark)


def test_settings_are_given_by_keyword_or_by_object(spark):
    assert Swarm(spark, bounds="usa", grid=(5, 6)).config.bounds == CONTIGUOUS_US.edges
    config = SwarmConfig(grid=(5, 6))
    assert Swarm(spark, config, executors=3).config == SwarmConfig(grid=(5, 6), executors=3)
    assert Swarm(spark, events=Events(), decay=0.25).config.decay == 0.25
    with pytest.raises(ConfigError, match="no setting bound; did you mean bounds"):
        Swarm(spark, bound="usa")
    with pytest.raises(ConfigError, match="fade was renamed to decay"):
        Swarm(spark, fade=0.5)
    with pytest.raises(ConfigError, match="bounds must be 4 numbers"):
        Swarm(spark, bounds="mars")


@pytest.mark.parametrize("by_tasks", [False, True])
def test_a_run_that_is_told_nothing_chooses_and_says_so(spark, tmp_path, caplog, by_tasks):
    caplog.set_level(logging.WARNING, logger="sparkswarm")
    world = World(batches=[Batch(POINTS, FENCES), Batch(POINTS, [])], preload=[], event_time=False)
    options = {"sink": "memory", "trigger": {"availableNow": True}}
    handle = Swarm(spark).start(*streams(spark, tmp_path, world, by_tasks), **options)
    handle.await_termination()
    # The look at the first rows has taken nothing away.
    pairs = [(p.id, f.id) for p in POINTS for f in FENCES if f.min_x <= p.x <= f.max_x]
    wanted = Counter((batch, *pair) for batch in range(2) for pair in pairs)
    assert len(pairs) == 8
    assert matches_of(handle.sinks.results.table()) == wanted
    assert handle.plan().grid.bounds.edges == pytest.approx((8.75, 49.75, 13.75, 50.75), abs=0.1)
    assert handle.plan().executors == 2
    (chosen,) = caught(caplog, "Chosen")
    assert "around the first 10 points and 3 queries" in chosen
    assert "grid=(100, 100) (for 3 queries)" in chosen
    assert "executors=2 (as Spark has cores)" in chosen
    (checkpoint,) = caught(caplog, "checkpoint")
    assert "deleted when Python ends" in checkpoint


def test_a_run_with_wrong_bounds_says_so(spark, tmp_path, caplog):
    caplog.set_level(logging.WARNING, logger="sparkswarm")
    world = World(batches=[Batch(POINTS, FENCES)], preload=[], event_time=False)
    handle = Swarm(spark, bounds=(0, 0, 1, 1), grid=(4, 4), executors=1).start(
        *streams(spark, tmp_path, world), sink="noop", checkpoint=str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
    )  # fmt: skip
    handle.await_termination()
    (said,) = caught(caplog, "outside")
    assert said.startswith("Batch 0: 10 of 10 points are outside of the bounds (0, 0, 1, 1)")


def test_a_restart_keeps_the_bounds_of_its_checkpoint(spark, tmp_path, caplog):
    world = World(batches=[Batch(POINTS, [])], preload=FENCES, event_time=False)
    written = world.write(tmp_path)
    options = {"checkpoint": str(tmp_path / "checkpoint"), "trigger": {"availableNow": True}}
    bounds = (0.0, 40.0, 30.0, 60.0)
    first = Swarm(spark, SwarmConfig(bounds=bounds, grid=(7, 8), executors=3))
    preload = written.read_preload(spark)
    started = first.start(written.read_points(spark), sink="noop", preload=preload, **options)
    started.await_termination()
    caplog.set_level(logging.WARNING, logger="sparkswarm")
    again = Swarm(spark).start(written.read_points(spark), sink="noop", **options)
    again.await_termination()
    grid = again.plan().grid
    assert (grid.bounds.edges, grid.columns, grid.rows) == (bounds, 7, 8)
    (chosen,) = caught(caplog, "Chosen")
    assert "grid=(7, 8) (of the checkpoint)" in chosen
    assert not caught(caplog, "No checkpoint")
