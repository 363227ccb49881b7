"""Epochs: what must survive does, what nobody needs goes, and damage is told."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.errors import ConfigError, StoreError
from sparkswarm.protocol.partition import TICKETS, split
from sparkswarm.protocol.plan import Plan
from sparkswarm.store import records
from sparkswarm.store.blocks import MAX_TIME, MIN_TIME
from sparkswarm.store.epochs import FORMAT, INITIAL, MIGRATED, Commit, Epoch, Epochs
from sparkswarm.store.files import FileRef, Files
from sparkswarm.store.manifest import BaseGroup, DeltaRef, Manifest, SegmentRef
from sparkswarm.store.records import read_json, to_bytes

from ..support.strategies import grid_of, part_of_the_examples

FIRST_PLAN = Plan.initial(grid_of(4, 4), 2)
FACTS = {"bounds": [0.0, 0.1, 4.0, 1e300], "grid": [4, 4]}


class QuickFiles(Files):
    """Files that do not wait for the disk: no machine crashes here."""

    def write(self, name: str, content: Any, rows: int = 0, durable: bool = True) -> FileRef:
        return super().write(name, content, rows, durable=False)


@pytest.fixture(autouse=True, params=["in full", "as differences"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write small records in full, as the engine does, or as it does with large ones."""
    if request.param == "as differences":
        monkeypatch.setattr(records, "DIFFERENCES_FROM", 0)
        monkeypatch.setattr(records, "LARGEST_DIFFERENCE", 2.0)
        monkeypatch.setattr(records, "LONGEST_CHAIN", 3)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return QuickFiles(str(tmp_path))


def writing(files: Files, replayable: int = 3) -> Epochs:
    """Return the records as a driver has them that has just started."""
    epochs = Epochs(files, replayable)
    epochs.take_over()
    return epochs


@pytest.fixture
def epochs(files: Files) -> Epochs:
    return writing(files)


def all_files(files: Files) -> set[str]:
    """Return all files but those that say who writes."""
    root = Path(files.root)
    names = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    return {name for name in names if not says_who_writes(files, name)}


def says_who_writes(files: Files, name: str) -> bool:
    folder = name.partition("/")[0]
    return folder == "writers" or (
        folder in ("commits", "epochs") and b'{"writer":' in (files.read(name) or b"")
    )


