"""The nearest of standing points, task by task: across partitions, operations and bulk loads."""

import math
import random
from dataclasses import replace

import pyarrow as pa
import pytest

from sparkswarm import Events, Nearest
from sparkswarm.apps.events.objects import BoundEvents
from sparkswarm.policies import make_policy
from sparkswarm.spark.tasks import events
from sparkswarm.spark.tasks.direct import match_task
from sparkswarm.spark.tasks.events import event_tasks, events_task, nearest_answers
from sparkswarm.spark.tasks.packing import PACKED_SCHEMA, RowKind

from ...support.tasks import Tasks, operations_table, points_table, shuffled, with_partition

MINUTE = 60_000_000


def standing(number, x, y, radius=None, k=None):
    return {
        "op": "register",
        "id": number,
        "geometry": f"POINT ({x} {y})",
        "radius": radius,
        "k": k,
    }


class World:
    """Objects and standing points, in the tasks and in plain Python."""

    def __init__(self, folder, executors=2, in_files=False):
        self.tasks = Tasks(folder, executors)
        bound = BoundEvents(
            Events(silent_after="1 hour", nearest=Nearest(2, within=1.5)), pa.int64()
        )
        schema = replace(self.tasks.input.output_schema, results=None, fixes=not in_files)
        self.tasks.input = replace(
            self.tasks.input, events=bound, output_schema=schema, fix_files=in_files
        )
        self.places, self.batch = {}, 0

    def apply(self, *rows):
        self.tasks._apply(self.table(*rows))

    @staticmethod
    def table(*rows):
        table = operations_table(*rows)
        kinds = {"geometry": pa.string(), "radius": pa.float64(), "radius_m": pa.float64()}
        for name, kind in {**kinds, "k": pa.int64()}.items():
            table = table.append_column(name, pa.array([row.get(name) for row in rows], kind))
        return table

    def move(self, places):
        """Run a batch in which objects are at new places; return the answers that it tells."""
        self.batch += 1
        self.places |= places
        points = points_table(*((i, x, y, self.batch * MINUTE) for i, (x, y) in places.items()))
        packed = self.tasks.run(match_task, with_partition(points))
        rows = [b.rename_columns([n.removeprefix("__") for n in b.schema.names]) for b in packed]
        fixes = {}
        if self.tasks.input.fix_files:
            assert not packed
            refs = tuple(ref for output in self.tasks.outputs for ref in output.written.fixes)
            self.tasks.input = replace(self.tasks.input, fixes=refs)
        else:
            fixes = shuffled([b.select(PACKED_SCHEMA.names) for b in rows], RowKind.FIXES)
        for task in range(event_tasks(self.tasks.plan.executors)):
            number = {"kind": [int(RowKind.FIXES)], "target": [task], "rows": [None]}
            given = [pa.record_batch(pa.table(number, PACKED_SCHEMA).to_batches()[0].columns,
                                     schema=PACKED_SCHEMA)]  # fmt: skip
            self.tasks.run(events_task, [*given, *fixes.get(task, [])], task)
        told = nearest_answers(self.tasks.input, self.tasks.outputs).to_pylist()
        again = nearest_answers(self.tasks.input, self.tasks.outputs).to_pylist()
        assert told == again
        self.tasks.commit(self.batch * MINUTE)
        return {row["query_id"]: [one["object"] for one in row["objects"]] for row in told}

    def nearest(self, x, y, radius, k):
        """Return the objects nearest to a place by brute force."""
        far = {i: math.dist((x, y), place) for i, place in self.places.items()}
        return sorted((i for i in far if far[i] <= radius), key=lambda i: far[i])[:k]


POINTS = {1: (4.0, 4.0, 1.5, 2), 2: (2.0, 2.0, 3.0, 4), 3: (4.1, 1.0, 0.5, 1)}
"""By query: the place, the radius and k. The middle of the space is a border of partitions."""
ASKING = (standing(1, 4.0, 4.0), standing(2, 2.0, 2.0, 3.0, 4), standing(3, 4.1, 1.0, 0.5, 1))


@pytest.mark.parametrize(("executors", "in_files"), [(1, False), (3, False), (3, True)])
def test_answers_are_right_across_borders_while_the_plan_changes(
    tmp_path, monkeypatch, executors, in_files
):
    monkeypatch.setattr(events, "WAITING_BYTES", 100)
    world, rng = World(tmp_path, executors, in_files), random.Random(4)
    world.apply(*ASKING, standing(4, 4.0, 4.0, 2.0))
    known: dict[int, list[int]] = {query: [] for query in POINTS}
    told = 0
    for batch in range(12):
        if batch == 5:
            config = world.tasks.input.config
            plan = make_policy("hash_cell").first_plan(config.make_grid(), executors + 1)
            world.tasks.use_plan(replace(plan, version=world.tasks.plan.version + 1))
        places = {
            i: (rng.uniform(0, 8), rng.uniform(0, 8)) for i in range(25) if rng.random() < 0.5
        }
        answers = world.move(places)
        now = {query: world.nearest(*about) for query, about in POINTS.items()}
        assert answers == {query: now[query] for query in now if now[query] != known[query]}
        known, told = now, told + len(answers)
    assert told > 12


def test_an_answer_ends_with_its_query_and_begins_with_the_next_points(tmp_path):
    world = World(tmp_path)
    world.apply(*ASKING)
    assert world.move({7: (4.0, 4.2), 8: (3.9, 3.9)}) == {1: [8, 7], 2: [8, 7]}
    world.apply({"op": "unregister", "id": 1}, standing(2, 2.0, 2.0, 3.0, 1))
    assert world.move({9: (2.0, 2.0)}) == {1: [], 2: [9]}
    assert world.move({7: (4.0, 4.4), 8: (3.9, 3.9)}) == {}
    assert world.move({9: (8.0, 8.0)}) == {2: [8]}


def test_standing_points_survive_that_queries_are_compacted(tmp_path):
    world = World(tmp_path)
    world.apply(*ASKING)
    assert world.move({7: (4.0, 4.2), 8: (3.9, 3.9)}) == {1: [8, 7], 2: [8, 7]}
    world.tasks.compact()
    assert world.move({7: (4.0, 4.01)}) == {1: [7, 8]}


def test_a_standing_point_that_makes_no_sense_is_rejected_with_the_reason(tmp_path):
    world = World(tmp_path)
    square = "POLYGON ((0 0, 1 0, 1 1, 0 0))"
    world.apply(
        standing(1, 1.0, 1.0, 1.0, 0),
        {"op": "register", "id": 2, "geometry": square, "k": 2},
        {"op": "register", "id": 3, "min_x": 0.0, "min_y": 0.0, "max_x": 1.0, "max_y": 1.0, "k": 2},
        {"op": "unregister", "id": 3, "k": 2},
    )
    reasons = {reason for output in world.tasks.outputs for _, reason in output.rejected}
    assert reasons == {
        "k must be at least 1",
        "only a POINT can have k",
        "k needs a geometry, the POINT whose nearest objects are wanted",
    }
