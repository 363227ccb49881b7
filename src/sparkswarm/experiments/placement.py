"""Placements: the executors to which a policy sends points and queries.

Computes, for each policy, the share of the tuples of every executor, their matches and the
number of queries held. Independent of time, queues and links. SWARM, whose placement changes, is
in :mod:`sparkswarm.experiments.rebalanced`; policies that hash cells are in
:mod:`sparkswarm.experiments.hashed`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from sparkswarm.compiled import FloatArray
from sparkswarm.experiments.field import Field
from sparkswarm.experiments.scenarios import Mix
from sparkswarm.protocol.global_index import GlobalIndex
from sparkswarm.protocol.messages import Decision
from sparkswarm.protocol.partition import TICKETS
from sparkswarm.protocol.plan import Plan


class Load(NamedTuple):
    """The load of an emitted tuple on each executor, averaged over all tuples.

    Attributes
    ----------
    share
        Share of the tuples.
    matches
        Queries that contain them.
    held
        Queries that the executor holds.
    """

    share: FloatArray
    matches: FloatArray
    held: FloatArray


class PlacementTotals(NamedTuple):
    """The tuples emitted in a round.

    Attributes
    ----------
    points
        Of shape (sources,): number of tuples.
    met
        Of shape (sources of tuples, sources of queries): the same, weighted with the share of
        the queries that was registered.
    """

    points: FloatArray
    met: FloatArray


class Moves(NamedTuple):
    """The traffic that the end of a round caused.

    Attributes
    ----------
    queries
        Of shape (executors, executors): queries moved from one to another.
    statistics_bytes
        Bytes of reports and requests.
    plan_bytes
        Bytes of the changes to the plan, per machine that receives them.
    changes
        Number of changes.
    fetched
        As ``queries``: those that borrowers fetched from owners, as files. None without lending.
    """

    queries: FloatArray
    statistics_bytes: float
    plan_bytes: float
    changes: int
    fetched: FloatArray | None = None


class Placement(Protocol):
    """The interface of a policy for a run."""

    @property
    def rebalances(self) -> bool:
        """Whether it collects statistics and adapts to the load."""

    def load(self, mix: Mix) -> Load:
        """Return the load of a tuple on each executor."""

    def held(self, mix: Mix) -> FloatArray:
        """Return how many queries each executor holds."""

    def close_round(
        self, number: int, totals: PlacementTotals, mix: Mix, busy: FloatArray
    ) -> tuple[list[Decision], Moves | None]:
        """End a round: return the decisions, and the traffic if the policy rebalances."""


class MixedLoad:
    """Loads that are linear in the mix of sources."""

    _points: FloatArray
    _matches: FloatArray
    _held: FloatArray

    def load(self, mix: Mix) -> Load:
        """Return the load of a tuple on each executor."""
        matches = (self._matches @ mix.queries) @ mix.points
        return Load(self._points @ mix.points, matches, self.held(mix))

    def held(self, mix: Mix) -> FloatArray:
        """Return how many queries each executor holds."""
        return self._held @ mix.queries


class FixedPlacement(MixedLoad):
    """A placement that never changes."""

    rebalances = False

    def __init__(self, points: FloatArray, matches: FloatArray, held: FloatArray) -> None:
        self._points = points
        self._matches = matches
        self._held = held

    def close_round(
        self, number: int, totals: PlacementTotals, mix: Mix, busy: FloatArray
    ) -> tuple[list[Decision], Moves | None]:
        """Decide nothing."""
        return [], None


class ByPlan(FixedPlacement):
    """Points go to the owner of their partition, by a plan that never changes."""

    def __init__(self, field: Field, plan: Plan) -> None:
        index = GlobalIndex(plan)
        held = [
            np.bincount(index.route_queries(sample).owner, minlength=plan.executors)
            for sample in field.sample
        ]
        counts = np.stack(held, axis=-1).astype(np.float64)
        super().__init__(*by_owner(field, plan), counts * field.weight)


class ReplicatedPlacement(FixedPlacement):
    """Points go to executors in turn; every executor holds every query (paper, "Replicated")."""

    def __init__(self, field: Field, executors: int) -> None:
        points, matches = field.within([field.grid.cells])
        everyone = np.full((executors, 1), 1.0 / executors)
        super().__init__(
            everyone * points,
            everyone[:, :, None] * matches,
            np.tile(np.array(field.counts, dtype=np.float64), (executors, 1)),
        )


def by_owner(field: Field, plan: Plan) -> tuple[FloatArray, FloatArray]:
    """Sum the field for each executor of a plan; owners of a shared cell divide its points."""
    points, matches = field.within([p.cells for p in plan.partitions])
    entries = [
        (i, owner, tickets / TICKETS)
        for i, partition in enumerate(plan.partitions)
        for owner, tickets in partition.shares.items()
    ]
    which, owners, shares = (np.array(column) for column in zip(*entries, strict=True))
    of_points = np.zeros((plan.executors, field.sources))
    of_matches = np.zeros((plan.executors, field.sources, field.sources))
    np.add.at(of_points, owners, points[which] * shares[:, None])
    np.add.at(of_matches, owners, matches[which] * shares[:, None, None])
    return of_points, of_matches
