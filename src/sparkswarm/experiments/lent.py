"""SWARM with lending: the plan says where state lives, the load of the moment where work happens.

Owns who borrows from whom, and the copies that borrowers keep. Load divides at will here, as in all
experiments; loans are those of :mod:`sparkswarm.protocol.lending`. A borrower fetches the queries
of a partition once and keeps them while it borrows; the links carry them at the end of the round.
"""

from __future__ import annotations

import numpy as np

from sparkswarm.compiled import FloatArray, IntArray
from sparkswarm.config import SwarmConfig
from sparkswarm.experiments.field import Field
from sparkswarm.experiments.placement import Load, Moves, PlacementTotals
from sparkswarm.experiments.rebalanced import Rebalanced
from sparkswarm.experiments.scenarios import Mix
from sparkswarm.experiments.service import Service
from sparkswarm.protocol.lending import agree
from sparkswarm.protocol.messages import Decision
from sparkswarm.protocol.partition import TICKETS

KEEP_ROUNDS = 4
"""Rounds for which a borrower keeps a partition's queries after the last loan."""


class Lending(Rebalanced):
    """Points go by the plan, and what is above the mean goes to executors below it."""

    def __init__(self, field: Field, config: SwarmConfig, service: Service, host: IntArray) -> None:
        self._host = host
        self._copies: dict[tuple[int, int], int] = {}
        self._round = 0
        self._fetched: FloatArray = np.zeros((config.executors, config.executors))
        super().__init__(field, config, service)

    def load(self, mix: Mix) -> Load:
        """Return the load of a tuple on each executor, after lending."""
        own = super().load(mix)
        share = self._group_points @ mix.points
        matches = (self._group_matches @ mix.queries) @ mix.points
        cost = share * self._service.point_seconds(self._held @ mix.queries)[self._group_owner]
        cost += self._service.per_match * matches
        loans = agree(self._group_owner, cost, len(own.share), self._host)
        part = loans.amount / cost[loans.group]
        for amounts, groups in ((own.share, share), (own.matches, matches)):
            lent = part * groups[loans.group]
            np.subtract.at(amounts, self._group_owner[loans.group], lent)
            np.add.at(amounts, loans.borrower, lent)
        for group, borrower in zip(loans.group.tolist(), loans.borrower.tolist(), strict=True):
            self._fetch(group, borrower, mix)
        return Load(own.share, own.matches, self.held(mix))

    def held(self, mix: Mix) -> FloatArray:
        """Return how many queries each executor holds, with its copies of partitions."""
        held = super().held(mix)
        for partition, borrower in self._copies:
            held[borrower] += self._views[partition].queries @ mix.queries
        return held

    def close_round(
        self, number: int, totals: PlacementTotals, mix: Mix, busy: FloatArray
    ) -> tuple[list[Decision], Moves | None]:
        """End the round as without lending: owners learn as if they had done their own work."""
        own = super().load(mix)
        work = own.share * self._service.point_seconds(self._held @ mix.queries)
        work += self._service.per_match * own.matches
        log, moves = super().close_round(
            number, totals, mix, busy.sum() * work / max(float(work.sum()), 1e-300)
        )
        self._round = number + 1
        self._copies = {
            copy: used
            for copy, used in self._copies.items()
            if copy[0] in self._views and self._round - used <= KEEP_ROUNDS
        }
        fetched, self._fetched = self._fetched, np.zeros_like(self._fetched)
        return log, None if moves is None else moves._replace(fetched=fetched)

    def _fetch(self, group: int, borrower: int, mix: Mix) -> None:
        """Give a borrower a copy of a partition's queries, unless it has one."""
        partition = self._group_partition[group]
        if borrower in partition.owners:
            return
        if (partition.id, borrower) not in self._copies:
            queries = float(self._view(partition).queries @ mix.queries)
            self._fetched[self._group_owner[group], borrower] += queries
        self._copies[partition.id, borrower] = self._round

    def _follow(self) -> None:
        """Sum the field for each (partition, owner) too."""
        super()._follow()
        plan = self.swarm.plan
        points, matches = self._field.within([p.cells for p in plan.partitions])
        groups = [
            (i, owner, tickets / TICKETS)
            for i, partition in enumerate(plan.partitions)
            for owner, tickets in partition.shares.items()
        ]
        which, owners, shares = (np.array(column) for column in zip(*groups, strict=True))
        self._group_partition = [plan.partitions[i] for i in which]
        self._group_owner: IntArray = owners.astype(np.int32)
        self._group_points: FloatArray = points[which] * shares[:, None]
        self._group_matches: FloatArray = matches[which] * shares[:, None, None]
