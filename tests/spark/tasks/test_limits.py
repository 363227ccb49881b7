"""What a query, a batch and a checkpoint may be at most; no JVM."""

import json
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

from sparkswarm import Sliding, Subscriptions, SwarmConfig
from sparkswarm.errors import StoreError
from sparkswarm.store.kept import check_kept_bytes
from sparkswarm.store.quarantine import Quarantine

from ...support.tasks import Tasks, operations_table, register

SPACE = {"bounds": (0, 0, 8, 8), "grid": (8, 8), "executors": 2, "policy": "static_uniform"}


def rejected(tasks):
    found = Counter()
    for output in tasks.outputs:
        found.update({reason: count for (_, reason), count in output.rejected.items()})
    return dict(found)


def test_without_limits_queries_may_cover_the_world(tmp_path):
    tasks = Tasks(tmp_path)
    tasks.apply(*(register(i, -1e9, -1e9, 1e9, 1e9) for i in range(20)))
    assert rejected(tasks) == {}
    assert tasks.match((1, 0.5, 0.5)) == {1: list(range(20))}


def test_a_query_has_at_most_a_share_of_the_space(tmp_path):
    tasks = Tasks(tmp_path, config=SwarmConfig(**SPACE, max_query_share=0.25))
    tasks.apply(
        register(1, 0.0, 0.0, 4.0, 4.0),
        # What is outside the space does not count.
        register(2, -9.0, -9.0, 3.9, 3.9),
        register(3, 0.0, 0.0, 4.001, 4.0),
        register(4, -1e9, -1e9, 1e9, 1e9),
        register(5, 0.0, 0.0, 8.0, 0.0),
        {"op": "unregister", "id": 6},
    )
    assert rejected(tasks) == {"larger than max_query_share (0.25)": 2}
    assert tasks.match((1, 0.5, 0.0)) == {1: [1, 2, 5]}


def test_a_query_has_at_most_so_many_bytes_of_its_own(tmp_path):
    tasks = Tasks(
        tmp_path, application=Subscriptions({}, "words"),
        config=SwarmConfig(**SPACE, max_query_bytes=1000),
    )  # fmt: skip
    columns = pa.schema(
        [("where", pa.string()), *((n, pa.list_(pa.string())) for n in ("all_of", "any_of"))]
    )
    tasks.declare(columns, pa.schema([("words", pa.string())]))
    for number, words in enumerate((["a"], ["a" * 2000], ["a"] * 500)):
        details = json.dumps({"all_of": words}).encode()
        tasks.apply(register(number, 0.0, 0.0, 4.0, 4.0, details=details))
    assert rejected(tasks) == {"longer than max_query_bytes (1000)": 2}


def test_a_condition_has_at_most_so_many_characters(tmp_path):
    app = Subscriptions({"speed": "number"}, max_condition_length=20)
    queries = pa.table({
        "id": [1, 2], "where": ["speed > 50", "speed > 50 and speed < 70"],
        **{name: pa.nulls(2, pa.list_(pa.string())) for name in ("all_of", "any_of")},
    })  # fmt: skip
    reasons = app.reject(queries)
    assert reasons[0] is None
    assert "max_condition_length 20" in reasons[1]
    assert app.build(queries) is not None, "what is stored may be longer"


def test_a_batch_has_at_most_so_many_operations(tmp_path):
    tasks = Tasks(tmp_path, config=SwarmConfig(**SPACE, max_operations=3))
    tasks.apply(*(register(i, 0.0, 0.0, 4.0, 4.0) for i in range(5)))
    assert rejected(tasks) == {"beyond max_operations (3) of a batch": 2}
    assert tasks.match((1, 0.5, 0.5)) == {1: [0, 1, 2]}
    tasks.commit()
    tasks.apply(*(register(i, 0.0, 0.0, 4.0, 4.0) for i in range(5, 8)))
    assert rejected(tasks) == {}


def test_what_is_preloaded_is_not_of_a_batch(tmp_path):
    tasks = Tasks(tmp_path, config=SwarmConfig(**SPACE, max_operations=3))
    tasks.input = replace(tasks.input, epoch=replace(tasks.input.epoch, batch=-1))
    tasks.load(*(register(i, 0.0, 0.0, 4.0, 4.0) for i in range(5)))
    assert rejected(tasks) == {}


def test_what_is_kept_is_limited_with_the_name_of_the_limit(tmp_path):
    tasks = Tasks(tmp_path, window=Sliding("1 hour"))
    tasks.match(*((i, i / 100, 0.5, 10) for i in range(100)))
    tasks.commit(max_event_time=10)
    manifest = tasks.input.epoch.manifest
    check_kept_bytes(manifest, 0, 7)
    check_kept_bytes(manifest, 1_000_000, 7)
    with pytest.raises(StoreError, match=r"batch 7 .* max_kept_bytes \(100\)"):
        check_kept_bytes(manifest, 100, 7)


HOSTILE = ("../../../etc/passwd", "a/../b", "/etc/passwd", "\x00", "..", "C:\\x", "%2e%2e/", "\n=1")


def test_names_of_queries_and_points_never_become_names_of_files(tmp_path):
    tasks = Tasks(tmp_path / "checkpoint")
    rows = [{"op": name, "id": i, "min_x": 0.0} for i, name in enumerate(HOSTILE)]
    tasks.apply(*rows, register(1, 0.0, 0.0, 4.0, 4.0))
    assert rejected(tasks) == {"unknown operation": len(HOSTILE)}
    points = (
        operations_table(*rows).select(["id"]).append_column("__x", pa.array([0.5] * len(rows)))
    )
    quarantine = Quarantine(tasks.input.files, 3, "task")
    quarantine.add("point", points, {"id": HOSTILE[0]}, [HOSTILE[0]] * len(rows))
    quarantine.write()
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint"}
    folders = {path.name for path in (tmp_path / "checkpoint").iterdir()}
    assert folders <= {"deltas", "soft", "quarantine", "segments"}
