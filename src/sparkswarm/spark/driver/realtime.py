"""The tasks of Real-time Mode, as the batches of operations see them.

Runs on the driver, once a batch: takes the reports that tasks left, and points them to the commit.
What a batch says again after a failure is the same or newer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from sparkswarm.spark.task_output import TaskOutput, TaskStage
from sparkswarm.spark.tasks.reports import take_reports
from sparkswarm.store.epochs import Commit
from sparkswarm.store.files import Files
from sparkswarm.store.pointer import Pointer, read_pointer


class RealTimeTasks:
    """The tasks that match points, as the batches of operations see them.

    Parameters
    ----------
    files
        The checkpoint.
    by_owner
        Whether each executor has a task of its own; else the tasks that read points match them.
    """

    def __init__(self, files: Files, by_owner: bool) -> None:
        self.by_owner = by_owner
        self._files = files
        self._version: int | None = None
        self._last = time.monotonic()

    def point_to(self, commit: Commit, changed: bool, match_weight: float) -> None:
        """Let the tasks match with a commit, which may have changed queries."""
        if self._version is None:
            before = read_pointer(self._files)
            known = before is not None and before.batch == commit.batch
            self._version = before.version if before and known else commit.batch
        elif changed:
            self._version = commit.batch
        if commit.stored is None:
            raise ValueError("the commit is not stored")
        Pointer(
            batch=commit.batch,
            version=self._version,
            plan=commit.stored.plan_name,
            manifest=commit.stored.manifest_name,
            match_weight=match_weight,
        ).write(self._files)

    def take_reports(self, batch: int) -> Sequence[TaskOutput]:
        """Return what the tasks did since the batch before."""
        return take_reports(self._files, batch, TaskStage.MATCH)

    def seconds(self) -> float:
        """Return the time since this was last asked."""
        before, self._last = self._last, time.monotonic()
        return self._last - before
