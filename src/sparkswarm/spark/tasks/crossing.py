"""Crossing: which fences objects pass through between two of their fixes.

Runs in the tasks that keep objects, which know where each was before. Such a task maps the fences
of the places where its objects move, whatever executor owns these, so on several hosts it may have
to fetch them. Fences are those after the operations of the batch. A task that runs again finds the
same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from sparkswarm.apps.events.advance import cross_events
from sparkswarm.apps.events.objects import NAMES, PROPERTIES, BoundEvents
from sparkswarm.compiled import BoolArray, ByteArray, IntArray, LongArray
from sparkswarm.geometry import CellRect, QueryCells
from sparkswarm.index.legs import NO_SHAPES, Legs, find_crossed
from sparkswarm.spark.tasks.lots import labels_of, texts_of
from sparkswarm.store.files import FileRef
from sparkswarm.store.segments import Base

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext


class Crossed(NamedTuple):
    """Pairs of a leg and a query of a file, which it crosses; the queries by position."""

    base: Base
    legs: LongArray
    positions: IntArray

    @property
    def fences(self) -> LongArray:
        """The ids of the queries."""
        return self.base.index.ids[self.positions]

    def where(self, chosen: BoolArray) -> Crossed:
        """Return some of the pairs."""
        return Crossed(self.base, self.legs[chosen], self.positions[chosen])


def crossings(ctx: BatchContext, walkers: pa.Array, legs: Legs, events: BoundEvents) -> pa.Table:
    """Return the events of objects, ``walkers``, whose legs cross fences."""
    found = _each_once(_crossed(ctx, legs))
    leg = np.concatenate([np.empty(0, np.int64), *(one.legs for one in found)])
    fences = np.concatenate([np.empty(0, np.int64), *(one.fences for one in found)])
    sources = [(one.base, one.positions) for one in found]
    wanted = {NAMES, PROPERTIES}
    labels = {
        name: texts_of(sources, label)
        for name, label in labels_of(events).items()
        if name in wanted
    }
    return cross_events(walkers.take(pa.array(leg)), legs.take(leg), fences, labels, events)


def _crossed(ctx: BatchContext, legs: Legs) -> list[Crossed]:
    """Return what legs cross, file by file; a query is found in each file that has it."""
    if not len(legs.time):
        return []
    cells = ctx.grid.place_queries(
        np.minimum(legs.from_x, legs.x),
        np.minimum(legs.from_y, legs.y),
        np.maximum(legs.from_x, legs.x),
        np.maximum(legs.from_y, legs.y),
    )
    starts, partition = ctx.index.overlaps(cells)
    leg = np.repeat(np.arange(len(legs.time)), np.diff(starts))
    order = np.argsort(partition, kind="stable")
    numbers, first = np.unique(partition[order], return_index=True)
    found = []
    for number, rows in zip(numbers.tolist(), np.split(leg[order], first[1:]), strict=True):
        for at, ref in enumerate(ctx.epoch.manifest.partitions[number]):
            here = rows[cells.take(rows).overlapping(ref.cells)]
            segment = ctx.segment(ref)
            base_ref = ctx.base_ref(number, at)
            one = _in_file(ctx, legs, here, base_ref, segment.base, segment.removed)
            # Of other cells' queries this segment may know less than theirs does.
            found.append(one.where(_overlapping(ctx, one, ref.cells)))
    touched = [ctx.partition(number).cells for number in numbers.tolist()]
    for delta in ctx.deltas_over(touched):
        every = np.arange(len(legs.time))
        found.append(_in_file(ctx, legs, every, delta.ref, delta.delta.added, delta.removed))
    return [one for one in found if len(one.legs)]


def _in_file(
    ctx: BatchContext,
    legs: Legs,
    rows: LongArray,
    ref: FileRef | None,
    base: Base,
    removed: ByteArray,
) -> Crossed:
    """Return what some legs cross of the queries of one file."""
    shapes = ctx.queries.shapes(ref, base) or NO_SHAPES
    leg, positions = find_crossed(legs.take(rows), base.index, removed, shapes)
    return Crossed(base, rows[leg], positions.astype(np.int32))


def _overlapping(ctx: BatchContext, found: Crossed, cells: CellRect) -> BoolArray:
    """Return which of the queries that were found overlap some cells."""
    boxes = found.base.index.boxes[found.positions]
    placed: QueryCells = ctx.grid.place_queries(*np.ascontiguousarray(boxes.T))
    overlapping: BoolArray = placed.overlapping(cells)
    return overlapping


def _each_once(found: list[Crossed]) -> list[Crossed]:
    """Leave out pairs that were found before: a query may be in several files."""
    pairs = [np.stack([one.legs, one.fences]) for one in found]
    if not pairs:
        return []
    _, first = np.unique(np.concatenate(pairs, axis=1), axis=1, return_index=True)
    counts = np.zeros(sum(len(one.legs) for one in found), np.bool_)
    counts[first] = True
    ends = np.cumsum([len(one.legs) for one in found])[:-1]
    return [one.where(mine) for one, mine in zip(found, np.split(counts, ends), strict=True)]
