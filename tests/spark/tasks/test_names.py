"""Queries whose ids are no whole numbers are found, changed and returned by their names."""

from __future__ import annotations

import datetime
import decimal
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparkswarm.errors import InputError
from sparkswarm.store import names
from sparkswarm.store.names import (
    LONGEST_NAME,
    gather_names,
    hash_names,
    name_of_value,
    number_names,
    values_of_names,
)

from ...support.tasks import Tasks, register

ALL_OF = (0.0, 0.0, 8.0, 8.0)
NAMES = ["zone-a", "zone-b", "", " ", "né", 'a,"b"\n', "0", "zone-a ", "日本", "x" * LONGEST_NAME]


def few_hashes(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let names have few hashes, so that almost all of them collide."""
    exact = names.hash_texts
    monkeypatch.setattr(names, "hash_texts", lambda bounds, data: exact(bounds, data) % number)


@pytest.mark.parametrize("hashes", [None, 5, 1], ids=["all hashes", "five", "one"])
def test_names_are_as_good_as_numbers_however_many_collide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hashes: int | None
) -> None:
    if hashes is not None:
        few_hashes(monkeypatch, hashes)
    rng = random.Random(hashes)
    tasks = Tasks(tmp_path, executors=2, id_type=pa.string())
    known: dict[str, tuple[float, float, float, float]] = {}
    loaded = [(name, _box(rng)) for name in [*NAMES[:6], NAMES[0]]]
    tasks.load(*[register(name, *box) for name, box in loaded])
    known.update(loaded)
    _check(tasks, known)
    for batch in range(8):
        tasks.commit()
        rows: list[dict[str, Any]] = []
        for name in rng.choices(NAMES, k=5):
            box = _box(rng)
            op = rng.choice(["register", "update", "unregister"])
            rows.append({**register(name, *box), "op": op})
            if op == "unregister":
                known.pop(name, None)
            else:
                known[name] = box
        tasks.apply(*rows)
        _check(tasks, known)
        if batch % 3 == 2:
            tasks.compact()
            _check(tasks, known)
    renumbered = tasks.input.epoch.manifest.renumbered
    assert len(renumbered) >= {None: 0, 5: 3, 1: 6}[hashes]
    assert (not renumbered) == (hashes is None)


def _box(rng: random.Random) -> tuple[float, float, float, float]:
    x, y = rng.randrange(7), rng.randrange(7)
    return x, y, x + rng.randrange(1, 5), y + rng.randrange(1, 5)


def _check(tasks: Tasks, known: dict[str, tuple[float, float, float, float]]) -> None:
    points = [(10 * x + y, x + 0.5, float(y)) for x in range(8) for y in range(8)]
    wanted = {
        number: sorted(
            name for name, box in known.items()
            if box[0] <= x <= box[2] and box[1] <= y <= box[3]
        )
        for number, x, y in points
    }  # fmt: skip
    wanted = {number: some for number, some in wanted.items() if some}
    assert tasks.match(*points) == wanted
    assert tasks.match_directly(*points) == wanted


def test_an_id_that_is_too_long_or_null_is_rejected(tmp_path: Path) -> None:
    tasks = Tasks(tmp_path, id_type=pa.string())
    long = register("x" * (LONGEST_NAME + 1), *ALL_OF)
    tasks.apply(register("good", *ALL_OF), long, {**long, "id": None})
    assert tasks.outputs[-1].rejected == {("query", "id is too long"): 1, ("query", "null id"): 1}
    assert tasks.match((1, 2.0, 2.0)) == {1: ["good"]}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["", "a", "日本"]),
        (pa.binary(), [b"", b"\0\xff"]),
        (pa.decimal128(20, 3), [decimal.Decimal("1.500"), decimal.Decimal("-0.001")]),
        (pa.date32(), [datetime.date(1969, 12, 31), datetime.date(2026, 1, 1)]),
        (pa.timestamp("us", "UTC"), [datetime.datetime(1960, 1, 1, 1, 2, 3, 4, datetime.UTC)]),
        (pa.timestamp("us"), [datetime.datetime(2026, 1, 1, 1, 2, 3, 4)]),
        (pa.bool_(), [True, False]),
    ],
    ids=str,
)
def test_names_become_ids_of_their_type_again(kind: pa.DataType, values: list[Any]) -> None:
    texts = pa.array([name_of_value(value, kind).decode() for value in values])
    assert values_of_names(texts, kind).to_pylist() == values
    with pytest.raises(InputError, match=r"ids of type|has an id"):
        name_of_value(None if kind == pa.bool_() else object(), kind)


def test_the_same_names_have_the_same_numbers_whatever_comes_with_them() -> None:
    texts = pa.array([b"a", b"bb", b"a", b""], pa.large_binary())
    found = number_names(texts, {}, lambda numbers: pa.nulls(len(numbers), pa.large_binary()))
    assert found.numbers.tolist() == hash_names(texts).tolist()
    assert found.numbers[0] == found.numbers[2]
    assert hash_names(texts.slice(1, 2)).tolist() == found.numbers[1:3].tolist()
    assert not found.renumbered


def test_names_are_gathered_from_several_sources() -> None:
    first = pa.array([b"x", b"one", b"", b"three"], pa.large_binary()).slice(1)
    second = pa.array([b"four"], pa.large_binary())
    sources = [
        (first, np.array([2, 0, 1, 0], np.int32)),
        (second, np.array([0, 0], np.int32)),
    ]
    wanted = ["three", "one", "", "one", "four", "four"]
    assert gather_names(sources).to_pylist() == wanted
    assert gather_names([]).to_pylist() == []
