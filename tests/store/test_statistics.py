"""Soft files come back as they were; a missing or damaged one is no error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sparkswarm.geometry import CellRect, QueryCells
from sparkswarm.store import statistics
from sparkswarm.store.files import Files
from sparkswarm.store.statistics import QueryChanges, keep, open_soft, recall


def test_statistics_of_partitions_come_back() -> None:
    values = {7: np.arange(6.0).reshape(2, 3), 12: np.full((1, 3), np.nan)}
    found = statistics.from_bytes(statistics.to_bytes(values))
    assert found.keys() == values.keys()
    assert all(np.array_equal(found[key], values[key], equal_nan=True) for key in values)
    assert statistics.from_bytes(statistics.to_bytes({})) == {}


def test_changes_of_queries_come_back() -> None:
    cells = QueryCells.of([CellRect(0, 1, 2, 3), CellRect(4, 5, 6, 7)])
    changes = QueryChanges(partition=np.array([3, 5]), added=np.array([True, False]), cells=cells)
    found = QueryChanges.from_bytes(changes.to_bytes())
    assert found.partition.tolist() == [3, 5]
    assert found.added.tolist() == [True, False]
    assert found.added.dtype == bool
    assert [found.cells.rect(i) for i in range(2)] == [cells.rect(i) for i in range(2)]
    assert not found.cells.fault.any()


def test_a_soft_file_may_be_gone(tmp_path) -> None:
    files = Files(str(tmp_path))
    ref = files.write("soft/a", b"content", durable=False)
    assert open_soft(files, ref).to_pybytes() == b"content"
    assert open_soft(files, replace(ref, crc=ref.crc ^ 1)) is None
    files.delete([ref.name])
    assert open_soft(files, ref) is None
    assert open_soft(files, None) is None


def test_small_statistics_need_no_file_and_large_ones_come_back_from_one(tmp_path) -> None:
    files = Files(str(tmp_path))
    names = iter(["soft/large"])
    small, large = ({3: np.ones((lines, 10))} for lines in (100, 100_000))
    assert keep(files, small, 2, lambda: next(names)) is small
    assert recall(files, small) is small
    kept = keep(files, large, 2, lambda: next(names))
    assert kept.name == "soft/large"
    assert np.array_equal(recall(files, kept)[3], large[3])
    files.delete([kept.name])
    assert recall(files, kept) is None
    assert recall(files, None) is None


def test_of_many_executors_each_may_keep_less(tmp_path) -> None:
    values = {3: np.ones((5_000, 10))}
    assert keep(Files(str(tmp_path)), values, 2, lambda: "soft/a") is values
    assert keep(Files(str(tmp_path)), values, 200, lambda: "soft/a") is not values