class Run:
    """A run that goes from batch to batch and writes what a real one would."""

    def __init__(self, files: Files, epochs: Epochs) -> None:
        self.files, self.epochs = files, epochs
        self.written = 0
        self.begun: dict[int, Epoch] = {}
        self.done: dict[int, Commit] = {}

    def first(self) -> None:
        self.commit(
            Commit(batch=INITIAL, plan=FIRST_PLAN, manifest=Manifest.initial(FIRST_PLAN.partitions))
        )

    def commit(self, commit: Commit) -> None:
        self.done[commit.batch] = self.epochs.commit(commit)

    def file(self, folder: str) -> FileRef:
        self.written += 1
        return self.files.write(f"{folder}/{self.written:06d}.arrow", b"%d" % self.written)

    def begin(self, replans: bool = False) -> Epoch:
        """Begin the next batch, under a plan of its own if need be."""
        last = self.done[max(self.done)]
        plan, manifest = last.plan, last.manifest
        if replans:
            largest = max(plan.partitions, key=lambda p: p.cells.area)
            cells = largest.cells
            if cells.area > 1:
                cut = cells.split_columns if cells.columns > 1 else cells.split_rows
                ids, plan = plan.reserve(2)
                pieces = [(half, {0: TICKETS}) for half in cut(1)]
                plan = plan.apply([split(largest, pieces, ids.start)])
                manifest = manifest.for_plan(last.plan.partitions, plan.partitions)
        epoch = Epoch(
            batch=last.batch + 1, clock=1_000_000 * (last.batch + 2), plan=plan, manifest=manifest
        )
        self.epochs.begin(epoch)
        self.begun[epoch.batch] = epoch
        return epoch

    def end(self, epoch: Epoch, seed: int = 0, attempts: int = 0) -> None:
        """End a batch in which a delta or bases were written, if the seed says so."""
        manifest = epoch.manifest
        for _ in range(attempts):
            # What a failed attempt leaves behind is named by none.
            self.file("segments")
        if seed % 3:
            delta = DeltaRef(epoch.batch, self.file("deltas"))
            manifest = manifest.with_delta(delta, min(seed % 2, len(manifest.deltas)))
        if seed % 5 == 4:
            bases = {p.id: self.file("segments") for p in epoch.plan.partitions}
            segments = {p.id: (SegmentRef(p.cells, bases[p.id]),) for p in epoch.plan.partitions}
            group = BaseGroup(self.file("segments"), tuple(bases.values()))
            manifest = manifest.with_bases(segments, [group], self.file("segments"))
        self.commit(
            Commit(batch=epoch.batch, plan=epoch.plan, manifest=manifest, max_event_time=seed)
        )

    def check(self, keep: int, files: Files) -> None:
        """See that the last ``keep`` batches, and the next, can run, from what is on disk."""
        again = Epochs(files, keep)
        last = max(self.done)
        for batch in range(max(INITIAL, last - keep), last + 1):
            assert again.commit_of(batch) == self.done[batch]
            named = self.done[batch].manifest.files()
            assert all(files.mmap(ref) for ref in named)
        for batch in self.begun:
            if batch > last - keep:
                assert again.epoch_of(batch) == self.begun[batch]
                assert all(files.mmap(ref) for ref in self.begun[batch].manifest.files())

    def needed(self, keep: int) -> set[str]:
        """Return the files that are needed for it, by the rules, record by record."""
        last = max(self.done)
        commits = [c for c in self.done.values() if c.batch >= last - keep]
        epochs = [e for e in self.begun.values() if e.batch > last - keep]
        names = {f"commits/{c.batch + 1:012d}.json" for c in commits}
        names |= {f"epochs/{e.batch + 1:012d}.json" for e in epochs}
        for record in (*commits, *epochs):
            names |= {ref.name for ref in record.manifest.files()}
        waiting = []
        for name in sorted(names):
            if name.startswith(("commits/", "epochs/")):
                body = self.body(name)
                waiting += [body["plan"], body["manifest"]]
        while waiting:
            names.add(name := waiting.pop())
            if "since" in (body := self.body(name)):
                waiting.append(body["since"])
        return names

    def body(self, name: str) -> Any:
        content = self.files.read(name)
        assert content is not None, name
        return json.loads(content)["body"]


# -- records -----------------------------------------------------------------------------------


def test_what_was_never_written_is_not_known(epochs: Epochs) -> None:
    assert epochs.last_commit() is None
    assert epochs.commit_of(INITIAL) is None
    assert epochs.epoch_of(0) is None
    assert epochs.run_fact("grid") is None
    assert epochs.collect_garbage() == 0


def test_records_come_back_as_they_were_whoever_reads_them(files: Files, epochs: Epochs) -> None:
    run = Run(files, epochs)
    run.first()
    for seed in range(7):
        run.end(run.begin(replans=seed % 2 == 0), seed)
    run.begin(replans=True)
    for reader in (epochs, Epochs(files, 3)):
        assert {batch: reader.epoch_of(batch) for batch in run.begun} == run.begun
        assert {batch: reader.commit_of(batch) for batch in run.done} == run.done
        assert reader.last_commit() == run.done[6]
        assert reader.commit_of(7) is None
        assert reader.epoch_of(8) is None


@pytest.mark.parametrize("batch", [0, 9, 10, 99, 10**6, 10**11])
def test_the_last_commit_is_that_of_the_highest_number(epochs: Epochs, batch: int) -> None:
    manifest = Manifest.initial(FIRST_PLAN.partitions)
    for number in (batch, batch - 1):
        epochs.commit(
            Commit(batch=number, plan=FIRST_PLAN, manifest=manifest, max_event_time=number)
        )
    assert epochs.last_commit() == Commit(
        batch=batch, plan=FIRST_PLAN, manifest=manifest, max_event_time=batch
    )


