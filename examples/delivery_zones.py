"""Delivery vans and zones: from GeoJSON to alerts.

Run it with ``python examples/delivery_zones.py``. It needs no data but ``zones.geojson`` beside it;
the vans' reports are made here, two batches of them.
"""

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sparkswarm
from sparkswarm import Events, MemorySink, PointColumns, QueryColumns, Swarm, SwarmConfig

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
REPORTS = [  # van, minutes after noon, longitude, latitude: a list for each batch
    [("van-7", 0, 13.40, 52.52), ("van-8", 1, 13.42, 52.50), ("van-9", 2, 13.40, 52.49)],
    [("van-7", 9, 13.475, 52.513), ("van-8", 12, 13.44, 52.485), ("van-9", 14, 13.60, 52.60)],
]
REPORT = "van STRING, at TIMESTAMP, lon DOUBLE, lat DOUBLE"


def main() -> list[str]:
    """Return the alerts."""
    spark = sparkswarm.session(master="local[2]")
    zones = sparkswarm.read_fences(spark, str(Path(__file__).parent / "zones.geojson"), id="code")
    folder = tempfile.mkdtemp()
    for batch in REPORTS:  # in earnest, a stream from Kafka or of files as they come
        rows = [(van, NOON + timedelta(minutes=m), lon, lat) for van, m, lon, lat in batch]
        spark.createDataFrame(rows, REPORT).coalesce(1).write.mode("append").parquet(folder)
    vans = spark.readStream.schema(REPORT).option("maxFilesPerTrigger", 1).parquet(folder)
    alerts = MemorySink()
    config = SwarmConfig(bounds=(13.0, 52.3, 13.8, 52.7), grid=(50, 50), executors=2)
    handle = Swarm(spark, config, events=Events(dwell="10 minutes")).start(
        vans,
        preload=zones,
        point_columns=PointColumns(id="van", x="lon", y="lat", time="at"),
        query_columns=QueryColumns(include=("name",)),
        events=alerts,
        checkpoint=tempfile.mkdtemp(),
        trigger={"availableNow": True},
    )
    handle.await_termination()
    order = [("time", "ascending"), ("event", "descending"), ("fence", "ascending")]
    return [
        f"{row['time']:%H:%M} {row['object']} {row['event']} {row['fence']} ({row['name']})"
        for row in alerts.table().sort_by(order).to_pylist()
    ]


if __name__ == "__main__":
    print(*main(), sep="\n")
