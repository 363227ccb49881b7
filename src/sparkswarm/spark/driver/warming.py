"""Warming, on the driver: lets hosts fetch what a new plan brings them, beside the batches.

What moves is known when a round ends, and needed when the next batch matches its points. Meanwhile
a small job asks the hosts to fetch it. A batch neither waits for the job nor fails with it. Only
files that tasks have just used are fetched: where no point was there is hardly one in the next
batch.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from sparkswarm.protocol.hosts import ONE_HOST, Hosts
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.driver.host_files import HostFiles
from sparkswarm.spark.driver.placement import Anchors
from sparkswarm.spark.task_output import TaskOutput
from sparkswarm.spark.tasks.warming import warm_task
from sparkswarm.store.epochs import INITIAL
from sparkswarm.store.files import FileRef, Files
from sparkswarm.store.manifest import Manifest

logger = logging.getLogger(__name__)


class Warmer:
    """Knows what each host needs, from batch to batch, and lets it fetch what is new."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._host_files = HostFiles()
        self._batch = INITIAL
        self._used: Collection[FileRef] = ()
        self._jobs = ThreadPoolExecutor(1, "sparkswarm-warmer")
        self._job: Future[None] | None = None

    def end_batch(self, batch: int, outputs: Sequence[TaskOutput]) -> None:
        """Take note of what a batch has used; without this nothing is fetched."""
        self._batch = batch
        self._used = {ref for output in outputs for ref in output.used}

    def follow(self, plan: Plan, manifest: Manifest, anchors: Anchors | None) -> Hosts:
        """Return what hosts hold under a plan, and let them fetch what is new to them."""
        if anchors is None:
            return ONE_HOST
        arrived = self._host_files.follow(plan, manifest, anchors.hosts)
        wanted = {
            host: [ref for ref in some if ref in self._used] for host, some in arrived.items()
        }
        self.fetch({host: some for host, some in wanted.items() if some}, anchors)
        return self._host_files.hosts

    def fetch(
        self, wanted: Mapping[str, Sequence[FileRef]], anchors: Anchors
    ) -> Future[None] | None:
        """Let each host fetch some files; None where there is nothing to do.

        One job at a time: while hosts are being told, what else is wanted is left to the batch.
        """
        is_busy = self._job is not None and not self._job.done()
        if not wanted or self._files.is_local or is_busy:
            return None
        self._job = self._jobs.submit(self._tell, wanted, anchors, self._batch)
        return self._job

    def _tell(self, wanted: Mapping[str, Sequence[FileRef]], anchors: Anchors, batch: int) -> None:
        by_executor = {anchors.hosts.index(host): tuple(refs) for host, refs in wanted.items()}
        try:
            frame = anchors.of_executors(sorted(by_executor))
            task = partial(warm_task, self._files, batch, by_executor)
            frame.mapInArrow(task, "done BOOLEAN").collect()
        except Exception as error:
            # Then the batch fetches them.
            logger.info("files were not fetched ahead: %s", error)
