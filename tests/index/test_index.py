"""Points find exactly the rectangles that contain them, whatever the shapes and numbers."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.errors import GeometryError
from sparkswarm.index.build import build_index
from sparkswarm.index.layout import EMPTY, HEADER, NEVER, SECTIONED, SHIFT, RangeIndex
from sparkswarm.index.match import Matches, match

HUGE = sys.float_info.max
SUBNORMAL = math.ulp(0.0)

Region = tuple[float, float, float, float]
Floats = npt.NDArray[np.float64]

UNIT: Region = (0.0, 0.0, 1.0, 1.0)

REGIONS: list[Region] = [
    UNIT,
    (-125.0, 24.0, -66.0, 50.0),
    (0.1, -0.2, 0.1 + 0.2, 0.3),
    (1.0, 1e16, math.nextafter(1.0, 2.0), 1e16 + 64.0),
    (-HUGE / 2, 0.0, HUGE / 2, HUGE),
    (0.0, -SUBNORMAL, 1e-300, 1e-290),
    (0.0, 0.0, SUBNORMAL, SUBNORMAL * 2**60),
    (5.0, 5.0, 5.0, 6.0),
]


# -- an oracle, and how to ask -----------------------------------------------------------------


def contains(boxes: Floats, x: float, y: float) -> npt.NDArray[np.bool_]:
    return (boxes[:, 0] <= x) & (x <= boxes[:, 2]) & (boxes[:, 1] <= y) & (y <= boxes[:, 3])


def by_point(matches: Matches, index: RangeIndex) -> dict[int, list[int]]:
    """Return the ids of each point, sorted; every point is there once."""
    assert len(matches.points) == len(matches.counts) == len(matches.checks)
    assert len(matches.positions) == matches.counts.sum()
    assert (matches.checks >= matches.counts).all()
    parts = np.split(index.ids[matches.positions], np.cumsum(matches.counts)[:-1])
    found = {int(p): sorted(ids.tolist()) for p, ids in zip(matches.points, parts, strict=False)}
    assert len(found) == len(matches.points)
    return found


def numbered(n: int, first: int = 1000) -> npt.NDArray[np.int64]:
    return np.arange(first, first + n, dtype=np.int64)


def assert_exact(boxes: Floats, points: Floats, region: Region) -> RangeIndex:
    index = build_index(numbered(len(boxes)), boxes, None, region)
    x, y = np.ascontiguousarray(points[:, 0]), np.ascontiguousarray(points[:, 1])
    found = by_point(match(x, y, None, np.arange(len(x)), index), index)
    for i in range(len(x)):
        assert found[i] == (1000 + np.flatnonzero(contains(boxes, x[i], y[i]))).tolist()
    return index


def entries_of_each(index: RangeIndex) -> npt.NDArray[np.int64]:
    """Return how often each rectangle is listed, read as the layout is described."""
    listed = np.ones(len(index.entries), bool)
    for first, shift in index.levels[:, 4:6].astype(int):
        later = index.levels[:, 4][index.levels[:, 4] > first]
        last = int(later.min()) if len(later) else len(index.starts) - 1
        lengths = np.diff(index.starts[first : last + 1])
        heads = index.starts[first:last][lengths >= SECTIONED]
        if shift == 0:
            listed[(heads[:, None] + np.arange(HEADER)).ravel()] = False
    return np.bincount(index.entries[listed], minlength=len(index.ids))


# -- random rectangles and points --------------------------------------------------------------


def coordinates(low: float, high: float) -> st.SearchStrategy[float]:
    """Values in a range and around it, many of them shared, at an edge, or next to one."""

    def near(eighth: int, steps: int) -> float:
        value = low + (high - low) * (eighth / 8)
        for _ in range(abs(steps)):
            value = math.nextafter(value, math.copysign(math.inf, steps))
        return value

    return st.one_of(
        st.builds(near, st.integers(0, 8), st.integers(-2, 2)),
        st.floats(low, high),
        st.sampled_from([-HUGE, HUGE, 0.0, -math.inf, math.inf]),
        st.floats(allow_nan=False),
    )


@st.composite
def boxes_within(draw: st.DrawFn, region: Region) -> tuple[float, float, float, float]:
    xs, ys = coordinates(region[0], region[2]), coordinates(region[1], region[3])
    x = sorted((draw(xs), draw(xs)))
    y = sorted((draw(ys), draw(ys)))
    if draw(st.booleans()):
        # Small, down to a single point.
        width = draw(st.sampled_from([0.0, 1e-9, 1e-3, 0.1])) * (region[2] - region[0])
        x[1] = x[0] + width
    if draw(st.booleans()):
        height = draw(st.sampled_from([0.0, 1e-9, 1e-3, 0.1])) * (region[3] - region[1])
        y[1] = y[0] + height
    return x[0], y[0], x[1], y[1]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Floats, Floats, Region]:
    region = draw(st.sampled_from(REGIONS))
    some = draw(st.lists(boxes_within(region), max_size=12))
    boxes = np.array(some, dtype=np.float64).reshape(-1, 4)
    # Enough copies make cells that are listed in sections.
    boxes = np.tile(boxes, (draw(st.sampled_from([1, 2, 2 * SECTIONED])), 1))
    edges_x = [b[0] for b in some] + [b[2] for b in some]
    edges_y = [b[1] for b in some] + [b[3] for b in some]
    xs, ys = coordinates(region[0], region[2]), coordinates(region[1], region[3])
    if some:
        around = st.sampled_from([-math.inf, math.inf])
        xs = st.one_of(st.sampled_from(edges_x), xs)
        ys = st.one_of(st.sampled_from(edges_y), ys)
        xs = st.one_of(xs, st.builds(math.nextafter, xs, around))
        ys = st.one_of(ys, st.builds(math.nextafter, ys, around))
    points = draw(st.lists(st.tuples(xs, ys), min_size=1, max_size=20))
    return boxes, np.array(points, dtype=np.float64), region


@given(cases())
def test_finds_what_a_comparison_with_all_finds(case: tuple[Floats, Floats, Region]) -> None:
    assert_exact(*case)


@pytest.mark.parametrize("region", [UNIT, (0.0, 0.0, 0.5, 1.0), (0.4, 0.4, 0.6, 0.6)])
@pytest.mark.parametrize(
    ("width", "height"),
    [(0.05, 0.05), (0.2, 0.2), (0.0, 0.0), (0.5, 1e-6), (1e-6, 0.5), (2.0, 2.0), (0.3, 0.12)],
)
def test_crowds_of_one_size(width: float, height: float, region: Region) -> None:
    """Cells in sections, with points on the very edges."""
    rng = np.random.default_rng(7)
    low = rng.random((3000, 2)) - np.array([width, height]) / 2
    boxes = np.hstack([low, low + np.array([width, height])])
    points = rng.random((300, 2)) * 1.2 - 0.1
    points[::3, 0] = boxes[:100, 0]
    points[1::3, 1] = boxes[100:200, 3]
    points[2::3] = boxes[200:300, 2:]
    assert_exact(boxes, points, region)


def test_crowds_are_listed_in_sections() -> None:
    """What the tests with crowds are for, and what sections are for."""
    index = build_index(numbered(9000), crowd(9000, 1), None, UNIT)
    assert np.diff(index.starts).max() >= SECTIONED
    x, y = np.random.default_rng(1).random((2, 1000))
    found = match(x, y, None, np.arange(1000), index)
    # Plain lists of all that touch a cell would come to more than twice the matches.
    assert found.checks.sum() < 1.5 * found.counts.sum()


def test_crowds_of_many_sizes() -> None:
    rng = np.random.default_rng(8)
    sides = 10.0 ** -rng.uniform(0, 5, (4000, 2))
    low = rng.random((4000, 2)) ** 3 - sides / 2
    boxes = np.hstack([low, low + sides])
    points = rng.random((400, 2)) ** 3
    points[::2] = boxes[:200, :2]
    index = assert_exact(boxes, points, UNIT)
    assert entries_of_each(index).max() <= 9


def test_points_without_a_number_match_nothing() -> None:
    rng = np.random.default_rng(9)
    low = rng.random((500, 2)) * 0.4 - 0.2
    boxes = np.vstack([np.hstack([low, low + 0.3]), [[-math.inf, -math.inf, math.inf, math.inf]]])
    nan, inf = math.nan, math.inf
    points = np.array([[nan, 0.1], [0.1, nan], [nan, nan], [inf, 0.1], [-inf, inf]])
    assert_exact(boxes, points, UNIT)


def test_rectangles_that_contain_nothing() -> None:
    good = [0.0, 0.0, 1.0, 1.0]
    bad = [[math.nan, 0, 1, 1], [0, 0, 1, math.nan], [0.9, 0, 0.1, 1], [0, 0.9, 1, 0.1]]
    boxes = np.array([*bad, good] * 50, dtype=np.float64)
    assert_exact(boxes, np.random.default_rng(1).random((50, 2)), UNIT)


def test_nothing_at_all() -> None:
    nothing = build_index(np.empty(0, np.int64), np.empty((0, 4)), None, UNIT)
    none = np.empty(0)
    for index in (nothing, EMPTY):
        found = match(none, none, None, np.empty(0, np.int64), index)
        assert [len(part) for part in found] == [0, 0, 0, 0]
        found = match(np.ones(3), np.ones(3), None, np.array([2, 0]), index)
        assert found.counts.tolist() == [0, 0]
        assert found.positions.dtype == np.int32


# -- removed and expired queries ---------------------------------------------------------------


def crowd(n: int, seed: int) -> Floats:
    low = np.random.default_rng(seed).random((n, 2))
    return np.hstack([low, low + 0.3])


@pytest.mark.parametrize("n", [0, 5, 2000])
@pytest.mark.parametrize("expiring", [True, False])
def test_removed_and_expired_queries_match_nothing(n: int, expiring: bool) -> None:
    rng = np.random.default_rng(n)
    boxes, ids = crowd(n, 1), numbered(n, 10**12)
    expires = rng.choice([5, 10, NEVER], n)
    index = build_index(ids, boxes, expires if expiring else None, UNIT)
    removed = rng.integers(0, 2, n).astype(np.uint8)
    gone = set(index.ids[removed.astype(bool)].tolist())
    x, y, time = rng.random(300), rng.random(300), rng.integers(0, 12, 300)
    rows = rng.permutation(300)[:280]
    for mask, without in ((removed, gone), (None, set())):
        by_time = by_point(match(x, y, time, rows, index, mask, now=NEVER), index)
        by_now = by_point(match(x, y, None, rows, index, mask, now=7), index)
        assert set(by_time) == set(by_now) == set(rows.tolist())
        for i in rows.tolist():
            for found, at in ((by_time[i], time[i]), (by_now[i], 7)):
                here = contains(boxes, x[i], y[i])
                here &= (at < expires) | (not expiring)
                assert found == [q for q in ids[here].tolist() if q not in without]


def test_ids_are_not_confused_with_positions() -> None:
    boxes = crowd(200, 3)
    ids = np.random.default_rng(4).integers(-(2**62), 2**62, 200)
    index = build_index(ids, boxes, None, UNIT)
    matches = match(np.array([0.5]), np.array([0.5]), None, np.array([0]), index)
    found = by_point(matches, index)
    assert found[0] == sorted(ids[contains(boxes, 0.5, 0.5)].tolist())


# -- memory ------------------------------------------------------------------------------------


def test_works_from_files_mapped_for_reading(tmp_path: Path) -> None:
    boxes = crowd(3000, 5)
    index = build_index(numbered(3000), boxes, None, UNIT)
    for name, array in zip(index._fields, index, strict=True):
        np.save(tmp_path / f"{name}.npy", array)
    mapped = RangeIndex(*(np.load(tmp_path / f"{f}.npy", mmap_mode="r") for f in index._fields))
    points = np.random.default_rng(6).random((2, 500))
    points.flags.writeable = False
    ours, theirs = (match(*points, None, np.arange(500), i) for i in (index, mapped))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


def test_one_kind_of_array_is_one_compilation() -> None:
    from sparkswarm.index import match as range_match

    index = build_index(numbered(50), crowd(50, 1), None, UNIT)
    writable = RangeIndex(*(array.copy() for array in index))
    x, rows = np.linspace(0, 1, 40), np.arange(10)
    frozen = x.copy()
    frozen.flags.writeable = False
    for xs in (x, frozen, x[::2], x.astype(np.float32)):
        for w in (rows, rows.astype(np.int32), rows[::2]):
            match(xs, xs, None, w, index)
            match(xs, xs, np.zeros(len(xs), np.int64), w, writable, np.zeros(50, bool), 3)
    kernels = (range_match._match, range_match.add_bounds)
    assert [len(kernel.signatures) for kernel in kernels] == [1, 1]  # type: ignore[attr-defined]


@given(
    st.lists(
        st.tuples(
            *(st.floats(-0.5, 1.5),) * 2,
            *(st.one_of(st.floats(0, 2), st.floats(-12, 0).map(lambda e: 10.0**e)),) * 2,
        ),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from([1, 2 * SECTIONED]),
)
def test_memory_for_each_rectangle_is_bounded(
    shapes: list[tuple[float, float, float, float]], copies: int
) -> None:
    boxes = np.array([(x, y, x + w, y + h) for x, y, w, h in shapes] * copies)
    index = build_index(numbered(len(boxes)), boxes, None, UNIT)
    times = entries_of_each(index)
    assert times.min() >= 1
    assert times.max() <= 9
    assert len(index.starts) <= 9 * len(boxes) + 1


@pytest.mark.parametrize("side", [0.0, 1e-12, 1e-6, 1e-3])
def test_one_tiny_rectangle_in_a_huge_region_takes_little(side: float) -> None:
    region = (-1e9, -1e9, 1e9, 1e9)
    index = build_index(np.array([1]), np.array([[3.0, 4.0, 3.0 + side, 4.0 + side]]), None, region)
    assert index.nbytes < 500
    x = np.array([3.0, 3.0 + side, 2.9, 3.0])
    y = np.array([4.0, 4.0 + side, 4.0, 4.1])
    assert match(x, y, None, np.arange(4), index).counts.tolist() == [1, 1, 0, 0]


def test_tiny_rectangles_do_not_share_long_lists() -> None:
    """Far apart or crowded in one spot: a point looks at few that it does not match."""
    rng = np.random.default_rng(3)
    for spread in (1.0, 1e-3):
        low = 0.5 + rng.random((5000, 2)) * spread - spread / 2
        boxes = np.hstack([low, low + 1e-5 * spread])
        index = build_index(numbered(5000), boxes, None, UNIT)
        found = match(low[:, 0].copy(), low[:, 1].copy(), None, np.arange(5000), index)
        assert (found.counts >= 1).all()
        assert found.checks.mean() < 20
        hashed = index.levels[:, SHIFT] > 0
        assert hashed.all() if spread < 1 else not hashed.any()


def test_a_few_rectangles_far_apart_have_large_cells() -> None:
    """Neighbours then share parts of the index, and most points have nothing to look at."""
    rng = np.random.default_rng(3)
    low = rng.random((2000, 2))
    index = build_index(numbered(2000), np.hstack([low, low + 0.0016]), None, UNIT)
    assert len(index.starts) <= 8 * 2000 + 1
    x, y = rng.random((2, 10_000))
    found = match(x, y, None, np.arange(10_000), index)
    assert found.checks.mean() < 0.5


# -- mistakes ----------------------------------------------------------------------------------


def test_says_what_does_not_fit_together() -> None:
    one, two = np.ones(1), np.ones(2)
    with pytest.raises(GeometryError, match="as many ids as boxes"):
        build_index(np.array([1, 2]), np.array([UNIT]), None, UNIT)
    with pytest.raises(GeometryError, match="expiry"):
        build_index(np.array([1]), np.array([UNIT]), np.array([1, 2]), UNIT)
    for region in ((0.0, 0.0, math.nan, 1.0), (-HUGE, 0.0, HUGE, 1.0), (1.0, 0.0, 0.0, 1.0)):
        with pytest.raises(GeometryError, match="region"):
            build_index(np.array([1]), np.array([UNIT]), None, region)
    rows = np.array([0])
    with pytest.raises(GeometryError, match="1 x, 2 y"):
        match(one, two, None, rows, EMPTY)
    with pytest.raises(GeometryError, match="3 times"):
        match(two, two, np.zeros(3, np.int64), rows, EMPTY)
    with pytest.raises(GeometryError, match="1 removed for 0"):
        match(one, one, None, rows, EMPTY, np.zeros(1, np.uint8))
    for wrong in (-1, 2):
        with pytest.raises(GeometryError, match="not among the 2"):
            match(two, two, None, np.array([wrong]), EMPTY)