@pytest.mark.parametrize("latest", [MIN_TIME, -5, 0, 5])
def test_an_event_time_before_1970_is_told_from_none(epochs: Epochs, latest: int) -> None:
    manifest = Manifest.initial(FIRST_PLAN.partitions)
    commit = Commit(batch=0, plan=FIRST_PLAN, manifest=manifest, max_event_time=latest)
    epochs.commit(commit)
    assert epochs.commit_of(0) == commit


@pytest.mark.parametrize(("clock", "latest"), [(0, MIN_TIME), (5, 5)])
def test_in_older_commits_0_is_no_event_time(
    files: Files, epochs: Epochs, clock: int, latest: int
) -> None:
    manifest = Manifest.initial(FIRST_PLAN.partitions)
    epochs.commit(Commit(batch=0, plan=FIRST_PLAN, manifest=manifest))
    (name,) = files.list("commits")
    body = read_json(files, name) or {}
    del body["latest"]
    files.write(name, to_bytes({**body, "clock": clock}))
    commit = epochs.commit_of(0)
    assert commit is not None
    assert commit.max_event_time == latest


@pytest.mark.parametrize("latest", [MAX_TIME, 7, -7])
def test_an_epoch_remembers_the_latest_time_that_points_may_have(
    files: Files, epochs: Epochs, latest: int
) -> None:
    manifest = Manifest.initial(FIRST_PLAN.partitions)
    epoch = Epoch(batch=0, clock=0, plan=FIRST_PLAN, manifest=manifest, latest_time=latest)
    epochs.begin(epoch)
    assert epochs.epoch_of(0) == epoch
    (name,) = files.list("epochs")
    body = read_json(files, name) or {}
    del body["latest_time"]
    files.write(name, to_bytes(body))
    assert epochs.epoch_of(0) == replace(epoch, latest_time=MAX_TIME)


def test_a_record_may_be_written_twice(files: Files, epochs: Epochs) -> None:
    run = Run(files, epochs)
    run.first()
    run.first()
    epoch = run.begin()
    epochs.begin(epoch)
    run.end(epoch, 1)
    writing(files, 3).commit(run.done[0])
    run.check(3, files)
    named = [name.partition("/")[0] for name in all_files(files)]
    assert (named.count("epochs"), named.count("commits")) == (1, 2)


@pytest.mark.parametrize("is_new_process", [False, True])
def test_a_batch_that_ran_again_counts_as_it_went_the_first_time(
    files: Files, epochs: Epochs, is_new_process: bool
) -> None:
    run = Run(files, epochs)
    run.first()
    epoch = run.begin(replans=True)
    run.end(epoch, 1)
    run.epochs = writing(files, 3) if is_new_process else epochs
    # Other files under the same number: attempts never use a name twice.
    first = run.done[0]
    run.end(epoch, 1, attempts=1)
    assert run.epochs.last_commit() == run.done[0] == first
    run.epochs.collect_garbage()
    run.check(3, files)


def test_a_plan_that_only_knows_more_ids_than_before_is_written(files: Files) -> None:
    epochs = writing(files)
    run = Run(files, epochs)
    run.first()
    _, plan = FIRST_PLAN.reserve(5)
    assert plan.version == FIRST_PLAN.version
    epochs.begin(Epoch(batch=0, clock=1, plan=plan, manifest=run.done[INITIAL].manifest))
    found = Epochs(files, 3).epoch_of(0)
    assert found is not None
    assert found.plan == plan


def test_a_plan_and_a_manifest_that_stay_are_written_once(files: Files, epochs: Epochs) -> None:
    run = Run(files, epochs)
    run.first()
    for _ in range(3):
        run.end(run.begin())
    assert len(files.list("plans")) == len(files.list("manifests")) == 1


def test_what_else_lies_there_is_no_record(files: Files, epochs: Epochs) -> None:
    run = Run(files, epochs)
    run.first()
    run.end(run.begin(), 1)
    odd = ("000000000009.json.bak", "copy of 000000000009.json", "readme")
    foreign = [f"{folder}/{name}" for folder in ("commits", "epochs") for name in odd]
    for name in foreign:
        files.write(name, b"?")
    assert epochs.last_commit() == run.done[0]
    epochs.collect_garbage()
    run.check(3, files)
    assert set(foreign) <= all_files(files)


# -- cleaning ----------------------------------------------------------------------------------

