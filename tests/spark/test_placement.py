"""Executors stay on their hosts, evenly, with as few changes as that takes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.observe.progress import Counts
from sparkswarm.spark.driver.outputs import host_uses
from sparkswarm.spark.driver.placement import assign_hosts
from sparkswarm.spark.task_output import TaskOutput, TaskStage
from sparkswarm.store.manifest import Manifest

HOSTS = st.sampled_from("abcdefgh")
WEIGHTS = st.dictionaries(HOSTS, st.integers(1, 9), min_size=1)


@given(st.lists(HOSTS), st.integers(1, 60), WEIGHTS)
def test_no_host_has_more_than_its_share_whatever_was_before(
    before: list[str], executors: int, weights: dict[str, int]
) -> None:
    hosts = assign_hosts(before, executors, weights)
    assert len(hosts) == executors
    total = sum(weights.values())
    for host, number in Counter(hosts).items():
        assert (number - 1) * total < executors * weights[host]


@given(st.integers(1, 60), WEIGHTS)
def test_nothing_changes_while_the_hosts_stay(executors: int, weights: dict[str, int]) -> None:
    hosts = assign_hosts((), executors, weights)
    assert assign_hosts(hosts, executors, weights) == hosts


@given(st.integers(1, 60), WEIGHTS.filter(lambda weights: len(weights) > 1))
def test_only_the_executors_of_a_lost_host_move(executors: int, weights: dict[str, int]) -> None:
    hosts = assign_hosts((), executors, weights)
    lost = min(weights)
    left = {host: weight for host, weight in weights.items() if host != lost}
    after = assign_hosts(hosts, executors, left)
    assert all(new == old for old, new in zip(hosts, after, strict=True) if old != lost)


def test_a_host_that_returns_gets_its_share_and_no_more_executors_move_than_that_takes() -> None:
    three, two = dict.fromkeys("abc", 1), dict.fromkeys("ab", 1)
    without = assign_hosts(assign_hosts((), 6, three), 6, two)
    after = assign_hosts(without, 6, three)
    assert Counter(after) == {"a": 2, "b": 2, "c": 2}
    assert sum(old != new for old, new in zip(without, after, strict=True)) == 2


def test_more_executors_are_added_where_there_is_room() -> None:
    hosts = assign_hosts((), 2, {"a": 1, "b": 1})
    more = assign_hosts(hosts, 6, {"a": 1, "b": 2})
    assert more[:2] == hosts
    assert Counter(more) == {"a": 2, "b": 4}
    assert assign_hosts(more, 2, {"a": 1, "b": 1}) == hosts


def test_the_use_of_hosts_counts_tasks_at_home_and_what_was_fetched() -> None:
    def output(executor: int, stage: TaskStage, task: int, fetched: int) -> TaskOutput:
        counts = Counts(fetched_bytes=fetched)
        return TaskOutput(batch=1, stage=stage, task=executor, counts=counts, spark_task=(7, task))

    outputs = [
        output(0, TaskStage.ROUTE, 10, 5),
        output(0, TaskStage.EXECUTE, 11, 100),
        output(1, TaskStage.EXECUTE, 12, 0),
        output(2, TaskStage.EXECUTE, 13, 7),
        output(3, TaskStage.EXECUTE, 14, 7),
    ]
    host_of = {10: "b", 11: "a", 12: "b", 13: "b"}
    a, b = host_uses(outputs, ("a", "b", "a", "b"), host_of, Manifest(1, {}))
    assert (a.host, a.tasks, a.at_home, a.fetched_bytes) == ("a", 1, 1, 100)
    assert (b.host, b.tasks, b.at_home, b.fetched_bytes) == ("b", 2, 1, 12)
