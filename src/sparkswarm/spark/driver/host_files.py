"""The files of each host: which bases the executors on it need, from batch to batch.

Owns the count of what a host holds, for the price of moves, and which files a move brings it, for
warming. Both follow the plan: the work is that of the partitions that changed, except after a
compaction or when executors change their hosts. Runs on the driver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from sparkswarm.protocol.hosts import Hosts
from sparkswarm.protocol.partition import Partition
from sparkswarm.protocol.plan import Plan
from sparkswarm.store.files import FileRef
from sparkswarm.store.manifest import BaseGroup, Manifest, SegmentRef, changed_between

Segments = Mapping[int, tuple[SegmentRef, ...]]


class HostFiles:
    """The bases that the partitions of each host are in."""

    def __init__(self) -> None:
        self._partitions: tuple[Partition, ...] = ()
        self._segments: Segments = {}
        self._bases: tuple[BaseGroup, ...] = ()
        self._hosts: tuple[str, ...] = ()
        self._uses: dict[str, Counter[FileRef]] = {}
        self._held: dict[str, int] = {}

    @property
    def hosts(self) -> Hosts:
        """The hosts of the executors by number, in order of name, and the queries of each."""
        numbers = {host: number for number, host in enumerate(self._held)}
        return Hosts(tuple(numbers[host] for host in self._hosts), tuple(self._held.values()))

    def follow(
        self, plan: Plan, manifest: Manifest, hosts: Sequence[str]
    ) -> dict[str, list[FileRef]]:
        """Follow a plan with its manifest, given the host of each executor.

        Returns
        -------
        The bases that hosts need now and did not before; none after a compaction, because tasks
        keep copies of what they write.
        """
        before, hosts = self._uses, tuple(hosts)
        is_known = bool(self._hosts) and manifest.bases is self._bases
        if is_known and hosts == self._hosts:
            arrived = self._follow_changes(plan.partitions, manifest.partitions)
        else:
            self._hosts, self._bases = hosts, manifest.bases
            self._uses = {host: Counter() for host in sorted(set(hosts))}
            self._held = dict.fromkeys(self._uses, 0)
            arrived = self._add(plan.partitions, manifest.partitions)
            known = before if is_known else self._uses
            arrived = {
                host: [base for base in some if base not in known.get(host, ())]
                for host, some in arrived.items()
            }
        self._partitions, self._segments = plan.partitions, manifest.partitions
        return {host: some for host, some in arrived.items() if some}

    def _follow_changes(
        self, partitions: tuple[Partition, ...], segments: Segments
    ) -> dict[str, list[FileRef]]:
        if partitions is self._partitions:
            return {}
        retired, created = changed_between(self._partitions, partitions)
        # In this order, so that what a host has and keeps does not arrive.
        arrived = self._add(created, segments)
        for host, base in self._needed(retired, self._segments):
            self._uses[host][base] -= 1
            if not self._uses[host][base]:
                del self._uses[host][base]
                self._held[host] -= base.rows
        return arrived

    def _add(self, partitions: Iterable[Partition], segments: Segments) -> dict[str, list[FileRef]]:
        """Count what some partitions need; return what hosts did not need before."""
        arrived: dict[str, list[FileRef]] = {host: [] for host in self._uses}
        for host, base in self._needed(partitions, segments):
            if not self._uses[host][base]:
                arrived[host].append(base)
                self._held[host] += base.rows
            self._uses[host][base] += 1
        return arrived

    def _needed(
        self, partitions: Iterable[Partition], segments: Segments
    ) -> Iterable[tuple[str, FileRef]]:
        """Yield the bases of partitions, with each host that needs them for one."""
        for partition in partitions:
            bases = {segment.base for segment in segments[partition.id] if segment.base}
            for host in {self._hosts[owner] for owner in partition.owners}:
                for base in bases:
                    yield host, base
