"""Counts add up, and whatever reports them derives from their fields."""

from dataclasses import fields

from sparkswarm.observe.metrics import METRICS
from sparkswarm.observe.progress import Counts, Status, Totals

from ..support.runs import first_plan, progress

NAMES = [f.name for f in fields(Counts)]


def test_counts_add_up_field_by_field():
    some = Counts(**{name: i for i, name in enumerate(NAMES)})
    more = Counts(**{name: 10 for name in NAMES})
    assert sum([some, more], Counts()).counts() == {n: i + 10 for i, n in enumerate(NAMES)}


def test_a_batch_is_added_as_its_counts_alone():
    batch = progress(0, first_plan())
    assert type(Counts() + batch) is Counts
    assert Counts() + batch == Counts(points=1000, matches=200, checks=300, operations=7)


def test_totals_become_a_status():
    totals = Totals()
    for batch in range(3):
        totals.add(progress(batch, first_plan()))
    facts = {"active": True, "policy": "swarm", "executors": 4, "partitions": 4, "round": 1}
    status = Status(**facts, **totals.status_fields())
    assert (status.batches, status.points, status.matches) == (3, 3003, 600)
    assert status.quarantined == {("point", "outside the bounds"): 9}
    assert status.last == progress(2, first_plan())
    assert "3 batches, 3,003 points, 600 results, 900 checks, 21 query operations" in str(status)


def test_every_count_is_a_metric():
    names = {metric.name for metric in METRICS}
    assert {f.metadata["metric"]["name"] for f in fields(Counts)} <= names
