"""A checkpoint explained, for people: tables that fit 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sparkswarm.observe.checkpoint import (
    OF_QUERIES,
    Explained,
    PartitionFacts,
    event_time,
    watermark,
)
from sparkswarm.observe.held import when
from sparkswarm.protocol.messages import DecisionKind
from sparkswarm.store.epochs import INITIAL

UNITS = ("B", "kB", "MB", "GB", "TB")


def shown(found: Explained, partitions: int, decisions: int) -> Iterator[RenderableType]:
    """Yield what is known, from the whole to the details.

    At most so many partitions, the largest, and so many decisions, the last.
    """
    yield _facts(found)
    if not found.is_whole:
        yield _damage(found)
    if found.commit:
        yield _executors(found)
        yield _partitions(found, partitions)
        yield _files(found)
    if found.quarantined:
        yield _quarantine(found)
    yield _decisions(found, decisions)


def _table(title: str, *columns: str) -> Table:
    """Return an empty table; columns whose names begin with > hold numbers."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        numbers = column.startswith(">")
        table.add_column(
            column.removeprefix(">"), justify="right" if numbers else "left", overflow="fold"
        )
    return table


def _facts(found: Explained) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    bounds, grid = found.facts["bounds"], found.facts["grid"]
    table.add_row("checkpoint", Text(found.folder))
    x, y = f"x {bounds[0]:g} to {bounds[2]:g}", f"y {bounds[1]:g} to {bounds[3]:g}"
    table.add_row("space", f"{x}, {y}, {grid[0]:,} x {grid[1]:,} cells")
    commit = found.commit
    if commit is None:
        table.add_row("last batch", "none yet: the run was begun and never got to its first")
        return table
    last = f"{commit.batch}" if commit.batch > INITIAL else "none yet"
    table.add_row("last batch", last)
    for name, time in (("event time", event_time(commit)), ("watermark", watermark(commit))):
        if time:
            table.add_row(name, time)
    if found.under_way is not None:
        table.add_row("under way", f"batch {found.under_way}: it is running, or comes again")
    if found.runs_again:
        table.add_row("runs again", f"batches {found.runs_again[0]} to {found.runs_again[-1]}")
    shared = sum(facts.partition.is_shared for facts in found.partitions)
    table.add_row(
        "plan",
        f"version {commit.plan.version}: {commit.plan.executors:,} executors, "
        f"{len(found.partitions):,} partitions" + (f", {shared:,} shared" if shared else ""),
    )
    states, blocks = found.states, found.blocks
    if states.pieces:
        due = f"; something is due at {when(states.first)}" if states.first is not None else ""
        text = f"{states.rows:,} rows in {states.files:,} files, {_bytes(states.size)}{due}"
        table.add_row("state", text)
    if blocks.pieces:
        table.add_row(
            "kept points",
            f"{blocks.rows:,} in {blocks.files:,} files, {_bytes(blocks.size)}; "
            f"{when(blocks.first)} to {when(blocks.last)}",
        )
    return table


def _damage(found: Explained) -> Text:
    lines = [f"missing: {name}" for name in found.missing]
    lines += [f"another content than it had: {name}" for name in found.damaged]
    more = f"\n… and {len(lines) - 10} more" if len(lines) > 10 else ""
    return Text("\nThis checkpoint is damaged.\n" + "\n".join(lines[:10]) + more, style="bold red")


def _executors(found: Explained) -> Table:
    table = _table("\nExecutors", ">executor", ">partitions", ">of them shared", ">of the space")
    assert found.commit is not None
    for executor in range(found.commit.plan.executors):
        own = [facts for facts in found.partitions if executor in facts.partition.owners]
        table.add_row(
            str(executor),
            f"{len(own):,}",
            f"{sum(facts.partition.is_shared for facts in own):,}",
            _percent(sum(facts.share for facts in own)),
        )
    return table


def _partitions(found: Explained, most: int) -> Table:
    ordered = sorted(found.partitions, key=lambda facts: (-facts.share, facts.partition.id))
    left_out = max(0, len(ordered) - most)
    title = "\nPartitions" + (f", the {most:,} largest of {len(ordered):,}" if left_out else "")
    table = _table(
        title, ">id", "owners", "columns", "rows", ">space", "from", ">base", ">delta", ">size"
    )
    for facts in ordered[:most]:
        p = facts.partition
        c = p.cells
        table.add_row(
            f"p{p.id}",
            _owners(facts),
            f"{c.col_start}-{c.col_stop - 1}",
            f"{c.row_start}-{c.row_stop - 1}",
            _percent(facts.share),
            " ".join(f"p{parent}" for parent in p.parents)
            + (f"@{'+'.join(map(str, p.previous_owners))}" if p.previous_owners else ""),
            f"{facts.base:,}",
            f"{facts.delta:,}",
            _bytes(facts.size),
        )
    table.caption = (
        "columns, rows: of cells. from: the partitions before, @ their owners. base, delta: "
        "queries in its files; after a split the parts share a file until it is next written."
    )
    table.caption_justify = "left"
    return table


def _owners(facts: PartitionFacts) -> str:
    p = facts.partition
    if not p.is_shared:
        return str(p.owners[0])
    return " ".join(f"{owner}:{tickets}" for owner, tickets in p.shares.items())


def _files(found: Explained) -> Table:
    table = _table(
        "\nStored queries", "", ">bases", ">rows", ">size", ">deltas", ">rows", ">size", ">on disk"
    )
    for folder, kinds in ((name, found.files(name)) for name in OF_QUERIES):
        cells = [
            text
            for files, rows, size in kinds.values()
            for text in (f"{files:,}", f"{rows:,}", _bytes(size))
        ]
        table.add_row(folder, *cells, f"{found.stored[folder]:,}")
    table.caption = (
        "segments: by place, ledger: by id. on disk: files, also those that only batches which "
        "can run again need, and what failed attempts left."
    )
    table.caption_justify = "left"
    return table


def _quarantine(found: Explained) -> Table:
    table = _table("\nQuarantine", "kind", "reason", ">rows")
    for (kind, reason), rows in sorted(found.quarantined.items()):
        table.add_row(Text(kind), Text(reason), f"{rows:,}")
    return table


def _decisions(found: Explained, most: int) -> RenderableType:
    if not found.decisions:
        return Text("\nThere is no journal, or nothing was decided yet.", style="dim")
    # Who was asked is told by what came of it.
    told = [d for d in found.decisions if d.kind != DecisionKind.ASK]
    title = "\nDecisions and why, the newest first"
    table = _table(title + (f", {most:,} of {len(told):,}" if len(told) > most else ""),
                   ">batch", ">round", "what", "why")  # fmt: skip
    for decision in islice(reversed(told), most):
        for i, (what, reason) in enumerate(decision.lines):
            where = "" if decision.batch is None else str(decision.batch)
            table.add_row(
                "" if i else where,
                "" if i else str(decision.round),
                Text(what, style="bold" if decision.is_change else ""),
                Text(reason),
            )
    return table


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _bytes(size: float) -> str:
    for unit in UNITS:
        if size < 1000 or unit == UNITS[-1]:
            break
        size /= 1000
    return f"{size:.3g} {unit}"
