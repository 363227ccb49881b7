"""One Spark session for all tests of a process: starting one takes seconds."""

import pytest
from pyspark.sql import SparkSession

from sparkswarm.spark.session import PROPERTIES


@pytest.fixture(scope="session")
def spark():
    builder = SparkSession.builder.master("local[2]")
    for setting in PROPERTIES:
        builder = builder.config(setting.name, setting.wanted)
    session = (
        builder.appName("sparkswarm tests")
        .config("spark.ui.enabled", False)
        .config("spark.ui.showConsoleProgress", False)
        .config("spark.log.level", "ERROR")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    yield session
    session.stop()
