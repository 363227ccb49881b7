"""Every task on tables of a few rows, against brute force; no JVM."""

from __future__ import annotations

import gc
import random
import weakref
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sparkswarm import Aggregates, PairFunction, Sliding
from sparkswarm.errors import StoreError
from sparkswarm.observe.progress import Counts
from sparkswarm.policies import LendingPrices, make_policy
from sparkswarm.protocol.messages import CostReport
from sparkswarm.spark.columns import OPERATIONS
from sparkswarm.spark.driver.batch import DriverContext
from sparkswarm.spark.task_input import packed_input
from sparkswarm.spark.task_output import PACKED_PREFIX, TaskStage
from sparkswarm.spark.tasks import match as match_module
from sparkswarm.spark.tasks.answers import answer_task
from sparkswarm.spark.tasks.context import KEPT_RUNS, BatchContext, open_context
from sparkswarm.spark.tasks.direct import match_task
from sparkswarm.spark.tasks.execute import execute_task
from sparkswarm.spark.tasks.packing import (
    RowKind,
    group_rows,
    pack_rows,
    packed,
    unpack_rows,
)
from sparkswarm.spark.tasks.state import state_task
from sparkswarm.store.files import Files
from sparkswarm.store.queries import ID

from ...support.tasks import Tasks, points_table, register, shuffled, with_partition

NAN = float("nan")


@pytest.fixture
def tasks(tmp_path: Path) -> Tasks:
    return Tasks(tmp_path)


# -- packing ---------------------------------------------------------------------------------


def test_packed_rows_come_back_in_order() -> None:
    first, second = points_table((1, 0.5, 0.5)), points_table((2, 1.5, 0.5), (3, 0.0, 0.0))
    content = [pa.py_buffer(pack_rows(first)), pa.py_buffer(pack_rows(second))]
    assert unpack_rows(content) == pa.concat_tables([first, second])


def test_no_packed_rows_are_a_batch_without_rows() -> None:
    assert packed([]).num_rows == 0


def test_rows_are_grouped_and_negative_groups_left_out() -> None:
    order, starts = group_rows(np.array([1, -1, 0, 1, 0], np.int32), 3)
    assert (order.tolist(), starts.tolist()) == ([2, 4, 0, 3], [0, 2, 4, 4])


# -- route -----------------------------------------------------------------------------------


def test_every_point_goes_to_the_owner_of_its_place(tasks: Tasks) -> None:
    points = [
        (i, x + 0.5, y + 0.5) for i, (x, y) in enumerate((x, y) for x in range(8) for y in range(8))
    ]
    seen = {}
    for target, rows in shuffled(tasks.route(points_table(*points)), RowKind.POINTS).items():
        content = [v.as_buffer() for batch in rows for v in batch.column("rows").drop_null()]
        for number in unpack_rows(content).column(ID).to_pylist():
            seen[number] = target
    for number, x, y in points:
        (partition,) = [
            p
            for p in tasks.plan.partitions
            if p.cells.col_start <= x < p.cells.col_stop
            and p.cells.row_start <= y < p.cells.row_stop
        ]
        assert seen[number] == partition.owners[0]
    assert tasks.outputs[0].counts.points == 64


def test_every_executor_hears_of_a_batch_without_points(tasks: Tasks) -> None:
    assert list(shuffled(tasks.route(points_table()), RowKind.POINTS)) == [0, 1]


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        ((None, 1.0, 1.0), "null id"),
        ((1, None, 1.0), "null coordinate"),
        ((1, NAN, 1.0), "not a number"),
        ((1, 1.0, float("inf")), "infinite coordinate"),
        ((1, 9.0, 1.0), "outside the bounds"),
    ],
)
def test_a_bad_point_goes_to_the_quarantine_alone(tasks: Tasks, point, reason) -> None:
    tasks.apply(register(7, 0.0, 0.0, 8.0, 8.0))
    assert tasks.match(point, (2, 1.0, 1.0)) == {2: [7]}
    (routed,) = [o for o in tasks.outputs if o.counts.points]
    assert (routed.counts.points, routed.rejected) == (1, {("point", reason): 1})


# -- operations and execute --------------------------------------------------------------------


