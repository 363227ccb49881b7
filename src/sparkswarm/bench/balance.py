"""``sparkswarm bench balance``: how evenly the protocol divides the work, round by round.

Simulated rounds (see :mod:`sparkswarm.bench.world`), for both cost models, one and several
moves a round, with and without shared cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sparkswarm.bench.world import RoundWorld
from sparkswarm.config import CostModelName, DecisionName, SwarmConfig
from sparkswarm.protocol.plan import Plan
from sparkswarm.workloads import Density, Hotspot

HOTSPOT = Hotspot(start=30, stop=50)
"""40% of the points in 15% x 15% of the space, and 20% of the queries, in rounds 30 to 49."""

WORTH_DRAWING = (0, HOTSPOT.start, HOTSPOT.start + 5)
"""Before these rounds the plan is kept: at the start, settled, and settled in the hotspot."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run the protocol."""

    cost_model: CostModelName
    decision: DecisionName
    moves_per_round: int
    shared_cells: bool

    @property
    def is_default(self) -> bool:
        """Whether these are the default settings."""
        return self.cost_model == "work" and self.moves_per_round > 1 and self.shared_cells

    @property
    def label(self) -> str:
        """A line's name in tables and pictures."""
        moves = "1 move" if self.moves_per_round == 1 else f"{self.moves_per_round} moves"
        parts = [self.cost_model, moves]
        if self.shared_cells:
            parts.append("shared cells")
        if self.decision == "five_stages":
            parts.append("five stages")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class VariantRun:
    """What one variant did, and its plans before some rounds worth drawing.

    ``static_efficiency`` is what the same rounds would have had with the first plan.
    """

    variant: Variant
    executors: int
    efficiency: tuple[float, ...]
    static_efficiency: tuple[float, ...]
    changes: tuple[int, ...]
    partitions: int
    plans: tuple[tuple[int, Plan], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the form that ``--json`` writes."""
        return {
            "cost_model": self.variant.cost_model,
            "decision": self.variant.decision,
            "moves_per_round": self.variant.moves_per_round,
            "shared_cells": self.variant.shared_cells,
            "executors": self.executors,
            "efficiency": [round(value, 4) for value in self.efficiency],
            "changes": list(self.changes),
            "partitions": self.partitions,
        }


def variants(executors: int) -> Iterator[Variant]:
    """Return all combinations, and the paper as printed: its model, its decision, one move."""
    for model in ("work", "paper"):
        for moves in (1, executors):
            for shared in (False, True):
                yield Variant(model, "gain", moves, shared)  # type: ignore[arg-type]
    yield Variant("paper", "five_stages", 1, False)
    yield Variant("work", "five_stages", 1, False)


def run_balance(
    density: Density,
    executors: int,
    rounds: int,
    points: int,
    queries: int,
    seed: int,
    on_round: Callable[[Variant, int], None] = lambda variant, number: None,
) -> list[VariantRun]:
    """Run all variants on the same workload; ``on_round`` is called after every round."""
    bounds = density.bounds
    grid = density.grid
    runs = []
    for variant in variants(executors):
        config = SwarmConfig(
            bounds=(bounds.min_x, bounds.min_y, bounds.max_x, bounds.max_y),
            grid=(grid.columns, grid.rows),
            executors=executors,
            cost_model=variant.cost_model,
            decision=variant.decision,
            max_pairs_per_round=variant.moves_per_round,
            shared_cells=variant.shared_cells,
        )
        world = RoundWorld(
            config,
            density,
            HOTSPOT if rounds > HOTSPOT.start else None,
            points,
            queries,
            seed,
            throttled=variant.decision == "five_stages",
        )
        efficiency, static, changes, plans = [], [], [], []
        for number in range(rounds):
            if number in WORTH_DRAWING:
                plans.append((number, world.swarm.plan))
            played = world.play()
            efficiency.append(played.efficiency)
            static.append(played.static_efficiency)
            changes.append(len(played.changes))
            on_round(variant, number)
        world.swarm.index.check_tiling()
        partitions = len(world.swarm.plan.partitions)
        runs.append(
            VariantRun(
                variant, executors, tuple(efficiency), tuple(static), tuple(changes),
                partitions, tuple(plans),
            )
        )  # fmt: skip
    return runs
