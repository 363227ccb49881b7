"""Which delivery zone is each van in? Zones from GeoJSON, with a hole in one and a circle."""

import tempfile
from pathlib import Path

import sparkswarm
from sparkswarm import MemorySink, Swarm, SwarmConfig, read_fences

VANS = [
    ("van-1", 13.40, 52.52),
    ("van-2", 13.42, 52.50),  # on the edge of two zones, which both contain it
    ("van-3", 13.40, 52.49),  # in the hole of Kreuzberg
    ("van-4", 13.475, 52.513),
    ("van-5", 13.60, 52.60),
]


def main() -> dict[str, list[str]]:
    """Match the vans with the zones; return the names of the zones of each van."""
    spark = sparkswarm.session(master="local[2]")
    zones = read_fences(spark, str(Path(__file__).parent / "zones.geojson"))
    names = {row.id: row.name for row in zones.select("id", "name").collect()}
    sink = MemorySink()
    config = SwarmConfig(bounds=(13.0, 52.3, 13.8, 52.7), grid=(50, 50), executors=2)
    with tempfile.TemporaryDirectory() as folder:
        # In earnest, a stream from Kafka or of files as they come.
        schema = "id STRING, x DOUBLE, y DOUBLE"
        spark.createDataFrame(VANS, schema).write.parquet(f"{folder}/vans")
        handle = Swarm(spark, config).start(
            spark.readStream.schema(schema).parquet(f"{folder}/vans"),
            preload=zones,
            sink=sink,
            checkpoint=f"{folder}/checkpoint",
            trigger={"availableNow": True},
        )
        handle.await_termination()
    return {
        row["id"]: sorted(names[key] for key in row["query_ids"])
        for row in sink.table().to_pylist()
    }


if __name__ == "__main__":
    for van, inside in sorted(main().items()):
        print(van, "is in", " and ".join(inside))
