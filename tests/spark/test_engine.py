"""The whole engine gives exactly what comparing every point with every query gives."""

import random
import threading
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm import (
    ConfigError,
    InputError,
    MemorySink,
    NoopSink,
    ParquetPoints,
    ParquetSink,
    PointColumns,
    QueryColumns,
    Swarm,
    SwarmConfig,
)
from sparkswarm.policies import POLICIES
from sparkswarm.spark.driver import batch as batch_stages

from .world import (
    BOUNDS,
    OPERATIONS_SCHEMA,
    POINTS_SCHEMA,
    Batch,
    Operation,
    Point,
    Restless,
    World,
    config,
    difference,
    expected,
    make_world,
    matches_in,
    matches_of,
)

EXECUTORS = (1, 2, 7, 22)
WITH_TIMES = {
    "point_columns": PointColumns(time="ts"),
    "query_columns": QueryColumns(expires="expires"),
}
WITH_EXPIRY = {"query_columns": QueryColumns(expires="expires")}


@pytest.fixture
def aqe(spark):
    """Switch adaptive execution; it is as before when the test is over."""
    name = "spark.sql.adaptive.enabled"
    before = spark.conf.get(name)
    yield lambda on: spark.conf.set(name, on)
    spark.conf.set(name, before)


def run(
    spark, tmp_path, world, settings=None, sink=None, checkpoint="checkpoint", by_tasks=False,
    **options,
):  # fmt: skip
    """Run a world to its end; return the run."""
    folders = world.write(tmp_path / "world")
    if world.preload:
        options["preload"] = folders.read_preload(spark)
    options = {**(WITH_TIMES if world.event_time else WITH_EXPIRY), **options}
    handle = Swarm(spark, settings or config(executors=3)).start(
        folders.read_points(spark, by_tasks),
        folders.read_operations(spark),
        sink=sink or "noop",
        checkpoint=str(tmp_path / checkpoint),
        trigger={"availableNow": True},
        **options,
    )
    if isinstance(sink, Restless):
        sink.watch(handle)
    handle.await_termination()
    return handle


def history(spark, world):
    """Return samples of points and queries for the policy that wants them."""
    points = [p for batch in world.batches for p in batch.points]
    queries = [o for batch in world.batches for o in batch.operations if o.box[0] is not None]
    return (
        spark.createDataFrame([p[:3] for p in points], "id BIGINT, x DOUBLE, y DOUBLE"),
        spark.createDataFrame(
            [q[1:6] for q in queries],
            "id BIGINT, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE",
        ),
    )


def assert_as_expected(handle, world, got):
    wanted = expected(world)
    assert not difference(got, wanted.matches)
    status = handle.status()
    assert status.points == wanted.points
    assert status.operations == wanted.operations
    assert (status.replaced, status.ignored) == (wanted.replaced, wanted.ignored)
    assert status.matches == sum(wanted.matches.values())
    assert dict(status.quarantined) == wanted.reasons


def check(spark, tmp_path, world, policy, executors, resize=(), by_tasks=False, **settings):
    """Run a world under ever changing plans and compare everything with the oracle."""
    memory = MemorySink()
    sink = Restless(memory, seed=executors, executors=resize)
    extra = {"history": history(spark, world)} if policy == "static_history" else {}
    handle = run(
        spark, tmp_path, world, config(policy=policy, executors=executors, **settings), sink,
        by_tasks=by_tasks, **extra,
    )  # fmt: skip
    assert_as_expected(handle, world, matches_of(memory.table()))
    for plan in sink.plans:
        plan.check()
    return sink.plans


# -- any policy, any number of executors, any plan ---------------------------------------------


@pytest.mark.parametrize(
    ("executors", "adaptive", "shared_host"),
    [(1, True, False), (2, False, True), (7, True, False), (22, False, True)],
)
def test_swarm_finds_all_matches_while_partitions_move_split_merge_and_are_shared(
    spark, tmp_path, aqe, executors, adaptive, shared_host
):
    aqe(adaptive)
    world = make_world(executors, batches=4, event_time=adaptive)
    plans = check(
        spark,
        tmp_path,
        world,
        "swarm",
        executors,
        round_batches=1 + executors % 2,
        merge_every_rounds=1,
        shared_host=shared_host,
        by_tasks=executors == 22,
    )
    assert {plan.executors for plan in plans} == {executors}
    assert len({plan.version for plan in plans}) > 1
    if executors > 1:
        assert any(partition.is_shared for plan in plans for partition in plan.partitions)


