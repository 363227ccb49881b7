"""What the docs promise of windows and of the clock, task by task."""

import math

import pyarrow as pa
import pytest

from sparkswarm import Aggregates
from sparkswarm.spark.driver.outputs import matching_outputs
from sparkswarm.spark.task_output import PACKED_PREFIX
from sparkswarm.spark.tasks.direct import match_task
from sparkswarm.spark.tasks.execute import execute_task
from sparkswarm.spark.tasks.packing import RowKind
from sparkswarm.spark.tasks.state import state_task
from sparkswarm.store.blocks import MIN_TIME

from ...support.tasks import Tasks, points_table, shuffled, with_partition

SECOND = 1_000_000
BOX = {"min_x": 0.0, "min_y": 0.0, "max_x": 3.0, "max_y": 3.0}
COUNTS = {**BOX, "aggregate": "count", "window": "10 s", "slide": None}


class Windows:
    """Batches of a run with aggregates; the watermark follows the points of earlier batches.

    Points are matched by their executors or, ``direct``, by tasks that read one each.
    """

    def __init__(self, folder, direct, columns=()):
        self.direct = direct
        self.tasks = Tasks(folder, application=Aggregates(list(columns)))
        self.batch(MIN_TIME)

    def batch(self, latest):
        """Begin the first batch."""
        self._start(latest)

    def _start(self, latest, **epoch):
        self.tasks.commit(latest, watermark=latest, **epoch)
        self.latest = latest

    def run(self, *points, operations=(), clock=0):
        """Run a batch; return its summaries."""
        tasks = self.tasks
        if operations:
            tasks.apply_table(pa.Table.from_pylist(list(operations)))
        executed = []
        if self.direct:
            for number in range(max(1, len(points))):
                rows = with_partition(points_table(*points[number : number + 1]), number)
                executed += tasks.run(match_task, rows)
        else:
            for rows in shuffled(tasks.route(points_table(*points)), RowKind.POINTS).values():
                executed += tasks.run(execute_task, rows)
        table = pa.Table.from_batches(executed)
        packed = table.select([n for n in table.column_names if n.startswith(PACKED_PREFIX)])
        packed = packed.rename_columns([n.removeprefix(PACKED_PREFIX) for n in packed.column_names])
        found = []
        for rows in shuffled(packed.to_batches(), RowKind.PARTIAL_STATE).values():
            found += [row for batch in tasks.run(state_task, rows) for row in batch.to_pylist()]
        matched = matching_outputs(tasks.outputs)
        latest = max([self.latest, *(o.max_event_time for o in matched)])
        self._start(latest, previous_watermark=self.latest, clock=clock)
        return [(row["query_id"], row["count"]) for row in found]


def register(number, **more):
    return {"op": "register", "id": number, **COUNTS, **more}


@pytest.fixture(params=[False, True], ids=["executors", "direct"])
def windows(tmp_path, request):
    return Windows(tmp_path, request.param)


def test_a_window_is_told_in_the_batch_in_which_it_is_due(windows):
    windows.run((1, 1.0, 1.0, 5 * SECOND), operations=[register(1)])
    assert windows.run((2, 1.0, 1.0, 25 * SECOND)) == []
    assert windows.run() == [(1, 1)]


def test_points_of_several_tasks_are_one_window(windows):
    at = [(i, 1.0 + i / 10, 1.0, i * SECOND) for i in range(5)]
    windows.run(*at, operations=[register(1), register(2, min_x=1.35)])
    windows.run((9, 7.0, 7.0, 25 * SECOND))
    assert sorted(windows.run()) == [(1, 5), (2, 1)]


def test_a_point_in_no_query_closes_the_windows_of_a_stream_that_was_idle(windows):
    windows.run((1, 1.0, 1.0, 5 * SECOND), operations=[register(1)])
    windows.run((2, 7.0, 7.0, 25 * SECOND))
    assert windows.run((3, 7.0, 7.0, 26 * SECOND)) == [(1, 1)]


def test_a_due_window_is_not_told_in_the_batch_that_removes_its_query(windows):
    windows.run((1, 1.0, 1.0, 5 * SECOND), operations=[register(1), register(2)])
    windows.run((2, 1.0, 1.0, 25 * SECOND))
    gone = {**register(1), "op": "unregister"}
    assert windows.run(operations=[gone]) == [(2, 1)]


def test_a_query_that_is_registered_again_begins_without_its_open_windows(windows):
    windows.run((1, 1.0, 1.0, 5 * SECOND), operations=[register(1)])
    windows.run((2, 1.0, 1.0, 8 * SECOND), operations=[register(1)])
    windows.run((3, 1.0, 1.0, 25 * SECOND))
    assert windows.run() == [(1, 1)]


def test_quarantined_points_do_not_move_the_clock(windows):
    windows.run(
        (1, 1.0, 1.0, 5 * SECOND),
        (2, 99.0, 1.0, 500 * SECOND),
        (3, math.nan, 1.0, 500 * SECOND),
        operations=[register(1)],
    )
    assert windows.latest == 5 * SECOND
