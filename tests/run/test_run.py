"""``sparkswarm run`` as a user meets it: the example runs, mistakes are told, signals are heard.

Runs on Spark are processes of their own: a command stops its Spark at the end, and other tests
may share theirs.
"""

import json
import re
import signal
import subprocess
import sys
import threading

import pyarrow.dataset as ds
import pytest
import typer
from typer.testing import CliRunner

from sparkswarm.explain import explain_checkpoint
from sparkswarm.run.cli import _cause, example_file, run

COMMAND = [
    sys.executable,
    "-c",
    "import typer; from sparkswarm.run.cli import run; typer.run(run)",
]
LOCAL = 'conf = { "spark.driver.host" = "127.0.0.1", "spark.ui.enabled" = false }'


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
    assert "ending after the batch under way" in text
    assert "the same command goes on" in text
    assert "swarm, stopped" in text
    # What the last commit covers is in the sink, and there is no half of anything.
    last = explain_checkpoint(str(tmp_path / "checkpoint"))
    assert last.under_way is None
    assert last.commit.batch >= 1
    batches = {path.parent.name for path in (tmp_path / "results").glob("batch_id=*/_SUCCESS")}
    assert batches == {f"batch_id={n}" for n in range(last.commit.batch + 1)}


def test_what_spark_cannot_read_is_named_with_its_table(tmp_path):
    text = f"""
checkpoint = "checkpoint"
[spark]
master = "local[1]"
{LOCAL}
[points]
format = "parquet"
path = "nowhere"
schema = "id BIGINT, x DOUBLE, y DOUBLE"
[sink]
kind = "noop"
"""
    process = start(tmp_path, text)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 2, err
    assert re.search(r"error: \[points\] cannot be read: .*nowhere", err)


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
    assert _cause(text) == cause
