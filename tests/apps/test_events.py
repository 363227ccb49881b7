"""Events of objects and fences, without Spark: against an oracle, and by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.apps.events.advance import Advance, FenceChanges, advance
from sparkswarm.apps.events.objects import (
    BUCKETS,
    BoundEvents,
    buckets_of,
    check_object_type,
    fix_schema,
    object_schema,
)
from sparkswarm.apps.events.settings import Events
from sparkswarm.apps.events.walk import order_fixes
from sparkswarm.errors import ConfigError, InputError
from sparkswarm.index.layout import NEVER
from sparkswarm.store.blocks import MIN_TIME

from .event_oracle import EventOracle, Fix

SECOND = 1_000_000


class Bucket:
    """Objects of one bucket, advanced by the real code."""

    def __init__(self, settings: Events, kind: pa.DataType | None = None) -> None:
        self.bound = BoundEvents(settings, kind or pa.string())
        self.objects = object_schema(self.bound).empty_table()
        self.late = self.repeated = self.long_legs = 0
        self.legs: list[tuple[Any, ...]] = []

    def batch(
        self, fixes: Iterable[Fix], changes: dict[int, bool] | None = None, clock: int = MIN_TIME
    ) -> list[tuple[Any, ...]]:
        rows = [
            {
                "object": fix.object, "time": fix.time, "x": fix.x, "y": fix.y,
                "fences": list(fix.fences), "until": list(fix.fences.values()),
            }
            for fix in fixes
        ]  # fmt: skip
        ids = sorted(changes or {})
        exists = np.array([(changes or {})[i] for i in ids], bool)
        done = advance(
            self.objects,
            pa.Table.from_pylist(rows, schema=fix_schema(self.bound)),
            FenceChanges(np.array(ids, np.int64), exists),
            clock,
            self.bound,
        )
        self.objects = done.objects
        self.late += done.ignored.late
        self.repeated += done.ignored.repeated
        self.long_legs += done.ignored.long_legs
        columns = [done.walkers.to_pylist(), *(column.tolist() for column in done.legs)]
        self.legs = list(zip(*columns, strict=True))
        return tuples(done)


def tuples(done: Advance) -> list[tuple[Any, ...]]:
    events = done.events
    micros = events.set_column(4, "time", events.column("time").cast(pa.int64()))
    return list(zip(*(column.to_pylist() for column in micros.columns), strict=True))


def known(bucket: Bucket) -> dict[Any, Any]:
    """Return what is known of objects as the oracle has it."""
    found = {}
    for row in bucket.objects.to_pylist():
        lists = zip(row["fences"], row["since"], row["until"], row["dwelt"], strict=True)
        fences = {fence: [since, until, bool(dwelt)] for fence, since, until, dwelt in lists}
        found[row["object"]] = (row["time"], (row["x"], row["y"]), fences)
    return found


def by_object(events: list[tuple[Any, ...]]) -> dict[Any, list[int]]:
    times: dict[Any, list[int]] = {}
    for event in events:
        times.setdefault(event[0], []).append(event[4])
    return times


NUMBER_BUCKETS = [0, 37, 10, 59]
TEXT_BUCKETS = [27, 56, 6, 38]

NAMES = {
    pa.string(): st.sampled_from(["van-7", "van-8", "", "täxi", "x" * 40]),
    pa.int64(): st.sampled_from([0, 1, -1, 2**62]),
    pa.binary(): st.sampled_from([b"", b"\0", b"\0\0"]),
}


@st.composite
def histories(draw: st.DrawFn) -> tuple[pa.DataType, list[Any]]:
    """Batches of fixes and of changed fences, with their clocks, which never go back."""
    kind = draw(st.sampled_from(list(NAMES)))
    # Times are few, so that fixes come late and repeated; the expiry of a fence is one number.
    until = {f: draw(st.sampled_from([NEVER, 7, 12, 20])) for f in range(5)}
    batches, clock = [], MIN_TIME
    for _ in range(draw(st.integers(1, 5))):
        fixes = []
        for _ in range(draw(st.integers(0, 8))):
            time = draw(st.integers(-5, 30))
            x, y = draw(st.integers(0, 3)), draw(st.integers(0, 1))
            live = [f for f in range(5) if time < until[f]]
            order = draw(st.permutations(live))[: draw(st.integers(0, 5))]
            place = (float(x), float(y))
            fixes.append(Fix(draw(NAMES[kind]), time, *place, {f: until[f] for f in order}))
        changes = draw(st.dictionaries(st.integers(0, 6), st.booleans(), max_size=2))
        batches.append((fixes, changes, clock))
        clock = max([clock, *(fix.time for fix in fixes)])
    return kind, batches


@given(
    history=histories(),
    silent=st.integers(1, 15),
    dwell=st.sampled_from([None, 1, 4, 9]),
    inside=st.booleans(),
)
def test_events_and_objects_are_those_of_the_oracle(
    history: tuple[pa.DataType, list[Any]], silent: int, dwell: int | None, inside: bool
) -> None:
    kind, batches = history
    settings = Events(f"{dwell} us" if dwell else None, f"{silent} us", inside)
    bucket, oracle = Bucket(settings, kind), EventOracle(silent, dwell or 0, inside)
    for fixes, changes, clock in batches:
        told = bucket.batch(fixes, changes, clock)
        assert Counter(told) == Counter(oracle.batch(fixes, changes, clock))
        for times in by_object(told).values():
            assert times == sorted(times)
        wanted = {n: (k.time, k.place, k.fences) for n, k in oracle.objects.items()}
        assert known(bucket) == wanted
    assert (bucket.late, bucket.repeated) == (oracle.late, oracle.repeated)


@given(history=histories(), seed=st.randoms(use_true_random=False))
def test_the_order_in_which_fixes_arrive_does_not_matter(
    history: tuple[pa.DataType, list[Any]], seed: Any
) -> None:
    kind, batches = history
    one, other = (Bucket(Events("3 us", "9 us", True), kind) for _ in range(2))
    for fixes, changes, clock in batches:
        told = one.batch(fixes, changes, clock)
        assert Counter(other.batch(seed.sample(fixes, len(fixes)), changes, clock)) == Counter(told)
        assert known(one) == known(other)


@given(
    history=histories(), silent=st.integers(1, 15), longest=st.sampled_from([None, 0.5, 1.0, 1.5])
)
def test_legs_go_from_one_fix_that_counts_to_the_next(
    history: tuple[pa.DataType, list[Any]], silent: int, longest: float | None
) -> None:
    kind, batches = history
    bucket = Bucket(Events(silent_after=f"{silent} us", cross=longest), kind)
    oracle = EventOracle(silent, cross=longest or 0, crossed=lambda leg, time: [99])
    for fixes, changes, clock in batches:
        bucket.batch(fixes, changes, clock)
        told = oracle.batch(fixes, changes, clock)
        wanted = [(e[0], *e[5:9], e[4]) for e in told if e[2] == "cross"]
        assert Counter(bucket.legs) == Counter(wanted)
    assert bucket.long_legs == oracle.long_legs


def test_of_two_fixes_at_one_time_and_place_in_other_fences_the_same_counts_in_any_order() -> None:
    fixes = [Fix("a", 1, 0.0, 0.0, {i: NEVER}) for i in range(3)]
    told = [Bucket(Events()).batch(some) for some in (fixes, fixes[::-1], fixes[1:] + fixes[:1])]
    assert told[0] == told[1] == told[2]
    assert len(told[0]) == 1


def test_an_object_enters_dwells_is_inside_and_leaves() -> None:
    bucket = Bucket(Events(dwell="5 s", inside=True))
    path = [(0, ()), (1, (7,)), (4, (7,)), (8, (7,)), (9, (7,)), (10, ())]
    fixes = [Fix("a", t * SECOND, float(t), 0.0, dict.fromkeys(fs, NEVER)) for t, fs in path]
    told = [(e[2], e[3], e[4] // SECOND, e[5], e[7], e[9]) for e in bucket.batch(fixes)]
    assert told == [
        ("enter", None, 1, 0.0, 1.0, 0.0),
        ("inside", None, 4, 1.0, 4.0, 3.0),
        ("dwell", None, 8, 4.0, 8.0, 7.0),
        ("inside", None, 8, 4.0, 8.0, 7.0),
        ("inside", None, 9, 8.0, 9.0, 8.0),
        ("exit", "left", 10, 9.0, 10.0, 9.0),
    ]


def test_a_fence_that_is_replaced_is_left_and_entered_again() -> None:
    bucket = Bucket(Events())
    bucket.batch([Fix("a", 1, 0.0, 0.0, {7: NEVER})])
    told = bucket.batch([Fix("a", 2, 0.0, 0.0, {7: NEVER})], {7: True}, 1)
    assert [(e[2], e[3], e[4]) for e in told] == [("exit", "replaced", 1), ("enter", None, 2)]


def test_what_is_kept_is_bounded_by_silence() -> None:
    bucket = Bucket(Events(silent_after="10 us"), pa.int64())
    for batch in range(50):
        fixes = [Fix(batch * 10 + i, batch * 10, 0.0, 0.0, {1: NEVER}) for i in range(10)]
        bucket.batch(fixes, clock=max(0, batch * 10 - 10))
        assert bucket.objects.num_rows <= 30


def test_fixes_are_ordered_by_object_and_time_however_many_there_are() -> None:
    rng = np.random.default_rng(1)
    for objects, fixes in ((1, 200), (50, 300), (400, 300), (3, 0)):
        code, time = rng.integers(0, objects, fixes), rng.integers(0, 20, fixes)
        order, starts = order_fixes(code, time, objects)
        assert order.tolist() == np.lexsort((time, code)).tolist()
        assert np.diff(starts).tolist() == np.bincount(code, minlength=objects).tolist()


def test_many_fences_of_one_fix_are_sorted() -> None:
    bucket = Bucket(Events())
    ids = np.random.default_rng(1).permutation(100).tolist()
    assert len(bucket.batch([Fix("a", 1, 0.0, 0.0, dict.fromkeys(ids, NEVER))])) == 100
    told = bucket.batch([Fix("a", 2, 0.0, 0.0, dict.fromkeys(ids[::-2], NEVER))])
    assert Counter(e[1] for e in told) == Counter(ids[0::2])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (list(range(50_000)), pa.int64()),
        (list(range(50_000)), pa.int32()),
        ([f"van-{i}" for i in range(50_000)], pa.string()),
        ([b"%d" % i for i in range(50_000)], pa.binary()),
        ([Decimal(i) for i in range(50_000)], pa.decimal128(10, 2)),
        (list(range(50_000)), pa.timestamp("us", "UTC")),
        (list(range(50_000)), pa.date32()),
    ],
)
def test_buckets_are_even_and_depend_on_the_value_alone(
    values: list[Any], kind: pa.DataType
) -> None:
    array = pa.array(values, kind)
    buckets = buckets_of(array)
    sizes = np.bincount(buckets, minlength=BUCKETS)
    assert sizes.max() < 1.2 * sizes.mean()
    assert buckets_of(array.slice(17, 9)).tolist() == buckets[17:26].tolist()
    assert buckets_of(array[:0]).tolist() == []


def test_the_buckets_of_stored_objects_never_change() -> None:
    assert buckets_of(pa.array([0, 1, 2, -1])).tolist() == NUMBER_BUCKETS
    assert buckets_of(pa.array(["", "a", "van-7", "täxi"])).tolist() == TEXT_BUCKETS
    numbers = pa.array([0, 1, 2, -1])
    assert buckets_of(numbers.cast(pa.int32())).tolist() == NUMBER_BUCKETS


@pytest.mark.parametrize(
    "kind", [pa.float64(), pa.list_(pa.int64()), pa.struct([("a", pa.int8())])]
)
def test_ids_that_name_no_object_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(InputError, match="no objects that events could be about"):
        check_object_type(kind)


@pytest.mark.parametrize(
    "bad",
    [
        {"dwell": 5},
        {"dwell": "soon"},
        {"silent_after": "0 s"},
        {"inside": "yes"},
        {"cross": 0},
        {"cross": True},
        {"cross": float("inf")},
    ],
)
def test_settings_that_make_no_sense_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Events(**bad)
