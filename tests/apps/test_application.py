"""The interface of applications: names of earlier versions, and which of them keep state."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sparkswarm.apps.aggregates.application import Aggregates
from sparkswarm.apps.application import Application, PairFunction, Pairs, Stateful
from sparkswarm.apps.bound import BoundApplication
from sparkswarm.errors import ConfigError

POINTS = pa.schema({"id": pa.int64(), "x": pa.float64(), "y": pa.float64(), "time": pa.int64()})


@pytest.mark.parametrize(
    ("base", "old", "new"),
    [
        (Application, "prepared", "bind"),
        (Application, "refuse", "reject"),
        (Stateful, "refuse", "reject"),
        (Stateful, "keeps", "collects"),
        (Stateful, "combined", "combine"),
        (Stateful, "delay", "watermark_delay"),
        (Stateful, "appends", "append_only"),
        (Aggregates, "delay", "watermark_delay"),
    ],
)
def test_a_class_that_uses_an_old_name_is_told_the_new_one(base, old, new):
    with pytest.raises(ConfigError, match=rf"^Mine\.{old}: {old} was renamed to {new}$"):
        type("Mine", (base,), {old: None})


def test_a_stateless_application_may_use_the_names_of_state_for_something_else():
    type("Mine", (Application,), {"delay": 5, "keeps": None})


def test_an_instance_with_an_old_name_is_told_the_new_one_when_a_run_starts():
    application = Aggregates()
    application.delay = 5
    with pytest.raises(ConfigError, match="delay was renamed to watermark_delay"):
        BoundApplication.of(application, {}, POINTS)


def test_an_application_says_whether_it_keeps_state():
    aggregates = Aggregates()
    assert aggregates.stateful is aggregates
    assert PairFunction(lambda point, query: True).stateful is None


def test_a_pair_function_is_called_with_rows_as_dictionaries():
    calls = []

    def is_larger(point, query):
        calls.append((point["id"], query["id"]))
        return point["size"] > query["limit"]

    application = PairFunction(is_larger, {"limit": "INT"}, ["size"])
    built = application.build(pa.table({"id": [7, 8], "limit": [1, 3]}))
    points = pa.table({"id": ["a", "b", "c"], "size": [0, 2, 4]})
    pairs = Pairs(np.array([2, 1, 1]), np.array([1, 0, 1]))
    assert application.match(built, points, pairs).tolist() == [True, True, False]
    assert calls == [("c", 8), ("b", 7), ("b", 8)]
