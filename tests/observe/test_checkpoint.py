"""What ``sparkswarm explain`` knows of a checkpoint, and what it says of things that are none."""

import json
import zlib
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from sparkswarm import StoreError
from sparkswarm.geometry import Bounds, CellRect, Grid
from sparkswarm.observe.checkpoint import (
    RecordedDecision,
    StoredSummary,
    explain_checkpoint,
    time_text,
)
from sparkswarm.observe.journal import IN_CHECKPOINT, Journal
from sparkswarm.observe.progress import Loan, Progress
from sparkswarm.protocol.messages import Decision, DecisionKind, Reason
from sparkswarm.protocol.partition import split
from sparkswarm.protocol.plan import Plan
from sparkswarm.runfile.cli import explain
from sparkswarm.store.blocks import BlockMeta
from sparkswarm.store.epochs import INITIAL, Commit, Epoch, Epochs
from sparkswarm.store.files import Files
from sparkswarm.store.manifest import (
    BaseGroup,
    BlockRef,
    DeltaRef,
    Manifest,
    SegmentRef,
    StateRef,
)
from sparkswarm.store.quarantine import SCHEMA, folder_of

NOON = 1_704_110_400_000_000
"""The first of January 2024, twelve o'clock in UTC, in microseconds."""


class Tiny:
    """A checkpoint of two batches, made without Spark: a split, some files, some bad rows."""

    def __init__(self, folder):
        self.folder = folder
        self.files = Files(str(folder / "swarm"))
        self.epochs = Epochs(self.files, 10)
        self.epochs.take_over()
        self.epochs.check_run({"bounds": [0.0, 0.0, 8.0, 8.0], "grid": [8, 8]})
        grid = Grid(Bounds(0, 0, 8, 8), 8, 8)
        first = Plan.initial(grid, 2)
        empty = Manifest.initial(first.partitions)
        self.epochs.commit(Commit(batch=INITIAL, plan=first, manifest=empty))
        base = self.files.write("segments/a-base.arrow", b"base", rows=10)
        delta = self.files.write("deltas/a.arrow", b"delta", rows=3)
        directory = self.files.write("segments/a-directory.arrow", b"directory", rows=12)
        prices = self.files.write("segments/a-prices.arrow", b"prices")
        left = first.partitions[0]
        segments = {p.id: (SegmentRef(p.cells),) for p in first.partitions}
        segments[left.id] = (SegmentRef(left.cells, base),)
        stored = empty.with_bases(segments, [BaseGroup(directory, (base,))], prices)
        stored = stored.with_delta(DeltaRef(0, delta), 0)
        self.epochs.begin(Epoch(batch=0, clock=0, plan=first, manifest=empty))
        self.epochs.commit(Commit(batch=0, plan=first, manifest=stored))
        ids, first = first.reserve(2)
        lower, upper = left.cells.split_rows(2)
        change = split(left, [(lower, {0: 64}), (upper, {1: 64})], ids[0])
        self.plan = first.apply([change])
        self.manifest = stored.for_plan(first.partitions, self.plan.partitions)
        self.epochs.begin(Epoch(batch=1, clock=0, plan=self.plan, manifest=self.manifest))
        self.epochs.commit(
            Commit(batch=1, plan=self.plan, manifest=self.manifest, max_event_time=NOON)
        )
        self.change = change

    def keep(self):
        """Go on by a batch that leaves state of queries and recent points."""
        _, lower, upper = self.plan.partitions
        states = self.files.write("states/e0.arrow", b"states", rows=7)
        older = self.files.write("blocks/e0.arrow", b"older", rows=30)
        newer = self.files.write("blocks/e1.arrow", b"newer!", rows=5)
        whole = BlockMeta(
            rows=30,
            size=1200,
            oldest=NOON - 9_000_000,
            newest=NOON - 4_000_000,
            cells=CellRect(0, 0, 4, 8),
        )
        few = BlockMeta(rows=5, size=200, oldest=NOON - 1_000_000, newest=NOON, cells=upper.cells)
        kept = self.manifest.with_state_and_blocks(
            {
                lower.id: (
                    StateRef(cells=lower.cells, file=states, offset=0, due=NOON + 5_000_000),
                ),
                upper.id: (StateRef(cells=upper.cells, file=states, offset=64, due=None),),
            },
            {
                lower.id: (BlockRef(cells=lower.cells, meta=whole, file=older, offset=0),),
                upper.id: (
                    BlockRef(cells=upper.cells, meta=whole, file=older, offset=0),
                    BlockRef(cells=upper.cells, meta=few, file=newer, offset=0),
                ),
            },
        )
        self.epochs.begin(Epoch(batch=2, clock=0, plan=self.plan, manifest=self.manifest))
        self.epochs.commit(
            Commit(
                batch=2,
                plan=self.plan,
                manifest=kept,
                max_event_time=NOON,
                watermark=NOON - 2_000_000,
            )
        )

    def write_journal(self, *more):
        journal = Journal(self.folder / IN_CHECKPOINT, "swarm")
        progress = Progress(
            batch=0, seconds=1.0, points=10, plan_version=0, busy_s=(1.0, 2.0),
            points_by_executor=(5, 5), lent=3, loans=(Loan(1, 0, 17, 3),),
        )  # fmt: skip
        ask, change = DecisionKind.ASK, DecisionKind.CHANGE
        decided = Decision(round=0, kind=change, reason=Reason.ABOVE_LEVEL, executors=(0, 1))
        decisions = [
            replace(decided, kind=ask, costs=(2.0, 1.0), numbers={"level": 1.5}),
            replace(decided, changes=(self.change,), costs=(-0.5, 0.5)),
        ]
        journal(progress, self.plan, [*decisions, *more])

    def write_quarantine(self):
        for batch, reasons in ((0, ["not a number"] * 2), (1, ["not a number", "null id"])):
            path = self.files.path(f"{folder_of(batch)}/task.parquet")
            path.parent.mkdir(parents=True)
            rows = {
                "kind": ["point"] * len(reasons),
                "reason": reasons,
                "row": ["{}"] * len(reasons),
            }
            pq.write_table(pa.table(rows, schema=SCHEMA), path)


