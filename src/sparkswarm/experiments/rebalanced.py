"""SWARM's placement: the real protocol, with the statistics of a field.

Owns a :class:`LocalSwarm`, the conversion of a round's tuples to the statistics of its units, and
the size of its messages. All decisions are the protocol's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sparkswarm.compiled import FloatArray, IntArray, LongArray
from sparkswarm.config import SwarmConfig
from sparkswarm.experiments.field import Field
from sparkswarm.experiments.placement import MixedLoad, Moves, PlacementTotals, by_owner
from sparkswarm.experiments.scenarios import Mix
from sparkswarm.experiments.service import Service
from sparkswarm.geometry import CellRect, QueryCells
from sparkswarm.protocol.cost import WorkModel
from sparkswarm.protocol.local import LocalSwarm
from sparkswarm.protocol.messages import (
    CostReport,
    Decision,
    PlanPublished,
    ReduceRequest,
    Takeover,
)
from sparkswarm.protocol.partition import TICKETS, Partition

PARTITION_BYTES = 8 + 4 * 4
"""Size of a partition in a message: its id and its borders."""

OWNER_BYTES = 4 + 4
"""Size of each of its owners: id and tickets."""


class _PartitionView(NamedTuple):
    """The cells and queries of a field in one partition.

    Attributes
    ----------
    cells, columns, rows
        Positions of its cells among the cells used, and their coordinates.
    queries
        Of shape (sources,): number of queries that overlap it, once all are registered.
    """

    cells: LongArray
    columns: IntArray
    rows: IntArray
    queries: FloatArray


class Rebalanced(MixedLoad):
    """Points go by a plan that the Coordinator changes at the end of a round."""

    rebalances = True

    def __init__(self, field: Field, config: SwarmConfig, service: Service) -> None:
        self._field = field
        self._service = service
        self._registered = [len(field.sample[0].fault)] + [0] * (field.sources - 1)
        self._sample = _Sorted(field.sample[0])
        self.swarm = LocalSwarm(config, queries_of=self._queries_of, keep_messages=True)
        for unit in self.swarm.units:
            if isinstance(unit.model, WorkModel):
                # The statistics count the sample, in which a query represents several.
                price = unit.model.points_per_query_moved * field.weight
                unit.model = replace(unit.model, points_per_query_moved=price)
        self._position = np.full((field.grid.rows, field.grid.columns), -1, dtype=np.int64)
        self._position[field.rows, field.columns] = np.arange(len(field.rows))
        self._views: dict[int, _PartitionView] = {}
        self._collect_queries(field.sample[0])
        self._follow()

    def close_round(
        self, number: int, totals: PlacementTotals, mix: Mix, busy: FloatArray
    ) -> tuple[list[Decision], Moves | None]:
        """Collect the statistics of the round, and let the protocol act."""
        self._register(mix)
        self._collect_points(totals)
        self.swarm.sent.clear()
        log = self.swarm.close_round(number, dict(enumerate(busy.tolist())))
        if self.swarm.changes:
            self._follow()
        return log, self._moves()

    def _follow(self) -> None:
        """Sum the field for the plan in force."""
        self._points, self._matches = by_owner(self._field, self.swarm.plan)
        self._held: FloatArray = np.zeros_like(self._points)
        for partition in self.swarm.plan.partitions:
            for owner in partition.owners:
                self._held[owner] += self._view(partition).queries
        current = {partition.id for partition in self.swarm.plan.partitions}
        self._views = {key: view for key, view in self._views.items() if key in current}

    # -- statistics ------------------------------------------------------------------------

    def _collect_points(self, totals: PlacementTotals) -> None:
        """Add a round's tuples and their checks to the statistics."""
        field = self._field
        count = totals.points @ field.points
        met = totals.met @ field.matches
        checks = (field.points * met).sum(axis=0) * self._service.checks_per_match
        each = np.divide(checks, count, out=np.zeros_like(checks), where=count > 0)
        for partition in self.swarm.plan.partitions:
            view = self._view(partition)
            points, taken = count[view.cells], each[view.cells]
            for owner, tickets in partition.shares.items():
                self.swarm.units[owner].statistics(partition.id).collect_points(
                    view.columns, view.rows, taken, points * (tickets / TICKETS)
                )

    def _view(self, partition: Partition) -> _PartitionView:
        """Return what the field has in a partition; cached."""
        if partition.id not in self._views:
            field = self._field
            inside = self._position[partition.cells.slices].ravel()
            cells = inside[inside >= 0]
            counts = [len(self._sample.clipped(partition.cells).fault)]
            counts += [int(s.overlapping(partition.cells).sum()) for s in field.sample[1:]]
            self._views[partition.id] = _PartitionView(
                cells, field.columns[cells], field.rows[cells], np.array(counts) * field.weight
            )
        return self._views[partition.id]

    # -- queries ---------------------------------------------------------------------------

    def _register(self, mix: Mix) -> None:
        """Register and unregister queries of the hotspots."""
        for source in range(1, self._field.sources):
            sample = self._field.sample[source]
            before = self._registered[source]
            after = round(len(sample.fault) * float(mix.queries[source]))
            self._registered[source] = after
            if after > before:
                self._collect_queries(sample.take(np.arange(before, after)))
            elif after < before:
                self._remove_queries(sample.take(np.arange(after, before)))

    def _collect_queries(self, queries: QueryCells) -> None:
        for unit in self.swarm.units:
            for partition in unit.partitions:
                unit.collect_queries(partition.id, queries)

    def _remove_queries(self, queries: QueryCells) -> None:
        for unit in self.swarm.units:
            for partition in unit.partitions:
                unit.remove_queries(partition.id, queries)

    def _queries_of(self, partition: Partition) -> QueryCells:
        """Return the sampled queries of a partition, clipped to it."""
        parts = [self._sample.clipped(partition.cells)]
        for source in range(1, self._field.sources):
            some = self._field.sample[source].take(np.arange(self._registered[source]))
            parts.append(some.clipped(partition.cells))
        return QueryCells.concat(parts)

    # -- messages --------------------------------------------------------------------------

    def _moves(self) -> Moves:
        """Return the traffic of the round's messages."""
        executors = self.swarm.plan.executors
        queries = np.zeros((executors, executors))
        statistics = plan = 0.0
        for message in self.swarm.sent:
            if isinstance(message, CostReport | ReduceRequest):
                statistics += len(message.payload)
            elif isinstance(message, PlanPublished):
                plan += _plan_bytes(message)
            elif isinstance(message, Takeover):
                moved = sum(held.statistics.queries for held in message.holdings)
                queries[message.m_high, int(message.to)] += moved * self._field.weight
        return Moves(queries, statistics, plan, len(self.swarm.changes))


class _Sorted:
    """Queries sorted by their first column, so that narrow partitions are searched quickly."""

    def __init__(self, queries: QueryCells) -> None:
        self._queries = queries.take(np.argsort(queries.col_start, kind="stable"))
        widths = queries.col_stop - queries.col_start
        self._widest = int(widths.max()) if len(widths) else 0

    def clipped(self, cells: CellRect) -> QueryCells:
        """Return the queries that overlap some cells, clipped to them."""
        starts = self._queries.col_start
        first = int(np.searchsorted(starts, cells.col_start - self._widest))
        last = int(np.searchsorted(starts, cells.col_stop))
        return self._queries.take(np.arange(first, last)).clipped(cells)


def _plan_bytes(message: PlanPublished) -> int:
    return sum(
        PARTITION_BYTES + OWNER_BYTES * len(partition.owners)
        for change in message.changes
        for partition in change.created
    )
