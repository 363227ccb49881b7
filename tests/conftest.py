"""What every test needs: how thorough Hypothesis is, how Spark's processes run, and the order."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# No deadline: a kernel's first call compiles it, and CI machines are slow at odd moments.
settings.register_profile("dev", deadline=None, max_examples=100)
# Derandomized, so that a change is judged by the change and not by luck.
settings.register_profile("ci", deadline=None, max_examples=100, derandomize=True, print_blob=True)
settings.register_profile("long", deadline=None, max_examples=500)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
)

# Spark would start its workers with the first python3 on PATH, which may lack our packages.
os.environ["PYSPARK_PYTHON"] = sys.executable

# Virtual machines for tests live for a minute or two: the JVM's slower, better compiler would take
# more processor time than it saves.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

STARTS_SPARK = (
    "behaviour/", "bench/", "demo/", "examples/", "map/test_run", "runfile/", "sim/test_fuzz",
    "spark/test_", "test_docs", "test_environment", "test_examples", "test_notebooks",
    "workloads/test_cities",
)  # fmt: skip
"""Files that take long: they start Spark, or play many seeds."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take long first, so that no process is left with one at the end.

    The Makefile tells pytest-xdist to keep this order.
    """
    here = Path(__file__).parent
    items.sort(key=lambda i: not i.path.relative_to(here).as_posix().startswith(STARTS_SPARK))
