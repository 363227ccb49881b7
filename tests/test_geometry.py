"""Points and queries find their cells, at every awkward number that a float can be."""

from __future__ import annotations

import itertools
import math
import sys
from dataclasses import FrozenInstanceError
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkswarm.errors import GeometryError
from sparkswarm.geometry import (
    MAX_CELLS,
    NO_CELL,
    Bounds,
    CellRect,
    Fault,
    Grid,
    QueryCells,
)

from .support.strategies import all_rects, grid_of, grids, rects_within

HUGE = sys.float_info.max
SUBNORMAL = math.ulp(0.0)

UNIT = Grid(Bounds(0.0, 0.0, 1.0, 1.0), 10, 10)


# -- random axes and coordinates ---------------------------------------------------------------


class Axis(NamedTuple):
    """One side of a grid: its extent and how many cells it has."""

    low: float
    high: float
    number: int

    def cell(self, value: float) -> int:
        """Return the cell of a value, as the grid's docstring has it, one number at a time."""
        if not self.low <= value <= self.high:
            return NO_CELL
        return min(
            math.floor((value - self.low) * (self.number / (self.high - self.low))), self.number - 1
        )

    def exact(self, value: float) -> Fraction:
        """Return where a value lies, counted in cells, without any rounding."""
        extent = Fraction(self.high) - Fraction(self.low)
        return (Fraction(value) - Fraction(self.low)) * self.number / extent

    def clip(self, value: float) -> float:
        return min(max(value, self.low), self.high)


EXTENTS = [
    (0.0, 1.0),
    (-180.0, 180.0),
    (-125.0, -66.0),
    (0.1, 0.1 + 0.2),
    (0.0, 0.1 + 0.2),
    (-0.1, 0.2),
    (1.0, math.nextafter(1.0, 2.0)),
    (1e16, 1e16 + 64.0),
    (-HUGE / 2, HUGE / 2),
    (0.0, HUGE),
    (-HUGE, -1.0),
    (0.0, 1e-300),
    (-SUBNORMAL, 1e-290),
    (0.0, SUBNORMAL * 2**60),
]


@st.composite
def axes(draw: st.DrawFn) -> Axis:
    finite = st.floats(allow_nan=False, allow_infinity=False)
    pairs = st.one_of(
        st.sampled_from(EXTENTS),
        st.tuples(finite, finite).map(lambda pair: (min(pair), max(pair))),
        st.tuples(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3)).map(lambda p: (p[0], p[0] + p[1])),
    )
    low, high = draw(pairs)
    count = draw(st.one_of(st.integers(1, 12), st.sampled_from([97, 1000, 30_000])))
    if low < high and math.isfinite(high - low) and math.isfinite(count / (high - low)):
        return Axis(low, high, count)
    return Axis(*EXTENTS[0], count)


def coordinates(axis: Axis) -> st.SearchStrategy[float]:
    """Values inside, most of them at or next to an edge or a border between cells."""

    def near(border: int, steps: int) -> float:
        value = axis.low + border / axis.number * (axis.high - axis.low)
        for _ in range(abs(steps)):
            value = math.nextafter(value, math.copysign(math.inf, steps))
        return axis.clip(value)

    return st.one_of(
        st.sampled_from([axis.low, axis.high]),
        st.sampled_from([axis.clip(axis.low + SUBNORMAL), axis.clip(axis.high - SUBNORMAL)]),
        st.builds(near, st.integers(0, axis.number), st.integers(-2, 2)),
        st.floats(axis.low, axis.high),
    )


def bad_coordinates(axis: Axis) -> st.SearchStrategy[float]:
    """Values that have no cell: not numbers, infinite, and outside by a hair or by far."""
    return st.sampled_from(
        [
            math.nan,
            -math.nan,
            math.inf,
            -math.inf,
            math.nextafter(axis.low, -math.inf),
            math.nextafter(axis.high, math.inf),
            axis.low - abs(axis.low) - 1.0,
            axis.high + abs(axis.high) + 1.0,
        ]
    )


