"""Every kind of query on Spark, alone and all at once, while partitions change and runs break."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm import (
    Aggregates,
    Bytes,
    ConfigError,
    Count,
    InputError,
    MemorySink,
    PointColumns,
    QueryColumns,
    Sliding,
    Subscriptions,
    Swarm,
    Tumbling,
)
from sparkswarm.protocol.global_index import GlobalIndex
from sparkswarm.spark.driver import questions
from sparkswarm.store.epochs import Epoch

from .kinds import DELAY, SECOND, Scene, answer, answered, expected, told
from .world import BOUNDS, Restless, config, difference, matches_of

WINDOWS = [
    Sliding("12 seconds"),
    Count(200),
    *(
        pytest.param(window, marks=pytest.mark.long)
        for window in (Tumbling("10 s"), Bytes(9_000), Sliding("1 day"))
    ),
]
"""By time and by number; tests/window has all of them without Spark."""
SUBSCRIPTIONS = Subscriptions({"speed": "number", "kind": "text", "load": "number"})


class Run:
    """A scene run on Spark; its sinks gather what comes of it."""

    def __init__(self, spark, folder, scene, window=None, aggregates=True, **settings):
        self.spark, self.folder, self.scene = spark, folder, scene
        self.window, self.settings = window, settings
        self.application = SUBSCRIPTIONS
        if aggregates:
            delay = f"{DELAY // SECOND} seconds"
            self.application = Aggregates(["speed", "load"], delay, of=SUBSCRIPTIONS)
        self.matches, self.summaries, self.answers = MemorySink(), MemorySink(), MemorySink()
        self.restless = Restless(self.matches, 7)

    def start(self, sink=None):
        points, queries = self.scene.streams(self.spark, self.folder)
        settings = config(**{"executors": 3, **self.settings})
        swarm = Swarm(self.spark, settings, self.application, self.window)
        handle = swarm.start(
            points, queries, sink=sink or self.restless,
            summaries=self.summaries if isinstance(self.application, Aggregates) else None,
            answers=self.answers if self.window else None,
            checkpoint=str(self.folder / "checkpoint"),
            point_columns=PointColumns(time="ts", include=("load",)),
            query_columns=QueryColumns(since="since", until="until"),
            trigger={"availableNow": True},
        )  # fmt: skip
        self.restless.watch(handle)
        return handle

    def through(self, sink=None):
        handle = self.start(sink)
        handle.await_termination()
        return handle

    def check(self, handle, late_of_this_start=True):
        wanted = expected(self.scene, self.window)
        assert not difference(matches_of(self.matches.table()), wanted.matches)
        if isinstance(self.application, Aggregates):
            assert not difference(told(self.summaries.table()), wanted.summaries)
            if late_of_this_start:
                assert handle.status().late == wanted.late
        if self.window:
            assert not difference(answered(self.answers.table()), wanted.answers)
        assert not handle.status().quarantined
        return wanted


@pytest.mark.parametrize("shared_host", [True, False])
def test_continuous_aggregates_while_partitions_move_split_merge_and_are_shared(
    spark, tmp_path, shared_host
):
    scene = Scene(1, ("aggregates",), batches=7)
    scene.write(tmp_path)
    run = Run(spark, tmp_path, scene, shared_host=shared_host)
    wanted = run.check(run.through())
    assert len(wanted.summaries) > 50
    assert wanted.late > 5


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_snapshot_queries_see_all_that_is_kept_wherever_it_was_kept(spark, tmp_path, window):
    scene = Scene(2, ("snapshots",))
    scene.write(tmp_path)
    run = Run(spark, tmp_path, scene, window, aggregates=False)
    handle = run.through()
    wanted = run.check(handle)
    assert len(wanted.answers) > 50
    past = [point for _, points in scene.batches for point in points]
    box = dict(zip(("min_x", "min_y", "max_x", "max_y"), BOUNDS, strict=True))
    asked = {**box, "where": "speed > 50"}
    points = handle.ask(**box, columns={"where": "speed > 50"})
    assert sorted(points["id"].to_pylist()) == sorted(p["id"] for p in answer(asked, past, window))
    assert points.column_names == ["count", "id", "x", "y", "ts", "load"]
    assert {p["id"]: p["load"] for p in past}.items() >= dict(
        zip(points["id"].to_pylist(), points["load"].to_pylist(), strict=True)
    ).items()
    assert handle.ask(**box, count=True)["count"].to_pylist() == [len(answer(box, past, window))]
    since = max(p["ts"] for p in past) - 2 * SECOND
    later = handle.ask(**box, count=True, since=datetime.fromtimestamp(since / SECOND, UTC))
    assert later["count"].to_pylist() == [len(answer({**box, "since": since}, past, window))]


@pytest.mark.parametrize(
    "policy", ["swarm", "replicated", pytest.param("hash_cell", marks=pytest.mark.long)]
)
def test_all_kinds_at_once_and_a_batch_that_fails_on_the_way(spark, tmp_path, policy):
    scene = Scene(3, ("continuous", "aggregates", "snapshots"))
    scene.write(tmp_path)
    run = Run(spark, tmp_path, scene, Sliding("12 s"), policy=policy)

    def failing(results, batch_id):
        if batch_id == 3:
            results.count()
            raise LookupError("no room left")
        run.restless(results, batch_id)

    with pytest.raises(StreamingQueryException, match="no room left"):
        run.through(failing)
    handle = run.through()
    wanted = run.check(handle, late_of_this_start=False)
    assert wanted.matches
    assert wanted.summaries
    assert wanted.answers


def test_a_run_goes_on_where_it_stopped(spark, tmp_path):
    scene = Scene(4, ("continuous", "aggregates", "snapshots"))
    scene.write(tmp_path, 0, 3)
    run = Run(spark, tmp_path, scene, Count(120))
    run.through()
    scene.write(tmp_path, 3)
    handle = run.through()
    run.check(handle, late_of_this_start=False)


def test_a_sink_that_reads_nothing_loses_nothing(spark, tmp_path):
    scene = Scene(5, ("aggregates", "snapshots"), batches=5)
    scene.write(tmp_path)
    run = Run(spark, tmp_path, scene, Tumbling("20 s"))
    run.summaries = lambda rows, batch: seen.append((batch, rows.limit(1).collect()))
    seen = []
    handle = run.through(lambda rows, batch: None)
    assert not difference(answered(run.answers.table()), expected(scene, run.window).answers)
    assert handle.status().late == expected(scene, run.window).late


def test_points_without_a_time_of_their_own_are_kept_by_when_they_came(spark, tmp_path):
    scene = Scene(6, ("snapshots",), batches=2)
    scene.write(tmp_path)
    points, queries = scene.streams(spark, tmp_path)
    answers = MemorySink()
    handle = Swarm(spark, config(executors=2), window=Sliding("1 hour")).start(
        points, queries.drop("where"), answers=answers, checkpoint=str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
    )  # fmt: skip
    handle.await_termination()
    box = dict(zip(("min_x", "min_y", "max_x", "max_y"), BOUNDS, strict=True))
    found = handle.ask(**box)
    assert found.column_names == ["count", "id", "x", "y", "time"]
    assert sorted(found["id"].to_pylist()) == [p["id"] for _, ps in scene.batches for p in ps]
    assert len(set(found["time"].to_pylist())) == 2


def test_a_restart_may_keep_other_columns_and_ask_about_others(spark, tmp_path):
    scene = Scene(10, ("continuous",), batches=12, points=20, operations=1)
    scene.write(tmp_path, 0, 4)
    run = Run(spark, tmp_path, scene, Sliding("1 day"), aggregates=False)
    run.application = None
    points, _ = scene.streams(spark, tmp_path)

    def through(**changed):
        start = {"keep": ()} | changed
        handle = Swarm(spark, config(executors=2), start.get("application"), run.window).start(
            points, answers="noop", checkpoint=str(tmp_path / "checkpoint"),
            point_columns=PointColumns(time="ts", include=start["keep"]),
            trigger={"availableNow": True},
        )  # fmt: skip
        handle.await_termination()
        return handle

    through()
    scene.write(tmp_path, 4)
    handle = through(keep=("load", "kind"))
    found = {row["id"]: row["load"] for row in handle.ask(*BOUNDS).to_pylist()}
    old = {p["id"] for _, some in scene.batches[:4] for p in some}
    assert {key for key, load in found.items() if load is None} == old
    assert len(found) == 12 * 20
    points = points.withColumn("load", F.col("load").cast("string"))
    with pytest.raises(ConfigError, match="column load of the points is string, but"):
        through(keep=("load",))


def test_without_a_window_nothing_is_kept_any_longer(spark, tmp_path):
    scene = Scene(11, ("continuous",), batches=4, points=20, operations=1)
    scene.write(tmp_path, 0, 2)
    run = Run(spark, tmp_path, scene, Sliding("1 day"), aggregates=False)
    handle = run.through()
    # About: a block of which a partition has some cells is counted by their share.
    assert handle.status().last.window_points == pytest.approx(40, abs=4)
    assert handle.status().last.window_bytes > 40 * 32
    scene.write(tmp_path, 2)
    run.window = None
    handle = run.through()
    assert not handle._run.epochs.last_commit().manifest.blocks
    assert handle.status().last.window_points == 0
    with pytest.raises(ConfigError, match="keeps no points"):
        handle.ask(*BOUNDS)


def test_an_answer_keeps_the_files_that_it_reads(spark, tmp_path, monkeypatch):
    scene = Scene(11, ("continuous",), batches=2, points=20, operations=1)
    scene.write(tmp_path)
    run = Run(spark, tmp_path, scene, Sliding("1 day"), aggregates=False, replayable_batches=2)
    handle = run.through()
    epochs, wanted = handle._run.epochs, handle.ask(*BOUNDS).num_rows
    answer_frame = questions.answer_frame

    def later(*given):
        # Meanwhile the stream goes on, and needs none of the files any more.
        last = epochs.last_commit()
        empty = replace(last.manifest, version=last.manifest.version + 1, blocks={})
        for batch in range(last.batch + 1, last.batch + 4):
            epochs.begin(Epoch(batch=batch, clock=0, plan=last.plan, manifest=empty))
            epochs.commit(replace(last, batch=batch, manifest=empty))
        epochs.collect_garbage()
        return answer_frame(*given)

    monkeypatch.setattr(questions, "answer_frame", later)
    indexes = []
    monkeypatch.setattr(GlobalIndex, "__init__", lambda *given: indexes.append(given))
    assert handle.ask(*BOUNDS).num_rows == wanted > 0
    assert not indexes, "a question goes on from the index of the one before"


def test_what_is_kept_stays_bounded(spark, tmp_path):
    scene = Scene(7, ("continuous",), batches=30, points=40, operations=1)
    scene.write(tmp_path)
    run = Run(spark, tmp_path, scene, Sliding("12 s"), aggregates=False, replayable_batches=2)
    handle = run.through()
    commit = handle._run.epochs.last_commit()
    kept = [one for some in commit.manifest.blocks.values() for one in some]
    now = max(p["ts"] for _, points in scene.batches for p in points)
    assert all(one.meta.newest >= now - 12 * SECOND for one in kept)
    handle._run.epochs.collect_garbage()
    files = set((tmp_path / "checkpoint" / "swarm" / "blocks").iterdir())
    assert {one.file.name.partition("/")[2] for one in kept} <= {file.name for file in files}
    # Those of the last batches, and of the few before them that can run again.
    assert len(files) < 30


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"sink": None}, ConfigError, "there is no sink"),
        ({"summaries": "noop"}, ConfigError, "stateful application only"),
        ({"answers": "noop"}, ConfigError, "no points are kept"),
    ],
)
def test_sinks_that_fit_nothing_are_refused(spark, tmp_path, change, error, words):
    scene = Scene(8, ("continuous",), batches=1)
    scene.write(tmp_path)
    points, queries = scene.streams(spark, tmp_path)
    with pytest.raises(error, match=words):
        Swarm(spark, config()).start(
            points, queries, checkpoint=str(tmp_path / "c"), **{"sink": "noop", **change}
        )


def test_aggregates_need_a_time_and_numbers(spark, tmp_path):
    scene = Scene(8, ("continuous",), batches=1)
    scene.write(tmp_path)
    points, queries = scene.streams(spark, tmp_path)

    def start(application, **more):
        Swarm(spark, config(), application).start(
            points, queries, summaries="noop", checkpoint=str(tmp_path / "c"), **more
        )

    with pytest.raises(InputError, match="event time of points"):
        start(Aggregates(["speed"]))
    with pytest.raises(InputError, match="kind cannot be aggregated"):
        start(Aggregates(["kind"]), point_columns=PointColumns(time="ts"))


def test_snapshot_queries_that_make_no_sense_go_to_the_quarantine(spark, tmp_path):
    scene = Scene(9, ("continuous",), batches=1, operations=1)
    box = dict(zip(("min_x", "min_y", "max_x", "max_y"), BOUNDS, strict=True))
    scene.batches[0][0][:] = [
        {"op": "count", "id": 1, **box, "since": 2, "until": 1},
        {"op": "range", "id": 2, **box, "min_x": 99.0},
        {"op": "range", "id": 3, **box, "where": "speed >"},
        {"op": "count", "id": 4, **box, "aggregate": "count", "window": "1 s"},
        {"op": "count", "id": 5, **box},
    ]
    scene.write(tmp_path)
    run = Run(spark, tmp_path, scene, Sliding("1 s"))
    handle = run.through()
    assert answered(run.answers.table()) == {(0, 5, 0, None): 1}
    reasons = sorted(reason for _, reason in handle.status().quarantined)
    assert [reason.split(";")[0].split(" at")[0] for reason in reasons] == [
        "collects points over time, which a snapshot query cannot do",
        "inverted rectangle",
        "since is after until",
        "where: expected a literal",
    ]
    with pytest.raises(InputError, match="inverted rectangle"):
        handle.ask(1, 1, 0, 0)


@pytest.mark.parametrize(
    ("window", "reason"),
    [
        (None, "no points are kept for snapshot queries"),
        (Sliding("1 s"), "there is no sink for answers"),
    ],
)
def test_snapshot_queries_that_nobody_can_answer_go_to_the_quarantine(
    spark, tmp_path, window, reason
):
    scene = Scene(12, ("snapshots",), batches=1, operations=3)
    scene.write(tmp_path)
    points, queries = scene.streams(spark, tmp_path)
    handle = Swarm(spark, config(executors=2), SUBSCRIPTIONS, window).start(
        points, queries, sink="noop", checkpoint=str(tmp_path / "c"),
        trigger={"availableNow": True},
    )  # fmt: skip
    handle.await_termination()
    assert handle.status().quarantined == {("query", reason): 3}
    assert handle.status().snapshot_queries == 0
