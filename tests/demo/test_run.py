"""The demo as a user meets it: a process of its own, with a Spark of its own."""

import signal
import subprocess
import sys

import pytest

DEMO = [
    sys.executable,
    "-c",
    "from sparkswarm.cli import app; app()",
    "demo",
    "--executors",
    "3",
    "--no-browser",
]


def test_the_demo_streams_on_spark_compares_and_sums_up():
    done = subprocess.run(
        [*DEMO, "--seconds", "6"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    for word in ("Starting Spark", "Registering 100,000 subscriptions", "batch 1 of 3", "results"):
        assert word in done.stderr
    assert done.stdout == ""
    assert "Measured on Spark: 3 batches of 200,000 points, 3 executors" in done.stderr
    for word in ("before the hotspot", "during the hotspot", "after the hotspot", "static"):
        assert word in done.stderr
    # Spark's own words would garble the view.
    for word in ("WARN", "ERROR", "log level", "Traceback"):
        assert word not in done.stderr + done.stdout


@pytest.mark.long
def test_ctrl_c_ends_the_demo_in_one_line():
    with subprocess.Popen(
        [*DEMO, "--seconds", "1000", "--no-compare"], stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stderr is not None
        said = demo.stderr.readline()
        while "batch 1 of" not in said:
            said = demo.stderr.readline()
            assert said, "it ended before the first batch"
        demo.send_signal(signal.SIGINT)
        rest = demo.stderr.read()
        assert demo.wait(timeout=60) == 130
    assert rest.strip().splitlines()[-1] == "interrupted"
    assert "Traceback" not in rest