@pytest.fixture
def tiny(tmp_path):
    return Tiny(tmp_path / "checkpoint")


def summary(*values):
    names = ("refs", "files", "rows", "size", "first", "last")
    return StoredSummary(**dict(zip(names, values, strict=True)))


def found(tiny, **options):
    return explain_checkpoint(str(tiny.folder), **options)


def test_the_last_batch_its_plan_and_what_may_run_again(tiny):
    explained = found(tiny)
    assert explained.commit.batch == 1
    assert explained.commit.plan == tiny.plan
    assert explained.replayable == (0, 1)
    assert explained.in_progress is None
    assert explained.facts == {"bounds": [0, 0, 8, 8], "grid": [8, 8]}
    data = explained.to_json()
    assert data["clock"] == "2024-01-01T12:00:00+00:00"
    assert (data["last_batch"], data["plan"]["version"]) == (1, 1)


def test_partitions_with_their_share_and_their_files(tiny):
    other, lower, upper = found(tiny).partitions
    assert (other.share, lower.share, upper.share) == (0.5, 0.125, 0.375)
    assert [facts.partition.owners for facts in (other, lower, upper)] == [(1,), (0,), (1,)]
    # Both parts go on with the files of the whole.
    assert (lower.base_rows, lower.size) == (upper.base_rows, upper.size) == (10, 4)
    assert (other.base_rows, other.delta_rows, other.size) == (0, 0, 0)


def test_files_that_count_and_files_that_are_there(tiny):
    tiny.files.write("segments/orphan.arrow", b"?")
    explained = found(tiny)
    assert explained.files() == {
        "base": (1, 10, 4),
        "delta": (1, 3, 5),
        "directory": (1, 12, 9),
    }
    assert explained.stored == {"segments": 4, "deltas": 1, "states": 0, "blocks": 0}


def test_state_and_recent_points_in_all_and_of_each_partition(tiny):
    tiny.keep()
    tiny.files.write("blocks/orphan.arrow", b"?")
    explained = found(tiny, verify=True)
    assert explained.is_whole
    due = NOON + 5_000_000
    assert explained.states == summary(2, 1, 7, 6, due, due)
    # Of the older block, 8 of 32 cells are below the line and 24 above it.
    assert explained.blocks == summary(3, 2, 8 + 22 + 5, 11, NOON - 9_000_000, NOON)
    other, lower, upper = explained.partitions
    assert (other.states, other.blocks) == (StoredSummary(), StoredSummary())
    assert lower.blocks == summary(1, 1, 8, 5, NOON - 9_000_000, NOON - 4_000_000)
    assert upper.states == summary(1, 1, 7, 6, None, None)
    data = explained.to_json()
    assert data["watermark"] == "2024-01-01T11:59:58+00:00"
    assert data["blocks"] == {
        "stored": 3,
        "pieces": 3,
        "files": 2,
        "rows": 35,
        "bytes": 11,
        "oldest": "2024-01-01T11:59:51+00:00",
        "newest": "2024-01-01T12:00:00+00:00",
    }
    assert data["states"]["due"] == "2024-01-01T12:00:05+00:00"
    assert data["plan"]["partitions"][2]["blocks"]["pieces"] == 2


