"""The control benchmark: what it runs is a run, and its report has the promised form."""

import json

import numpy as np
from typer.testing import CliRunner

from sparkswarm.bench.control import Driver, fine_plan, run_round
from sparkswarm.cli import app
from sparkswarm.config import SwarmConfig
from sparkswarm.spark.tasks.context import open_context
from sparkswarm.store.epochs import Epochs
from sparkswarm.store.files import Files

CONFIG = SwarmConfig(bounds=(0, 0, 1, 1), grid=(40, 40), executors=5)


def test_the_plan_is_even_and_as_fine_as_asked():
    plan = fine_plan(CONFIG, 50)
    plan.check()
    assert len(plan.partitions) == 50
    assert [len(plan.owned_by(m)) for m in range(5)] == [10] * 5


def test_a_round_moves_partitions():
    plan = fine_plan(CONFIG, 50)
    after = run_round(plan, CONFIG, np.random.default_rng(0))
    after.check()
    assert after.version > plan.version
    assert len(after.partitions) == 50


def test_batches_are_durable_and_tasks_are_given_their_plan(tmp_path):
    rng = np.random.default_rng(0)
    driver = Driver(Files(str(tmp_path)), CONFIG, fine_plan(CONFIG, 300))
    for _ in range(4):
        before = driver.last.plan
        changes = driver.some_changes(rng)
        assert len(changes) == 3
        pickled = driver.run_batch(changes)
        ids = {p.id for p in driver.last.plan.partitions}
        assert len(ids - {p.id for p in before.partitions}) == 3
        assert Epochs(Files(str(tmp_path)), 3).last_commit() == driver.last
        context = open_context(pickled)
        assert (context.plan, context.epoch.manifest) == (driver.last.plan, driver.last.manifest)
        context.index.check_tiling()
        assert set(context.index.partitions) == ids


def test_the_report_has_the_promised_form():
    arguments = ["--executors", "3", "--partitions", "100", "--grid", "50", "--json", "-"]
    done = CliRunner().invoke(app, ["bench", "control", *arguments])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["executors"], found["partitions"], found["grid"]) == (3, 100, 50)
    for name in ("batch_ms", "round_ms", "briefing_bytes", "worker_ms", "worker_bytes"):
        assert found[name] > 0
