"""Shows a checkpoint report in a terminal, as tables that fit 80 columns.

Used by ``sparkswarm explain``; needs rich, which comes with the extra ``cli``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sparkswarm.observe.checkpoint import (
    QUERY_FOLDERS,
    CheckpointReport,
    PartitionReport,
    time_text,
)
from sparkswarm.protocol.messages import DecisionKind

UNITS = ("B", "kB", "MB", "GB", "TB")
MAX_LOANS = 10
"""Loans that are listed."""

MAX_DAMAGED = 10
"""Missing or damaged files that are listed."""


def render(report: CheckpointReport, partitions: int, decisions: int) -> Iterator[RenderableType]:
    """Yield the parts of a report, from the summary to the details.

    Lists at most ``partitions`` partitions, the largest, and ``decisions`` decisions, the last.
    """
    yield _summary(report)
    if not report.is_whole:
        yield _damage(report)
    if report.commit:
        yield _executors(report, report.commit.plan.executors)
        yield _partitions(report, partitions)
        yield _files(report)
    if report.quarantined:
        yield _quarantine(report)
    if report.loans:
        yield _loans(report)
    yield _decisions(report, decisions)


def _table(title: str, *columns: str, caption: str | None = None) -> Table:
    """Return an empty table; columns whose names begin with > hold numbers."""
    table = Table(
        title=f"\n{title}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        caption=caption,
        caption_justify="left",
    )
    for column in columns:
        table.add_column(
            column.removeprefix(">"),
            justify="right" if column.startswith(">") else "left",
            overflow="fold",
        )
    return table


def _summary(report: CheckpointReport) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _facts(report):
        table.add_row(name, Text(text))
    return table


def _facts(report: CheckpointReport) -> Iterator[tuple[str, str]]:
    (min_x, min_y, max_x, max_y), grid = report.facts["bounds"], report.facts["grid"]
    yield "checkpoint", report.folder
    area = f"x {min_x:g} to {max_x:g}, y {min_y:g} to {max_y:g}"
    yield "space", f"{area}, {grid[0]:,} x {grid[1]:,} cells"
    if report.commit is None:
        yield "last batch", "none yet: the run started and never wrote its first record"
        return
    yield "last batch", "none yet" if report.last_batch is None else str(report.last_batch)
    if report.event_time:
        yield "event time", report.event_time
    if report.watermark:
        yield "watermark", report.watermark
    if report.in_progress is not None:
        yield "in progress", f"batch {report.in_progress}: it is running, or will run again"
    if report.replayable:
        yield "replayable", f"batches {report.replayable[0]} to {report.replayable[-1]}"
    plan, shared = report.commit.plan, sum(p.partition.is_shared for p in report.partitions)
    yield (
        "plan",
        f"version {plan.version}: {plan.executors:,} executors, "
        f"{len(plan.partitions):,} partitions" + (f", {shared:,} shared" if shared else ""),
    )
    states, blocks = report.states, report.blocks
    if states.refs:
        due = f"; results are due at {time_text(states.first)}" if states.first is not None else ""
        yield "state", f"{states.rows:,} rows in {states.files:,} files, {_bytes(states.size)}{due}"
    if blocks.refs:
        yield (
            "window",
            f"{blocks.rows:,} points in {blocks.files:,} files, {_bytes(blocks.size)}; "
            f"{time_text(blocks.first)} to {time_text(blocks.last)}",
        )


def _damage(report: CheckpointReport) -> Text:
    lines = [f"missing: {name}" for name in report.missing]
    lines += [f"wrong checksum: {name}" for name in report.damaged]
    more = len(lines) - MAX_DAMAGED
    lines = lines[:MAX_DAMAGED] + ([f"… and {more} more"] if more > 0 else [])
    return Text("\n".join(["\nThis checkpoint is damaged.", *lines]), style="bold red")


def _executors(report: CheckpointReport, executors: int) -> Table:
    table = _table("Executors", ">executor", ">partitions", ">of them shared", ">of the space")
    for executor in range(executors):
        own = [p for p in report.partitions if executor in p.partition.owners]
        shared = sum(p.partition.is_shared for p in own)
        share = _percent(sum(p.share for p in own))
        table.add_row(str(executor), f"{len(own):,}", f"{shared:,}", share)
    return table


def _partitions(report: CheckpointReport, most: int) -> Table:
    ordered = sorted(report.partitions, key=lambda p: (-p.share, p.partition.id))
    title = "Partitions"
    if len(ordered) > most:
        title += f", the {most:,} largest of {len(ordered):,}"
    columns = (">id", "owners", "columns", "rows", ">space", "from", ">queries", ">size")
    caption = (
        "columns, rows: of cells. from: the partitions before, @ their owners. queries: those in "
        "its files; after a split the parts share a file until it is next written."
    )
    table = _table(title, *columns, caption=caption)
    for each in ordered[:most]:
        p, c = each.partition, each.partition.cells
        parents = " ".join(f"p{parent}" for parent in p.parents)
        owners = f"@{'+'.join(map(str, p.previous_owners))}" if p.previous_owners else ""
        table.add_row(
            f"p{p.id}",
            _owners(each),
            f"{c.col_start}-{c.col_stop - 1}",
            f"{c.row_start}-{c.row_stop - 1}",
            _percent(each.share),
            parents + owners,
            f"{each.base_rows + each.delta_rows:,}",
            _bytes(each.size),
        )
    return table


def _owners(report: PartitionReport) -> str:
    p = report.partition
    if not p.is_shared:
        return str(p.owners[0])
    return " ".join(f"{owner}:{tickets}" for owner, tickets in p.shares.items())


def _files(report: CheckpointReport) -> Table:
    stored = sum(report.stored[folder] for folder in QUERY_FOLDERS)
    caption = (
        "base: by partition. delta: changes since, for all partitions. directory: bases by id. "
        f"On disk are {stored:,} files, also those that only replayable batches need, and those "
        "of failed attempts."
    )
    table = _table("Stored queries", "", ">files", ">rows", ">size", caption=caption)
    for kind, (files, rows, size) in report.files().items():
        table.add_row(kind, f"{files:,}", f"{rows:,}", _bytes(size))
    return table


def _quarantine(report: CheckpointReport) -> Table:
    table = _table("Quarantine", "kind", "reason", ">rows")
    for (kind, reason), rows in sorted(report.quarantined.items()):
        table.add_row(Text(kind), Text(reason), f"{rows:,}")
    return table


def _loans(report: CheckpointReport) -> Table:
    title = "Points lent in the last batch, by executors above the mean"
    table = _table(title, ">lender", ">borrower", ">partition", ">points")
    for loan in report.loans[:MAX_LOANS]:
        table.add_row(*map(str, loan[:3]), f"{loan.points:,}")
    return table


def _decisions(report: CheckpointReport, most: int) -> RenderableType:
    if not report.decisions:
        return Text("\nThere is no journal, or no decision in it.", style="dim")
    # A request is left out: its outcome is a decision too.
    decisions = [d for d in report.decisions if d.kind != DecisionKind.ASK]
    title = "Decisions and reasons, newest first"
    if len(decisions) > most:
        title += f", {most:,} of {len(decisions):,}"
    table = _table(title, ">batch", ">round", "what", "why")
    for decision in islice(reversed(decisions), most):
        batch, number = decision.entry["batch"], decision.entry["round"]
        first = ["" if batch is None else str(batch), str(number)]
        for what, reason in decision.lines:
            style = "bold" if decision.created else ""
            table.add_row(*first, Text(what, style=style), Text(reason))
            first = ["", ""]
    return table


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _bytes(size: float) -> str:
    unit = 0
    while size >= 1000 and unit < len(UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {UNITS[unit]}"