def random_box(rng: random.Random) -> tuple[float, float, float, float]:
    x, y = rng.uniform(0, 8), rng.uniform(0, 8)
    return x, y, min(8.0, x + rng.random() * 3), min(8.0, y + rng.random() * 3)


def assert_matches(tasks: Tasks, boxes: dict, rng: random.Random) -> None:
    """Match random points and compare with brute force."""
    points = [(i, rng.uniform(0, 8), rng.uniform(0, 8)) for i in range(200)]
    expected = {}
    for number, x, y in points:
        hits = [n for n, (a, b, c, d) in boxes.items() if a <= x <= c and b <= y <= d]
        if hits:
            expected[number] = sorted(hits)
    tasks.outputs.clear()
    assert tasks.match(*points) == expected
    executed = [o for o in tasks.outputs if o.stage == TaskStage.EXECUTE]
    assert sum(o.counts.matches for o in executed) == sum(map(len, expected.values()))
    assert sum(o.points for o in executed) == 200


def changed_in_batches(tasks: Tasks, boxes: dict, rng: random.Random) -> None:
    """Register, update and unregister queries in some batches of different sizes."""
    for size in (60, 25, 8, 3):
        rows = []
        for _ in range(size):
            number = rng.randrange(200)
            if number in boxes and rng.random() < 0.5:
                rows.append({"op": "unregister", "id": number})
                boxes.pop(number, None)
            else:
                boxes[number] = random_box(rng)
                op = rng.choice(["register", "update"])
                rows.append({**register(number, *boxes[number]), "op": op})
        tasks.apply(*rows)
        tasks.commit()


@pytest.mark.parametrize("application", [None, PairFunction(lambda point, query: True)])
def test_matches_are_those_of_brute_force(tmp_path: Path, application) -> None:
    tasks, rng = Tasks(tmp_path, application=application), random.Random(5)
    boxes = {number: random_box(rng) for number in range(30)}
    tasks.load(*(register(number, *b) for number, b in boxes.items()))
    tasks.commit()
    assert_matches(tasks, boxes, rng)
    changed_in_batches(tasks, boxes, rng)
    assert len(tasks.input.epoch.manifest.deltas) > 1
    assert_matches(tasks, boxes, rng)
    tasks.compact()
    tasks.commit()
    assert not tasks.input.epoch.manifest.deltas
    assert_matches(tasks, boxes, rng)
    changed_in_batches(tasks, boxes, rng)
    assert_matches(tasks, boxes, rng)


def test_of_queries_loaded_with_the_same_id_the_last_counts(tasks: Tasks) -> None:
    tasks.load(
        register(1, 0.0, 0.0, 1.0, 1.0),
        register(1, 6.0, 6.0, 7.0, 7.0),
        register(2, 3.0, 1.0, 1.0, 3.0),
        register(3, 0.0, 0.0, 8.0, 8.0),
    )
    assert tasks.match((1, 0.5, 0.5), (2, 6.5, 6.5)) == {1: [3], 2: [1, 3]}
    counts = sum((o.counts for o in tasks.outputs if o.stage == TaskStage.SETTLE), Counts())
    assert (counts.operations, counts.replaced) == (3, 1)
    (checked,) = [o for o in tasks.outputs if o.stage == TaskStage.CHECK]
    assert checked.rejected == {("query", "inverted rectangle"): 1}


@pytest.mark.parametrize("direct", [True, False])
def test_a_point_from_the_future_goes_to_the_quarantine_and_does_not_move_the_clock(
    tasks: Tasks, direct: bool
) -> None:
    tasks.input = replace(tasks.input, epoch=replace(tasks.input.epoch, latest_time=1_000))
    tasks.apply(register(1, 0, 0, 8, 8))
    points = (1, 0.5, 0.5, 1_000), (2, 6.5, 6.5, 1_001), (3, 6.5, 6.5, 2**62)
    match = tasks.match_directly if direct else tasks.match
    assert match(*points) == {1: [1]}
    assert sum((Counter(o.rejected) for o in tasks.outputs), Counter()) == {
        ("point", "time in the future"): 2
    }
    assert max(o.max_event_time for o in tasks.outputs) == 1_000


