"""What each host needs is known from batch to batch, as if it were counted anew."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.geometry import Bounds, Grid
from sparkswarm.protocol.hosts import Hosts
from sparkswarm.protocol.partition import TICKETS, Partition, reshared
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.driver.host_files import HostFiles
from sparkswarm.store.files import FileRef
from sparkswarm.store.manifest import BaseGroup, Manifest, SegmentRef

GRID = Grid(Bounds(0.0, 0.0, 4.0, 4.0), 4, 4)
ONE, TWO = FileRef("one", 10, 1, 1), FileRef("two", 3, 1, 1)
BASES = (BaseGroup(FileRef("directory", 13, 1, 1), (ONE, TWO)),)
EXECUTORS = 4


def manifest_of(plan: Plan, files: dict[int, tuple[FileRef, ...]]) -> Manifest:
    segments = {
        p.id: tuple(SegmentRef(p.cells, file) for file in files[p.owners[0]])
        or (SegmentRef(p.cells),)
        for p in plan.partitions
    }
    return Manifest(0, segments, BASES)


def first() -> tuple[Plan, Manifest]:
    plan = Plan.initial(GRID, EXECUTORS)
    files: dict[int, tuple[FileRef, ...]] = {0: (ONE,), 1: (ONE, TWO), 2: (), 3: (TWO,)}
    return plan, manifest_of(plan, files)


def needed(plan: Plan, manifest: Manifest, hosts: tuple[str, ...]) -> dict[str, set[FileRef]]:
    """Count anew."""
    found: dict[str, set[FileRef]] = {host: set() for host in sorted(set(hosts))}
    for partition in plan.partitions:
        for owner in partition.owners:
            segments = manifest.partitions[partition.id]
            found[hosts[owner]] |= {s.base for s in segments if s.base}
    return found


def given_to(plan: Plan, partition: Partition, owners: tuple[int, ...]) -> Plan:
    """Return the next plan, in which a partition has other owners."""
    ids, plan = plan.reserve(1)
    tickets = dict.fromkeys(owners, TICKETS // len(owners))
    tickets[owners[0]] += TICKETS % len(owners)
    return plan.apply([reshared(partition, tickets, ids[0])])


def test_a_host_holds_the_files_of_its_executors_each_once() -> None:
    for hosts, of, held in (
        (("a", "a", "b", "b"), (0, 0, 1, 1), (13, 3)),
        (("a", "b", "c", "b"), (0, 1, 2, 1), (10, 13, 0)),
    ):
        files = HostFiles()
        assert files.follow(*first(), hosts) == {}
        assert files.hosts == Hosts(of, held)


def test_only_what_a_host_did_not_need_before_arrives() -> None:
    files, hosts = HostFiles(), ("a", "a", "b", "b")
    plan, manifest = first()
    files.follow(plan, manifest, hosts)
    # Host b has the second file already.
    after = given_to(plan, plan.partitions[1], (2,))
    there = manifest.for_plan(plan.partitions, after.partitions)
    assert files.follow(after, there, hosts) == {"b": [ONE]}
    assert files.follow(after, there, hosts) == {}
    assert files.hosts == Hosts((0, 0, 1, 1), (10, 13))
    # It goes back with an executor that changes its host.
    assert files.follow(after, there, ("a", "a", "a", "b")) == {"a": [TWO]}
    assert files.follow(after, there, ("c", "c", "c", "b")) == {"c": [ONE, TWO]}


def test_nothing_arrives_with_bases_that_were_written_anew() -> None:
    files, hosts = HostFiles(), ("a", "a", "b", "b")
    plan, manifest = first()
    files.follow(plan, manifest, hosts)
    new = FileRef("new", 20, 1, 1)
    after = replace(
        manifest_of(plan, dict.fromkeys(range(4), (new,))), bases=(BaseGroup(new, (new,)),)
    )
    assert files.follow(plan, after, hosts) == {}
    assert files.hosts == Hosts((0, 0, 1, 1), (20, 20))


OWNERS = st.lists(st.integers(0, EXECUTORS - 1), min_size=1, max_size=3, unique=True)
STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, EXECUTORS - 1), OWNERS.map(tuple)), max_size=3),
        st.lists(st.sampled_from("abc"), min_size=EXECUTORS, max_size=EXECUTORS).map(tuple),
        st.booleans(),
    ),
    max_size=8,
)


@given(STEPS)
def test_what_was_followed_is_what_is_counted_anew(steps) -> None:
    files, hosts = HostFiles(), ("a", "a", "b", "b")
    plan, manifest = first()
    files.follow(plan, manifest, hosts)
    before = needed(plan, manifest, hosts)
    for changes, others, stay in steps:
        hosts = hosts if stay else others
        old = plan
        for position, owners in changes:
            plan = given_to(plan, plan.partitions[position], owners)
        if plan is not old:
            manifest = manifest.for_plan(old.partitions, plan.partitions)
        arrived = files.follow(plan, manifest, hosts)
        now = needed(plan, manifest, hosts)
        assert files.hosts.held == tuple(sum(ref.rows for ref in some) for some in now.values())
        new = {host: some - before.get(host, set()) for host, some in now.items()}
        assert {host: set(some) for host, some in arrived.items()} == {
            host: some for host, some in new.items() if some
        }
        before = now
