"""One Spark session for all tests of a process: starting one takes seconds.

Examples and benchmarks that run in the same process may stop it, or leave one with other settings:
a module gets the one that is alive if it has ours, or a new one. It ends with the process.
"""

import pytest
from pyspark.sql import SparkSession

from sparkswarm.spark.session import PROPERTIES, check_session


@pytest.fixture(scope="module")
def spark():
    found = session_of_tests()
    if check_session(found):
        found.stop()
        found = session_of_tests()
    return found


def session_of_tests() -> SparkSession:
    """Return the session that is alive, or a new one with the settings of sparkswarm."""
    builder = SparkSession.builder.master("local[2]")
    for setting in PROPERTIES:
        builder = builder.config(setting.name, setting.wanted)
    return (
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
