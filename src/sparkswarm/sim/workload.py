"""What the sources are to emit, and the application that decides on it, drawn from the seed.

Owns the scripts: points around hotspots that move, queries that come, change and go while
partitions move, and snapshot queries. What an application needs of them is in :mod:`.details`.
Drawn so that what is hard happens often: coordinates on the borders of cells, one cell with very
many points, queries over many partitions, operations that overtake each other.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sparkswarm.geometry import CellRect, Grid
from sparkswarm.sim.clock import MILLISECOND
from sparkswarm.sim.tuples import Details, Rectangle

if TYPE_CHECKING:
    from sparkswarm.sim.details import Theme
    from sparkswarm.sim.matching import Matching

APPLICATIONS = 0.3
"""The part of the seeds that have an application."""


@dataclass(frozen=True, slots=True)
class NewPoint:
    """A point at a time."""

    time: int
    x: float
    y: float
    key: int
    details: Details = ()


@dataclass(frozen=True, slots=True)
class NewOperation:
    """An operation on a query; a patient one waits until those before it are done."""

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
    """A snapshot query; a patient one waits until all before it are done."""

    time: int
    number: int
    rectangle: Rectangle
    patient: bool


Scripted = NewPoint | NewOperation | NewQuestion
Script = list[Scripted]


class Workload(NamedTuple):
    """What each source is to emit, in order of time, and what decides on it.

    Without ``matching``, rectangles do.
    """

    scripts: list[Script]
    matching: Matching | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    """How much of everything.

    Attributes
    ----------
    points, queries, questions
        How many.
    length
        Microseconds from the first to the last.
    impatience
        The part of operations that do not wait for those before them on the same query.
    """

    points: int = 260
    queries: int = 16
    questions: int = 6
    length: int = 1200 * MILLISECOND
    impatience: float = 0.4


def draw_workload(seed: int, grid: Grid, sources: int, demand: Demand) -> Workload:
    """Draw a workload from its seed."""
    scripts = _draw_scripts(random.Random(f"{seed}/workload"), grid, sources, demand)
    # Chance of its own: nothing else of a seed depends on whether it has an application.
    luck = random.Random(f"{seed}/application")
    if luck.random() >= APPLICATIONS:
        return Workload(scripts)
    # Here, because it takes a while and most seeds do without.
    from sparkswarm.sim.details import draw_theme

    theme = draw_theme(luck)
    return Workload([_detailed(luck, script, theme) for script in scripts], theme.matching)


def _detailed(luck: random.Random, script: Script, theme: Theme) -> Script:
    """Give points and queries their details; some updates then change nothing else."""
    detailed: Script = []
    last: dict[int, NewOperation] = {}
    for scripted in script:
        match scripted:
            case NewPoint():
                detailed.append(replace(scripted, details=theme.point(luck)))
            case NewOperation():
                if scripted.rectangle is not None:
                    scripted = replace(scripted, details=theme.query(luck))
                    before = last.get(scripted.query)
                    if before is not None and luck.random() < 0.5:
                        cells, rectangle = before.cells, before.rectangle
                        scripted = replace(scripted, cells=cells, rectangle=rectangle)
                last[scripted.query] = scripted
                detailed.append(scripted)
            case NewQuestion():
                detailed.append(scripted)
    return detailed


def _draw_scripts(luck: random.Random, grid: Grid, sources: int, demand: Demand) -> list[Script]:
    scripts: list[Script] = [[] for _ in range(sources)]
    spots = _hotspots(luck, grid, demand)
    for _ in range(demand.points):
        time = int(luck.random() * demand.length)
        x, y = _place(luck, grid, spots, time)
        point = NewPoint(time, x, y, luck.getrandbits(30))
        scripts[luck.randrange(sources)].append(point)
    for query in range(demand.queries):
        scripts[luck.randrange(sources)] += _life(luck, grid, query, spots, demand)
    for number in range(demand.questions):
        patient = luck.random() < 0.3
        time = int((0.2 + 0.8 * luck.random()) * demand.length)
        rectangle = _rectangle(luck, grid, *_place(luck, grid, spots, time))
        scripts[luck.randrange(sources)].append(NewQuestion(time, number, rectangle, patient))
    for script in scripts:
        script.sort(key=lambda scripted: scripted.time)
    return scripts


@dataclass(frozen=True, slots=True)
class _Spot:
    """A place that many points are near to, from some time on."""

    since: int
    x: float
    y: float
    size: float


def _hotspots(luck: random.Random, grid: Grid, demand: Demand) -> list[_Spot]:
    spots = []
    for i in range(3):
        size = luck.choice((0.0, 0.5, 2.0, 4.0))
        x, y = luck.random() * (grid.columns - 1), luck.random() * (grid.rows - 1)
        spots.append(_Spot(i * demand.length // 3, x, y, size))
    return spots


def _place(luck: random.Random, grid: Grid, spots: list[_Spot], time: int) -> tuple[float, float]:
    """Draw coordinates: mostly in the hotspot of the time, often on the border of a cell."""
    if luck.random() < 0.7:
        spot = [s for s in spots if s.since <= time][-1]
        x = spot.x + (luck.random() - 0.5) * 2 * spot.size
        y = spot.y + (luck.random() - 0.5) * 2 * spot.size
    else:
        x, y = luck.random() * grid.columns, luck.random() * grid.rows
    if luck.random() < 0.3:
        x = float(round(x))
    if luck.random() < 0.3:
        y = float(round(y))
    return min(max(x, 0.0), float(grid.columns)), min(max(y, 0.0), float(grid.rows))


def _rectangle(luck: random.Random, grid: Grid, x: float, y: float) -> Rectangle:
    width, height = luck.random() * grid.columns / 3, luck.random() * grid.rows / 3
    if luck.random() < 0.3:
        x, width = float(round(x)), float(round(width))
    x1, y1 = max(0.0, x - width / 2), max(0.0, y - height / 2)
    x2, y2 = min(float(grid.columns), x + width / 2), min(float(grid.rows), y + height / 2)
    return x1, y1, x2, y2


def _life(
    luck: random.Random, grid: Grid, query: int, spots: list[_Spot], demand: Demand
) -> list[NewOperation]:
    """Draw the operations on one query: registered, perhaps updated, perhaps removed."""
    stateful = luck.random() < 0.5
    early = luck.random() < 0.6
    first = int(luck.random() * (0.1 if early else 0.8) * demand.length)
    times = sorted(
        first + int(luck.random() * (demand.length - first))
        for _ in range(luck.choice((0, 0, 1, 2)))
    )
    rectangles: list[Rectangle | None] = []
    for i in range(len(times) + 1):
        last = i == len(times)
        if i and last and luck.random() < 0.6:
            rectangles.append(None)
        else:
            time = (first, *times)[i]
            rectangles.append(_rectangle(luck, grid, *_place(luck, grid, spots, time)))
    moments = [first, *times]
    if luck.random() < demand.impatience and len(moments) > 1:
        # Close upon each other, so that they overtake each other.
        moments = [moments[0] + i * 2 * MILLISECOND for i in range(len(moments))]
    patient = [True] + [luck.random() >= demand.impatience for _ in moments[1:]]
    if rectangles[-1] is not None and stateful:
        # What counts is removed in the end, so that every running count ends in a result.
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
    """Return the operations on one query, each with where it goes."""
    operations: list[NewOperation] = []
    reach: CellRect | None = None
    for i, (rectangle, time, waits) in enumerate(zip(rectangles, moments, patient, strict=True)):
        cells = None
        if rectangle is not None:
            cells = grid.place_queries(*(np.array([edge]) for edge in rectangle)).rect(0)
            reach = cells if reach is None else _around(reach, cells)
        assert reach is not None
        operations.append(
            NewOperation(time, query, i + 1, rectangle, cells, reach, stateful, waits)
        )
    return operations


def _around(one: CellRect, other: CellRect) -> CellRect:
    """Return the smallest rectangle of cells that covers both."""
    return CellRect(
        min(one.col_start, other.col_start),
        min(one.row_start, other.row_start),
        max(one.col_stop, other.col_stop),
        max(one.row_stop, other.row_stop),
    )
