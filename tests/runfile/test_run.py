"""The command ``sparkswarm run``: the example runs, mistakes are reported, signals stop it.

A command stops its Spark at the end, so it runs in a process of its own; what is not about the
command shares the session of the tests.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from sparkswarm.observe.checkpoint import explain_checkpoint
from sparkswarm.runfile import job
from sparkswarm.runfile.cli import _exit_codes, example_file, run
from sparkswarm.runfile.job import status_json
from sparkswarm.runfile.reader import parse_run_file
from sparkswarm.spark.failures import cause_in

from ..support.spark import spark  # noqa: F401

COMMAND = [
    sys.executable,
    "-c",
    "import typer; from sparkswarm.runfile.cli import run; typer.run(run)",
]
LOCAL = 'conf = { "spark.driver.host" = "127.0.0.1", "spark.ui.enabled" = false }'


PLANE = """
checkpoint = "{folder}/checkpoint"
[swarm]
bounds = [0, 0, 8, 8]
grid = [8, 8]
executors = 2
"""
"""Head of a run file with everything in a folder."""


def invoke(*words):
    app = typer.Typer()
    app.command()(run)
    return CliRunner().invoke(app, list(words))


def start(folder, text, *words):
    (folder / "run.toml").write_text(text)
    return subprocess.Popen(
        [*COMMAND, "run.toml", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def started(spark, text):  # noqa: F811
    """Start what a file says on a session that is there already."""
    return job.start(spark, parse_run_file(text))


def test_the_example_runs_as_it_is(tmp_path):
    process = start(tmp_path, example_file(), "--json", "-")
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    status = json.loads(out)
    bad = sum(entry["rows"] for entry in status["quarantined"])
    assert status["points"] + bad == 30_000
    assert (status["active"], status["batches"], status["executors"]) == (False, 6, 4)
    assert status["operations"] == 10_500
    results = ds.dataset(tmp_path / "sparkswarm-example" / "results", partitioning="hive")
    rows = results.to_table()
    assert {"id", "ts", "query_ids", "batch_id"} == set(rows.column_names)
    assert sum(map(len, rows.column("query_ids"))) == status["results"] > 0
    for line in ("metrics at http://127.0.0.1:", "batch 5: ", "batches, 29,"):
        assert line in err
    explained = explain_checkpoint(str(tmp_path / "sparkswarm-example" / "checkpoint"))
    assert explained.commit.batch == 5
    assert sum(explained.quarantined.values()) == bad
    assert explained.decisions


def test_all_kinds_of_queries_from_a_file(spark, tmp_path):  # noqa: F811
    second = 1_000_000
    points = [
        [(1, 1.0, 1.0, 3 * second, 10.0), (2, 2.0, 2.0, 7 * second, 60.0)],
        [(3, 3.0, 3.0, 15 * second, 80.0)],
    ]
    box = (0.0, 0.0, 4.0, 4.0)
    queries = [
        [("register", 1, *box, None, "count, mean(speed)", "3 s"),
         ("register", 2, *box, "speed > 50", None, None)],
        [("count", 3, *box, None, None, None), ("range", 4, *box, "speed > 50", None, None)],
    ]  # fmt: skip
    number, string = pa.float64(), pa.string()
    places = [("id", pa.int64()), ("x", number), ("y", number)]
    point = pa.schema([*places, ("ts", pa.timestamp("us", "UTC")), ("speed", number)])
    edges = [(edge, number) for edge in ("min_x", "min_y", "max_x", "max_y")]
    asked = [(name, string) for name in ("where", "aggregate", "window")]
    query = pa.schema([("op", string), ("id", pa.int64()), *edges, *asked])
    for folder, schema, files in (("points", point, points), ("queries", query, queries)):
        (tmp_path / folder).mkdir()
        for i, rows in enumerate(files):
            named = [dict(zip(schema.names, row, strict=True)) for row in rows]
            path = tmp_path / folder / f"{i}.parquet"
            pq.write_table(pa.Table.from_pylist(named, schema), path)
            os.utime(path, (1_600_000_000 + i,) * 2)
    text = f"""
{PLANE.format(folder=tmp_path)}
[spark]
master = "local[2]"
{LOCAL}
[points]
format = "parquet"
path = "{tmp_path}/points"
schema = "id BIGINT, x DOUBLE, y DOUBLE, ts TIMESTAMP, speed DOUBLE"
options.maxFilesPerTrigger = 1
[point_columns]
time = "ts"
[queries]
format = "parquet"
path = "{tmp_path}/queries"
options.maxFilesPerTrigger = 1
schema = '''op STRING, id BIGINT, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE,
            where STRING, aggregate STRING, window STRING'''