@pytest.mark.parametrize(
    ("policy", "adaptive"), [(name, bool(i % 2)) for i, name in enumerate(POLICIES)]
)
def test_every_policy_finds_all_matches_while_executors_come_and_go(
    spark, tmp_path, aqe, policy, adaptive
):
    aqe(adaptive)
    world = make_world(11 + len(policy), batches=4, event_time=not adaptive, preload=50)
    plans = check(spark, tmp_path, world, policy, 4, resize=(1, 7, 2), shared_host=False)
    assert [plan.executors for plan in plans] == [4, 1, 7, 2]


@pytest.mark.parametrize("shared_host", [True, False])
def test_plans_stay_right_when_stored_queries_are_written_anew_and_again(
    spark, tmp_path, shared_host
):
    """So many queries that bases are written, and not deltas alone."""
    world = make_world(5, batches=5, points=100, operations=900, preload=3000)
    settings = {"merge_every_rounds": 1, "shared_host": shared_host}
    check(spark, tmp_path, world, "swarm", 2, resize=(2, 1, 3), **settings)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("executors", EXECUTORS)
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_with_any_number_of_executors_finds_all_matches(
    spark, tmp_path, aqe, policy, executors, adaptive, seed
):
    aqe(adaptive)
    number = random.Random(f"{policy}/{executors}/{adaptive}/{seed}").randrange(2**32)
    world = make_world(number, batches=6, event_time=bool(seed % 2), preload=50 * (seed % 3))
    resize = () if seed % 2 else (executors, 7, 2, 22, 1)
    cost_model = "paper" if seed == 1 else "work"
    check(
        spark, tmp_path, world, policy, executors, resize=resize, cost_model=cost_model,
        round_batches=1 + seed % 2, merge_every_rounds=1 + seed, shared_host=seed == 2,
    )  # fmt: skip


# -- what results look like --------------------------------------------------------------------


def test_results_as_pairs_have_one_row_for_each_match(spark, tmp_path):
    world = make_world(21, batches=2)
    memory = MemorySink()
    run(spark, tmp_path, world, sink=memory, results="pairs")
    table = memory.table()
    assert table.column_names == ["id", "query_id", "batch_id"]
    assert not difference(matches_of(table), expected(world).matches)


