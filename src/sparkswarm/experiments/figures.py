"""The figures of the paper's evaluation, each as a picture and a table.

Owns the simulation that each figure needs, and the file names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from sparkswarm.bench.overhead import run_overhead
from sparkswarm.bench.world import RoundWorld, config_of
from sparkswarm.errors import ConfigError
from sparkswarm.experiments import pictures
from sparkswarm.experiments.claims import Claim, across, claims
from sparkswarm.experiments.experiment import Experiment, Progress, Row, Settings, run_experiment
from sparkswarm.experiments.folder import write_claims, write_csv
from sparkswarm.experiments.scenarios import SCENARIOS, Scenario, find_scenario
from sparkswarm.workloads import Density

CAPABILITY = "capability"
UTILIZATION = "utilization"
OVERHEAD_GLOBAL_INDEX = "overhead-global-index"
OVERHEAD_EXECUTOR = "overhead-executor"
OVERHEAD_NETWORK = "overhead-network"

TIMELINES = tuple(name for name, scenario in SCENARIOS.items() if scenario.hotspots)
FIGURES = (
    CAPABILITY,
    *TIMELINES,
    UTILIZATION,
    OVERHEAD_GLOBAL_INDEX,
    OVERHEAD_EXECUTOR,
    OVERHEAD_NETWORK,
)
"""The figures, in the paper's order."""

NUMBER_BYTES = 8
CENTRAL_NUMBERS = 5
"""Numbers per cell that a centralised balancer needs: one for its points, four of an Euler
histogram for its queries (paper, "Network overhead of statistics")."""

_HOME = "one-uniform-hotspot"
"""The scenario of figures without one of their own."""

_NEEDS = {CAPABILITY: "queries-sweep", UTILIZATION: _HOME, OVERHEAD_NETWORK: _HOME}
_OVERHEADS = {OVERHEAD_GLOBAL_INDEX: "GlobalIndex", OVERHEAD_EXECUTOR: "executor"}
_ROUNDS = 15
"""Rounds before operations are timed."""

_PLAYED = 1_000_000
"""Points per round, and queries, in these rounds."""

_TIMES = 200
"""Number of measurements of each operation."""


@dataclass(slots=True)
class Figures:
    """Draws figures; runs every scenario that they need once.

    Attributes
    ----------
    settings
        Settings of the simulations; the scenario is ignored.
    density
        Distribution of points and queries.
    folder
        Output folder.
    minutes
        Length of the runs; None is that of the paper's.
    on_minute
        Called as the simulations advance.
    """

    settings: Settings
    density: Density
    folder: Path
    minutes: int | None = None
    on_minute: Progress = lambda policy, queries: None
    _played: dict[str, Experiment] = field(default_factory=dict)
    _operations: list[Row] = field(default_factory=list)

    def draw(self, names: Iterable[str]) -> list[Path]:
        """Draw figures, and write a table of the paper's claims with the measured values."""
        files = [path for name in names for path in self._draw(name)]
        found = [claim for e in self._played.values() for claim in _named(e)]
        found += across(list(self._played.values()))
        if found:
            files.append(write_claims(found, self.folder / "claims.md"))
        return files

    def _draw(self, name: str) -> list[Path]:
        self.folder.mkdir(parents=True, exist_ok=True)
        picture, table = self.folder / f"{name}.png", self.folder / f"{name}.csv"
        if name in _OVERHEADS:
            rows = [row for row in self._timed() if row["figure"].startswith(_OVERHEADS[name])]
            title = f"operations of SWARM: {_OVERHEADS[name]} machines"
            return [pictures.draw_operations(rows, title, picture), write_csv(rows, table)]
        experiment = self._play(_NEEDS.get(name, name))
        draw: Callable[[Experiment, Path], Path]
        if name == CAPABILITY:
            rows, draw = capability_rows(experiment), pictures.draw_sweep
        elif name == UTILIZATION:
            rows, draw = experiment.utilization(), pictures.draw_utilization
        elif name == OVERHEAD_NETWORK:
            rows = statistics_rows(experiment, self.density)
            return [pictures.draw_statistics(rows, picture), write_csv(rows, table)]
        else:
            rows, draw = experiment.timeline(), pictures.draw_timeline
        return [draw(experiment, picture), write_csv(rows, table)]

    def _play(self, name: str) -> Experiment:
        if name not in self._played:
            scenario = needed_scenario(name, self.minutes)
            settings = replace(self.settings, scenario=scenario)
            self._played[name] = run_experiment(settings, self.density, self.on_minute)
        return self._played[name]

    def _timed(self) -> list[Row]:
        """Measure the operations of a protocol that has run for some rounds."""
        if not self._operations:
            config = config_of(self.density.grid, self.settings.machines.executors)
            seed = self.settings.seed
            world = RoundWorld(config, self.density, None, _PLAYED, _PLAYED, seed)
            for _ in range(_ROUNDS):
                world.play()
            self._operations = [
                operation.to_json() for operation in run_overhead(world, self.density, _TIMES, seed)
            ]
        return self._operations


def chosen(name: str) -> tuple[str, ...]:
    """Return the figures that a name on the command line stands for."""
    if name == "all":
        return FIGURES
    if name not in FIGURES:
        raise ConfigError(f"a figure is one of {', '.join(FIGURES)} or all, got {name!r}")
    return (name,)


def needed_scenario(name: str, minutes: int | None) -> Scenario:
    """Return a scenario, scaled to a number of minutes if given."""
    scenario = find_scenario(name)
    return scenario if minutes is None else scenario.shortened(minutes)


def minutes_of(names: Iterable[str], settings: Settings, minutes: int | None) -> int:
    """Return the minutes of virtual time that some figures need."""
    needed = dict.fromkeys(_NEEDS.get(n, n) for n in names if n not in _OVERHEADS)
    return sum(
        replace(settings, scenario=needed_scenario(name, minutes)).minutes for name in needed
    )


def capability_rows(experiment: Experiment) -> list[Row]:
    """Return a row for each policy and number of queries; empty numbers if a run failed."""
    return [
        {
            "policy": o.policy,
            "queries": o.queries,
            "units_of_work": o.units_of_work(),
            "latency_us": o.latency_us(),
            "balance": o.balance(),
            "failed": o.failed or "",
        }
        for o in experiment.outcomes
    ]


def statistics_rows(experiment: Experiment, density: Density) -> list[Row]:
    """Return the bytes of statistics per round: of SWARM, counted, and centralised."""
    rows: list[Row] = []
    for name in ("swarm", "swarm_paper"):
        outcome = experiment.of(name)
        if outcome is not None and outcome.minutes:
            seconds = 60 * len(outcome.minutes)
            rounds = seconds / outcome.machines.round_seconds
            sent = outcome.traffic["statistics"] / rounds
            rows.append({"way": f"{name}, counted", "bytes_a_round": round(sent, 1)})
    cells = density.grid.cells.area
    central = CENTRAL_NUMBERS * NUMBER_BYTES * cells
    way = f"centralised, {CENTRAL_NUMBERS} numbers a cell"
    rows.append({"way": way, "bytes_a_round": central})
    return rows


def _named(experiment: Experiment) -> Iterator[Claim]:
    for claim in claims(experiment):
        yield replace(claim, what=f"{experiment.scenario.name}: {claim.what}")
