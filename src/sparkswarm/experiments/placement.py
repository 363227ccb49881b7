"""Placements: where a policy sends points and keeps queries, over a field.

Owns, for each policy, which share of the tuples every executor gets, how many matches it
makes there and how many queries each executor holds. Time, queues and links are not its
business. SWARM, whose placement changes, is in :mod:`sparkswarm.experiments.rebalanced`;
policies that hash cells are in :mod:`sparkswarm.experiments.hashed`.
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
    """What an emitted tuple brings to each executor, on average over all tuples.

    Attributes
    ----------
    share
        Tuples.
    matches
        Queries that contain them.
    held
        Queries that the executor holds.
    """

    share: FloatArray
    matches: FloatArray
    held: FloatArray


class PlacementTotals(NamedTuple):
    """What was emitted in a round.

    Attributes
    ----------
    points
        Of shape (sources,): tuples of each.
    met
        Of shape (sources, sources): the same, by which part of the queries was registered.
    """

    points: FloatArray
    met: FloatArray


class Moves(NamedTuple):
    """What a round's end cost, beside the tuples.

    Attributes
    ----------
    queries
        Of shape (executors, executors): queries that went from one to another.
    statistics_bytes
        Bytes of reports and requests.
    plan_bytes
        Bytes of the changes to the plan, for each machine that follows it.
    changes
        How many changes there were.
    """

    queries: FloatArray
    statistics_bytes: float
    plan_bytes: float
    changes: int


class Placement(Protocol):
    """What a run asks of a policy."""

    @property
    def rebalances(self) -> bool:
        """Whether it collects statistics and changes with the load."""

    def load(self, mix: Mix) -> Load:
        """Return where tuples go now."""

    def held(self, mix: Mix) -> FloatArray:
        """Return how many queries each executor holds."""

    def close_round(
        self, number: int, totals: PlacementTotals, mix: Mix, busy: FloatArray
    ) -> tuple[list[Decision], Moves | None]:
        """End a round: return what was decided, and what it moved if anything can move."""


class Mixed:
    """Loads that are sums over a placement's sources, mixed."""

    _points: FloatArray
    _matches: FloatArray
    _held: FloatArray

    def load(self, mix: Mix) -> Load:
        """Mix the sums."""
        matches = (self._matches @ mix.queries) @ mix.points
        return Load(self._points @ mix.points, matches, self.held(mix))

    def held(self, mix: Mix) -> FloatArray:
        """Mix the queries held."""
        return self._held @ mix.queries


class Still(Mixed):
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


class ByPlan(Still):
    """Points go to the owner of their partition, by a plan that stays."""

    def __init__(self, field: Field, plan: Plan) -> None:
        index = GlobalIndex(plan)
        held = [
            np.bincount(index.route_queries(sample).owner, minlength=plan.executors)
            for sample in field.sample
        ]
        counts = np.stack(held, axis=-1).astype(np.float64)
        super().__init__(*by_owner(field, plan), counts * field.weight)


class ReplicatedPlacement(Still):
    """Points are dealt out in turn and every executor holds every query: Replicated."""

    def __init__(self, field: Field, executors: int) -> None:
        points, matches = field.within([field.grid.cells])
        everyone = np.full((executors, 1), 1.0 / executors)
        super().__init__(
            everyone * points,
            everyone[:, :, None] * matches,
            np.tile(np.array(field.counts, dtype=np.float64), (executors, 1)),
        )


def by_owner(field: Field, plan: Plan) -> tuple[FloatArray, FloatArray]:
    """Sum up the field for the executors of a plan; owners of a shared cell divide its points."""
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
