"""``sparkswarm bench balance``: measures how evenly the protocol divides the work, per round.

Simulated rounds (see :mod:`sparkswarm.bench.world`), for both cost models, one and several
moves per round, with and without shared cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sparkswarm.bench.world import RoundWorld, config_of
from sparkswarm.config import CostModelName, DecisionName
from sparkswarm.protocol.plan import Plan
from sparkswarm.workloads import Density, Hotspot

HOTSPOT = Hotspot(start=30, stop=50)
"""40% of the points in 15% x 15% of the space, and 20% of the queries, in rounds 30 to 49."""

WORTH_DRAWING = (0, HOTSPOT.start, HOTSPOT.start + 5)
"""Rounds before which the plan is recorded: at the start, settled, and in the hotspot."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One combination of settings of the protocol."""

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
        """Name in tables and pictures."""
        moves = "1 move" if self.moves_per_round == 1 else f"{self.moves_per_round} moves"
        parts = [self.cost_model, moves]
        if self.shared_cells:
            parts.append("shared cells")
        if self.decision == "five_stages":
            parts.append("five stages")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class VariantRun:
    """The result of one variant, with its plans before some rounds.

    ``static_efficiency`` is the efficiency of the same rounds with the first plan,
    ``lent_efficiency`` that of the same plans with lending.
    """

    variant: Variant
    executors: int
    efficiency: tuple[float, ...]
    static_efficiency: tuple[float, ...]
    lent_efficiency: tuple[float, ...]
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
            "lent_efficiency": [round(value, 4) for value in self.lent_efficiency],
            "changes": list(self.changes),
            "partitions": self.partitions,
        }


def variants(executors: int) -> Iterator[Variant]:
    """Return all combinations, and both cost models with the paper's decision and one move."""
    for model in ("work", "paper"):
        for moves in (1, executors):
            for shared in (False, True):
                yield Variant(model, "gain", moves, shared)
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
    runs = []
    for variant in variants(executors):
        config = config_of(
            density.grid,
            executors,
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
        efficiency, static, lent, changes, plans = [], [], [], [], []
        for number in range(rounds):
            if number in WORTH_DRAWING:
                plans.append((number, world.swarm.plan))
            played = world.play()
            efficiency.append(played.efficiency)
            static.append(played.static_efficiency)
            lent.append(played.lent_efficiency)
            changes.append(len(played.changes))
            on_round(variant, number)
        world.swarm.index.check_tiling()
        runs.append(
            VariantRun(
                variant=variant,
                executors=executors,
                efficiency=tuple(efficiency),
                static_efficiency=tuple(static),
                lent_efficiency=tuple(lent),
                changes=tuple(changes),
                partitions=len(world.swarm.plan.partitions),
                plans=tuple(plans),
            )
        )
    return runs
