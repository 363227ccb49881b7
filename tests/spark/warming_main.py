"""A driver that lets hosts fetch files ahead: ``python warming_main.py MASTER FOLDER``.

Writes three files, lets the first host fetch two and the second one, and says which host is which.
"""

import json
import sys
from pathlib import Path

from sparkswarm import session
from sparkswarm.bench.local_cluster import DRIVER_HOST
from sparkswarm.spark.driver.placement import HostPlacement
from sparkswarm.spark.driver.warming import Warmer
from sparkswarm.store.files import Files


def fetched(rows):
    """Wait in a worker until all is fetched that it was asked for."""
    from sparkswarm.spark.tasks import warming

    warming._fetchers().shutdown()
    yield from rows


def main(master: str, folder: str) -> None:
    """Run it."""
    spark = session(
        "warming",
        master,
        {
            "spark.ui.enabled": False,
            "spark.driver.bindAddress": DRIVER_HOST,
            "spark.driver.host": DRIVER_HOST,
            "spark.executor.memory": "512m",
            # The first job waits for both hosts.
            "spark.cores.max": 2,
            "spark.scheduler.minRegisteredResourcesRatio": 1.0,
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
        },
    )
    files = Files(str(Path(folder) / "store"), copied=True)
    refs = [files.write(f"segments/ahead-{number}", b"content") for number in range(3)]
    spark.range(1).count()
    anchors = HostPlacement(spark).look_up(4)
    first, second = sorted(set(anchors.hosts))
    Warmer(files).fetch({first: refs[:2], second: refs[2:]}, anchors).result()
    anchors.frame.mapInArrow(fetched, anchors.frame.schema).collect()
    print(json.dumps({"hosts": [first, second]}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