@pytest.mark.parametrize("direct", [True, False])
def test_event_times_before_1970_move_the_clock(tasks: Tasks, direct: bool) -> None:
    match = tasks.match_directly if direct else tasks.match
    match((1, 0.5, 0.5, -3_000), (2, 6.5, 6.5, -2_000))
    assert max(o.max_event_time for o in tasks.outputs) == -2_000


@pytest.mark.parametrize("direct", [True, False])
def test_a_null_time_leaves_the_others_exact(tasks: Tasks, direct: bool) -> None:
    when = 2**53 + 1  # which no float is
    tasks.apply(register(1, 0, 0, 8, 8, expires=when), register(2, 0, 0, 8, 8, expires=when + 1))
    match = tasks.match_directly if direct else tasks.match
    assert match((1, 0.5, 0.5, when), (2, 0.5, 0.5, None)) == {1: [2]}
    assert max(o.max_event_time for o in tasks.outputs) == when


@pytest.mark.parametrize("way", ["apply", 1, 2, 3, 100])
@pytest.mark.parametrize(
    ("orders", "last"),
    [
        ((None, None, None), 2),
        ((None, None, -5), 2),
        ((-5, None, None), 0),
        ((None, -5, None), 1),
        ((0, None, 0), 2),
        ((1, 0, None), 0),
    ],
)
def test_operations_without_an_order_come_first_wherever_batches_end(
    tasks: Tasks, way, orders, last
) -> None:
    rows = [register(1, 2 * i, 0, 2 * i + 1, 1, order=order) for i, order in enumerate(orders)]
    if way == "apply":
        tasks.apply(*rows)
    else:
        tasks.load(*rows, batch_rows=way)
    assert tasks.match(*((i, 2 * i + 0.5, 0.5) for i in range(3))) == {last: [1]}


def test_a_worker_forgets_runs_that_others_have_followed(tmp_path: Path) -> None:
    first = Tasks(tmp_path / "first")
    opened = weakref.ref(open_context(packed_input(first.input)))
    for i in range(KEPT_RUNS):
        assert opened() is not None
        open_context(packed_input(Tasks(tmp_path / str(i)).input))
    gc.collect()
    assert opened() is None
    assert open_context(packed_input(first.input)).input == first.input


def test_operations_may_be_repeated_but_must_make_sense(tasks: Tasks) -> None:
    tasks.apply(
        register(1, 0.0, 0.0, 1.0, 1.0),
        register(1, 2.0, 2.0, 3.0, 3.0),
        register(2, 3.0, 3.0, 1.0, 1.0),
        {"op": "unregister", "id": 9},
        {"op": "rename", "id": 1},
        {**register(4, 5.0, 5.0, 6.0, 6.0), "op": "update"},
    )
    (output,) = tasks.outputs
    assert output.rejected == {
        ("query", "inverted rectangle"): 1,
        ("query", "unknown operation"): 1,
    }
    counts = output.counts
    assert (counts.operations, counts.replaced, counts.ignored) == (3, 1, 1)
    assert tasks.match((1, 0.5, 0.5), (2, 2.5, 2.5), (3, 5.5, 5.5)) == {2: [1], 3: [4]}


def test_prices_count_the_queries_of_each_cell(tasks: Tasks) -> None:
    rng = random.Random(7)
    boxes = {number: random_box(rng) for number in range(30)}
    tasks.load(*(register(number, *b) for number, b in boxes.items()))
    changed_in_batches(tasks, boxes, rng)
    for _ in range(2):
        raster = BatchContext(tasks.input).price_raster
        wanted = np.zeros((8, 8), int)
        for x1, y1, x2, y2 in boxes.values():
            wanted[int(y1) : min(7, int(y2)) + 1, int(x1) : min(7, int(x2)) + 1] += 1
        assert raster.factor == 1
        assert raster.counts.tolist() == wanted.tolist()
        tasks.compact()


def test_an_application_decides_about_pairs(tmp_path: Path) -> None:
    def even(point: dict, query: dict) -> bool:
        return point["id"] % 2 == 0

    tasks = Tasks(tmp_path, application=PairFunction(even))
    tasks.apply(register(1, 0.0, 0.0, 8.0, 8.0))
    assert tasks.match((1, 1.0, 1.0), (2, 1.0, 1.0), (4, 6.0, 6.0)) == {2: [1], 4: [1]}