@pytest.mark.parametrize(
    ("results", "by_tasks"), [("points", False), ("pairs", False), ("pairs", True)]
)
def test_points_keep_their_columns_and_their_types(spark, tmp_path, results, by_tasks):
    world = make_world(22, batches=2, operations=20)
    folders = world.write(tmp_path / "world")
    (tmp_path / "by tasks").mkdir()
    number = F.coalesce(F.col("id"), F.lit(-1))
    kept = {
        "a string": F.concat(F.lit("s"), number),
        "with.dot": number.cast("int"),
        "back`tick": (number % 1000).cast("smallint"),
        "amount": (number / 7).cast("decimal(20,6)"),
        "seen": F.col("ts"),
        "local": F.col("ts").cast("timestamp_ntz"),
        "day": F.col("ts").cast("date"),
        "flag": number % 2 == 0,
        "small": (number % 100).cast("tinyint"),
        "real": number.cast("float"),
        "bytes": F.encode(number.cast("string"), "utf-8"),
        "list": F.array(number, F.lit(None)),
        "names": F.array(F.lit("a"), number.cast("string")),
        "map": F.create_map(F.lit("k"), number),
        "record": F.struct(number.alias("n"), F.lit("t").alias("t")),
        "gone": F.when(number % 3 == 0, number.cast("string")),
        "x": F.col("x"),
    }
    chosen = (
        F.concat(F.lit("p"), F.col("id")).alias("name of point"),
        F.col("x").cast("decimal(30,18)").alias("pos.x"),
        F.col("y").alias("pos y"),
        *(value.alias(name) for name, value in kept.items()),
    )
    points = folders.read_points(spark).select(*chosen)
    if by_tasks:
        for batch in range(2):
            files = f"{folders.points}/{batch:05d}-*.parquet"
            rows = spark.read.schema(POINTS_SCHEMA).parquet(files).select(*chosen)
            rows.coalesce(1).write.parquet(str(tmp_path / f"of-{batch}"))
            (file,) = (tmp_path / f"of-{batch}").glob("*.parquet")
            file.rename((tmp_path / "by tasks") / f"{batch}.parquet")
        points = ParquetPoints(str(tmp_path / "by tasks"), max_files_per_trigger=1)
    memory = MemorySink()
    handle = Swarm(spark, config(executors=2)).start(
        points,
        folders.read_operations(spark),
        sink=memory,
        checkpoint=str(tmp_path / "checkpoint"),
        point_columns=PointColumns("name of point", "pos.x", "pos y", include=tuple(kept)),
        query_columns=QueryColumns(expires="expires"),
        results=results,
        trigger={"availableNow": True},
    )
    handle.await_termination()
    table = memory.table()
    added = "query_ids" if results == "points" else "query_id"
    assert table.column_names == ["name of point", *kept, added, "batch_id"]
    wanted = Counter({(b, f"p{p}", q): n for (b, p, q), n in expected(world).matches.items()})
    assert not difference(matches_of(table, "name of point"), wanted)
    by_id = {p.id: p for batch in world.batches for p in batch.points}
    for row in table.to_pylist():
        number = int(row["name of point"][1:])
        point = by_id[number]
        when = datetime.fromtimestamp(point.ts // 1_000_000, UTC)
        assert row["a string"] == f"s{number}"
        assert row["with.dot"] == number
        assert row["amount"] == round(Decimal(number) / 7, 6)
        assert row["seen"].replace(microsecond=0) == when
        assert row["local"].replace(microsecond=0) == when.replace(tzinfo=None)
        assert row["day"] == date.fromtimestamp(when.timestamp()) or row["day"] == when.date()
        assert row["flag"] is (number % 2 == 0)
        assert row["small"] == number % 100
        assert row["real"] == number
        assert row["bytes"] == str(number).encode()
        assert row["list"] == [number, None]
        assert row["names"] == ["a", str(number)]
        assert dict(row["map"]) == {"k": number}
        assert row["record"] == {"n": number, "t": "t"}
        assert row["gone"] == (str(number) if number % 3 == 0 else None)
        assert row["x"] == point.x


def test_queries_may_have_other_names_and_types_and_an_order_of_their_own(spark, tmp_path):
    """Of one query's operations, the order decides and not the place in the file."""
    box = (0.0, 12.0, 2.0, 14.0)
    operations = [
        Operation("unregister", 7),
        Operation("update", 7, 3.0, 12.0, 4.0, 13.0),
        Operation("register", 7, *box),
        Operation("update", 8, *box),
        Operation("register", 8, 3.0, 12.0, 4.0, 13.0),
    ]
    world = World([Batch([Point(1, 1.0, 13.0, 0), Point(2, 3.5, 12.5, 0)], operations)])
    folders = world.write(tmp_path / "world")
    queries = folders.read_operations(spark).select(
        F.col("op").alias("what.to do"),
        F.col("id").cast("int").alias("query.id"),
        *(F.col(e).cast("float").alias(f"edge.{e}") for e in ("min_x", "min_y", "max_x", "max_y")),
        F.col("expires").cast("timestamp_ntz").alias("the.end"),
        F.expr("case when op = 'register' then 0 when op = 'update' then 1 else 2 end").alias(
            "step.number"
        ),
    )
    memory = MemorySink()
    handle = Swarm(spark, config(executors=2)).start(
        folders.read_points(spark),
        queries,
        sink=memory,
        checkpoint=str(tmp_path / "checkpoint"),
        query_columns=QueryColumns(
            "what.to do",
            "query.id",
            *(f"edge.{e}" for e in ("min_x", "min_y", "max_x", "max_y")),
            expires="the.end",
            order="step.number",
        ),
        trigger={"availableNow": True},
    )
    handle.await_termination()
    assert matches_of(memory.table()) == Counter({(0, 1, 8): 1})
    assert handle.status().quarantined == {}
    assert handle.status().operations == 5


# -- less than everything ----------------------------------------------------------------------


def test_without_a_stream_of_points_queries_alone_are_kept(spark, tmp_path):
    world = make_world(31, batches=3)
    folders = world.write(tmp_path / "world")
    memory = MemorySink()
    checkpoint = str(tmp_path / "checkpoint")
    handle = Swarm(spark, config(executors=3)).start(
        queries=folders.read_operations(spark), sink=memory, checkpoint=checkpoint,
        trigger={"availableNow": True}, **WITH_EXPIRY,
    )  # fmt: skip
    handle.await_termination()
    wanted = expected(world)
    assert memory.table().num_rows == 0
    assert handle.status().operations == wanted.operations
    assert handle.status().points == 0


def test_without_a_stream_of_queries_those_that_were_preloaded_are_matched(spark, tmp_path):
    world = make_world(32, batches=3, operations=0, preload=80, bad=0.1)
    folders = world.write(tmp_path / "world")
    memory, seen = MemorySink(), []
    handle = Swarm(spark, config(executors=3)).start(
        folders.read_points(spark),
        preload=folders.read_preload(spark).drop("op"),
        sink=memory,
        quarantine=lambda rows, batch: seen.append((batch, rows.count())),
        checkpoint=str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
        **WITH_EXPIRY,
    )
    handle.await_termination()
    assert_as_expected(handle, world, matches_of(memory.table()))
    per_batch = Counter()
    for (batch, _, _), count in expected(world).quarantine.items():
        per_batch[batch] += count
    assert dict(seen) == per_batch
    assert -1 in per_batch


def test_batches_without_points_or_without_operations_or_without_both_do_no_harm(spark, tmp_path):
    full = make_world(33, batches=6)
    batches = [
        Batch(b.points if i % 2 else [], b.operations if i in (0, 1, 4) else [])
        for i, b in enumerate(full.batches)
    ]
    world = World(batches)
    memory = MemorySink()
    handle = run(spark, tmp_path, world, sink=Restless(memory, 1, executors=(2, 3)))
    assert_as_expected(handle, world, matches_of(memory.table()))


def test_streams_of_different_length_go_on_one_by_one(spark, tmp_path):
    """When a source has nothing new, Spark's batch has no partitions of it at all."""
    full = make_world(34, batches=4)
    folders = full.write(tmp_path / "world")
    for path in sorted(folders.operations.iterdir())[1:]:
        path.unlink()
    for path in sorted(folders.points.iterdir())[:2]:
        path.unlink()
    # Points of batch 1 now come first, with the operations of batch 0.
    world = World(
        [
            Batch(full.batches[1].points, full.batches[0].operations),
            Batch(full.batches[2].points, []),
            Batch(full.batches[3].points, []),
        ]
    )
    memory = MemorySink()
    handle = Swarm(spark, config(executors=3)).start(
        folders.read_points(spark), folders.read_operations(spark), sink=memory,
        checkpoint=str(tmp_path / "checkpoint"), trigger={"availableNow": True}, **WITH_EXPIRY,
    )  # fmt: skip
    handle.await_termination()
    assert_as_expected(handle, world, matches_of(memory.table()))


# -- sinks -------------------------------------------------------------------------------------


def test_the_sink_called_memory_can_be_read_through_the_handle(spark, tmp_path):
    world = make_world(40, batches=2)
    handle = run(spark, tmp_path, world, sink="memory")
    assert not difference(matches_of(handle.sinks.results.table()), expected(world).matches)


def test_a_sink_may_run_the_results_twice(spark, tmp_path):
    world = make_world(41, batches=3)
    first, second = MemorySink(), ParquetSink(str(tmp_path / "out"))

    def sink(results, batch):
        first(results, batch)
        second(results, batch)

    handle = run(spark, tmp_path, world, sink=Restless(sink, 1))
    assert_as_expected(handle, world, matches_of(first.table()))
    assert not difference(matches_in(tmp_path / "out"), expected(world).matches)


def test_a_sink_may_ignore_results_or_look_at_a_few_alone(spark, tmp_path):
    """Queries are kept all the same, and the batches after are right."""
    world = make_world(42, batches=5)
    memory = MemorySink()

    def sink(results, batch):
        if batch == 1:
            results.limit(1).collect()
        elif batch != 2:
            memory(results, batch)

    run(spark, tmp_path, world, sink=Restless(sink, 1, executors=(3, 4)))
    wanted = Counter({k: n for k, n in expected(world).matches.items() if k[0] not in (1, 2)})
    assert not difference(matches_of(memory.table()), wanted)


def test_a_sink_may_put_the_results_together_with_something_else(spark, tmp_path):
    world = make_world(43, batches=3)
    memory = MemorySink()

    def sink(results, batch):
        other = results.sparkSession.range(3).selectExpr("id - 10 as id", "array(id) as query_ids")
        memory(other.union(results).repartition(2), batch)

    handle = run(spark, tmp_path, world, sink=Restless(sink, 1))
    got = matches_of(memory.table())
    wanted = expected(world).matches + Counter(
        {(b, i - 10, i): 1 for b in range(3) for i in range(3)}
    )
    assert not difference(got, wanted)
    assert handle.status().matches == sum(expected(world).matches.values())


def test_an_error_in_the_sink_ends_the_run_and_a_new_start_goes_on(spark, tmp_path):
    world = make_world(44, batches=3)
    memory = MemorySink()

    def sink(results, batch):
        memory(results, batch)
        if batch == 1:
            raise ValueError("no more room")

    with pytest.raises(StreamingQueryException, match="no more room"):
        run(spark, tmp_path, world, sink=sink)
    handle = again(spark, tmp_path, world, memory)
    assert not difference(matches_of(memory.table()), expected(world).matches)
    assert handle.status().batches == 2


def test_operations_that_cannot_be_stored_end_the_run_with_the_reason(spark, tmp_path, monkeypatch):
    """Tasks wait for them; what they say then is not why."""
    world, memory = make_world(44, batches=3), MemorySink()
    applied = batch_stages.apply_operations

    def apply(ctx, rows):
        if ctx.epoch.batch == 1:
            raise OSError("no space left")
        return applied(ctx, rows)

    with monkeypatch.context() as patch:
        patch.setattr(batch_stages, "apply_operations", apply)
        with pytest.raises(StreamingQueryException, match="no space left"):
            run(spark, tmp_path, world, sink=memory)
    handle = again(spark, tmp_path, world, memory)
    assert not difference(matches_of(memory.table()), expected(world).matches)
    assert handle.status().batches == 2


def again(spark, tmp_path, world, sink, settings=None, **options):
    """Start anew on a checkpoint and the files that are there already."""
    points = spark.readStream.schema(POINTS_SCHEMA).option("maxFilesPerTrigger", 2)
    queries = spark.readStream.schema(OPERATIONS_SCHEMA).option("maxFilesPerTrigger", 1)
    handle = Swarm(spark, settings or config(executors=3)).start(
        points.parquet(str(tmp_path / "world" / "points")),
        queries.parquet(str(tmp_path / "world" / "operations")),
        sink=sink,
        checkpoint=str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
        **{**(WITH_TIMES if world.event_time else WITH_EXPIRY), **options},
    )
    handle.await_termination()
    return handle


def test_a_run_goes_on_with_another_policy_and_other_numbers(spark, tmp_path):
    """Only bounds and grid must stay."""
    world = make_world(45, batches=4, event_time=True, preload=30)
    half = World(world.batches[:2], world.preload, True)
    memory = MemorySink()
    run(spark, tmp_path, half, config(executors=5), sink=Restless(memory, 1))
    folders = World(world.batches, [], True).write(tmp_path / "rest")
    for kind in ("points", "operations"):
        for path in sorted((folders.folder / kind).iterdir()):
            target = tmp_path / "world" / kind / path.name
            if not target.exists():
                path.rename(target)
    settings = config(executors=2, policy="hash_cell", round_batches=0)
    again(spark, tmp_path, world, memory, settings)
    assert not difference(matches_of(memory.table()), expected(world).matches)


def test_streams_may_be_unions_themselves_and_observed(spark, tmp_path):
    """Operations are found among the partitions of a batch however it is put together."""
    world = make_world(47, batches=4, operations=40)
    world = World(
        [
            Batch(b.points if i != 2 else [], b.operations if i != 1 else [])
            for i, b in enumerate(world.batches)
        ],
        [],
    )
    folders = world.write(tmp_path / "world")

    def halves(read):
        even, odd = (read(spark).where(f"id % 2 {sign} 0") for sign in ("=", "<>"))
        return even.unionByName(odd)

    points = halves(folders.read_points).observe("mine", F.count(F.lit(1)).alias("rows"))
    memory = MemorySink()
    handle = Swarm(spark, config(executors=2)).start(
        points, halves(folders.read_operations), sink=memory,
        checkpoint=str(tmp_path / "checkpoint"),
        query_columns=QueryColumns(expires="expires"), trigger={"availableNow": True},
    )  # fmt: skip
    handle.await_termination()
    wanted = expected(world)
    assert not difference(matches_of(memory.table()), wanted.matches)
    assert handle.status().operations == wanted.operations


def test_files_that_only_old_batches_need_are_deleted(spark, tmp_path):
    world = make_world(46, batches=12, points=20, operations=20)
    memory = MemorySink()
    run(
        spark, tmp_path, world, config(executors=2, replayable_batches=2), sink=Restless(memory, 1),
    )  # fmt: skip
    assert not difference(matches_of(memory.table()), expected(world).matches)
    swarm = tmp_path / "checkpoint" / "swarm"
    for folder in ("commits", "epochs", "plans", "manifests"):
        assert len(list((swarm / folder).iterdir())) <= 8, folder
    assert len(list((swarm / "deltas").iterdir())) <= 8
    # At most: two executors' states of the batches since files were last deleted.
    assert len(list((swarm / "soft").iterdir())) <= 4 * 6


def test_a_checkpoint_may_have_spaces_in_its_path(spark, tmp_path):
    world = make_world(47, batches=2, bad=0.05)
    memory, seen = MemorySink(), []
    handle = run(
        spark, tmp_path, world, sink=memory, checkpoint="a folder with é",
        quarantine=lambda rows, batch: seen.append((batch, rows.count())),
    )  # fmt: skip
    assert_as_expected(handle, world, matches_of(memory.table()))
    assert sum(count for _, count in seen) == sum(expected(world).quarantine.values())


# -- what cannot be used -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def streams(spark, tmp_path_factory):
    """A stream of points and one of operations that nothing is wrong with."""
    folders = make_world(1, batches=1, points=3, operations=3).write(
        tmp_path_factory.mktemp("streams") / "world"
    )
    return folders.read_points(spark), folders.read_operations(spark)


def start(spark, tmp_path, points=None, queries=None, **options):
    options = {"sink": "noop", "checkpoint": str(tmp_path / "checkpoint"), **options}
    return Swarm(spark, config(executors=2)).start(points, queries, **options)


def test_neither_points_nor_queries_are_too_little(spark, tmp_path):
    with pytest.raises(InputError, match="neither"):
        start(spark, tmp_path)


@pytest.mark.parametrize("which", ["points", "queries"])
def test_a_static_frame_is_no_stream(spark, tmp_path, streams, which):
    points, queries = streams
    static = spark.createDataFrame([], (points if which == "points" else queries).schema)
    with pytest.raises(InputError, match=f"{which} is not a stream"):
        start(spark, tmp_path, **{"points": points, "queries": queries, which: static})


def test_files_of_points_need_a_schema_or_a_file(spark, tmp_path):
    with pytest.raises(ConfigError, match="must be a positive integer, got 0"):
        ParquetPoints(str(tmp_path), max_files_per_trigger=0)
    with pytest.raises(InputError, match=r"no Parquet file .* yet .* give ParquetPoints a schema"):
        start(spark, tmp_path, ParquetPoints(str(tmp_path)))


def test_a_file_of_points_that_is_gone_ends_the_run_with_its_name(spark, tmp_path):
    (tmp_path / "points").mkdir()
    (tmp_path / "points" / "half.parquet").write_bytes(b"PAR1")
    handle = start(spark, tmp_path, ParquetPoints(str(tmp_path / "points"), POINTS_SCHEMA))
    with pytest.raises(StreamingQueryException, match=r"half\.parquet cannot be read"):
        handle.await_termination()


def test_a_stream_cannot_be_preloaded(spark, tmp_path, streams):
    with pytest.raises(InputError, match="preload is a stream"):
        start(spark, tmp_path, streams[0], preload=streams[1])


@pytest.mark.parametrize("name", ["id", "x", "y"])
def test_points_without_a_column_are_refused_by_its_name(spark, tmp_path, streams, name):
    with pytest.raises(InputError, match=f"points have no column {name};.*PointColumns"):
        start(spark, tmp_path, streams[0].drop(name), streams[1])


@pytest.mark.parametrize("name", ["op", "id", "min_x", "min_y", "max_x", "max_y"])
def test_operations_without_a_column_are_refused_by_its_name(spark, tmp_path, streams, name):
    with pytest.raises(InputError, match=f"queries have no column {name};.*QueryColumns"):
        start(spark, tmp_path, streams[0], streams[1].drop(name))


@pytest.mark.parametrize(
    ("column", "options"),
    [
        ("when", {"point_columns": PointColumns(time="when")}),
        ("colour", {"point_columns": PointColumns(include=("colour",))}),
        ("until", {"query_columns": QueryColumns(expires="until")}),
        ("step", {"query_columns": QueryColumns(order="step")}),
    ],
)
def test_columns_that_were_asked_for_must_be_there(spark, tmp_path, streams, column, options):
    with pytest.raises(InputError, match=f"have no column {column};"):
        start(spark, tmp_path, *streams, **options)


@pytest.mark.parametrize(
    ("which", "column", "kind", "options"),
    [
        ("points", "x", "string", {}),
        ("points", "y", "boolean", {}),
        ("points", "ts", "string", {"point_columns": PointColumns(time="ts")}),
        ("queries", "op", "binary", {}),
        ("queries", "max_y", "string", {}),
        ("queries", "expires", "string", {"query_columns": QueryColumns(expires="expires")}),
        ("queries", "min_x", "double", {"query_columns": QueryColumns(order="min_x")}),
    ],
)
def test_columns_of_the_wrong_type_are_refused_by_name(
    spark, tmp_path, streams, which, column, kind, options
):
    frames = dict(zip(("points", "queries"), streams, strict=True))
    value = F.col(column).cast("string").cast(kind)
    frames[which] = frames[which].withColumn(column, value)
    with pytest.raises(InputError, match=f"column {column} of {which} must be .*, it is {kind}"):
        start(spark, tmp_path, **frames, **options)


@pytest.mark.parametrize(
    "keep", [("id",), ("x", "x"), ("query_ids",), ("query_id",), ("batch_id",)]
)
def test_results_cannot_have_a_column_twice(spark, tmp_path, streams, keep):
    named = {name: F.lit(1) for name in ("query_ids", "query_id", "batch_id")}
    points = streams[0].withColumns(named)
    with pytest.raises(InputError, match="results cannot have the columns"):
        start(spark, tmp_path, points, point_columns=PointColumns(include=keep))


def test_columns_to_include_are_names_not_one_name(spark, tmp_path, streams):
    with pytest.raises(ConfigError, match=r"include must be .*: write \('kind',\)"):
        start(spark, tmp_path, streams[0], point_columns=PointColumns(include="kind"))


@pytest.mark.parametrize("trigger", ["availableNow", {"availableNow": "yes"}, {"every": "1 s"}, {}])
def test_a_trigger_that_spark_does_not_know_is_refused_with_what_to_write(
    spark, tmp_path, streams, trigger
):
    with pytest.raises(ConfigError, match=r"trigger must be .*availableNow.*, got "):
        start(spark, tmp_path, streams[0], trigger=trigger)


def test_a_history_is_sampled_over_the_whole_table(spark, monkeypatch):
    monkeypatch.setattr("sparkswarm.spark.driver.history.HISTORY_POINTS", 500)
    monkeypatch.setattr("sparkswarm.spark.driver.history.HISTORY_QUERIES", 500)
    cell = "CAST(id % 100 AS DOUBLE)"
    points = spark.range(10_000).selectExpr("id", "CAST(id DIV 100 AS DOUBLE) x", f"{cell} y")
    queries = points.selectExpr("id", "x min_x", "y min_y", "x max_x", "y max_y")
    swarm = Swarm(spark, SwarmConfig(bounds=(0, 0, 100, 100), grid=(10, 10)))
    past = swarm._history((points, queries), PointColumns(), QueryColumns(), swarm.config)
    for found in (past.x, past.queries.col_start * 10.0):
        assert 400 < len(found) < 600
        assert 40 < np.median(found) < 60


@pytest.mark.parametrize("sink", ["parquet", 7, ["noop"]])
def test_a_sink_must_be_a_function_or_a_known_name(spark, tmp_path, streams, sink):
    with pytest.raises(ConfigError, match="sink must be a function"):
        start(spark, tmp_path, *streams, sink=sink)


def test_results_are_points_or_pairs(spark, tmp_path, streams):
    with pytest.raises(ConfigError, match="results must be 'points' or 'pairs', got 'rows'"):
        start(spark, tmp_path, *streams, results="rows")


def test_a_checkpoint_must_be_named(spark, tmp_path, streams):
    with pytest.raises(ConfigError, match="checkpoint is empty"):
        start(spark, tmp_path, *streams, checkpoint="")


@pytest.mark.parametrize(
    ("name", "settings"),
    [("bounds", {"bounds": (*BOUNDS[:3], 18.0)}), ("grid", {"grid": (20, 15)})],
)
def test_a_checkpoint_stays_with_its_bounds_and_its_grid(spark, tmp_path, streams, name, settings):
    handle = start(spark, tmp_path, *streams, trigger={"availableNow": True})
    handle.await_termination()
    other = Swarm(spark, config(**settings))
    with pytest.raises(ConfigError, match=f"{name} is .* made with .*another checkpoint"):
        other.start(*streams, sink="noop", checkpoint=str(tmp_path / "checkpoint"))


def test_the_policy_that_divides_by_history_wants_one(spark, tmp_path, streams):
    swarm = Swarm(spark, config(policy="static_history"))
    with pytest.raises(ConfigError, match="give it a history"):
        swarm.start(*streams, sink="noop", checkpoint=str(tmp_path / "checkpoint"))


@pytest.mark.parametrize("executors", [0, -1, 2.0, True, "3"])
def test_executors_are_a_whole_number(spark, tmp_path, streams, executors):
    with (
        start(spark, tmp_path, *streams, trigger={"availableNow": True}) as handle,
        pytest.raises(ConfigError, match="executors must be a whole number"),
    ):
        handle.set_executors(executors)
    assert not handle.status().active


def test_observers_hear_of_every_batch_and_cannot_stop_it(spark, tmp_path):
    heard = []

    def deaf(*_):
        raise RuntimeError("deaf")

    def observer(progress, plan, decisions):
        heard.append((progress.batch, progress.points, plan.executors, len(decisions)))

    world = make_world(41, batches=3)
    settings = config(executors=3, round_batches=1)
    run(spark, tmp_path, world, settings, observers=[deaf, observer])
    assert [batch for batch, *_ in heard] == [0, 1, 2]
    assert sum(points for _, points, *_ in heard) == expected(world).points
    assert all(executors == 3 for *_, executors, _ in heard)
    assert sum(decisions for *_, decisions in heard) > 0


def test_a_run_stops_between_batches_and_goes_on(spark, tmp_path):
    numbers = []

    def sink(rows, batch_id):
        NoopSink()(rows, batch_id)
        numbers.append(batch_id)

    point = (F.rand() * 9).alias("x"), (F.rand() * 7).alias("y")
    for _ in range(3):
        before = len(numbers)
        rate = spark.readStream.format("rate").option("rowsPerSecond", 500).load()
        points = rate.select(F.col("value").alias("id"), *point)
        handle = Swarm(spark, SwarmConfig(bounds=(0, 0, 9, 7), grid=(4, 4), executors=2)).start(
            points, sink=sink, checkpoint=str(tmp_path / "checkpoint")
        )
        while len(numbers) < before + 3:
            assert handle.query.isActive
        # In another thread: should it wait for ever, this test must not.
        stopper = threading.Thread(target=handle.stop, daemon=True)
        stopper.start()
        stopper.join(60)
        assert not stopper.is_alive()
        assert handle.await_termination(60)
        assert not handle.status().active
    # One that Spark had not yet taken note of comes again under its number.
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(numbers[-1] + 1))
