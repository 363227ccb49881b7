"""Stores and a cluster of two hosts for all tests of this folder, and an engine on them."""

from __future__ import annotations

import os
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from sparkswarm.bench.cluster import cluster_session
from sparkswarm.bench.local_cluster import LocalCluster

from ..behaviour.engines import SparkEngine
from .servers import Hdfs, S3Server

ROOT = str(Path(__file__).parents[2])


@pytest.fixture(scope="session")
def stores(tmp_path_factory):
    """Return the stores by name; this process knows how to reach them."""
    with (
        closing(S3Server(tmp_path_factory.mktemp("s3"))) as s3,
        closing(Hdfs(tmp_path_factory.mktemp("hdfs"))) as hdfs,
        pytest.MonkeyPatch.context() as m,
    ):
        for store in (s3, hdfs):
            for name, value in store.environment.items():
                m.setenv(name, value)
        yield {"s3": s3, "hdfs": hdfs}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory, stores):
    """Return two hosts with one core each, which know how to reach the stores."""
    # Applications of tests are classes of their modules.
    path = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"PYTHONPATH": path}
    for store in stores.values():
        environment |= store.environment
    folder = tmp_path_factory.mktemp("cluster")
    with closing(LocalCluster(folder, hosts=2, environment=environment)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark(cluster, stores):
    """Return a session on the cluster."""
    options = {name: value for store in stores.values() for name, value in store.spark.items()}
    session = cluster_session("remote tests", cluster, options)
    yield session
    session.stop()


@pytest.fixture(params=["s3", "hdfs"])
def checkpoint(stores, request):
    """Return a checkpoint of the test's own in each store."""
    return f"{stores[request.param].root}/{uuid.uuid4().hex}/checkpoint"


@pytest.fixture
def engine(spark, tmp_path, checkpoint):
    """Return Spark on the cluster with its checkpoint in the store."""
    return SparkEngine(spark, tmp_path, shared_host=False, checkpoint=checkpoint)