[application]
kind = "aggregates"
columns = ["speed"]
[application.of]
kind = "subscriptions"
columns = {{ speed = "number" }}
[window]
sliding = "1 minute"
[sink]
kind = "parquet"
path = "{tmp_path}/results"
results = "pairs"
[summaries]
kind = "parquet"
path = "{tmp_path}/summaries"
[answers]
kind = "parquet"
path = "{tmp_path}/answers"
[trigger]
available_now = true
"""
    handle = started(spark, text)
    handle.await_termination()
    status = status_json(handle.status())
    assert (status["snapshot_queries"], status["late"]) == (2, 0)

    def found(folder, *columns):
        rows = ds.dataset(tmp_path / folder, partitioning="hive").to_table().to_pylist()
        return sorted(tuple(row[name] for name in columns) for row in rows)

    assert found("results", "batch_id", "id", "query_id") == [(0, 2, 2), (1, 3, 2)]
    # The watermark of the second batch, 7 s, is past the window from 3 to 6 s and no other.
    assert found("summaries", "batch_id", "query_id", "count", "mean_speed") == [(1, 1, 1, 10.0)]
    answers = found("answers", "batch_id", "query_id", "count", "id")
    assert answers == [(1, 3, 2, None), (1, 4, None, 2)]


@pytest.mark.long
@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_after_the_batch_under_way(tmp_path, which):
    text = f"""
checkpoint = "checkpoint"
[swarm]
bounds = [-125, 24, -66, 50]
grid = [50, 50]
executors = 2
[spark]
master = "local[2]"
{LOCAL}
[points]
format = "swarm_cities"
options = {{ rowsPerBatch = 500, grid = 50 }}
[sink]
kind = "parquet"
path = "results"
"""
    process = start(tmp_path, text)
    said = []
    patience = threading.Timer(600, process.kill)
    patience.start()
    for line in process.stderr:
        said.append(line)
        if "engine: batch 1: " in line:
            process.send_signal(which)
    patience.cancel()
    text = "".join(said)
    assert process.wait() == 130, text
    assert "stopping after the current batch" in text
    assert "the same command continues the run" in text
    assert "swarm, stopped" in text
    # What the last commit covers is in the sink, and there is no half of anything.
    last = explain_checkpoint(str(tmp_path / "checkpoint"))
    assert last.under_way is None
    assert last.commit.batch >= 1
    batches = {path.parent.name for path in (tmp_path / "results").glob("batch_id=*/_SUCCESS")}
    assert batches == {f"batch_id={n}" for n in range(last.commit.batch + 1)}


def test_what_spark_cannot_read_is_named_with_its_table(spark, capsys):  # noqa: F811
    text = """
