"""A driver that tells events of points from one topic to another.

Run as a script: ``python events_driver_main.py SERVERS NAME FOLDER BATCH``. Points come from the
topic ``NAME-points``, events go to ``NAME-matches``; its last line is JSON with the unread
rows that each batch was told of.
"""

from __future__ import annotations

import json
import sys

import sparkswarm
from sparkswarm import Events, KafkaSink, PointColumns, Swarm

try:
    from .broker import CONNECTOR
except ImportError:  # as a script
    from broker import CONNECTOR

POINT = "id BIGINT, x DOUBLE, y DOUBLE, ts TIMESTAMP"
FENCES = [(1, -90.0, -45.0, 90.0, 45.0)]


def main(servers: str, name: str, folder: str, batch: str) -> None:
    """Run to the end of the topic."""
    conf = {
        "spark.jars": ",".join(map(str, sorted(CONNECTOR.glob("*.jar")))),
        "spark.ui.enabled": False,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
    }
    spark = sparkswarm.session(master="local[2]", config=conf)
    stream = spark.readStream.format("kafka").options(
        **{
            "kafka.bootstrap.servers": servers,
            "subscribe": f"{name}-points",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": batch,
        }
    )
    points = stream.load().selectExpr(f"inline(array(from_json(string(value), '{POINT}')))")
    unread: list[int | None] = []
    handle = Swarm(spark, bounds="world", grid=(100, 100), events=Events()).start(
        points,
        preload=spark.createDataFrame(
            FENCES, "id BIGINT, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE"
        ),
        point_columns=PointColumns(time="ts"),
        events=KafkaSink(servers, f"{name}-matches", f"{name}-events", key="object"),
        checkpoint=f"{folder}/checkpoint",
        trigger={"availableNow": True},
        observers=[lambda progress, *_: unread.append(progress.unread_rows)],
    )
    handle.await_termination()
    print(json.dumps({"unread": unread, "last": handle.unread_rows}))


if __name__ == "__main__":
    main(*sys.argv[1:])
