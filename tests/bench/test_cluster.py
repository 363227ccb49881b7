"""The benchmark on a cluster: its figures by hand, and a small run on two hosts."""

import json

import pytest

from sparkswarm.bench.cluster import (
    ClusterRun,
    ClusterSeries,
    ClusterSettings,
    run_cluster,
    write_stream,
)
from sparkswarm.bench.replay_series import WARM_UP, ReplayBatch, ReplaySeries
from sparkswarm.observe.progress import HostUse


def batch(mapped, fetched, at_home):
    hosts = tuple(HostUse(f"h{i}", 2, at_home, size, 0) for i, size in enumerate(mapped))
    return ReplayBatch(
        seconds=1.0, points=10, matches=5, lent=0, tasks=(1.0, 1.0), all_tasks=2.0,
        work=(1.0, 3.0), partitions=2, query_bytes=400, fetched_bytes=fetched, hosts=hosts,
    )  # fmt: skip


def series(*batches):
    return ClusterSeries(ReplaySeries([batch((900, 900), 900, 0)] * WARM_UP + [*batches], {}), [7])


def test_the_figures_are_of_the_batches_after_the_warm_up_except_for_what_was_fetched():
    one = series(batch((100, 300), 50, 2), batch((200, 100), 150, 1))
    assert one.on_its_host == 0.75
    assert one.state_per_host == [150, 200]
    assert one.fetched_per_batch == (2 * 900 + 50 + 150) / 4
    assert one.fetched_after_warm_up == (50 + 150) / 2
    assert one.balance == pytest.approx(2 / 3)
    assert (one.state, one.largest_state) == (400, 400)


def test_the_json_has_what_failed_beside_what_ran():
    one = series(batch((100, 300), 50, 2))
    limited = {"swarm": one, "replicated": "StoreError: no room"}
    run = ClusterRun(ClusterSettings(), {"swarm": one}, limited, 160, 3, 0)
    found = json.loads(json.dumps(run.to_json()))
    assert found["policies"]["swarm"]["state_bytes_per_host"] == [100, 300]
    assert found["limited"]["policies"]["replicated"] == {"error": "StoreError: no room"}
    assert found["oracle"] == {"checked": 3, "wrong": 0}


def test_the_sample_has_the_points_whose_results_a_run_keeps(tmp_path):
    # The points of a batch are no multiple of the step.
    stream = write_stream(tmp_path, ClusterSettings(batches=2, points=1300, queries=100))
    first, copy = stream.checked_batches
    step = stream.sample_step
    assert 1300 * copy % step
    ids = [i for b in (first, copy) for i in range(b * 1300, (b + 1) * 1300)]
    kept = [i for i in ids if i % step == 0]
    assert sorted(stream.sample) == kept


@pytest.mark.long
def test_with_room_for_a_part_of_the_state_swarm_runs_and_replicated_says_why_not():
    settings = ClusterSettings(
        hosts=3, batches=4, points=3000, queries=60_000, policies=("swarm", "replicated"), limit=0.6
    )
    run = run_cluster(settings)
    assert run.checked
    assert not run.wrong
    for one in run.series.values():
        assert one.on_its_host >= 0.95
    assert isinstance(run.limited["swarm"], ClusterSeries)
    assert "needs more than cache_bytes" in run.limited["replicated"]
    swarm, replicated = (max(one.state_per_host) for one in run.series.values())
    assert swarm < replicated
