"""Scenarios on simulated machines."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow as pa

from sparkswarm.geometry import Grid
from sparkswarm.sim.bugs import Bug
from sparkswarm.sim.clock import MILLISECOND
from sparkswarm.sim.cluster import World, draw_scenario
from sparkswarm.sim.matching import Matching
from sparkswarm.sim.workload import (
    NewOperation,
    NewPoint,
    NewQuestion,
    Script,
    Workload,
    operations_on,
)

from ..support.scenarios import EDGES, Row, Scenario

BATCH = 400 * MILLISECOND


def details_of(row: Row, columns: pa.Schema) -> tuple[object, ...]:
    values = (row[name] for name in columns.names)
    return tuple(tuple(v) if isinstance(v, list) else v for v in values)


def lives_of(scenario: Scenario, grid: Grid) -> list[NewOperation]:
    """Return the operations of all batches."""
    rows_of: dict[int, list[tuple[int, Row]]] = {}
    for number, batch in enumerate(scenario.batches):
        for row in batch.operations:
            rows_of.setdefault(row["id"], []).append((number * BATCH, row))
    operations = []
    for key, rows in rows_of.items():
        moments = [time for time, _ in rows]
        gone = [row["op"] == "unregister" for _, row in rows]
        rectangles = [
            None if is_gone else tuple(row[name] for name in EDGES)
            for is_gone, (_, row) in zip(gone, rows, strict=True)
        ]
        life = operations_on(grid, key, False, rectangles, moments, [True] * len(rows))
        for operation, (_, row) in zip(life, rows, strict=True):
            named = operation.rectangle is not None
            details = details_of(row, scenario.query_columns) if named else ()
            operations.append(replace(operation, details=details))
    return operations


def script_of(scenario: Scenario, grid: Grid) -> Script:
    """Return the batches one after another, for one source.

    A patient question waits until all before it is done, and so keeps operations and points apart.
    """
    operations = lives_of(scenario, grid)
    script: Script = []
    questions = 0
    for number, batch in enumerate(scenario.batches):
        start = number * BATCH
        step = BATCH // len(batch.points)
        points = [
            NewPoint(
                start + step * i, row["x"], row["y"], row["id"],
                details_of(row, scenario.point_columns),
            )
            for i, row in enumerate(batch.points)
        ]  # fmt: skip
        for part in ([o for o in operations if o.time == start], points):
            script += part
            questions += 1
            script.append(NewQuestion(script[-1].time, questions, (0.0, 0.0, 1.0, 1.0), True))
    return script


def found_by(
    scenario: Scenario, seed: int, bugs: frozenset[Bug] = frozenset()
) -> tuple[Counter[tuple[int, int]], World]:
    """Run a scenario on the machines and with the faults of a seed."""
    drawn = replace(draw_scenario(seed), sources=1)
    script = script_of(scenario, drawn.config.make_grid())
    columns = scenario.query_columns, scenario.point_columns
    workload = Workload([script], Matching(scenario.application, *columns))
    world = World(seed, drawn, bugs, workload=workload)
    world.play()
    # A source numbers what it emits, questions apart.
    numbered = [scripted for scripted in script if not isinstance(scripted, NewQuestion)]
    results = Counter(
        (match.query, numbered[match.number - 1].key) for match in world.oracle.matches
    )
    return results, world