def grid_from(x: Axis, y: Axis) -> Grid:
    return Grid(Bounds(x.low, y.low, x.high, y.high), x.number, y.number)


@st.composite
def grids_and_points(
    draw: st.DrawFn, bad: bool = False
) -> tuple[Axis, Axis, list[tuple[float, float]]]:
    x, y = draw(axes()), draw(axes())
    values = [coordinates(axis) for axis in (x, y)]
    if bad:
        values = [
            st.one_of(good, bad_coordinates(axis))
            for good, axis in zip(values, (x, y), strict=True)
        ]
    return x, y, draw(st.lists(st.tuples(*values), min_size=1, max_size=20))


def columns_of(points: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    array = np.array(points, dtype=np.float64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


# -- points ------------------------------------------------------------------------------------


@given(grids_and_points())
def test_every_point_inside_the_bounds_has_exactly_one_cell_within_range(case) -> None:
    x, y, points = case
    columns, rows = grid_from(x, y).place_points(*columns_of(points))
    assert columns.shape == rows.shape == (len(points),)
    assert columns.dtype == rows.dtype == np.int32
    assert ((columns >= 0) & (columns < x.number)).all()
    assert ((rows >= 0) & (rows < y.number)).all()


@given(grids_and_points(bad=True))
def test_placing_many_points_agrees_with_placing_one_by_one(case) -> None:
    x, y, points = case
    columns, rows = grid_from(x, y).place_points(*columns_of(points))
    for i, (px, py) in enumerate(points):
        expected = (x.cell(px), y.cell(py))
        if NO_CELL in expected:
            expected = (NO_CELL, NO_CELL)
        assert (columns[i], rows[i]) == expected


@given(grids_and_points())
def test_cells_are_those_of_exact_arithmetic_up_to_rounding(case) -> None:
    x, y, points = case
    placed = grid_from(x, y).place_points(*columns_of(points))
    for axis, values, cells in zip((x, y), columns_of(points), placed, strict=True):
        for value, cell in zip(values.tolist(), cells.tolist(), strict=True):
            exact = axis.exact(value)
            slack = exact / 10**14
            last = axis.number - 1
            assert min(exact - slack, last) // 1 <= cell <= min(exact + slack, last) // 1


@given(axes(), st.data())
def test_the_cell_never_decreases_as_a_coordinate_grows(axis: Axis, data: st.DataObject) -> None:
    values = np.array(sorted(data.draw(st.lists(coordinates(axis), min_size=2, max_size=20))))
    grid = grid_from(axis, axis)
    columns, rows = grid.place_points(values, values)
    assert (np.diff(columns) >= 0).all()
    assert (np.diff(rows) >= 0).all()


@given(axes(), axes())
def test_the_far_edges_belong_to_the_last_cells_and_the_near_ones_to_the_first(
    x: Axis, y: Axis
) -> None:
    corners = [(x.low, y.low), (x.high, y.low), (x.low, y.high), (x.high, y.high)]
    columns, rows = grid_from(x, y).place_points(*columns_of(corners))
    assert columns.tolist() == [0, x.number - 1, 0, x.number - 1]
    assert rows.tolist() == [0, 0, y.number - 1, y.number - 1]


def test_a_border_between_cells_belongs_to_the_cell_it_begins() -> None:
    grid = grid_of(4, 3)
    x = np.array([0.0, 1.0, 2.0, 3.0, math.nextafter(1.0, 0.0), 1.0, 2.0])
    y = np.array([0.0, 1.0, 2.0, 2.0, math.nextafter(2.0, 0.0), math.nextafter(1.0, 2.0), 3.0])
    columns, rows = grid.place_points(x, y)
    assert columns.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert rows.tolist() == [0, 1, 2, 2, 1, 1, 2]


@pytest.mark.parametrize("extent", [(0.0, 1.0), (-125.0, -66.0), (0.1, 0.1 + 0.2), (1e9, 1e9 + 1)])
@pytest.mark.parametrize("count", [1, 3, 7, 10, 97, 1000])
def test_the_centre_of_every_cell_lies_in_that_cell(extent: tuple[float, float], count: int):
    low, high = extent
    centres = low + (np.arange(count) + 0.5) * ((high - low) / count)
    grid = Grid(Bounds(low, low, high, high), count, count)
    columns, rows = grid.place_points(centres, centres[::-1])
    assert columns.tolist() == list(range(count))
    assert rows.tolist() == list(range(count))[::-1]


@given(grids_and_points(bad=True))
def test_a_point_has_a_fault_exactly_when_it_has_no_cell_and_the_right_one(case) -> None:
    x, y, points = case
    grid = grid_from(x, y)
    faults = grid.point_faults(*columns_of(points))
    columns, rows = grid.place_points(*columns_of(points))
    assert faults.dtype == np.uint8
    for i, point in enumerate(points):
        if any(map(math.isnan, point)):
            expected = Fault.NAN
        elif any(map(math.isinf, point)):
            expected = Fault.INFINITE
        elif NO_CELL in (x.cell(point[0]), y.cell(point[1])):
            expected = Fault.OUTSIDE
        else:
            expected = Fault.NONE
        assert faults[i] == expected
        placed = (columns[i], rows[i]) != (NO_CELL, NO_CELL)
        assert placed == (expected is Fault.NONE)


@pytest.mark.parametrize(
    ("x", "y", "fault"),
    [
        (math.nan, 0.5, Fault.NAN),
        (0.5, math.nan, Fault.NAN),
        (math.nan, math.inf, Fault.NAN),
        (-math.inf, math.nan, Fault.NAN),
        (math.nan, 7.0, Fault.NAN),
        (math.inf, 0.5, Fault.INFINITE),
        (0.5, -math.inf, Fault.INFINITE),
        (math.inf, 7.0, Fault.INFINITE),
        (math.nextafter(0.0, -1.0), 0.5, Fault.OUTSIDE),
        (0.5, math.nextafter(0.0, -1.0), Fault.OUTSIDE),
        (math.nextafter(1.0, 2.0), 0.5, Fault.OUTSIDE),
        (0.5, math.nextafter(1.0, 2.0), Fault.OUTSIDE),
        (-HUGE, HUGE, Fault.OUTSIDE),
        (-0.0, 0.0, Fault.NONE),
        (1.0, 1.0, Fault.NONE),
    ],
)
def test_bad_points_are_flagged_and_never_placed(x: float, y: float, fault: Fault) -> None:
    xs, ys = np.array([0.5, x]), np.array([0.5, y])
    assert UNIT.point_faults(xs, ys).tolist() == [Fault.NONE, fault]
    columns, rows = UNIT.place_points(xs, ys)
    assert (columns[0], rows[0]) == (5, 5)
    assert ((columns[1], rows[1]) == (NO_CELL, NO_CELL)) == (fault is not Fault.NONE)


def test_every_fault_has_a_number_of_its_own() -> None:
    numbers = {name: int(fault) for name, fault in Fault.__members__.items()}
    assert numbers == {"NONE": 0, "NAN": 1, "INFINITE": 2, "OUTSIDE": 3, "INVERTED": 4}


def test_no_points_have_no_cells() -> None:
    none = np.array([])
    columns, rows = UNIT.place_points(none, none)
    assert len(columns) == len(rows) == len(UNIT.point_faults(none, none)) == 0


def test_coordinates_may_be_lists_integers_and_slices() -> None:
    columns, rows = grid_of(4, 4).place_points([1, 3], np.arange(8.0)[::2][:2])
    assert (columns.tolist(), rows.tolist()) == ([1, 3], [0, 2])


def test_bounds_may_be_whole_numbers() -> None:
    whole, real = Grid(Bounds(0, -3, 4, 3), 4, 3), Grid(Bounds(0.0, -3.0, 4.0, 3.0), 4, 3)
    x, y = np.array([-0.5, 0.0, 1.9, 4.0]), np.array([0.0, -3.0, 0.9, 3.0])
    for placed, expected in zip(whole.place_points(x, y), real.place_points(x, y), strict=True):
        assert placed.tolist() == expected.tolist()


@pytest.mark.parametrize("method", ["place_points", "point_faults"])
def test_arrays_of_the_wrong_shape_are_refused(method: str) -> None:
    place = getattr(UNIT, method)
    with pytest.raises(GeometryError, match=r"\[2, 3\]"):
        place(np.zeros(2), np.zeros(3))
    with pytest.raises(GeometryError, match=r"x must be one-dimensional.*\(2, 2\)"):
        place(np.zeros((2, 2)), np.zeros(2))
    with pytest.raises(GeometryError, match=r"y must be one-dimensional.*\(2, 2\)"):
        place(np.zeros(2), np.zeros((2, 2)))


# -- queries -----------------------------------------------------------------------------------


def place_query(grid: Grid, *edges: float) -> tuple[CellRect, Fault]:
    placed = grid.place_queries(*(np.array([edge]) for edge in edges))
    return placed.rect(0), Fault(placed.fault[0])


@st.composite
def grids_and_queries(draw: st.DrawFn) -> tuple[Axis, Axis, tuple[float, float, float, float]]:
    """A proper query that reaches into the bounds, or over them."""
    x, y = draw(axes()), draw(axes())
    sides = []
    for axis in (x, y):
        beyond = st.sampled_from([math.nextafter(axis.low, -HUGE), -HUGE])
        above = st.sampled_from([math.nextafter(axis.high, HUGE), HUGE])
        first, second = sorted(draw(st.tuples(coordinates(axis), coordinates(axis))))
        low = draw(st.one_of(st.just(first), st.just(first), beyond))
        high = draw(st.one_of(st.just(second), st.just(second), above))
        sides.append((low, high))
    (x1, x2), (y1, y2) = sides
    return x, y, (x1, y1, x2, y2)


@given(grids_and_queries(), st.data())
def test_a_point_inside_a_query_lies_in_a_cell_of_the_query(case, data: st.DataObject) -> None:
    x, y, query = case
    grid = grid_from(x, y)
    rect, fault = place_query(grid, *query)
    assert fault is Fault.NONE
    inside = []
    for axis, low, high in ((x, query[0], query[2]), (y, query[1], query[3])):
        low, high = axis.clip(low), axis.clip(high)
        neighbours = [low, high, math.nextafter(low, high), math.nextafter(high, low)]
        inside.append([*neighbours, data.draw(st.floats(low + 0.0, high + 0.0))])
    points = list(itertools.product(*inside))
    columns, rows = grid.place_points(*columns_of(points))
    for point, column, row in zip(points, columns.tolist(), rows.tolist(), strict=True):
        cell = CellRect(column, row, column + 1, row + 1)
        assert rect.contains(cell), f"{point} is inside the query, its cell is not"


@given(grids_and_queries())
def test_a_query_has_no_more_cells_than_from_corner_to_corner(case) -> None:
    x, y, (x1, y1, x2, y2) = case
    rect, _ = place_query(grid_from(x, y), x1, y1, x2, y2)
    assert grid_from(x, y).cells.contains(rect)
    assert rect == CellRect(
        x.cell(x.clip(x1)), y.cell(y.clip(y1)), x.cell(x.clip(x2)) + 1, y.cell(y.clip(y2)) + 1
    )


def slow_fault(grid: Grid, x1: float, y1: float, x2: float, y2: float) -> Fault:
    b = grid.bounds
    if any(map(math.isnan, (x1, y1, x2, y2))):
        return Fault.NAN
    if any(map(math.isinf, (x1, y1, x2, y2))):
        return Fault.INFINITE
    if x1 > x2 or y1 > y2:
        return Fault.INVERTED
    if x2 < b.min_x or x1 > b.max_x or y2 < b.min_y or y1 > b.max_y:
        return Fault.OUTSIDE
    return Fault.NONE


EDGES = [-math.inf, -1.0, -SUBNORMAL, 0.0, 0.3, 1.0, math.nextafter(1.0, 2.0), math.inf, math.nan]


def test_every_query_of_awkward_edges_has_the_right_fault_and_only_proper_ones_have_cells():
    queries = np.array(list(itertools.product(EDGES, repeat=4)))
    placed = UNIT.place_queries(*queries.T)
    assert [len(column) for column in placed] == [len(queries)] * 5
    for i, query in enumerate(queries.tolist()):
        fault = slow_fault(UNIT, *query)
        assert placed.fault[i] == fault, query
        if fault is not Fault.NONE:
            assert placed.rect(i) == CellRect(0, 0, 0, 0), query
        else:
            assert placed.rect(i).area > 0, query


@pytest.mark.parametrize(
    ("query", "cells"),
    [
        ((-5.0, -5.0, 5.0, 5.0), CellRect(0, 0, 10, 10)),
        ((-5.0, 0.35, 0.05, 0.45), CellRect(0, 3, 1, 5)),
        ((0.95, 0.35, 5.0, 0.45), CellRect(9, 3, 10, 5)),
        ((0.35, -5.0, 0.45, 0.05), CellRect(3, 0, 5, 1)),
        ((0.35, 0.95, 0.45, 5.0), CellRect(3, 9, 5, 10)),
        ((0.55, 0.65, 0.55, 0.65), CellRect(5, 6, 6, 7)),
        ((1.0, 1.0, 1.0, 1.0), CellRect(9, 9, 10, 10)),
        ((1.0, 1.0, 2.0, 2.0), CellRect(9, 9, 10, 10)),
        ((-1.0, -1.0, 0.0, 0.0), CellRect(0, 0, 1, 1)),
        ((0.25, 0.25, 0.5, 0.5), CellRect(2, 2, 6, 6)),
    ],
)
def test_queries_are_closed_and_clipped_to_the_bounds(query, cells: CellRect) -> None:
    assert place_query(UNIT, *query) == (cells, Fault.NONE)


def test_query_arrays_of_the_wrong_shape_are_refused() -> None:
    good = np.zeros(2)
    for i, name in enumerate(["min_x", "min_y", "max_x", "max_y"]):
        arrays = [good, good, good, good]
        arrays[i] = np.zeros((2, 1))
        with pytest.raises(GeometryError, match=rf"{name} must be one-dimensional.*\(2, 1\)"):
            UNIT.place_queries(*arrays)
        arrays[i] = np.zeros(3)
        with pytest.raises(GeometryError, match=r"differ in length.*3"):
            UNIT.place_queries(*arrays)


# -- bounds and grids that cannot exist --------------------------------------------------------


@pytest.mark.parametrize("position", range(4))
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_bounds_must_be_finite_numbers(position: int, value: float) -> None:
    edges = [0.0, 0.0, 1.0, 1.0]
    edges[position] = value
    with pytest.raises(GeometryError, match=f"must be finite.*={value}"):
        Bounds(*edges)


@pytest.mark.parametrize(
    ("edges", "named"),
    [
        ((1.5, 0.0, 1.5, 1.0), "max_x=1.5"),
        ((0.0, 2.5, 1.0, 2.5), "max_y=2.5"),
        ((3.5, 0.0, 1.0, 1.0), "min_x=3.5"),
        ((0.0, 4.5, 1.0, 1.0), "min_y=4.5"),
    ],
)
def test_bounds_must_not_be_empty_or_inverted(edges, named: str) -> None:
    with pytest.raises(GeometryError, match=named):
        Bounds(*edges)


@pytest.mark.parametrize("edges", [(-HUGE, 0.0, HUGE, 1.0), (0.0, -HUGE, 1.0, HUGE)])
def test_bounds_must_not_be_wider_than_a_float_can_say(edges) -> None:
    with pytest.raises(GeometryError, match=r"too wide.*1\.79"):
        Bounds(*edges)


def test_bounds_know_their_extent() -> None:
    bounds = Bounds(-2.0, 1.0, 3.0, 9.0)
    assert (bounds.width, bounds.height) == (5.0, 8.0)


@pytest.mark.parametrize(
    ("columns", "rows"), [(0, 5), (5, 0), (-3, 5), (5, -3), (2**16, 2**15), (1, MAX_CELLS + 1)]
)
def test_grids_without_cells_or_with_too_many_are_refused(columns: int, rows: int) -> None:
    with pytest.raises(GeometryError, match=f"{columns} x {rows}"):
        Grid(Bounds(0.0, 0.0, 1.0, 1.0), columns, rows)


def test_the_largest_grid_is_accepted_and_its_last_cell_used() -> None:
    assert np.iinfo(np.int32).max == MAX_CELLS
    grid = Grid(Bounds(0.0, 0.0, 1.0, 1.0), MAX_CELLS, 1)
    columns, rows = grid.place_points(np.array([1.0]), np.array([1.0]))
    assert (columns[0], rows[0]) == (MAX_CELLS - 1, 0)


@pytest.mark.parametrize(
    ("edges", "columns", "rows"),
    [((0.0, 0.0, 1e-307, 1.0), 1000, 1), ((0.0, 0.0, 1.0, 1e-307), 1, 1000)],
)
def test_bounds_too_narrow_for_the_grid_are_refused(edges, columns: int, rows: int) -> None:
    Grid(Bounds(*edges), 1, 1)
    with pytest.raises(GeometryError, match=r"too narrow.*1e-307"):
        Grid(Bounds(*edges), columns, rows)


def test_bounds_and_grids_cannot_be_changed_in_place() -> None:
    with pytest.raises(FrozenInstanceError):
        UNIT.bounds.min_x = -1.0  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        UNIT.columns = 20  # type: ignore[misc]


# -- rectangles of cells -----------------------------------------------------------------------


def cells_of(rect: CellRect) -> set[tuple[int, int]]:
    return set(
        itertools.product(
            range(rect.col_start, rect.col_stop), range(rect.row_start, rect.row_stop)
        )
    )


any_rects = st.tuples(*[st.integers(0, 5)] * 4).map(lambda edges: CellRect(*edges))
proper_rects = rects_within(CellRect(0, 0, 6, 6))


@given(any_rects)
@example(CellRect(3, 3, 1, 1))
def test_the_area_is_the_number_of_cells(rect: CellRect) -> None:
    assert rect.area == len(cells_of(rect))


@given(proper_rects)
def test_columns_rows_and_slices_are_those_of_the_cells(rect: CellRect) -> None:
    assert rect.columns == len({column for column, _ in cells_of(rect)})
    assert rect.rows == len({row for _, row in cells_of(rect)})
    marked = np.zeros((6, 6))
    marked[rect.slices] = 1
    assert {(column, row) for row, column in np.argwhere(marked).tolist()} == cells_of(rect)


@given(proper_rects, proper_rects)
def test_contains_intersection_and_overlaps_are_those_of_sets_of_cells(
    a: CellRect, b: CellRect
) -> None:
    both = cells_of(a) & cells_of(b)
    assert a.contains(b) == (cells_of(b) <= cells_of(a))
    assert cells_of(a.intersection(b)) == both
    assert a.intersection(b).area == len(both)
    assert a.overlaps(b) == bool(both)


@given(proper_rects, st.integers(-2, 8))
def test_a_cut_gives_two_sides_that_tile_the_whole_or_is_refused(rect: CellRect, line: int):
    for cut, length in ((rect.split_rows, rect.rows), (rect.split_columns, rect.columns)):
        if 0 < line < length:
            first, second = cut(line)
            assert cells_of(first) | cells_of(second) == cells_of(rect)
            assert not cells_of(first) & cells_of(second)
            along = (first.rows, first.columns)[cut == rect.split_columns]
            assert along == line
            assert first[:2] == rect[:2]
        else:
            with pytest.raises(GeometryError, match=rf"{length} .* {line}$"):
                cut(line)


# -- the cells of many queries -----------------------------------------------------------------


def rects_of(queries: QueryCells) -> list[CellRect]:
    return [queries.rect(i) for i in range(len(queries.fault))]


@given(st.lists(proper_rects, max_size=8))
def test_rectangles_come_back_as_they_were_wrapped(rects: list[CellRect]) -> None:
    queries = QueryCells.of(rects)
    assert rects_of(queries) == rects
    assert (queries.fault == Fault.NONE).all()
    assert all(column.dtype == np.int32 for column in queries[:4])
    assert all(column.flags.c_contiguous for column in queries)


@given(st.lists(st.tuples(proper_rects, st.booleans()), max_size=8))
def test_queries_are_taken_by_mask_and_by_index_with_their_faults(chosen) -> None:
    queries = QueryCells.of([rect for rect, _ in chosen])
    faults = np.arange(len(chosen), dtype=np.uint8) % 5
    queries = queries._replace(fault=faults)
    mask = np.array([keep for _, keep in chosen], dtype=bool)
    kept = [(rect, int(fault)) for (rect, keep), fault in zip(chosen, faults, strict=True) if keep]
    for which in (mask, np.flatnonzero(mask)):
        taken = queries.take(which)
        assert list(zip(rects_of(taken), taken.fault.tolist(), strict=True)) == kept


@given(st.lists(st.one_of(st.none(), proper_rects), max_size=8), proper_rects)
def test_clipping_keeps_the_queries_that_overlap_and_of_each_the_part_inside(
    rects: list[CellRect | None], cells: CellRect
) -> None:
    nothing = CellRect(0, 0, 0, 0)
    queries = QueryCells.of([rect or nothing for rect in rects])
    queries = queries._replace(
        fault=np.array([Fault.NONE if rect else Fault.NAN for rect in rects], dtype=np.uint8)
    )
    parts = [cells_of(rect) & cells_of(cells) if rect else set() for rect in rects]
    clipped = queries.clipped(cells)
    assert [cells_of(rect) for rect in rects_of(clipped)] == [part for part in parts if part]
    assert (clipped.fault == Fault.NONE).all()
    assert all(column.dtype == np.int32 for column in clipped[:4])


@given(st.lists(st.one_of(st.none(), proper_rects), max_size=8), proper_rects)
def test_overlapping_says_which_queries_share_a_cell(
    rects: list[CellRect | None], cells: CellRect
) -> None:
    queries = QueryCells.of([rect or CellRect(0, 0, 0, 0) for rect in rects])
    expected = [bool(rect and cells_of(rect) & cells_of(cells)) for rect in rects]
    assert queries.overlapping(cells).tolist() == expected


@given(st.lists(st.lists(proper_rects, max_size=4), min_size=1, max_size=4))
def test_joined_lots_of_queries_stand_one_after_another(lots: list[list[CellRect]]) -> None:
    parts = [QueryCells.of(rects) for rects in lots]
    for fault, part in enumerate(parts):
        part.fault[:] = fault
    joined = QueryCells.concat(parts)
    assert rects_of(joined) == [rect for rects in lots for rect in rects]
    assert joined.fault.tolist() == [fault for fault, rects in enumerate(lots) for _ in rects]


# -- back to space -----------------------------------------------------------------------------


@given(grids())
def test_the_space_of_a_rectangle_of_cells_is_what_its_cells_cover(grid: Grid) -> None:
    for cells in all_rects(grid.cells):
        assert grid.space(cells) == pytest.approx(tuple(map(float, cells)))


def test_the_space_of_a_rectangle_of_cells_starts_at_the_bounds_and_has_their_scale() -> None:
    grid = Grid(Bounds(-125.0, 24.0, -65.0, 49.0), 30, 50)
    assert grid.space(CellRect(10, 20, 20, 40)) == pytest.approx((-105.0, 34.0, -85.0, 44.0))


def test_the_space_of_a_cell_narrower_than_floats_can_say_is_still_told() -> None:
    grid = Grid(Bounds(1e16, 0.0, 1e16 + 2, 1.0), 1000, 1)
    assert grid.space(CellRect(0, 0, 1, 1)) == (1e16, 0.0, 1e16, 1.0)
