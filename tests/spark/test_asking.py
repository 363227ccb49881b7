"""Questions about objects in the stream, answered as of the batch before."""

from sparkswarm import Events, MemorySink, PointColumns, Swarm

from .world import config

FIX = "id STRING, x DOUBLE, y DOUBLE, at STRING"
BOX = "min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE"
ASK = f"op STRING, id STRING, {BOX}, about STRING, k INT"


def test_questions_in_the_stream_see_the_batch_before(spark, tmp_path):
    fixes = [('van, "7"\n', 1.0, 11.0), ("van-8", 2.0, 12.0)]
    asks = [
        ("inside", "q1", None, None, None, None, "zone-a", None),
        ("where", "q2", None, None, None, None, 'van, "7"\n', None),
        ("nearest", "q3", 2.0, 12.0, None, None, None, 1),
        ("where", "q4", None, None, None, None, None, None),
    ]
    first = [("register", "zone-a", 0.0, 10.0, 1.5, 12.0, None, None), *asks[:1]]
    for number, operations in enumerate((first, asks)):
        rows = [(*fix, f"2026-01-01 10:0{number}:00") for fix in fixes]
        spark.createDataFrame(rows, FIX).coalesce(1).write.parquet(f"{tmp_path}/p{number}")
        frame = spark.createDataFrame(operations, ASK).coalesce(1)
        frame.write.parquet(f"{tmp_path}/q{number}")
    read = spark.readStream.option("maxFilesPerTrigger", 1).option("latestFirst", False)
    positions = MemorySink()
    handle = Swarm(spark, config(executors=2), events=Events()).start(
        read.schema(FIX)
        .parquet(f"{tmp_path}/p*")
        .selectExpr("* EXCEPT (at)", "timestamp(at) AS at"),
        read.schema(ASK).parquet(f"{tmp_path}/q*"),
        events="noop",
        positions=positions,
        checkpoint=str(tmp_path / "checkpoint"),
        point_columns=PointColumns(time="at"),
        trigger={"availableNow": True},
    )
    handle.await_termination()
    rows = positions.table().to_pylist()
    assert sorted(
        (r["batch_id"], r["query_id"], r["object"], r["fence"]) for r in rows if r["fence"]
    ) == [
        (1, "q2", 'van, "7"\n', "zone-a"),
    ]
    assert sorted((r["batch_id"], r["query_id"], r["object"]) for r in rows) == [
        (1, "q1", 'van, "7"\n'),
        (1, "q2", 'van, "7"\n'),
        (1, "q3", "van-8"),
    ]
    reason = "about does not name a fence or an object"
    assert handle.status().quarantined == {("query", reason): 1}
    assert handle.status().snapshot_queries == 4
