"""Who is inside now: vans that report their places, zones, and what happens between them.

Run it with ``python examples/who_is_inside.py``. It needs no data: the vans' reports are made here,
two batches of them.
"""

import tempfile
from datetime import UTC, datetime, timedelta

import sparkswarm
from sparkswarm import Events, MemorySink, PointColumns, Swarm, SwarmConfig

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DEPOT, MARKET = 1, 2
ZONES = [(DEPOT, 0.0, 0.0, 2.0, 2.0), (MARKET, 6.0, 6.0, 8.0, 8.0)]
REPORTS = [  # van, minutes after noon, x, y: a list for each batch
    [("van-7", 0, 1.0, 1.0), ("van-8", 0, 1.5, 0.5), ("van-7", 4, 4.0, 4.0)],
    [("van-7", 9, 7.0, 7.0), ("van-8", 10, 1.5, 0.6), ("van-9", 10, 6.5, 7.5)],
]
REPORT = "id STRING, at TIMESTAMP, x DOUBLE, y DOUBLE"
ZONE = "id LONG, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE"


def main() -> None:
    """Print the events, then who is where."""
    spark = sparkswarm.session(master="local[2]")
    folder = tempfile.mkdtemp()
    for batch in REPORTS:
        rows = [(van, NOON + timedelta(minutes=m), x, y) for van, m, x, y in batch]
        spark.createDataFrame(rows, REPORT).coalesce(1).write.mode("append").parquet(
            f"{folder}/reports"
        )
    reports = spark.readStream.schema(REPORT).option("maxFilesPerTrigger", 1)
    events = MemorySink()
    config = SwarmConfig(bounds=(0, 0, 10, 10), grid=(20, 20), executors=2)
    handle = Swarm(spark, config, events=Events(dwell="10 minutes")).start(
        reports.parquet(f"{folder}/reports"),
        preload=spark.createDataFrame(ZONES, ZONE),
        point_columns=PointColumns(time="at"),
        events=events,
        checkpoint=f"{folder}/checkpoint",
        trigger={"availableNow": True},
    )
    handle.await_termination()
    for row in events.table().sort_by([("time", "ascending"), ("object", "ascending")]).to_pylist():
        print(f"{row['time']:%H:%M} {row['object']} {row['event']} {row['fence']}")
    for zone, name in ((DEPOT, "depot"), (MARKET, "market")):
        print(f"in the {name}:", sorted(handle.inside(zone)["object"].to_pylist()))
    van = handle.where("van-7")
    if van is not None:
        print(f"van-7 is at {van.x}, {van.y} in {list(van.fences)}")
    print("nearest to 2, 1:", handle.nearest(2.0, 1.0, k=1)["object"].to_pylist())


if __name__ == "__main__":
    main()
