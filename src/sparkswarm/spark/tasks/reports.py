"""Reports: what tasks that do not end tell the driver, a file twice a second.

Accumulators reach the driver when a task ends, so a task in Real-time Mode leaves its output in a
file instead. Tasks write them, the driver takes them once a batch. They are not durable: what is
lost with a worker are counts and statistics of its last second, never results.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.errors import StoreError
from sparkswarm.observe.progress import Counts
from sparkswarm.policies import Collected
from sparkswarm.spark.task_output import TaskOutput, TaskStage
from sparkswarm.store.files import FileRef, Files, Folder
from sparkswarm.store.formats import arrays_from_bytes, arrays_to_bytes

VERSION = 1

_FACTS, _LATENCY = "facts", "latency"


def report_to_bytes(output: TaskOutput) -> pa.Buffer:
    """Return the content of a file with the output of a task that matches points."""
    facts: dict[str, Any] = {
        "counts": output.counts.counts(),
        "rejected": [[*key, rows] for key, rows in output.rejected.items()],
        "points": output.points,
        "pieces": output.pieces,
        "points_by_partition": list(output.points_by_partition.items()),
        "busy_s": output.busy_s,
        "max_event_time": output.max_event_time,
    }
    arrays: dict[str, npt.NDArray[Any]] = {_LATENCY: np.array(output.latency, np.int64)}
    if (collected := output.collected) is not None:
        facts["partitions"] = collected.partitions
        if isinstance(ref := collected.points, FileRef):
            facts["file"] = [ref.name, ref.rows, ref.size, ref.crc]
        else:
            arrays |= {str(key): values for key, values in ref.items()}
    arrays[_FACTS] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    return arrays_to_bytes(arrays, VERSION)


def report_from_bytes(content: pa.Buffer, batch: int, stage: TaskStage, task: int) -> TaskOutput:
    """Return the output in a file, as that of a task of a batch."""
    arrays = arrays_from_bytes(content, VERSION)
    facts = json.loads(arrays.pop(_FACTS).tobytes())
    latency = arrays.pop(_LATENCY)
    collected = None
    if "partitions" in facts:
        points = FileRef(*facts["file"]) if "file" in facts else _by_partition(arrays)
        collected = Collected(points=points, partitions=tuple(facts["partitions"]))
    return TaskOutput(
        batch=batch,
        stage=stage,
        task=task,
        counts=Counts(**facts["counts"]),
        rejected={(kind, reason): rows for kind, reason, rows in facts["rejected"]},
        points=facts["points"],
        pieces=facts["pieces"],
        points_by_partition=dict(facts["points_by_partition"]),
        busy_s=facts["busy_s"],
        max_event_time=facts["max_event_time"],
        collected=collected,
        latency=tuple(latency.tolist()),
    )


def _by_partition(arrays: Mapping[str, Any]) -> dict[int, Any]:
    return {int(key): values.copy() for key, values in arrays.items()}


def write_report(files: Files, name: str, output: TaskOutput) -> None:
    """Leave a report for the driver; the name is the reporter's own, and sorts by time."""
    files.write(f"{Folder.REPORTS}/{name}.arrow", report_to_bytes(output), durable=False)


def take_reports(files: Files, batch: int, stage: TaskStage) -> Sequence[TaskOutput]:
    """Return the reports since the last time, each as a task of its own, and delete them."""
    outputs = []
    names = files.list(Folder.REPORTS)
    for task, name in enumerate(names):
        content = files.read(name)
        try:
            if content is not None:
                outputs.append(report_from_bytes(pa.py_buffer(content), batch, stage, task))
        except (pa.ArrowException, StoreError, KeyError, ValueError):
            # Left half-written by a crash of the machine.
            continue
    files.delete(names)
    return outputs
