"""The workload of a run, drawn from the seed: scripts of the sources, and an application.

Scripts have points around moving hotspots, queries that are registered, updated and removed while
partitions move, and snapshot queries. Difficult cases are frequent: coordinates on the borders of
cells, one cell with very many points, queries over many partitions, operations that overtake each
other. Column values for applications are in :mod:`.details`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sparkswarm.geometry import CellRect, Grid
from sparkswarm.sim.clock import MILLISECOND
from sparkswarm.sim.tuples import Details, Rectangle

if TYPE_CHECKING:
    from sparkswarm.sim.details import Theme
    from sparkswarm.sim.matching import Matching

APPLICATIONS = 0.3
"""Share of the seeds that have an application."""


@dataclass(frozen=True, slots=True)
class NewPoint:
    """A point to emit."""

    time: int
    x: float
    y: float
    key: int
    details: Details = ()


@dataclass(frozen=True, slots=True)
class NewOperation:
    """An operation to emit; if patient, after earlier ones on the query are acknowledged."""

    time: int
    query: int
    version: int
    rectangle: Rectangle | None
    cells: CellRect | None
    reach: CellRect
    stateful: bool
    patient: bool
    details: Details = ()


@dataclass(frozen=True, slots=True)
class NewQuestion:
    """A snapshot query to emit; if patient, after all earlier tuples are acknowledged."""

    time: int
    number: int
    rectangle: Rectangle
    patient: bool


Scripted = NewPoint | NewOperation | NewQuestion
Script = list[Scripted]


class Workload(NamedTuple):
    """The script of each source, in order of time, and the application if there is one."""

    scripts: list[Script]
    matching: Matching | None = None


@dataclass(frozen=True, slots=True)
class WorkloadSize:
    """The size of a workload.

    Attributes
    ----------
    points, queries, questions
        Numbers of points, continuous queries and snapshot queries.
    length
        Microseconds from the first to the last.
    impatience
        Share of operations that do not wait for earlier ones on the same query.
    """

    points: int = 260
    queries: int = 16
    questions: int = 6
    length: int = 1200 * MILLISECOND
    impatience: float = 0.4


def draw_workload(seed: int, grid: Grid, sources: int, demand: WorkloadSize) -> Workload:
    """Draw a workload from its seed."""
    scripts = _draw_scripts(random.Random(f"{seed}/workload"), grid, sources, demand)
    # A generator of its own: the rest of a seed does not depend on its application.
    rng = random.Random(f"{seed}/application")
    if rng.random() >= APPLICATIONS:
        return Workload(scripts)
    # Imported here because it is slow and most seeds have no application.
    from sparkswarm.sim.details import draw_theme

    theme = draw_theme(rng)
    return Workload([_detailed(rng, script, theme) for script in scripts], theme.matching)


def _detailed(rng: random.Random, script: Script, theme: Theme) -> Script:
    """Add details to points and queries; about half of the updates change only these."""
    detailed: Script = []
    last: dict[int, NewOperation] = {}
    for scripted in script:
        match scripted:
            case NewPoint():
                detailed.append(replace(scripted, details=theme.point(rng)))
            case NewOperation():
                if scripted.rectangle is not None:
                    scripted = replace(scripted, details=theme.query(rng))
                    before = last.get(scripted.query)
                    if before is not None and rng.random() < 0.5:
                        cells, rectangle = before.cells, before.rectangle
                        scripted = replace(scripted, cells=cells, rectangle=rectangle)
                last[scripted.query] = scripted
                detailed.append(scripted)
            case NewQuestion():
                detailed.append(scripted)
    return detailed


def _draw_scripts(
    rng: random.Random, grid: Grid, sources: int, demand: WorkloadSize
) -> list[Script]:
    scripts: list[Script] = [[] for _ in range(sources)]
    spots = _hotspots(rng, grid, demand)
    for _ in range(demand.points):
        time = int(rng.random() * demand.length)
        x, y = _place(rng, grid, spots, time)
        point = NewPoint(time, x, y, rng.getrandbits(30))
        scripts[rng.randrange(sources)].append(point)
    for query in range(demand.queries):
        scripts[rng.randrange(sources)] += _life(rng, grid, query, spots, demand)
    for number in range(demand.questions):
        patient = rng.random() < 0.3
        time = int((0.2 + 0.8 * rng.random()) * demand.length)
        rectangle = _rectangle(rng, grid, *_place(rng, grid, spots, time))
        scripts[rng.randrange(sources)].append(NewQuestion(time, number, rectangle, patient))
    for script in scripts:
        script.sort(key=lambda scripted: scripted.time)
    return scripts


@dataclass(frozen=True, slots=True)
class _Spot:
    """A hotspot, active from ``since`` on."""

    since: int
    x: float
    y: float
    size: float


def _hotspots(rng: random.Random, grid: Grid, demand: WorkloadSize) -> list[_Spot]:
    spots = []
    for i in range(3):
        size = rng.choice((0.0, 0.5, 2.0, 4.0))
        x, y = rng.random() * (grid.columns - 1), rng.random() * (grid.rows - 1)
        spots.append(_Spot(i * demand.length // 3, x, y, size))
    return spots


def _place(rng: random.Random, grid: Grid, spots: list[_Spot], time: int) -> tuple[float, float]:
    """Draw coordinates: mostly in the current hotspot, often on the border of a cell."""
    if rng.random() < 0.7:
        spot = [s for s in spots if s.since <= time][-1]
        x = spot.x + (rng.random() - 0.5) * 2 * spot.size
        y = spot.y + (rng.random() - 0.5) * 2 * spot.size
    else:
        x, y = rng.random() * grid.columns, rng.random() * grid.rows
    if rng.random() < 0.3:
        x = float(round(x))
    if rng.random() < 0.3:
        y = float(round(y))
    return min(max(x, 0.0), float(grid.columns)), min(max(y, 0.0), float(grid.rows))


def _rectangle(rng: random.Random, grid: Grid, x: float, y: float) -> Rectangle:
    width, height = rng.random() * grid.columns / 3, rng.random() * grid.rows / 3
    if rng.random() < 0.3:
        x, width = float(round(x)), float(round(width))
    x1, y1 = max(0.0, x - width / 2), max(0.0, y - height / 2)
    x2, y2 = min(float(grid.columns), x + width / 2), min(float(grid.rows), y + height / 2)
    return x1, y1, x2, y2


def _life(
    rng: random.Random, grid: Grid, query: int, spots: list[_Spot], demand: WorkloadSize
) -> list[NewOperation]:
    """Draw the operations on one query: a registration, then possibly updates and a removal."""
    stateful = rng.random() < 0.5
    early = rng.random() < 0.6
    first = int(rng.random() * (0.1 if early else 0.8) * demand.length)
    times = sorted(
        first + int(rng.random() * (demand.length - first)) for _ in range(rng.choice((0, 0, 1, 2)))
    )
    rectangles: list[Rectangle | None] = []
    for i in range(len(times) + 1):
        last = i == len(times)
        if i and last and rng.random() < 0.6:
            rectangles.append(None)
        else:
            time = (first, *times)[i]
            rectangles.append(_rectangle(rng, grid, *_place(rng, grid, spots, time)))
    moments = [first, *times]
    if rng.random() < demand.impatience and len(moments) > 1:
        # At short intervals, so that they overtake each other.
        moments = [moments[0] + i * 2 * MILLISECOND for i in range(len(moments))]
    patient = [True] + [rng.random() >= demand.impatience for _ in moments[1:]]
    if rectangles[-1] is not None and stateful:
        # Stateful queries are removed in the end, so that every running count has a total.
        rectangles.append(None)
        moments.append(demand.length + MILLISECOND)
        patient.append(True)
    return operations_on(grid, query, stateful, rectangles, moments, patient)


def operations_on(
    grid: Grid,
    query: int,
    stateful: bool,
    rectangles: list[Rectangle | None],
    moments: list[int],
    patient: list[bool],
) -> list[NewOperation]:
    """Return the operations on one query, each with its cells and its reach."""
    operations: list[NewOperation] = []
    placed = [None if rectangle is None else _cells(grid, rectangle) for rectangle in rectangles]
    for i, cells in enumerate(placed):
        so_far = [earlier for earlier in placed[: i + 1] if earlier is not None]
        operations.append(
            NewOperation(
                time=moments[i],
                query=query,
                version=i + 1,
                rectangle=rectangles[i],
                cells=cells,
                reach=reduce(_around, so_far),
                stateful=stateful,
                patient=patient[i],
            )
        )
    return operations


def _cells(grid: Grid, rectangle: Rectangle) -> CellRect:
    return grid.place_queries(*(np.array([edge]) for edge in rectangle)).rect(0)


def _around(one: CellRect, other: CellRect) -> CellRect:
    """Return the smallest rectangle of cells that contains both."""
    return CellRect(
        min(one.col_start, other.col_start),
        min(one.row_start, other.row_start),
        max(one.col_stop, other.col_stop),
        max(one.row_stop, other.row_stop),
    )
