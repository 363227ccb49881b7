"""What passes from a partition to those that come after it."""

from __future__ import annotations

from sparkswarm.geometry import CellRect
from sparkswarm.protocol.partition import TICKETS, Partition, merged, moved, reshared, split
from sparkswarm.sim.bugs import Bug
from sparkswarm.sim.records import Record, Seen, new_record, portion
from sparkswarm.sim.tuples import Final, Operation, Point

CELLS = CellRect(0, 0, 4, 4)
LEFT, RIGHT = CELLS.split_columns(2)
NONE: frozenset[Bug] = frozenset()


def operation(query: int, version: int, cells: CellRect | None, number: int = 1) -> Operation:
    rectangle = None if cells is None else tuple(map(float, cells))
    return Operation(0, number, query, version, rectangle, cells, CELLS, True)  # type: ignore[arg-type]


def point(number: int, x: float = 1.0, y: float = 1.0) -> Point:
    return Point(0, number, x, y, 0, 0)


def test_seen_is_everything_below_the_mark_and_some_above() -> None:
    seen = Seen()
    seen.add(point(5))
    seen.add(point(9))
    assert [n for n in range(12) if point(n) in seen] == [5, 9]
    assert seen.advance(0, 7)
    assert not seen.advance(0, 6)
    assert [n for n in range(12) if point(n) in seen] == [0, 1, 2, 3, 4, 5, 6, 9]
    assert seen.above == {0: {9}}


def test_what_both_halves_saw_is_seen_after_a_merge() -> None:
    one, other = Seen(), Seen()
    one.add(point(3))
    one.advance(0, 2)
    other.add(point(8))
    other.advance(0, 4)
    one.absorb(other)
    assert [n for n in range(10) if point(n) in one] == [0, 1, 2, 3, 8]


def test_a_count_goes_to_one_heir_and_queries_to_all_who_need_them() -> None:
    partition = Partition(1, CELLS, (0,))
    record = Record(partition)
    record.apply(operation(7, 1, CELLS))
    for number in range(3):
        record.match(point(number), 0)
    change = split(partition, [(LEFT, {0: TICKETS}), (RIGHT, {1: TICKETS})], 2)
    kept = portion(record, 0, change, change.created[0], 0, NONE)
    gone = portion(record, 0, change, change.created[1], 1, NONE)
    assert [e.operation.query for e in (*kept.entries, *gone.entries)] == [7, 7]
    assert kept.entries[0].counts == {(7, 1, 1, 0): 3}
    assert gone.entries[0].counts == {}


def test_a_count_follows_its_query_to_where_it_lives() -> None:
    partition = Partition(1, CELLS, (0,))
    record = Record(partition)
    record.apply(operation(7, 1, RIGHT))
    record.match(point(1, x=3.0), 0)
    change = split(partition, [(LEFT, {0: TICKETS}), (RIGHT, {1: TICKETS})], 2)
    assert not portion(record, 0, change, change.created[0], 0, NONE).entries[0].counts
    assert portion(record, 0, change, change.created[1], 1, NONE).entries[0].counts


def test_a_tombstone_survives_a_split_and_refuses_what_is_older() -> None:
    partition = Partition(1, CELLS, (0,))
    record = Record(partition)
    record.apply(operation(7, 2, None, number=5))
    change = split(partition, [(LEFT, {0: TICKETS}), (RIGHT, {1: TICKETS})], 2)
    half = new_record(change, 3)
    assert half.missing == [(1, 0)]
    half.absorb(portion(record, 0, change, change.created[1], 1, NONE))
    assert not half.apply(operation(7, 1, CELLS))
    assert half.match(point(1, x=3.0), 1) == ([], 0)
    lost = new_record(change, 3)
    lost.absorb(portion(record, 0, change, change.created[1], 1, frozenset({Bug.TOMBSTONE_LOST})))
    assert lost.apply(operation(7, 1, CELLS))


def test_a_tombstone_goes_when_nothing_older_can_come() -> None:
    record = Record(Partition(1, CELLS, (0,)))
    record.apply(operation(7, 2, None, number=5))
    record.advance(0, 5)
    assert 7 in record.entries
    record.advance(0, 6)
    assert 7 not in record.entries
    assert operation(7, 1, CELLS, number=4) in record.seen


def test_the_newest_of_two_owners_counts_and_no_running_count_is_dropped() -> None:
    shared = Partition(1, CellRect(0, 0, 1, 1), (0, 1), (32, 32))
    one, other = Record(shared), Record(shared)
    for record, owner in ((one, 0), (other, 1)):
        record.apply(operation(7, 1, CELLS))
        record.match(point(1, 0.5, 0.5), owner)
    one.apply(operation(7, 2, None))
    assert one.close_counts() == [Final((7, 1, 1, 0), 1)]
    change = reshared(shared, {2: TICKETS}, 5)
    record = new_record(change, 5)
    assert record.missing == [(1, 0), (1, 1)]
    record.absorb(portion(other, 1, change, change.created[0], 2, NONE))
    record.absorb(portion(one, 0, change, change.created[0], 2, NONE))
    assert record.entries[7].operation.version == 2
    assert record.close_counts() == [Final((7, 1, 1, 1), 1)]


def test_details_are_those_of_the_newest_version() -> None:
    shared = Partition(1, CellRect(0, 0, 1, 1), (0, 1), (32, 32))
    one, other = Record(shared), Record(shared)
    for record, versions in ((one, (1,)), (other, (1, 2))):
        for version in versions:
            record.apply(operation(7, version, CELLS)._replace(details=(f"version {version}",)))
    change = reshared(shared, {2: TICKETS}, 5)
    for first, then in (((one, 0), (other, 1)), ((other, 1), (one, 0))):
        record = new_record(change, 5)
        for before, owner in (first, then):
            record.absorb(portion(before, owner, change, change.created[0], 2, NONE))
        assert record.entries[7].operation.details == ("version 2",)


def test_a_merge_waits_for_both_and_goes_on_with_one_count() -> None:
    left, right = Partition(1, LEFT, (0,)), Partition(2, RIGHT, (0,))
    records = [Record(left), Record(right)]
    for record in records:
        record.apply(operation(7, 1, CELLS))
        record.match(point(1), 0)
    change = merged((left, right), CELLS, 3)
    whole = new_record(change, 3)
    for record in records:
        whole.absorb(portion(record, 0, change, change.created[0], 0, NONE))
    (match,), _ = whole.match(point(2), 0)
    assert (match.lane, match.running) == ((7, 1, 1, 0), 2)
    assert whole.entries[7].counts == {(7, 1, 1, 0): 2, (7, 1, 2, 0): 1}


def test_only_what_changed_since_is_sent_again() -> None:
    partition = Partition(1, CELLS, (0,))
    record = Record(partition)
    record.apply(operation(7, 1, CELLS))
    record.apply(operation(8, 1, CELLS))
    change = moved(partition, 0, 1, 2)
    content = portion(record, 0, change, change.created[0], 1, NONE).without({7: 1, 8: 3})
    assert content.named == ((7, 1, {}),)
    assert [entry.operation.query for entry in content.entries] == [8]