checkpoint = "checkpoint"
[points]
format = "parquet"
path = "nowhere"
schema = "id BIGINT, x DOUBLE, y DOUBLE"
[sink]
kind = "noop"
"""
    with pytest.raises(typer.Exit) as ended, _exit_codes():
        started(spark, text)
    assert ended.value.exit_code == 2
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(r"error: \[points\] cannot be read: .*nowhere", said)


# -- without Spark -----------------------------------------------------------------------------


def test_the_example_is_printed_whole():
    result = invoke("--example")
    assert result.exit_code == 0
    assert result.stdout == example_file()


def test_a_right_file_is_checked_without_starting_anything(tmp_path):
    (tmp_path / "run.toml").write_text(example_file())
    result = invoke(str(tmp_path / "run.toml"), "--check")
    assert result.exit_code == 0, result.output
    assert "no mistakes" in result.output
    assert not (tmp_path / "sparkswarm-example").exists()


@pytest.mark.parametrize("words", [["--check"], []])
def test_every_mistake_has_a_line_and_the_exit_code_is_2(tmp_path, words):
    path = tmp_path / "run.toml"
    path.write_text(example_file().replace("executors = 4", "executors = -4\nbeto = 1"))
    result = invoke(str(path), *words)
    assert result.exit_code == 2
    assert f"error: {path}:17: [swarm] executors must be a whole number from 1" in result.output
    assert f"error: {path}:18: [swarm] there is no key beto; did you mean beta?" in result.output


def test_without_a_file_the_usage_is_told():
    result = invoke()
    assert result.exit_code == 2
    assert "--example" in result.output


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("[STREAM_FAILED] it ended\n\tat java.lang.X(no)", "[STREAM_FAILED] it ended"),
        (
            "Top\nCaused by: a.b.SomeException: outer\n at x\nCaused by: c.OtherError: inner\n",
            "OtherError: inner",
        ),
        ("", "no reason was given"),
    ],
)
def test_of_a_long_stack_trace_the_cause_is_told(text, cause):
    assert cause_in(text) == cause


def test_events_of_named_shapes_from_a_file(spark, tmp_path):  # noqa: F811
    zones = [
        ("depot", "Polygon", [[[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]]], {"name": "the depot"}),
        ("gate", "Polygon", [[[5, 0], [5.5, 0], [5.5, 4], [5, 4], [5, 0]]], {}),
        ("shop", "Point", [7, 7], {"radius": 1.0}),
    ]
    features = [
        {
            "type": "Feature",
            "geometry": {"type": kind, "coordinates": place},
            "properties": {"code": code, **more},
        }
        for code, kind, place, more in zones
    ]
    content = {"type": "FeatureCollection", "features": features}
    (tmp_path / "zones.geojson").write_text(json.dumps(content))
    second = 1_000_000
    fixes = [("van", 1, 1.0, 1.0), ("van", 9, 6.0, 1.0), ("van", 20, 7.0, 7.0)]
    table = pa.table(
        {
            "id": [fix[0] for fix in fixes],
            "ts": pa.array([fix[1] * second for fix in fixes], pa.timestamp("us", "UTC")),
            "x": [fix[2] for fix in fixes],
            "y": [fix[3] for fix in fixes],
        }
    )
    (tmp_path / "points").mkdir()
    pq.write_table(table, tmp_path / "points" / "0.parquet")
    asked = [("where", "a", "van", None, None, None), ("nearest", "b", None, 0.0, 0.0, 1)]
    names = ("op", "id", "about", "min_x", "min_y", "k")
    edges = [("max_x", pa.float64()), ("max_y", pa.float64())]
    kinds = (pa.string(), pa.string(), pa.string(), pa.float64(), pa.float64(), pa.int32())
    rows = [dict(zip(names, row, strict=True)) for row in asked]
    (tmp_path / "queries").mkdir()
    schema = pa.schema([*zip(names, kinds, strict=True), *edges])
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "queries" / "0.parquet")
    boxes = ", ".join(f"{name} DOUBLE" for name in ("min_x", "min_y", "max_x", "max_y"))
    text = f"""
{PLANE.format(folder=tmp_path)}
[points]
format = "parquet"
path = "{tmp_path}/points"
schema = "id STRING, ts TIMESTAMP, x DOUBLE, y DOUBLE"
[point_columns]
time = "ts"
[queries]
format = "parquet"
path = "{tmp_path}/queries"
schema = "op STRING, id STRING, about STRING, k INT, {boxes}"
[preload]
format = "fences"
path = "{tmp_path}/zones.geojson"
options.id = "code"
[query_columns]
include = ["name"]
[events]
kind = "parquet"
path = "{tmp_path}/events"
cross = 8
[positions]
kind = "parquet"
path = "{tmp_path}/positions"
[trigger]
available_now = true
"""
    handle = started(spark, text)
    handle.await_termination()
    told = ds.dataset(tmp_path / "events", partitioning="hive").to_table().to_pylist()
    found = {(row["object"], row["event"], row["fence"], row["name"]) for row in told}
    assert found == {
        ("van", "enter", "depot", "the depot"),
        ("van", "exit", "depot", "the depot"),
        ("van", "cross", "gate", None),
        ("van", "enter", "shop", None),
    }
    assert handle.inside("shop")["object"].to_pylist() == ["van"]
    answers = ds.dataset(tmp_path / "positions", partitioning="hive").to_table()
    assert answers.num_rows == 0