def test_without_state_and_recent_points_nothing_is_said_of_them(tiny):
    assert found(tiny).to_json()["watermark"] is None
    output = shown(tiny.folder).output
    assert "watermark" not in output
    assert "window" not in output


def test_a_block_that_is_gone_is_named(tiny):
    tiny.keep()
    tiny.files.path("blocks/e1.arrow").unlink()
    assert found(tiny).missing == ("blocks/e1.arrow",)


def test_times_that_no_calendar_has_are_numbers():
    assert time_text(2**62) == str(2**62)
    assert time_text(-1) == "1969-12-31T23:59:59+00:00"
    assert time_text(None) is None


def test_a_batch_that_began_and_did_not_end(tiny):
    tiny.epochs.begin(Epoch(batch=2, clock=0, plan=tiny.plan, manifest=tiny.manifest))
    explained = found(tiny)
    assert explained.in_progress == 2
    assert explained.replayable == (0, 1, 2)


def test_a_run_that_only_began(tmp_path):
    Epochs(Files(str(tmp_path / "swarm")), 10).check_run(
        {"bounds": [0.0, 0.0, 1.0, 1.0], "grid": [1, 1]}
    )
    explained = explain_checkpoint(str(tmp_path))
    assert explained.commit is None
    assert explained.to_json()["plan"] is None
    assert "never wrote its first" in shown(tmp_path).output


def test_why_a_partition_is_as_it_is(tiny):
    tiny.write_journal()
    explained = found(tiny)
    other, lower, upper = explained.partitions
    assert other.why is None
    assert lower.why == upper.why
    assert (lower.why.entry["batch"], lower.why.entry["round"]) == (0, 0)
    assert lower.why.lines == [(tiny.change.describe(), "0.5 to 1: the last rows of p1")]
    assert explained.to_json()["plan"]["partitions"][1]["why"] == (
        f"{tiny.change.describe()} (0.5 to 1: the last rows of p1)"
    )
    assert [bool(decision.created) for decision in explained.decisions] == [False, True]


def test_a_refused_change_made_nothing(tiny):
    refused = Decision(
        round=1,
        kind=DecisionKind.REFUSE,
        reason=Reason.PLAN_CHANGED,
        changes=(tiny.change,),
        executors=(0,),
    )
    tiny.write_journal(refused)
    explained = found(tiny)
    assert [bool(decision.created) for decision in explained.decisions] == [False, True, False]
    assert [decision.created for decision in explained.decisions] == [[], [3, 4], []]
    assert all(facts.why.entry["round"] == 0 for facts in explained.partitions[1:])


def test_a_journal_of_an_earlier_version_is_read(tiny):
    tiny.write_journal()
    with (tiny.folder / IN_CHECKPOINT).open("a") as file:
        file.write('{"entry":"decision","batch":1,"round":1,"what":"do nothing","reason":"why"}\n')
    explained = found(tiny)
    assert explained.decisions[-1].lines == [("do nothing", "why")]
    assert explained.to_json()["decisions"][-1] == {
        "batch": 1, "round": 1, "what": "do nothing", "reason": "why"
    }  # fmt: skip
    assert "do nothing" in shown(tiny.folder).output


def test_a_journal_with_other_things_in_it_is_read_as_far_as_it_goes(tiny):
    tiny.write_journal()
    with (tiny.folder / IN_CHECKPOINT).open("a") as file:
        file.write('not json\n[1]\n{"entry":"decision"}\n{"entry":"of tomorrow","round":1}\n')
        file.write('{"entry":"decision","round":5,"what":"do nothing","reason":"torn')
    assert len(found(tiny).decisions) == 2


def test_bad_rows_are_counted_over_all_batches(tiny):
    tiny.write_quarantine()
    assert found(tiny).quarantined == {("point", "not a number"): 3, ("point", "null id"): 1}


def test_a_proposal_of_several_changes_names_all_that_came_of_them():
    changes = [{"created": [7, 8]}, {"created": [10]}]
    entry = {"round": 0, "what": "", "reason": "", "made": True, "changes": changes}
    assert RecordedDecision(entry).created == [7, 8, 10]


