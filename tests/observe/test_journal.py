"""The journal: what is written comes back, in two files at most, whoever dies meanwhile."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.observe.journal import Journal, find, read

from ..support.runs import after_a_move, after_sharing, decided, first_plan, progress, wandering


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal" / "journal.jsonl"


def write(path, run, **options):
    journal = Journal(path, "swarm", clock=lambda: 1000.0, **options)
    for told in run:
        journal(*told)
    return journal


def all_of(path, chunk_bytes=2**20):
    """Read a journal to its end, chunk by chunk."""
    entries, offset = [], 0
    while (chunk := read(path, offset, chunk_bytes)).lines:
        entries += chunk.entries()
        offset = chunk.stop
    return entries


def replayed(entries):
    """Return the partitions in force in each batch, as the entries tell them."""
    partitions, batches = {}, {}
    for entry in entries:
        if entry["entry"] == "plan":
            if entry.get("whole"):
                partitions = {}
            for gone in entry["retired"]:
                del partitions[gone]
            partitions |= {p["id"]: p for p in entry["created"]}
        elif entry["entry"] == "batch":
            batches[entry["batch"]] = {
                (p["id"], tuple(p["cells"]), tuple(p["owners"]), tuple(p.get("tickets", ())))
                for p in partitions.values()
            }
    return batches


def truth(run):
    return {
        told.batch: {(p.id, tuple(p.cells), p.owners, p.tickets) for p in plan.partitions}
        for told, plan, _ in run
    }


def files(path):
    return sorted(file.name for file in path.parent.iterdir())


def test_what_is_written_comes_back(path):
    plan = after_sharing(first_plan(), 1, 1, 2)
    write(path, [(progress(0, plan), plan, decided(0))])
    start, planned, batch, decision = all_of(path)
    assert start == {
        "entry": "start", "offset": 0, "time": 1000.0, "policy": "swarm", "rebalances": True,
        "bounds": [-125.0, 24.0, -66.0, 50.0], "grid": [40, 20], "executors": 4,
    }  # fmt: skip
    assert (planned["version"], planned["executors"], planned["whole"]) == (1, 4, True)
    assert replayed(all_of(path))[0] == truth([(progress(0, plan), plan, [])])[0]
    (shared,) = (p for p in planned["created"] if len(p["owners"]) > 1)
    assert (shared["owners"], shared["tickets"]) == ([1, 2], [32, 32])
    assert batch == {
        "entry": "batch", "batch": 0, "time": 1000.0, "plan": 1, "seconds": 0.5, "points": 1000,
        "matches": 200, "checks": 300, "lent": 0, "operations": 7, "replaced": 0, "ignored": 0,
        "snapshot_queries": 0, "late": 0, "events": 0, "late_fixes": 0, "repeated_fixes": 0,
        "long_legs": 0, "fetched_bytes": 0, "balance": 0.625, "lag": 12.4,
        "busy": [0.01, 0.02, 0.03, 0.04], "received": [100, 200, 300, 400], "loads": [],
        "loans": [], "hosts": [],
        "quarantined": [["point", "outside the bounds", 3]],
    }  # fmt: skip
    assert decision == {
        "entry": "decision", "batch": 0, "round": 0, "kind": "keep", "what": "do nothing",
        "reason": "nothing arrived", "code": "nothing_arrived", "executors": [], "costs": [],
        "numbers": {}, "made": False, "changes": [],
    }  # fmt: skip


def test_a_plan_is_written_when_it_changes_and_only_what_changed(path):
    run = wandering(6)
    write(path, run)
    plans = [entry for entry in all_of(path) if entry["entry"] == "plan"]
    assert [len(plan["created"]) for plan in plans] == [4, 1, 1]
    assert [len(plan["retired"]) for plan in plans] == [0, 1, 1]
    assert replayed(all_of(path)) == truth(run)


@given(
    st.integers(1, 40),
    st.integers(300, 20_000),
    st.integers(1, 3000),
    st.lists(st.integers(1, 5)),
)
def test_a_reader_that_keeps_up_misses_nothing_however_files_rotate(
    tmp_path_factory, batches, max_bytes, chunk_bytes, restarts
):
    path = tmp_path_factory.mktemp("run") / "journal.jsonl"
    run, offset, seen, journal = wandering(batches), 0, [], None
    for i, told in enumerate(run):
        if journal is None or i in restarts:
            journal = Journal(path, "swarm", max_bytes)
        journal(*told)
        # Within two files of the writer is soon enough.
        while (chunk := read(path, offset, chunk_bytes)).lines:
            assert chunk.start == offset
            seen, offset = seen + chunk.entries(), chunk.stop
        assert offset == chunk.end
    assert replayed(seen) == truth(run)


def test_there_are_two_files_at_most_and_neither_is_too_large(path):
    run = wandering(200)
    write(path, run, max_bytes=5000)
    assert files(path) == ["journal.jsonl", "journal.jsonl.1"]
    assert all(file.stat().st_size <= 5000 for file in path.parent.iterdir())


def test_each_file_can_be_read_alone(path):
    run = wandering(60)
    write(path, run, max_bytes=5000)
    for file in path.parent.iterdir():
        entries = [json.loads(line) for line in file.read_text().splitlines()]
        assert [entry["entry"] for entry in entries[:2]] == ["start", "plan"]
        batches = replayed(entries)
        assert batches
        assert batches == {batch: truth(run)[batch] for batch in batches}


def test_a_reader_from_the_beginning_gets_the_last_batches_whole(path):
    run = wandering(60)
    write(path, run, max_bytes=5000)
    chunk = read(path, 0)
    assert chunk.start > 0
    batches = list(replayed(all_of(path)))
    assert batches == list(range(batches[0], 60))


def test_a_single_batch_larger_than_a_file_is_kept(path):
    run = wandering(4)
    write(path, run, max_bytes=10)
    assert list(replayed(all_of(path))) == [2, 3]


def test_a_torn_last_line_is_not_read_until_it_is_whole(path):
    write(path, wandering(2))
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    first = read(path)
    assert [entry["entry"] for entry in first.entries()][-1] == "batch"
    path.write_bytes(whole)
    (decision,) = read(path, first.stop).entries()
    assert decision["entry"] == "decision"


@pytest.mark.parametrize("lost", [1, 5, 40, 200])
def test_a_killed_writer_s_torn_line_harms_no_other(path, lost):
    run = wandering(8)
    write(path, run[:5])
    reader = read(path)
    path.write_bytes(path.read_bytes()[:-lost])
    write(path, run[5:])
    entries = all_of(path)
    assert [entry["entry"] for entry in entries].count("start") == 2
    batches = replayed(entries)
    assert set(range(8)) - set(batches) <= {4}
    assert batches == {batch: truth(run)[batch] for batch in batches}
    assert set(replayed(read(path, reader.stop).entries())) <= set(range(5, 8))


@pytest.mark.parametrize("left", [b"", b"{", b'{"entry":"start","off', b"[]\n", b"what?\n"])
def test_a_file_without_a_start_is_begun_anew(path, left):
    path.parent.mkdir()
    path.write_bytes(left)
    assert read(path).lines == b""
    run = wandering(3)
    write(path, run)
    assert replayed(all_of(path)) == truth(run)


def test_a_writer_killed_between_two_files_goes_on_with_the_offsets(path):
    run = wandering(12)
    write(path, run[:6])
    end = read(path).end
    path.replace(path.with_name("journal.jsonl.1"))
    assert read(path, end).lines == b""
    write(path, run[6:])
    following = read(path, end)
    assert following.start == end
    assert list(replayed(following.entries())) == list(range(6, 12))
    assert replayed(all_of(path)) == truth(run)


def test_a_batch_that_could_not_be_written_is_followed_by_a_whole_plan(path):
    plans = [first_plan()]
    plans += [after_a_move(plans[0], 0, 1)]
    journal = write(path, [(progress(0, plans[0]), plans[0], [])])
    kept = path.read_bytes()
    path.unlink()
    path.mkdir()  # nothing can be written there
    with pytest.raises(OSError, match=r"journal\.jsonl"):
        journal(progress(1, plans[1]), plans[1], [])
    path.rmdir()
    path.write_bytes(kept + b'{"entry":"pl')
    journal(progress(2, plans[1]), plans[1], [])
    entries = all_of(path)
    assert entries[-2]["whole"]
    assert list(replayed(entries)) == [0, 2]


def test_polling_reads_only_what_is_new(path):
    run = wandering(4)
    journal = write(path, run[:3])
    first = read(path)
    assert read(path, first.stop).lines == b""
    journal(*run[3])
    new = read(path, first.stop)
    assert [entry["entry"] for entry in new.entries()] == ["batch", "decision"]
    assert (new.start, new.stop) == (first.stop, path.stat().st_size)


def test_a_chunk_is_whole_lines_of_about_the_size_asked(path):
    write(path, wandering(30))
    chunk = read(path, 0, 2000)
    longest = max(map(len, path.read_bytes().splitlines())) + 1
    assert 2000 <= len(chunk.lines) <= 2000 + longest
    assert chunk.lines.endswith(b"\n")
    assert chunk.stop < chunk.end == path.stat().st_size


def test_where_another_journal_is_in_the_place_reading_begins_anew(path):
    write(path, wandering(30))
    long = read(path).stop
    path.unlink()
    write(path, wandering(1))
    assert (read(path, long).start, read(path, long).stop) == (0, path.stat().st_size)


def test_a_journal_that_is_not_there_has_no_lines(path):
    assert read(path, 17) == read(path, 17, 5)
    assert (read(path, 17).start, read(path, 17).stop, read(path, 17).lines) == (17, 17, b"")


def test_a_journal_is_found_by_checkpoint_folder_or_file(path, tmp_path):
    assert find(tmp_path) == find(tmp_path / "journal" / "journal.jsonl") == path
    write(path, wandering(1))
    assert find(tmp_path) == find(path.parent) == find(path) == path
    other = tmp_path / "copied"
    other.write_bytes(path.read_bytes())
    assert find(other) == other
    assert find(tmp_path / "later") == tmp_path / "later" / "journal" / "journal.jsonl"
