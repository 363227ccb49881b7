"""What flows and what machines say beside the protocol's own messages.

Frozen data, nothing else. A *tuple* of the stream is a :class:`Point` or an
:class:`Operation` on a query; both are numbered by their source, and travel until somebody has
acknowledged them. Named tuples, because they are made by the thousand and their text goes into
the trace.
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
"""What a tuple has for an application: values of its columns, none without one."""

Lane = tuple[int, int, int, int]
"""One running count of a stateful query: (query, version, partition, executor) it began with."""


class Point(NamedTuple):
    """A data point. ``key`` draws its ticket where its partition is shared."""

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
    ``reach`` covers the cells of every rectangle that the query ever had: an operation goes
    to all of them, because an older one may still be on its way there.
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


class Asked(NamedTuple):
    """GlobalIndex machine to m_q: a snapshot query, and who wants the answer."""

    source: str
    ask: Ask


class Answered(NamedTuple):
    """The machine m_q to the source: what a snapshot query found, and who is to blame if not all.

    ``points`` are (source, number) of each point.
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
    """To an executor: a tuple for a partition, by the plan of some version.

    ``column`` and ``row`` are the cell of a point.
    """

    item: Point | Operation
    low: int
    partition: int
    version: int
    column: int
    row: int


class Acknowledged(NamedTuple):
    """Executor to source: a tuple is done; of an operation, in these cells and tickets."""

    number: int
    cells: CellRect | None
    tickets: int


class Match(NamedTuple):
    """A result: a point lies in a query; where the query counts, the how many-th of a lane."""

    query: int
    version: int
    source: int
    number: int
    lane: Lane | None
    running: int


class Final(NamedTuple):
    """A result: a running count has ended with this number, because its query has gone."""

    lane: Lane
    total: int


class Results(NamedTuple):
    """Executor to sink: entries of its log of results, from ``position`` on."""

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
    """New owner to previous owner: the handover of ``retired`` has not come yet."""

    retired: int
    created: int


class Updated(NamedTuple):
    """To executors: whatever follows on this channel was routed by this version, or a later."""

    version: int


class Command(NamedTuple):
    """Coordinator to anyone: a message of the protocol, under a term."""

    term: int
    message: Any


class Answer(NamedTuple):
    """Executor to Coordinator: a message of the protocol, under the term it answers."""

    term: int
    message: Any


class Beat(NamedTuple):
    """Coordinator to everyone, again and again: I am here, and so it stands."""

    term: int
    coordinator: int
    version: int
    lives: tuple[int, ...]
    absent: tuple[int, ...]
    routers: tuple[int, ...]


class Alive(NamedTuple):
    """Executor or GlobalIndex machine to the Coordinator: I am here."""

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
    raise AssertionError("the tickets of a partition are dealt out in full")


def tickets_of(partition: Partition, owner: int) -> int:
    """Return the tickets that an owner has, as bits."""
    if not partition.is_shared:
        return ALL_TICKETS
    first = 0
    for other, tickets in zip(partition.owners, partition.tickets, strict=True):
        if other == owner:
            return ((1 << tickets) - 1) << first
        first += tickets
    raise AssertionError(f"{owner} is no owner of p{partition.id}")