BATCHES = st.lists(
    st.tuples(st.booleans(), st.integers(0, 20), st.integers(0, 2), st.booleans()), max_size=7
)


def test_what_can_run_again_keeps_all_it_needs_and_the_rest_goes(tmp_path: Path) -> None:
    numbers = iter(range(10**6))

    @part_of_the_examples(0.2)
    @given(BATCHES, st.integers(2, 5), st.booleans())
    def check(batches: list[tuple[bool, int, int, bool]], keep: int, begins: bool) -> None:
        files = QuickFiles(str(tmp_path / str(next(numbers))))
        run = Run(files, writing(files, keep))
        run.first()
        for replans, seed, attempts, cleans in batches:
            run.end(run.begin(replans), seed, attempts)
            if cleans:
                before = all_files(files)
                gone = run.epochs.collect_garbage()
                assert all_files(files) == run.needed(keep)
                assert gone == len(before) - len(run.needed(keep))
                run.check(keep, files)
        if begins:
            run.begin(replans=True)
        # As a new process does first of all.
        writing(files, keep).collect_garbage()
        assert all_files(files) == run.needed(keep)
        assert run.epochs.collect_garbage() == 0
        run.check(keep, files)

    check()


@pytest.mark.parametrize("keep", [1, 2, 4])
def test_so_many_batches_can_run_again(files: Files, keep: int) -> None:
    epochs = writing(files, keep)
    run = Run(files, epochs)
    run.first()
    for seed in range(8):
        run.end(run.begin(replans=True), seed)
    epochs.collect_garbage()
    can_run = [
        batch for batch in range(8) if epochs.epoch_of(batch) and epochs.commit_of(batch - 1)
    ]
    assert can_run == list(range(8 - keep, 8))


def test_what_failed_attempts_left_is_deleted(files: Files, epochs: Epochs) -> None:
    run = Run(files, epochs)
    run.first()
    run.end(run.begin(), 1)
    orphans = [
        "segments/x.arrow",
        "deltas/y.arrow",
        "ledger/z.arrow",
        "manifests/000000000999.json",
    ]
    others = ["soft/news", "quarantine/0/a.parquet"]
    for name in (*orphans, *others):
        files.write(name, b"?")
    assert epochs.collect_garbage() == 4
    assert not set(orphans) & all_files(files)
    assert set(others) <= all_files(files)
    run.check(3, files)


@pytest.mark.parametrize("what", ["missing", "corrupt"])
def test_nothing_is_deleted_while_it_is_not_known_what_is_needed(
    files: Files, epochs: Epochs, what: str
) -> None:
    run = Run(files, epochs)
    run.first()
    run.end(run.begin(replans=True), 1)
    files.write("segments/orphan", b"")
    name = files.list("manifests")[-1]
    content = files.read(name)
    assert content is not None
    if what == "missing":
        files.delete([name])
    else:
        files.write(name, content[:-5])
    before = all_files(files)
    with pytest.raises(StoreError, match=f"{name} .*{what}"):
        writing(files, 3).collect_garbage()
    assert all_files(files) == before
    # So that the remedy helps.
    files.write(name, content)
    assert writing(files, 3).collect_garbage() >= 1
    run.check(3, files)


# -- damage ------------------------------------------------------------------------------------


def record_of(body: Any) -> bytes:
    text = json.dumps(body, separators=(",", ":"))
    return f'{{"crc":{zlib.crc32(text.encode())},"body":{text}}}'.encode()


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "a digit is another": lambda content: content[:-4] + bytes([content[-4] ^ 1]) + content[-3:],
    "not text": lambda content: b"\xff\xfe" + content,
    "other JSON": lambda content: b"[]",
    "no checksum": lambda content: b'{"body":{}}',
    "null": lambda content: b"null",
    "longer": lambda content: content + b"}",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("folder", ["commits", "epochs", "plans", "manifests"])