# -- what is no checkpoint, or a damaged one ---------------------------------------------------


def test_what_does_not_exist(tmp_path):
    with pytest.raises(StoreError, match="nowhere does not exist; give the folder"):
        explain_checkpoint(str(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()


def test_what_is_no_checkpoint(tmp_path):
    with pytest.raises(StoreError, match=r"is not a checkpoint of sparkswarm: it has no swarm"):
        explain_checkpoint(str(tmp_path))
    assert not list(tmp_path.iterdir()), "explaining must not write"


def test_a_part_of_a_checkpoint(tiny):
    with pytest.raises(StoreError, match=f"give the folder above it, {tiny.folder}"):
        explain_checkpoint(str(tiny.folder / "swarm"))


def test_another_version(tiny):
    body = json.dumps({"format": 99}, separators=(",", ":"))
    record = f'{{"crc":{zlib.crc32(body.encode())},"body":{body}}}'
    tiny.files.path("run.json").write_text(record)
    with pytest.raises(StoreError, match="was written in format 99, this version"):
        found(tiny)


@pytest.mark.parametrize("pattern", ["run.json", "commits/000000000002.json", "plans/*"])
def test_a_damaged_record_is_named(tiny, pattern):
    path = max(tiny.files.path(".").glob(pattern))
    name = path.relative_to(tiny.files.path("."))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(StoreError, match=f"{name} in .* is corrupt"):
        found(tiny)


def test_missing_and_damaged_files_are_named(tiny):
    tiny.files.path("deltas/a.arrow").unlink()
    tiny.files.path("segments/a-base.arrow").write_bytes(b"BASE")
    quick, thorough = found(tiny), found(tiny, verify=True)
    assert quick.missing == thorough.missing == ("deltas/a.arrow",)
    assert (quick.damaged, thorough.damaged) == ((), ("segments/a-base.arrow",))


def test_a_whole_checkpoint_is_whole(tiny):
    assert found(tiny, verify=True).is_whole


# -- the command -------------------------------------------------------------------------------


def shown(folder, *words):
    app = typer.Typer()
    app.command()(explain)
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, [str(folder), *words])


def test_everything_is_shown_within_80_columns(tiny):
    tiny.keep()
    tiny.write_journal()
    tiny.write_quarantine()
    result = shown(tiny.folder)
    assert result.exit_code == 0, result.output
    for words in ("2 executors, 3 partitions", "batches 0 to 2", "event time  2024-01-01T12",
                  "watermark   2024-01-01T11:59:58", "7 rows in 1 files, 6 B; results are due at",
                  "35 points in 2 files, 11 B; 2024-01-01T11:59:51+00:00 to", "37.5%", "null id",
                  "the last rows"):  # fmt: skip
        assert words in result.output
    assert "ask 0" not in result.output
    assert max(map(len, result.output.splitlines())) <= 80


def test_json_is_whole_and_alone_on_standard_output(tiny):
    tiny.write_journal()
    result = shown(tiny.folder, "--json", "-")
    data = json.loads(result.stdout)
    assert [p["id"] for p in data["plan"]["partitions"]] == [2, 3, 4]
    assert data["files"]["segments"]["base"] == {"files": 1, "rows": 10, "bytes": 4}
    assert len(data["decisions"]) == 2


def test_at_most_so_many_are_listed(tiny):
    tiny.write_journal()
    output = shown(tiny.folder, "--partitions", "1", "--decisions", "0").output
    assert "the 1 largest of 3" in output
    assert "p2 " in output
    assert "p4 " not in output
    assert "the last rows" not in output


@pytest.mark.parametrize("damage", [True, False])
def test_the_exit_code_says_whether_it_is_whole(tiny, damage):
    if damage:
        tiny.files.path("deltas/a.arrow").unlink()
    result = shown(tiny.folder)
    assert result.exit_code == (1 if damage else 0)
    assert ("missing: deltas/a.arrow" in result.output) == damage


def test_an_error_is_one_line_and_exit_code_1(tmp_path):
    result = shown(tmp_path / "nowhere")
    assert result.exit_code == 1
    assert result.output.startswith("error: ")


def test_what_the_last_batch_lent_is_shown(tiny):
    assert found(tiny).loans == ()
    tiny.write_journal()
    assert found(tiny).loans == (Loan(1, 0, 17, 3),)
    assert found(tiny).to_json()["loans"] == [
        {"lender": 1, "borrower": 0, "partition": 17, "points": 3}
    ]
    assert "borrower" in shown(tiny.folder).output
