"""Tuples of the stream, and the simulator's messages beside those of the protocol.

A *tuple* of the stream is a :class:`Point` or an :class:`Operation` on a query. Both are numbered
by their source and sent until they are acknowledged. Named tuples, because there are very many
of them and their text goes into the trace.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sparkswarm.geometry import CellRect
from sparkswarm.protocol.messages import Takeover
from sparkswarm.protocol.partition import TICKETS, Partition

ALL_TICKETS = (1 << TICKETS) - 1
"""Every ticket of a partition, as bits."""

Rectangle = tuple[float, float, float, float]
"""min_x, min_y, max_x, max_y; all edges included."""

Details = tuple[Any, ...]
"""Values of the application's columns; empty without an application."""

Lane = tuple[int, int, int, int]
"""Key of a running count of a stateful query: the query, version, partition and executor where it
began."""


class Point(NamedTuple):
    """A data point. ``key`` selects its owner if its partition is shared."""

    source: int
    number: int
    x: float
    y: float
    key: int
    time: int
    details: Details = ()


class Operation(NamedTuple):
    """Register, update or (``rectangle`` None) unregister a query.

    ``version`` orders the operations on one query. ``cells`` are those of the rectangle.
    ``reach`` covers the cells of every rectangle that the query ever had: an operation is sent
    to all of them, because an older one may arrive there later.
    """

    source: int
    number: int
    query: int
    version: int
    rectangle: Rectangle | None
    cells: CellRect | None
    reach: CellRect
    stateful: bool
    details: Details = ()


class Ask(NamedTuple):
    """Source to GlobalIndex machine: a snapshot query; ``attempt`` counts repetitions."""

    number: int
    attempt: int
    rectangle: Rectangle


class RoutedAsk(NamedTuple):
    """GlobalIndex machine to m_q: a snapshot query, and the source to answer."""

    source: str
    ask: Ask


class Answered(NamedTuple):
    """The machine m_q to the source: the answer of a snapshot query.

    ``points`` are (source, number) of each point; ``partial_because`` are the machines whose
    points are missing.
    """

    number: int
    since: int
    until: int
    points: tuple[tuple[int, int], ...]
    partial_because: tuple[int, ...]


class Emitted(NamedTuple):
    """Source to GlobalIndex machine: a tuple, and the lowest number not yet acknowledged."""

    item: Point | Operation
    low: int


class Routed(NamedTuple):
    """To an executor: a tuple for a partition, routed by this version of the plan.

    ``column`` and ``row`` are the cell of a point.
    """

    item: Point | Operation
    low: int
    partition: int
    version: int
    column: int
    row: int


class Acknowledged(NamedTuple):
    """Executor to source: a tuple is processed; an operation, in these cells and tickets."""

    number: int
    cells: CellRect | None
    tickets: int


class Match(NamedTuple):
    """A result: a point matches a query; it is number ``running`` of the running count ``lane``."""

    query: int
    version: int
    source: int
    number: int
    lane: Lane | None
    running: int


class Final(NamedTuple):
    """A result: the total of a running count, after its query has left the partition."""

    lane: Lane
    total: int


class Results(NamedTuple):
    """Executor to sink: entries of its result log, from ``position`` on."""

    life: int
    position: int
    results: tuple[Match | Final, ...]


class Ahead(NamedTuple):
    """m_high to m_low: a takeover, with the queries of each of its partitions."""

    takeover: Takeover
    queries: tuple[tuple[Operation, ...], ...]


class Handover(NamedTuple):
    """Previous owner to new owner: the final state of a partition that has moved."""

    retired: int
    created: int
    giver: int
    content: Any


class HandoverWanted(NamedTuple):
    """New owner to previous owner: the handover of ``retired`` has not arrived."""

    retired: int
    created: int


class Updated(NamedTuple):
    """To executors: what follows on this channel was routed by this version or a later one."""

    version: int


class Command(NamedTuple):
    """Coordinator to any machine: a message of the protocol, with its term."""

    term: int
    message: Any


class Reply(NamedTuple):
    """Executor to Coordinator: a message of the protocol, with the term of the command."""

    term: int
    message: Any


class Beat(NamedTuple):
    """Coordinator to all machines: a heartbeat with the state of the cluster."""

    term: int
    coordinator: int
    version: int
    lives: tuple[int, ...]
    absent: tuple[int, ...]
    routers: tuple[int, ...]


class Alive(NamedTuple):
    """Executor or GlobalIndex machine to the Coordinator: a heartbeat."""

    term: int
    life: int


def owner_of(partition: Partition, key: int) -> int:
    """Return the owner that serves a point with this key, as the GlobalIndex does."""
    if not partition.is_shared:
        return partition.owners[0]
    ticket = key % TICKETS
    for owner, tickets in zip(partition.owners, partition.tickets, strict=True):
        if ticket < tickets:
            return owner
        ticket -= tickets
    raise AssertionError("the tickets of a partition must be assigned completely")


def tickets_of(partition: Partition, owner: int) -> int:
    """Return the tickets that an owner has, as bits."""
    if not partition.is_shared:
        return ALL_TICKETS
    first = 0
    for other, tickets in zip(partition.owners, partition.tickets, strict=True):
        if other == owner:
            return ((1 << tickets) - 1) << first
        first += tickets
    raise AssertionError(f"{owner} does not own p{partition.id}")
