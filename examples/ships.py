"""Ships and circles: which ship is within 300 km of which port, across the anti-meridian too.

Run it with ``python examples/ships.py``. It needs no data.
"""

import tempfile
from datetime import UTC, datetime, timedelta

import sparkswarm
from sparkswarm import Events, MemorySink, PointColumns, Swarm, SwarmConfig

START = datetime(2026, 1, 1, tzinfo=UTC)
PORTS = [("Suva", "POINT (178.44 -18.14)", 300e3), ("Longyearbyen", "POINT (15.6 78.2)", 300e3)]
FIXES = [  # ship, hours after the start, longitude, latitude
    ("Aurora", 0, -175.0, -18.0),
    ("Aurora", 9, -179.0, -18.0),  # 271 km east of Suva: the anti-meridian lies between them
    ("Fram", 2, 3.0, 79.0),  # 290 km from Longyearbyen, 12 degrees of longitude away
    ("Fram", 30, 3.0, 74.0),
]


def main() -> list[str]:
    """Return what the ships did."""
    spark = sparkswarm.session(master="local[2]")
    folder = tempfile.mkdtemp()
    fix = "id STRING, at TIMESTAMP, x DOUBLE, y DOUBLE"
    rows = [(ship, START + timedelta(hours=h), x, y) for ship, h, x, y in FIXES]
    spark.createDataFrame(rows, fix).coalesce(1).write.parquet(f"{folder}/fixes")
    events = MemorySink()
    config = SwarmConfig(bounds=(-180, -90, 180, 90), grid=(360, 180), executors=2)
    handle = Swarm(spark, config, events=Events(silent_after="2 days")).start(
        spark.readStream.schema(fix).parquet(f"{folder}/fixes"),
        preload=spark.createDataFrame(PORTS, "id STRING, geometry STRING, radius_m DOUBLE"),
        point_columns=PointColumns(time="at"),
        events=events,
        checkpoint=f"{folder}/checkpoint",
        trigger={"availableNow": True},
    )
    handle.await_termination()
    ordered = events.table().sort_by("time").to_pylist()
    return [
        f"{row['time']:%d %H:%M} {row['object']} {row['event']} {row['fence']}" for row in ordered
    ]


if __name__ == "__main__":
    print(*main(), sep="\n")
