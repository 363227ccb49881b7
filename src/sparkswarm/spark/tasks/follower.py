"""The contexts of a task that does not end with a batch: it follows the commits of the driver.

Runs in tasks of Real-time Mode, where no batch brings the next plan: they look at a pointer file.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from itertools import chain

from sparkswarm.errors import StoreError
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.task_input import unpacked_input
from sparkswarm.spark.tasks.context import (
    BatchContext,
    ignore,
    keep_context,
    records_of,
    take_context,
    warm_up,
)
from sparkswarm.store.epochs import INITIAL
from sparkswarm.store.manifest import Manifest
from sparkswarm.store.pointer import Pointer, PointerReader


class ContextFollower:
    """The contexts of a task that does not end with a batch, each that of a later commit.

    Attributes
    ----------
    input
        What the driver gave at the start.
    version
        The last batch that changed queries, as the context has it.
    task
        Spark's number of the task in its stage.
    """

    def __init__(self, task_input: bytes, task: int, attempt: int) -> None:
        warm_up()
        self.input = unpacked_input(task_input, records_of)
        self.version = INITIAL
        self.task, self._attempt = task, attempt
        self._pointer = PointerReader(self.input.files)
        self._last = take_context(self.input.files)
        self._current: BatchContext | None = None

    def changed(self) -> BatchContext | None:
        """Return the context of the last commit, or None where it is the one returned last."""
        pointer = self._pointer.changed()
        while pointer is not None:
            try:
                return self._open(pointer)
            except StoreError:
                # What the pointer names may be gone when it is a few commits old.
                later = self._pointer.changed()
                if later is None:
                    self._pointer.forget()
                    raise
                pointer = later
        if self._current is None:
            raise StoreError(
                f"{self.input.files.root} has no pointer to the last commit; the driver writes it "
                "before it starts a stream in Real-time Mode, on a folder that all machines share"
            )
        return None

    def _open(self, pointer: Pointer) -> BatchContext:
        records = records_of(self.input.files)
        plan = records.read(Plan, pointer.plan)
        manifest = records.read(Manifest, pointer.manifest)
        records.retain({pointer.plan, pointer.manifest})
        epoch = replace(self.input.epoch, batch=pointer.batch, plan=plan, manifest=manifest)
        given = replace(
            self.input,
            epoch=epoch,
            attempt=uuid.uuid4().hex[:8],
            match_weight=pointer.match_weight,
        )
        opened = BatchContext(given, self._last)
        # All that it names must be there now; later it may be gone.
        for ref in chain.from_iterable(manifest.partitions.values()):
            opened.segment(ref)
        opened.deltas_over(partition.cells for partition in plan.partitions)
        self._last = opened
        keep_context(opened)
        self._current = opened.for_task(self.task, self._attempt, ignore)
        self.version = pointer.version
        return self._current