def test_operations_that_the_driver_did_not_find_are_not_lost(tasks: Tasks) -> None:
    points = points_table((1, 1.0, 1.0), (2, 2.0, 2.0))
    rows = points.append_column(OPERATIONS, pa.array([None, "register,1"]))
    with pytest.raises(StoreError, match="operations that the driver did not find"):
        tasks.route(rows)
    tasks.input = replace(tasks.input, operations=1)
    tasks.route(rows)
    assert tasks.outputs[-1].counts.points == 1


# -- state -------------------------------------------------------------------------------------


def test_state_is_collected_at_home_and_told_when_its_window_closes(tmp_path: Path) -> None:
    tasks = Tasks(tmp_path, application=Aggregates())
    details = b'{"aggregate": "count", "window": "1 s"}'
    tasks.apply(register(1, 0.0, 0.0, 8.0, 8.0, details=details))
    points = points_table(*((i, i + 0.5, i + 0.5, 100 * i) for i in range(8)))
    executed: list[pa.RecordBatch] = []
    for rows in shuffled(tasks.route(points), RowKind.POINTS).values():
        executed += tasks.run(execute_task, rows)
    partial = shuffled(packed_columns(executed), RowKind.PARTIAL_STATE)
    assert [tasks.run(state_task, rows) for rows in partial.values()] == [[], []], "nothing is due"
    tasks.commit(700, watermark=2_000_000)
    assert len(tasks.input.epoch.manifest.states) == 1, "one home"
    told = [
        row
        for executor in range(2)
        for batch in tasks.run(state_task, [packed([(RowKind.PARTIAL_STATE, executor, None)])])
        for row in batch.to_pylist()
    ]
    assert [row["count"] for row in told] == [8]


def counted(tasks: Tasks, *points: tuple) -> None:
    """Run a batch with points and advance the state."""
    executed: list[pa.RecordBatch] = []
    for rows in shuffled(tasks.route(points_table(*points)), RowKind.POINTS).values():
        executed += tasks.run(execute_task, rows)
    for rows in shuffled(packed_columns(executed), RowKind.PARTIAL_STATE).values():
        tasks.run(state_task, rows)


def told_at(tasks: Tasks, watermark: int) -> dict[int, int]:
    """Return the counts of the queries whose window has closed."""
    tasks.input = replace(tasks.input, epoch=replace(tasks.input.epoch, watermark=watermark))
    return {
        row["query_id"]: row["count"]
        for executor in range(tasks.executors)
        for batch in tasks.run(state_task, [packed([(RowKind.PARTIAL_STATE, executor, None)])])
        for row in batch.to_pylist()
    }


@pytest.mark.parametrize("compacted", [False, True])
def test_state_of_a_query_that_changed_is_dropped(tmp_path: Path, compacted: bool) -> None:
    tasks = Tasks(tmp_path, application=Aggregates())
    details = b'{"aggregate": "count", "window": "1 s"}'
    everywhere = {"details": details}
    tasks.load(*(register(n, 0.0, 0.0, 8.0, 8.0, **everywhere) for n in (1, 2, 3, 4)))
    tasks.commit()
    counted(tasks, *((i, 1.0, 1.0, 100 * i) for i in range(5)))
    tasks.commit(700)
    tasks.apply(
        {**register(2, 0.0, 0.0, 8.0, 8.0, **everywhere), "op": "update"},
        {"op": "unregister", "id": 3},
    )
    if compacted:
        tasks.compact()
    counted(tasks, (7, 1.0, 1.0, 100), (8, 7.0, 7.0, 200))
    tasks.commit(700)
    tasks.apply({"op": "unregister", "id": 4})
    if compacted:
        tasks.compact()
    tasks.commit(700)
    assert told_at(tasks, 2_000_000) == {1: 7, 2: 2}


