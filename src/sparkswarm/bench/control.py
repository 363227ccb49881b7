"""``sparkswarm bench control``: measures what a batch costs beside its points.

The driver's work for the plan of a batch, a round of the Coordinator, and what a Python worker
needs to open the context of a batch, at any number of executors, partitions and cells. No Spark;
the measured code is that of the engine, on files in a temporary folder.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np

from sparkswarm.config import SwarmConfig
from sparkswarm.policies.swarm import SwarmControl
from sparkswarm.protocol.coordinator import Coordinator
from sparkswarm.protocol.cost import Prices
from sparkswarm.protocol.messages import CostReport, Message, Proposal, Reason, ReduceRequest
from sparkswarm.protocol.partition import Partition, PlanChange, moved
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.driver.outputs import manifest_after
from sparkswarm.spark.task_input import TaskInput, packed_input
from sparkswarm.spark.tasks.context import open_context
from sparkswarm.store.epochs import INITIAL, Commit, Epoch, Epochs
from sparkswarm.store.files import FileRef, Files
from sparkswarm.store.manifest import BaseGroup, Manifest, SegmentRef

CHANGED = 0.01
"""Fraction of the partitions that change from one batch to the next."""

BATCHES = 5
"""Number of measured batches."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    """Numbers of executors and partitions; the grid has ``grid`` columns and rows."""

    executors: int
    partitions: int
    grid: int
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlCosts:
    """What the control costs; times and sizes are those of one batch, round or worker.

    Attributes
    ----------
    batch_ms
        Median time of the driver in a batch before which 1% of the partitions changed: apply the
        changes to plan and manifest, make them durable, pickle the input of tasks, commit.
    round_ms
        Time of the Coordinator in a round: take the reports of all executors, ask those that have
        too much, and take a move of a partition from each that was asked.
    cleaning_ms
        Time to find and delete the files that are not needed any more.
    briefing_bytes
        Size of the input that is sent with every task of a batch.
    worker_ms, worker_changed_ms
        Time of a new Python worker to open the context of its first batch, and of the next one.
    worker_bytes
        Private memory that a worker needs for it, beside another one on its host.
    """

    batch_ms: float
    round_ms: float
    cleaning_ms: float
    briefing_bytes: int
    worker_ms: float
    worker_changed_ms: float
    worker_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


def run_control(
    settings: ControlSettings, on_step: Callable[[str], None] = lambda step: None
) -> ControlCosts:
    """Run the benchmark; ``on_step`` is called before each of its four steps."""
    on_step("building the plan")
    rng = np.random.default_rng(settings.seed)
    config = SwarmConfig(
        bounds=(0, 0, 1, 1), grid=(settings.grid, settings.grid), executors=settings.executors
    )
    plan = fine_plan(config, settings.partitions)
    on_step("a round")
    round_ms = _milliseconds(partial(run_round, plan, config, rng))[1]
    with tempfile.TemporaryDirectory(prefix="sparkswarm-") as folder:
        driver = Driver(Files(folder), config, plan)
        on_step("batches")
        times, inputs = [], []
        for _ in range(BATCHES):
            changes = driver.some_changes(rng)
            pickled, milliseconds = _milliseconds(partial(driver.run_batch, changes))
            times.append(milliseconds)
            inputs.append(pickled)
        _, cleaning_ms = _milliseconds(driver.epochs.collect_garbage)
        on_step("a worker")
        # This process is the other worker of the host.
        _open(inputs[-2])
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            first_ms, changed_ms, private = pool.apply(open_contexts, (inputs[-2:], config))
    return ControlCosts(
        batch_ms=round(median(times), 1),
        round_ms=round(round_ms, 1),
        cleaning_ms=round(cleaning_ms, 1),
        briefing_bytes=max(map(len, inputs)),
        worker_ms=round(first_ms, 1),
        worker_changed_ms=round(changed_ms, 1),
        worker_bytes=private,
    )


def fine_plan(config: SwarmConfig, partitions: int) -> Plan:
    """Return an even plan with about as many partitions for each executor."""
    plan = Plan.initial(config.make_grid(), partitions)
    owned = tuple(
        replace(p, owners=(i * config.executors // len(plan.partitions),))
        for i, p in enumerate(plan.partitions)
    )
    return replace(plan, executors=config.executors, partitions=owned)


def stored_queries(plan: Plan) -> Manifest:
    """Return a manifest with a base for every partition, written by its executor."""
    bases: dict[int, list[FileRef]] = {}
    segments = {}
    for p in plan.partitions:
        base = FileRef(f"segments/000000000000-p{p.id}-0f1e2d3c-17.arrow", 10, 4_096, p.id)
        bases.setdefault(p.owners[0], []).append(base)
        segments[p.id] = (SegmentRef(p.cells, base),)
    groups = [
        BaseGroup(FileRef(f"segments/000000000000-d{m}-0f1e2d3c-17.arrow", 10, 64, m), tuple(some))
        for m, some in bases.items()
    ]
    prices = FileRef("segments/000000000000-prices-0f1e2d3c-17.arrow", 0, 64, 0)
    return Manifest.initial(plan.partitions).with_bases(segments, groups, prices)


def run_round(plan: Plan, config: SwarmConfig, rng: np.random.Generator) -> Plan:
    """Return the plan after a round in which everyone asked moves one partition."""
    coordinator = Coordinator(plan, config)
    owned: dict[int, Partition] = {p.owners[0]: p for p in plan.partitions}
    sent: list[Message] = []
    for executor, load in enumerate(rng.lognormal(0.0, 1.0, config.executors)):
        sent += coordinator.handle(CostReport(executor, 0, 1e6 * load, 1e6 * load))
    for request in sent:
        if isinstance(request, ReduceRequest) and request.m_high in owned:
            change = moved(
                owned[request.m_high], request.m_high, request.m_lows[0], request.fresh_ids[0]
            )
            gave = ((request.m_lows[0], 1.0),)
            coordinator.handle(Proposal(request.m_high, 0, (change,), gave, Reason.GAIN_ENOUGH))
    return coordinator.plan


class Driver:
    """The driver of a run without points: its plan, manifest and records."""

    def __init__(self, files: Files, config: SwarmConfig, plan: Plan) -> None:
        self._files, self._config = files, config
        self.epochs = Epochs(files, config.replayable_batches)
        self.epochs.take_over()
        self.last = Commit(batch=INITIAL, plan=plan, manifest=stored_queries(plan))
        self.epochs.commit(self.last)
        # Each executor's statistics, as agents leave them.
        self._statistics = {
            m: FileRef(f"soft/000000000001-m{m}-state-0f1e2d3c-{m}.arrow", 0, 4_096, m)
            for m in range(config.executors)
        }

    def some_changes(self, rng: np.random.Generator) -> Sequence[PlanChange]:
        """Return moves of 1% of the partitions; their ids are reserved."""
        plan = self.last.plan
        count = max(1, round(CHANGED * len(plan.partitions)))
        chosen = rng.choice(len(plan.partitions), count, replace=False)
        ids, plan = plan.reserve(count)
        self.last = replace(self.last, plan=plan)
        changes = []
        for fresh_id, i in zip(ids, chosen.tolist(), strict=True):
            partition = plan.partitions[i]
            giver = partition.owners[0]
            changes.append(moved(partition, giver, (giver + 1) % plan.executors, fresh_id))
        return changes

    def run_batch(self, changes: Sequence[PlanChange]) -> bytes:
        """Do what the driver does in a batch; return the input of its tasks, pickled."""
        last = self.last
        plan = last.plan.apply(changes)
        manifest = last.manifest.for_plan(last.plan.partitions, plan.partitions)
        epoch = Epoch(batch=last.batch + 1, clock=0, plan=plan, manifest=manifest)
        epoch = self.epochs.begin(epoch)
        task_input = TaskInput(
            files=self._files,
            config=self._config,
            epoch=epoch,
            attempt="0f1e2d3c",
            control=SwarmControl(
                prices=Prices(), closes_round=0, changes=tuple(changes), statistics=self._statistics
            ),
            collect_statistics=True,
        )
        pickled = packed_input(task_input)
        manifest = manifest_after(task_input, [], 0)
        self.last = Commit(batch=epoch.batch, plan=plan, manifest=manifest)
        self.epochs.commit(self.last)
        return pickled


def open_contexts(inputs: Sequence[bytes], config: SwarmConfig) -> tuple[float, float, int]:
    """Open the contexts of two batches; return both times and the private memory needed."""
    with tempfile.TemporaryDirectory(prefix="sparkswarm-") as folder:
        # Compiled code is loaded first: that does not depend on the plan.
        small = replace(config, grid=(4, 4), executors=1)
        plan = fine_plan(small, 1)
        _open(Driver(Files(folder), small, plan).run_batch([]))
    before = private_memory()
    times = [_milliseconds(partial(_open, pickled))[1] for pickled in inputs]
    return times[0], times[1], private_memory() - before


def _open(pickled: bytes) -> None:
    context = open_context(pickled)
    partition = context.plan.partitions[-1].id
    context.router.assign(np.array([0.5]), np.array([0.5]), np.array([0]))
    context.first_owner(np.array([partition]))


def private_memory() -> int:
    """Return the bytes of memory that this process shares with no other."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    private = [line.split()[1] for line in rollup.splitlines() if line.startswith("Private_")]
    return 1024 * sum(map(int, private))


def _milliseconds(work: Callable[[], _Result]) -> tuple[_Result, float]:
    started = time.perf_counter()
    result = work()
    return result, 1e3 * (time.perf_counter() - started)
