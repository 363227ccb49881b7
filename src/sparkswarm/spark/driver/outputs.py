"""What the driver makes of the outputs of a batch's tasks: the next manifest, and its progress.

Runs on the driver, once a batch, after its last stage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from sparkswarm.observe.progress import Counts, HostUse, Loan, Progress, latency_counts
from sparkswarm.policies import TaskWork
from sparkswarm.protocol.cost import Prices
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.task_input import TaskInput
from sparkswarm.spark.task_output import TaskOutput, TaskStage
from sparkswarm.spark.tasks.blocks import blocks_after
from sparkswarm.store.files import FileRef
from sparkswarm.store.kept import state_bytes, window_bytes
from sparkswarm.store.manifest import Manifest


def manifest_after(
    task_input: TaskInput, outputs: Sequence[TaskOutput], max_event_time: int
) -> Manifest:
    """Return the manifest after a batch."""
    manifest, window = task_input.epoch.manifest, task_input.window
    states = dict(manifest.states)
    for output in outputs:
        if output.stage == TaskStage.STATE:
            states.update(output.written.states)
        manifest = manifest.with_objects(output.written.objects)
    if window is None:
        return manifest.with_state_and_blocks(states, {})
    written = [block for output in outputs for block in output.written.blocks]
    return manifest.with_state_and_blocks(
        states, blocks_after(manifest.blocks, written, window, max_event_time)
    )


def matching_outputs(outputs: Sequence[TaskOutput]) -> list[TaskOutput]:
    """Return the outputs of the tasks that matched points."""
    return [o for o in outputs if o.stage in (TaskStage.MATCH, TaskStage.EXECUTE)]


def expected_seconds(prices: Prices, work: TaskWork) -> float:
    """Return what a task should take by the learnt prices."""
    return prices.of_task(work.points, work.checks, work.matches, work.pieces)


NO_WORK = TaskWork(points=0, checks=0, matches=0, pieces=0, seconds=0.0)
"""Of an executor that had no task."""


def _shares_of_owners(
    plan: Plan, by_partition: Mapping[int, int], seconds: float
) -> tuple[list[float], list[int]]:
    """Return the time and the points of each executor's partitions, whoever matched them."""
    points = [0] * plan.executors
    for partition in plan.partitions:
        share, rest = divmod(by_partition.get(partition.id, 0), len(partition.owners))
        for i, owner in enumerate(partition.owners):
            points[owner] += share + (i < rest)
    total = sum(points)
    return [seconds * n / total if total else 0.0 for n in points], points


def progress_of(
    task_input: TaskInput,
    outputs: Sequence[TaskOutput],
    stages: Mapping[str, float],
    after: Manifest,
    work: Sequence[TaskWork],
    prices: Prices,
    hosts: Sequence[HostUse] = (),
) -> Progress:
    """Add up the outputs of a batch, and what it left.

    ``work`` is what the tasks that matched points did, in the order of their outputs; ``hosts``
    where.
    """
    epoch = task_input.epoch
    rejected: Counter[tuple[str, str]] = Counter()
    by_partition: Counter[int] = Counter()
    for output in outputs:
        rejected.update(output.rejected)
        by_partition.update(output.points_by_partition)
    matched = matching_outputs(outputs)
    done = {o.task: (o, w) for o, w in zip(matched, work, strict=True)}
    if any(o.stage == TaskStage.MATCH for o in matched):
        tasks = [done[number] for number in sorted(done)]
        busy, points = _shares_of_owners(epoch.plan, by_partition, sum(w.seconds for w in work))
    else:
        idle = TaskOutput(batch=epoch.batch, stage=TaskStage.EXECUTE, task=-1), NO_WORK
        tasks = [done.get(m, idle) for m in range(epoch.plan.executors)]
        busy, points = [w.seconds for _, w in tasks], [o.points for o, _ in tasks]
    loans: Counter[tuple[int, int, int]] = Counter()
    for loan in (loan for output in outputs for loan in output.loans):
        loans[loan[:3]] += loan.points
    blocks = [block for some in after.blocks.values() for block in some]
    latency: Counter[tuple[str]] = Counter()
    for output in outputs:
        latency.update(latency_counts(output.latency))
    return Progress(
        **sum((output.counts for output in outputs), Counts()).counts(),
        batch=epoch.batch,
        seconds=sum(stages.values()),
        plan_version=epoch.plan.version,
        busy_s=tuple(busy),
        task_s=tuple(w.seconds for _, w in tasks),
        work_s=tuple(expected_seconds(prices, w) if w is not NO_WORK else 0.0 for _, w in tasks),
        points_by_executor=tuple(points),
        loans=tuple(Loan(*key, points) for key, points in loans.most_common()),
        points_by_partition=dict(by_partition),
        quarantined=dict(rejected),
        latency=dict(latency),
        stages=dict(stages),
        window_points=sum(block.points for block in blocks),
        window_bytes=window_bytes(after),
        state_bytes=state_bytes(after),
        objects=sum(ref.rows for ref in after.objects.values()),
        query_bytes=sum(
            file.size
            for file in (
                *(base for group in after.bases for base in group.bases),
                *(delta.file for delta in after.deltas),
            )
        ),
        hosts=tuple(hosts),
    )


def host_uses(
    outputs: Iterable[TaskOutput],
    homes: Sequence[str],
    host_of: Mapping[int, str],
    manifest: Manifest,
) -> list[HostUse]:
    """Return what tasks did on each host, given the host of each task by Spark's id.

    ``homes`` are the hosts of the executors.
    """
    named = manifest.file_names()
    tasks: Counter[str] = Counter()
    at_home: Counter[str] = Counter()
    fetched: Counter[str] = Counter()
    mapped: dict[str, set[FileRef]] = {}
    for output in outputs:
        host = host_of.get(output.spark_task[1]) if output.spark_task else None
        if host is None:
            continue
        fetched[host] += output.counts.fetched_bytes
        if output.stage == TaskStage.EXECUTE:
            tasks[host] += 1
            at_home[host] += homes[output.task] == host
            mapped.setdefault(host, set()).update(output.used)
    return [
        HostUse(
            host=host,
            tasks=tasks[host],
            at_home=at_home[host],
            mapped_bytes=sum(ref.size for ref in mapped.get(host, ()) if ref.name in named),
            fetched_bytes=fetched[host],
        )
        for host in sorted(tasks | fetched)
    ]