def packed_columns(executed: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the packed rows among those of the execute tasks."""
    table = pa.Table.from_batches(executed)
    names = [name for name in table.column_names if name.startswith(PACKED_PREFIX)]
    rows = table.select(names).rename_columns([n.removeprefix(PACKED_PREFIX) for n in names])
    return rows.filter(rows.column("kind").is_valid()).to_batches()


# -- blocks and answers ------------------------------------------------------------------------


def test_snapshot_queries_see_the_batches_before(tmp_path: Path) -> None:
    tasks = Tasks(tmp_path, window=Sliding("1 s"))
    points = [(i, i + 0.5, i + 0.5, 1000 * i) for i in range(8)]
    tasks.match(*points)
    tasks.commit(7000)
    routed = tasks.apply(
        {"op": "range", "id": 1, "min_x": 0.0, "min_y": 0.0, "max_x": 5.0, "max_y": 5.0},
        {"op": "count", "id": 2, "min_x": 0.0, "min_y": 0.0, "max_x": 8.0, "max_y": 8.0},
        {**register(3, 0.0, 0.0, 8.0, 8.0), "op": "count", "since": 2000, "until": 3000},
    )
    tasks.input = replace(tasks.input, window_start=-1_000_000)
    rows = []
    for some in shuffled(routed, RowKind.SNAPSHOT).values():
        rows += pa.Table.from_batches(tasks.run(answer_task, some)).to_pylist()
    assert sorted(row["id"] for row in rows if row["query_id"] == 1) == [0, 1, 2, 3, 4]
    assert {row["query_id"]: row["count"] for row in rows if row["count"] is not None} == {
        2: 8,
        3: 2,
    }
    assert sum(o.counts.snapshot_queries for o in tasks.outputs) == 3


def test_agents_report_the_load_of_their_partitions(tmp_path: Path) -> None:
    tasks = Tasks(tmp_path, policy="swarm")
    tasks.apply(register(1, 0.0, 0.0, 8.0, 8.0))
    controller = make_policy("swarm").controller(tasks.plan, tasks.input.config)
    assert controller is not None
    tasks.input = replace(tasks.input, collect_statistics=True)
    tasks.match(*((i, 1.0, 1.0) for i in range(10)))
    tasks.run_agents(controller)
    reports = {o.task: o.agent for o in tasks.outputs if o.agent}
    assert list(reports) == [0, 1]
    assert all(report.statistics is not None for report in reports.values())
    messages = [message for report in reports.values() for message in report.messages]
    received = [m.received for m in messages if isinstance(m, CostReport)]
    assert max(received) - min(received) == 10.0


# -- matched where they are read, and lent ----------------------------------------------------


def random_points(n: int, seed: int) -> list[tuple[int, float, float]]:
    chance = random.Random(seed)
    return [(i, chance.uniform(0, 8), chance.uniform(0, 8)) for i in range(n)]


def random_queries(n: int, seed: int) -> list[dict[str, object]]:
    chance = random.Random(seed)
    boxes = []
    for i in range(n):
        x, y, side = chance.uniform(0, 7), chance.uniform(0, 7), chance.uniform(0.1, 1.5)
        boxes.append(register(i, x, y, min(8.0, x + side), min(8.0, y + side)))
    return boxes


def test_points_are_matched_alike_where_they_are_read_and_at_their_executors(tasks: Tasks) -> None:
    tasks.apply(*random_queries(80, 1))
    points = [*random_points(200, 2), (900, NAN, 1.0), (901, 9.0, 9.0)]
    here = tasks.match_directly(*points)
    (direct,) = [o for o in tasks.outputs if o.stage == TaskStage.MATCH]
    assert here == tasks.match(*points)
    assert (direct.task, direct.points, direct.counts.points) == (7, 200, 200)
    assert direct.counts.matches == sum(map(len, here.values()))
    assert sum(direct.rejected.values()) == 2
    assert sum(direct.points_by_partition.values()) == 200


def test_statistics_of_points_matched_elsewhere_reach_the_owner(tmp_path: Path) -> None:
    tasks = Tasks(tmp_path, policy="swarm")
    tasks.apply(*random_queries(30, 3))
    controller = make_policy("swarm").controller(tasks.plan, tasks.input.config)
    assert controller is not None
    tasks.input = replace(tasks.input, collect_statistics=True)
    tasks.match_directly(*random_points(300, 4))
    collected = [o.collected for o in tasks.outputs if o.collected]
    assert collected
    tasks.run_agents(controller)
    messages = [m for o in tasks.outputs if o.agent for m in o.agent.messages]
    costs = [message for message in messages if isinstance(message, CostReport)]
    assert sum(report.received for report in costs) >= 300


def test_what_is_lent_is_matched_once_and_told(tmp_path: Path) -> None:
    tasks = Tasks(tmp_path, executors=4)
    tasks.apply(*random_queries(80, 5))
    chance = random.Random(6)
    # All in one corner, so that one executor owns them all.
    points = [(i, chance.uniform(0, 2), chance.uniform(0, 2)) for i in range(2000)]
    wanted = tasks.match(*points)
    owners = {o.task for o in tasks.outputs if o.stage == TaskStage.EXECUTE and o.points}
    assert len(owners) == 1
    tasks.outputs.clear()
    prices = LendingPrices(per_point=1.0, per_query=0.1)
    tasks.input = replace(tasks.input, lending=prices)
    assert tasks.match(*points) == wanted
    (route,) = [o for o in tasks.outputs if o.stage == TaskStage.ROUTE]
    loads = {o.task: o.points for o in tasks.outputs if o.stage == TaskStage.EXECUTE}
    assert sum(loads.values()) == 2000
    assert min(loads.values()) > 300
    assert {loan.lender for loan in route.loans} == owners
    assert route.counts.lent == sum(loan.points for loan in route.loans)
    assert route.counts.lent == 2000 - loads[owners.pop()]
    assert route.candidates.amount.sum() > 0
    again = tasks.route(points_table(*points))
    assert list(again) == list(tasks.route(points_table(*points))), "a retry lends the same"


CORNER = [(i, 0.1 + i % 7 / 4, 0.1 + i % 5 / 3, 100 * i) for i in range(8)]
"""Points in one corner, so that one executor of four owns them all."""


def lend_corner(tasks: Tasks) -> None:
    """Let points be lent."""
    prices = LendingPrices(per_point=1.0, per_query=0.1)
    tasks.input = replace(tasks.input, lending=prices)


def assert_lent(tasks: Tasks) -> None:
    """Check that several executors matched points of one."""
    assert sum(o.counts.lent for o in tasks.outputs) >= 4
    assert sum(o.points > 0 for o in tasks.outputs if o.stage == TaskStage.EXECUTE) == 4


def test_state_that_lent_points_add_to_is_kept_at_its_home(tmp_path: Path) -> None:
    tasks = Tasks(tmp_path, executors=4, application=Aggregates())
    details = b'{"aggregate": "count", "window": "1 s"}'
    tasks.apply(
        register(1, 0.0, 0.0, 8.0, 8.0, details=details),
        register(2, 0.0, 0.0, 1.0, 1.0, details=details),
    )
    lend_corner(tasks)
    counted(tasks, *CORNER)
    assert_lent(tasks)
    tasks.commit(700)
    assert told_at(tasks, 2_000_000) == {1: 8, 2: sum(x < 1 > y for _, x, y, _ in CORNER)}


def test_lent_points_are_in_the_window_of_their_place(tmp_path: Path) -> None:
    tasks = Tasks(tmp_path, executors=4, window=Sliding("1 s"))
    lend_corner(tasks)
    tasks.match(*CORNER)
    assert_lent(tasks)
    tasks.commit(700)
    box = {"min_x": 0.0, "min_y": 0.0, "max_x": 1.0, "max_y": 1.0}
    routed = tasks.apply({"op": "range", "id": 1, **box}, {"op": "count", "id": 2, **box})
    tasks.input = replace(tasks.input, window_start=-1_000_000)
    rows = []
    for some in shuffled(routed, RowKind.SNAPSHOT).values():
        rows += pa.Table.from_batches(tasks.run(answer_task, some)).to_pylist()
    inside = [i for i, x, y, _ in CORNER if x < 1 > y]
    assert inside
    assert sorted(row["id"] for row in rows if row["query_id"] == 1) == inside
    assert [row["count"] for row in rows if row["query_id"] == 2] == [len(inside)]


def test_between_hosts_points_are_lent_where_fetching_the_queries_costs_less(tmp_path):
    """Executors 0 and 1 are on one host, 2 and 3 on another; all points are 0's."""
    tasks = Tasks(tmp_path, executors=4)
    tasks.input = replace(tasks.input, hosts=(0, 0, 1, 1))
    tasks.load(*random_queries(80, 5))
    corner = next(p.cells for p in tasks.plan.partitions if p.owners == (0,))
    chance = random.Random(6)
    points = points_table(
        *(
            (
                i,
                chance.uniform(corner.col_start, corner.col_stop),
                chance.uniform(corner.row_start, corner.row_stop),
            )
            for i in range(2000)
        )
    )

    def borrowers(per_byte: float, **more) -> set[int]:
        tasks.outputs.clear()
        prices = LendingPrices(per_point=1.0, per_query=0.1, per_byte=per_byte, **more)
        tasks.input = replace(tasks.input, lending=prices)
        list(tasks.route(points))
        (route,) = [o for o in tasks.outputs if o.stage == TaskStage.ROUTE]
        return {loan.borrower for loan in route.loans}

    assert borrowers(0.0) == {1, 2, 3}
    assert borrowers(10.0) == {1}
    # Once for all points of the batch, of which there are so many more.
    assert borrowers(10.0, batch_points=2_000_000) == {1, 2, 3}
    partition = next(p.id for p in tasks.plan.partitions if p.owners == (0,))
    tasks.input = replace(tasks.input, borrowed=((partition, 2),))
    assert borrowers(10.0) == {1, 2, 3}, "what it fetched for its last loan is there"


def test_a_borrower_that_dies_half_way_is_replaced_by_one_that_gives_the_same(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(match_module, "LOT_MATCHES", 100)
    tasks = Tasks(tmp_path, executors=4)
    tasks.apply(*random_queries(80, 5))
    chance = random.Random(6)
    points = [(i, chance.uniform(0, 2), chance.uniform(0, 2)) for i in range(2000)]
    tasks.input = replace(
        tasks.input,
        lending=LendingPrices(per_point=1.0, per_query=0.1),
        collect_statistics=True,
    )
    packages = shuffled(tasks.route(points_table(*points)), RowKind.POINTS)
    (route,) = [o for o in tasks.outputs if o.stage == TaskStage.ROUTE]
    borrower = route.loans[0].borrower

    dying = execute_task(
        BatchContext(tasks.input).for_task(borrower, 0, pytest.fail), packages[borrower]
    )
    lost = next(dying)
    dying.close()

    again = BatchContext(tasks.input).for_task(borrower, 1, tasks.outputs.append)
    found = pa.Table.from_batches(execute_task(again, packages[borrower]))
    assert found.num_rows > lost.num_rows
    assert found.slice(0, lost.num_rows).equals(pa.Table.from_batches([lost]))
    (output,) = [o for o in tasks.outputs if o.stage == TaskStage.EXECUTE]
    lent_to_it = sum(loan.points for loan in route.loans if loan.borrower == borrower)
    assert output.points >= lent_to_it > 0
    assert output.collected, "what it matched for others reaches their statistics"


def test_many_matches_come_in_lots_of_bounded_size(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(match_module, "LOT_MATCHES", 500)
    tasks = Tasks(tmp_path)
    tasks.apply(*(register(i, 0.0, 0.0, 8.0, 8.0) for i in range(300)))
    points = points_table(*random_points(20, 7))
    rows = with_partition(points)
    batches = tasks.run(match_task, rows)
    assert len(batches) == 20
    assert all(len(batch.column(1).flatten()) <= 500 for batch in batches)
    assert sum(batch.num_rows for batch in batches) == 20


def test_reserving_ids_leaves_a_worker_its_index(tmp_path: Path) -> None:
    tasks = Tasks(tmp_path)
    before = BatchContext(tasks.input)
    _, plan = tasks.plan.reserve(100)
    tasks.use_plan(plan)
    after = BatchContext(tasks.input, before)
    assert after.plan.next_id == before.plan.next_id + 100
    assert after.index is before.index


def test_a_commit_waits_for_the_files_that_it_names(tmp_path: Path) -> None:
    """A file that cannot be made durable ends the batch, and only that one."""
    files, driver = Files(str(tmp_path)), DriverContext()
    ref = files.write("deltas/a", b"content", durable=False)
    driver.make_durable(files, ref.name)
    driver.wait_until_durable()
    driver.make_durable(files, "deltas/gone")
    with pytest.raises(FileNotFoundError):
        driver.wait_until_durable()
    driver.wait_until_durable()
