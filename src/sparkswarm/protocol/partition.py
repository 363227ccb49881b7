"""A partition, and the changes that turn partitions into others.

A partition never changes: an id stands for one rectangle of cells with one set of owners. A
move, a split, a merge, sharing and un-sharing all retire partitions and create new ones under
fresh ids. So the question who held these cells before has one answer (the paper's chain of
partitions), and an index can be updated cell by cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sparkswarm.errors import PlanError
from sparkswarm.geometry import CellRect

TICKETS = 64
"""Number of tickets among which the points of a shared partition are divided: an owner with 16
of 64 gets a quarter of the points. Also the largest number of owners."""

Shares = Mapping[int, int]
"""Owners and their tickets; a single owner has all of them."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A rectangle of cells and the executor, or executors, responsible for it.

    Attributes
    ----------
    id
        Unique in a run; not used again after the partition is retired.
    owners
        One executor; several where the partition is shared: every owner holds all its
        queries, and a hash sends each point to one of them.
    tickets
        Tickets of each owner of a shared partition; empty where there is one owner.
    parents
        The partitions that held these cells before: several after a merge, none at the start.
    previous_owners
        The executors of the parents, the paper's "previous responsible machine".
    """

    id: int
    cells: CellRect
    owners: tuple[int, ...]
    tickets: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    previous_owners: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.cells.columns < 1 or self.cells.rows < 1:
            raise PlanError(f"partition {self.id} has no cells: {self.cells}")
        if not self.owners or len(set(self.owners)) != len(self.owners):
            raise PlanError(f"partition {self.id} needs distinct owners, got {self.owners}")
        if not self.is_shared and self.tickets:
            raise PlanError(f"partition {self.id} has one owner and must not have tickets")
        if self.is_shared and (
            len(self.tickets) != len(self.owners)
            or min(self.tickets) < 1
            or sum(self.tickets) != TICKETS
        ):
            raise PlanError(
                f"partition {self.id} needs tickets for {len(self.owners)} owners, {TICKETS} "
                f"in all, got {self.tickets}"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        # Plans are large: half the size and time of what dataclasses do.
        fields = self.id, tuple(self.cells), self.owners, self.tickets, self.parents
        return _partition, (*fields, self.previous_owners)

    @property
    def is_shared(self) -> bool:
        """Whether several executors serve it."""
        return len(self.owners) > 1

    @property
    def shares(self) -> dict[int, int]:
        """The tickets of each owner."""
        return dict(zip(self.owners, self.tickets or (TICKETS,), strict=True))

    @property
    def is_cell(self) -> bool:
        """Whether it is a single cell, which cannot be split."""
        return self.cells.area == 1


def _partition(partition_id: int, cells: tuple[int, int, int, int], *fields: Any) -> Partition:
    return Partition(partition_id, CellRect(*cells), *fields)


class ChangeKind(StrEnum):
    """Kinds of changes; the values are written to journals and metrics."""

    MOVE = "move"
    SPLIT = "split"
    MERGE = "merge"
    SHARE = "share"
    UNSHARE = "unshare"


@dataclass(frozen=True, slots=True)
class PlanChange:
    """Partitions that are retired, and the partitions that take over exactly their cells.

    One becomes one or several, or several become one.
    """

    kind: ChangeKind
    retired: tuple[Partition, ...]
    created: tuple[Partition, ...]

    def __post_init__(self) -> None:
        if min(len(self.retired), len(self.created)) != 1:
            raise PlanError(
                f"a change turns one partition into others or several into one, "
                f"not {len(self.retired)} into {len(self.created)}"
            )
        whole, parts = (
            (self.retired[0], self.created)
            if len(self.retired) == 1
            else (self.created[0], self.retired)
        )
        if sum(part.cells.area for part in parts) != whole.cells.area or not all(
            whole.cells.contains(part.cells) for part in parts
        ):
            raise PlanError(f"{self.describe()} does not cover the same cells")
        for i, part in enumerate(parts):
            if any(part.cells.overlaps(other.cells) for other in parts[i + 1 :]):
                raise PlanError(f"{self.describe()} covers a cell twice")

    @property
    def cells(self) -> CellRect:
        """The cells concerned."""
        return (self.retired if len(self.retired) == 1 else self.created)[0].cells

    def describe(self) -> str:
        """Return the change in one line, such as ``split p3@1 into p7@1 p8@4``."""
        return f"{self.kind} {_names(self.retired)} into {_names(self.created)}"


def _names(partitions: tuple[Partition, ...]) -> str:
    return " ".join(f"p{p.id}@{'+'.join(map(str, p.owners))}" for p in partitions)


def successor(partition_id: int, cells: CellRect, shares: Shares, *parents: Partition) -> Partition:
    """Return a partition that takes over cells of ``parents``, with its lineage."""
    owners = tuple(owner for owner, tickets in shares.items() if tickets)
    previous = dict.fromkeys(owner for parent in parents for owner in parent.owners)
    return Partition(
        id=partition_id,
        cells=cells,
        owners=owners,
        tickets=tuple(shares[owner] for owner in owners) if len(owners) > 1 else (),
        parents=tuple(parent.id for parent in parents),
        previous_owners=tuple(previous),
    )


def moved(partition: Partition, giver: int, taker: int, fresh_id: int) -> PlanChange:
    """Move a partition, or the giver's tickets of it, from ``giver`` to ``taker``."""
    shares = partition.shares
    if giver not in shares:
        raise PlanError(f"{giver} does not own p{partition.id}@{partition.owners}")
    shares[taker] = shares.get(taker, 0) + shares.pop(giver)
    created = successor(fresh_id, partition.cells, shares, partition)
    return PlanChange(ChangeKind.MOVE, (partition,), (created,))


def split(
    partition: Partition, pieces: Sequence[tuple[CellRect, Shares]], fresh_id: int
) -> PlanChange:
    """Split a partition into pieces with their owners; ids count from ``fresh_id``."""
    created = tuple(
        successor(fresh_id + i, cells, shares, partition)
        for i, (cells, shares) in enumerate(pieces)
    )
    kind = ChangeKind.SHARE if any(p.is_shared for p in created) else ChangeKind.SPLIT
    return PlanChange(kind, (partition,), created)


def merged(partitions: tuple[Partition, ...], cells: CellRect, fresh_id: int) -> PlanChange:
    """Merge partitions of one executor into one."""
    created = successor(fresh_id, cells, partitions[0].shares, *partitions)
    return PlanChange(ChangeKind.MERGE, partitions, (created,))


def reshared(partition: Partition, shares: Shares, fresh_id: int) -> PlanChange:
    """Share a partition with these tickets; with one owner left, un-share it."""
    created = successor(fresh_id, partition.cells, shares, partition)
    kind = ChangeKind.SHARE if created.is_shared else ChangeKind.UNSHARE
    return PlanChange(kind, (partition,), (created,))
