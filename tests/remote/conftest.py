"""A store and a cluster of two hosts for all tests of this folder, and an engine on them."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from sparkswarm.bench.cluster import cluster_session
from sparkswarm.bench.local_cluster import LocalCluster

from ..behaviour.engines import SparkEngine
from .servers import BUCKET, S3Server

ROOT = str(Path(__file__).parents[2])


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """Return an object store; this process knows how to reach it."""
    with (
        S3Server(tmp_path_factory.mktemp("store") / "log") as server,
        pytest.MonkeyPatch.context() as m,
    ):
        for name, value in server.environment.items():
            m.setenv(name, value)
        yield server


@pytest.fixture(scope="session")
def cluster(tmp_path_factory, store):
    """Return two hosts with one core each, which know how to reach the store."""
    # Applications of tests are classes of their modules.
    path = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**store.environment, "PYTHONPATH": path}
    folder = tmp_path_factory.mktemp("cluster")
    with LocalCluster(folder, hosts=2, environment=environment) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark(cluster, store):
    """Return a session on the cluster."""
    session = cluster_session("remote tests", cluster, store.spark)
    yield session
    session.stop()


@pytest.fixture
def checkpoint():
    """Return a checkpoint of the test's own in the store."""
    return f"s3a://{BUCKET}/{uuid.uuid4().hex}/checkpoint"


@pytest.fixture
def engine(spark, tmp_path, checkpoint):
    """Return Spark on the cluster with its checkpoint in the store."""
    return SparkEngine(spark, tmp_path, shared_host=False, checkpoint=checkpoint)