def test_a_corrupt_record_is_named_with_a_remedy(
    files: Files, epochs: Epochs, folder: str, damage: Callable[[bytes], bytes]
) -> None:
    run = Run(files, epochs)
    run.first()
    run.end(run.begin(replans=True), 1)
    run.begin()
    name = files.list(folder)[-1]
    content = files.read(name)
    assert content is not None
    files.write(name, damage(content))
    reader = Epochs(files, 3)
    with pytest.raises(StoreError) as caught:
        reader.epoch_of(1) if folder == "epochs" else reader.last_commit()
    for said in (name, "corrupt", files.root, "restore it", "another checkpoint"):
        assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("folder", ["plans", "manifests"])
def test_a_whole_record_that_makes_no_sense_is_named_too(files: Files, folder: str) -> None:
    run = Run(files, writing(files, 3))
    run.first()
    name = files.list(folder)[-1]
    files.write(name, record_of({"version": 0}))
    with pytest.raises(StoreError, match=f"{name} in .* is corrupt"):
        Epochs(files, 3).last_commit()


@pytest.mark.parametrize("folder", ["plans", "manifests"])
def test_a_missing_record_is_named_with_a_remedy(files: Files, folder: str) -> None:
    run = Run(files, writing(files, 3))
    run.first()
    (name,) = files.list(folder)
    files.delete([name])
    with pytest.raises(StoreError) as caught:
        Epochs(files, 3).last_commit()
    for said in (name, "missing", files.root, "restore it", "another checkpoint"):
        assert said in str(caught.value)


# -- the run -----------------------------------------------------------------------------------


def test_facts_of_a_run_are_remembered(files: Files) -> None:
    Epochs(files, 3).check_run(FACTS)
    again = Epochs(files, 5)
    again.check_run(json.loads(json.dumps(FACTS)))
    assert {name: again.run_fact(name) for name in FACTS} == FACTS
    assert again.run_fact("something else") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("bounds", [0.0, 0.1, 4.0, 1e299]), ("grid", [4, 5]), ("new", 1)],
)
def test_a_run_does_not_go_on_with_other_facts(files: Files, name: str, value: Any) -> None:
    Epochs(files, 3).check_run(FACTS)
    before = files.read("run.json")
    with pytest.raises(ConfigError) as caught:
        Epochs(files, 3).check_run({**FACTS, name: value})
    said = f"{name} is {value}, but the checkpoint {files.root} was made with {FACTS.get(name)}"
    assert said in str(caught.value)
    assert "or another checkpoint" in str(caught.value)
    assert files.read("run.json") == before


def test_a_run_in_another_format_is_not_read(files: Files) -> None:
    files.write("run.json", record_of({"format": FORMAT + 1, **FACTS}))
    with pytest.raises(StoreError) as caught:
        Epochs(files, 3).check_run(FACTS)
    said = f"{files.root} was written in format {FORMAT + 1}, this version of sparkswarm reads"
    assert said in str(caught.value)
    assert "another checkpoint" in str(caught.value)


def test_a_run_of_the_format_before_goes_on_in_this_one(files: Files) -> None:
    files.write("run.json", record_of({"format": MIGRATED, **FACTS, "buckets": 2}))
    Epochs(files, 3).check_run({})
    assert Epochs(files, 3).run_fact("format") == MIGRATED, "reading changes nothing"
    with pytest.raises(ConfigError):
        Epochs(files, 3).check_run({**FACTS, "grid": [9, 9]})
    assert Epochs(files, 3).run_fact("format") == MIGRATED
    Epochs(files, 3).check_run(FACTS)
    assert Epochs(files, 3).run_fact("format") == FORMAT
    assert Epochs(files, 3).run_fact("buckets") is None


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_corrupt_facts_are_named(files: Files, damage: Callable[[bytes], bytes]) -> None:
    Epochs(files, 3).check_run(FACTS)
    content = files.read("run.json")
    assert content is not None
    files.write("run.json", damage(content))
    with pytest.raises(StoreError, match=r"run\.json in .* is corrupt; restore it"):
        Epochs(files, 3).check_run(FACTS)


def test_records_are_what_they_are() -> None:
    epoch = Epoch(
        batch=0, clock=1, plan=FIRST_PLAN, manifest=Manifest.initial(FIRST_PLAN.partitions)
    )
    with pytest.raises(AttributeError):
        epoch.clock = 2  # type: ignore[misc]
    assert replace(epoch, clock=2) != epoch
