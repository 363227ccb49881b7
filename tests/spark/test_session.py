"""The session has what SWARM needs, the user's settings stay, and what is missing is said.

A process has one JVM, whose environment and defaults are fixed when it starts, so all of Spark
runs in one process of its own; its sessions follow each other and the tests look at its report.
"""

import json
import logging
import os
import subprocess
import sys

import pytest

SOCKET = "spark.python.unix.domain.socket.enabled"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
BUFFER = "spark.buffer.size"
REUSE = "spark.python.worker.reuse"
LOG = "spark.sql.streaming.checkpointFileManagerClass"
FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
OPTIONS = {
    "spark.ui.enabled": False,
    "spark.log.level": "ERROR",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Run the sessions where an administrator's defaults forbid the reuse of workers."""
    folder = tmp_path_factory.mktemp("conf")
    (folder / "spark-defaults.conf").write_text(f"{REUSE} false\n")
    # Another command that starts the very same Python, but not out of our environment.
    other = folder / "python3"
    other.symlink_to(os.path.realpath(sys.executable))
    forgotten = ("PYSPARK_PYTHON", "PYSPARK_UDS_MODE", "SPARK_REMOTE")
    env = {name: value for name, value in os.environ.items() if name not in forgotten}
    done = subprocess.run(
        [sys.executable, __file__, str(other)],
        env={**env, "SPARK_CONF_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_spark_defaults_win_and_are_said_once(report):
    defaults = report["defaults"]
    assert defaults["settings"][REUSE] == "false"
    (warning,) = defaults["warnings"]
    assert f"{REUSE} is false, should be true (needs a new session)." in warning
    assert SOCKET not in warning


def test_asking_again_gives_the_same_session(report):
    assert report["defaults"]["same"]


def test_a_new_session_has_the_wanted_settings(report):
    for name in ("defaults", "ours"):
        settings = report[name]["settings"]
        assert settings[SOCKET] == "true"
        assert settings["spark.app.name"] == "sparkswarm"
        assert settings["spark.master"] == "local[2]"
    assert report["ours"]["settings"][REUSE] == "true"
    assert report["ours"]["findings"] == report["ours"]["warnings"] == []


def test_workers_run_the_interpreter_of_the_driver(report):
    assert report["ours"]["prefixes"] == [sys.prefix]


def test_the_shuffle_keeps_its_partitions_although_spark_coalesces_others(report):
    ours = report["ours"]
    assert ours["adaptive"] == "true"
    assert ours["partitions"] == [[n, 4 if n < 3 else 0] for n in range(7)]
    assert ours["partitions_of_another_shuffle"] == 1


def test_what_the_user_gave_wins_and_is_not_held_against_them(report):
    given = report["given"]
    assert given["settings"][SOCKET] == "false"
    assert given["settings"]["spark.app.name"] == "given"
    assert given["warnings"] == []
    assert {finding["setting"] for finding in given["findings"]} == {SOCKET, REUSE}


def test_what_a_foreign_session_lacks_is_found_and_said_once(report):
    foreign = report["foreign"]
    found = {f["setting"]: (f["found"], f["wanted"], f["changeable"]) for f in foreign["findings"]}
    assert found == {
        "PYSPARK_PYTHON": (report["other"], sys.executable, False),
        SOCKET: ("false", "true", False),
        REUSE: ("false", "true", False),
        BYTES: ("64MB", "2147483647", True),
        BUFFER: ("65536", "1048576", False),
        LOG: ("", FILES, True),
    }
    (warning,) = foreign["warnings"]
    for finding in foreign["findings"]:
        assert finding["setting"] in warning
        assert finding["why"] in warning


def test_a_running_session_is_returned_as_it_is(report):
    foreign = report["foreign"]
    assert foreign["same"]
    assert foreign["settings"]["spark.app.name"] == "foreign"


def test_every_setting_exists_in_this_spark(report):
    assert report["unknown"] == []


def test_importing_sparkswarm_does_not_import_pyspark():
    code = (
        "import sys, sparkswarm; assert 'session' in dir(sparkswarm); "
        "assert not hasattr(sparkswarm, 'sessions'); assert 'pyspark' not in sys.modules; "
        "assert callable(sparkswarm.session); assert 'pyspark' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_spark_connect_is_refused():
    import sparkswarm

    with pytest.raises(sparkswarm.ConfigError, match="sc://far"):
        sparkswarm.session(master="sc://far")


def test_a_session_of_spark_connect_is_refused_where_it_is_used():
    import sparkswarm

    far = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(sparkswarm.ConfigError, match=r"pyspark.sql.connect.session is Spark Conn"):
        sparkswarm.Swarm(far)


@pytest.mark.parametrize("version", ["4.3.0", "4.3.1", "4.10.0", "5.0.0.dev1"])
def test_versions_that_have_all_that_is_needed_are_accepted(version):
    from sparkswarm.spark.session import check_version

    check_version(version)


@pytest.mark.parametrize("version", ["3.5.8", "4.1.4", "4.2.1"])
def test_older_versions_are_refused_with_what_they_lack(version):
    import sparkswarm
    from sparkswarm.spark.session import check_version

    with pytest.raises(
        sparkswarm.ConfigError, match=rf"PySpark {version}, but sparkswarm needs 4\.3"
    ):
        check_version(version)


def _main(other: str) -> None:
    from dataclasses import asdict

    from pyspark import TaskContext
    from pyspark.sql import SparkSession

    import sparkswarm
    from sparkswarm.spark.session import PROPERTIES

    warnings: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record):
            warnings.append(record.getMessage())

    logging.getLogger("sparkswarm").addHandler(Listener())

    def told(spark):
        said = warnings.copy()
        warnings.clear()
        return {"settings": dict(spark.sparkContext.getConf().getAll()), "warnings": said}

    def count(batches):
        import pyarrow as pa

        rows = sum(batch.num_rows for batch in batches)
        row = {"partition": TaskContext.get().partitionId(), "rows": rows, "prefix": sys.prefix}
        yield pa.RecordBatch.from_pylist([row])

    schema = "partition long, rows long, prefix string"
    result: dict[str, object] = {"other": other}

    spark = sparkswarm.session(master="local[2]", config=OPTIONS)
    same = sparkswarm.session(master="local[2]", config=OPTIONS) is spark
    sparkswarm.check_session(spark)
    result["defaults"] = {"same": same, **told(spark)}
    entries = spark._jvm.org.apache.spark.internal.config.ConfigEntry
    # Spark reads this one, and tests its value, without registering it.
    log = spark._jvm.org.apache.spark.sql.internal.SQLConf.STREAMING_CHECKPOINT_FILE_MANAGER_CLASS()
    unregistered = {log.parent().key()}
    spark._jvm.java.lang.Class.forName(FILES)
    # Nor does its network library.
    wait, network = "spark.shuffle.io.retryWait", spark._jvm.org.apache.spark.network.util
    given = network.TransportConf("shuffle", network.MapConfigProvider({wait: "7s"}))
    if given.ioRetryWaitTimeMs() == 7000:
        unregistered.add(wait)
    result["unknown"] = [
        p.name
        for p in PROPERTIES
        if p.name not in unregistered and entries.findEntry(p.name) is None
    ]
    spark.stop()

    spark = sparkswarm.session(config={**OPTIONS, REUSE: True})
    table = spark.range(12).selectExpr("cast(id % 3 as int) as wanted")
    counted = table.repartitionById(7, "wanted").mapInArrow(count, schema).collect()
    coalesced = table.repartition("wanted").mapInArrow(count, schema).collect()
    result["ours"] = {
        "findings": [asdict(f) for f in sparkswarm.check_session(spark)],
        "adaptive": spark.conf.get("spark.sql.adaptive.enabled"),
        "partitions": sorted([row.partition, row.rows] for row in counted),
        "partitions_of_another_shuffle": len(coalesced),
        "prefixes": sorted({row.prefix for row in counted}),
        **told(spark),
    }
    spark.stop()

    mine = {**OPTIONS, SOCKET: False, REUSE: "false", "spark.app.name": "given"}
    spark = sparkswarm.session(config=mine)
    result["given"] = told(spark)
    result["given"]["findings"] = [asdict(f) for f in sparkswarm.check_session(spark)]
    spark.stop()
    warnings.clear()

    os.environ["PYSPARK_PYTHON"] = other
    spark = SparkSession.builder.appName("foreign").getOrCreate()
    findings = sparkswarm.check_session(spark)
    sparkswarm.check_session(spark)
    same = sparkswarm.session("another", config=OPTIONS) is spark
    result["foreign"] = {"findings": [asdict(f) for f in findings], "same": same, **told(spark)}
    spark.stop()
    print(json.dumps(result))


if __name__ == "__main__":
    _main(sys.argv[1])
