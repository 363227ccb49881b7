"""The settings of the engine: name, default, unit, range and meaning of each.

Every setting is a field of :class:`SwarmConfig`, declared with :func:`sparkswarm.options.option`
and checked when the object is made; docs/reference/settings.md is generated from them. No other
module states a default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from sparkswarm.errors import ConfigError, GeometryError
from sparkswarm.geometry import NAMED_BOUNDS, Bounds, Grid
from sparkswarm.options import (
    BOOLEAN,
    ValueKind,
    choice,
    markdown,
    number,
    numbers,
    option,
    options_of,
    renamed_fields,
    whole,
)

CostModelName = Literal["work", "paper"]
DecisionName = Literal["gain", "five_stages"]
PolicyName = Literal["swarm", "static_uniform", "static_history", "replicated", "hash_cell"]


MAX_CELLS = 100_000_000
"""Largest number of cells of a grid: an index of 4 bytes a cell, in every process."""

RENAMED_SETTINGS = {
    "fade": "decay",
    "keep_batches": "replayable_batches",
    "late_seconds": "expired_query_seconds",
    "merge_every": "merge_every_rounds",
    "moves_per_round": "max_pairs_per_round",
    "receivers": "max_receivers",
}
"""Former names of settings, which are refused with the present one."""


def _bounds(value: object) -> tuple[float, ...]:
    if isinstance(value, str):
        return NAMED_BOUNDS[value.strip().lower()].edges
    edges: tuple[float, ...] = numbers(4).check(value)
    return edges


BOUNDS = ValueKind('4 numbers, "usa" or "world"', _bounds)


@renamed_fields(RENAMED_SETTINGS)
@dataclass(frozen=True, slots=True)
class SwarmConfig:
    """How the space is divided and balanced; docs/reference/settings.md has the table."""

    bounds: tuple[float, float, float, float] = option(
        (-180.0, -90.0, 180.0, 90.0),
        BOUNDS,
        "The space: min_x, min_y, max_x, max_y. Points outside are rejected.",
        "coordinates",
    )
    grid: tuple[int, int] = option(
        (1000, 1000),
        numbers(2, of_integers=True),
        "Columns and rows of cells, at most 10^8 cells: every process needs 4 bytes for each. A "
        "cell is the smallest possible partition.",
        "cells",
    )
    executors: int = option(
        22,
        whole(1, 100_000),
        "Number of logical executors that share the work.",
        "executors",
    )
    policy: PolicyName = option(
        "swarm",
        choice(*get_args(PolicyName)),
        "How points are assigned to executors. `swarm` rebalances; the others serve for "
        "comparison: `static_uniform` and `static_history` divide the space once, `replicated` "
        "assigns points in turn, `hash_cell` by the hash of their cell.",
    )
    round_seconds: float = option(
        15.0,
        number(0.0),
        "Minimum length of a round. A round ends at the first batch boundary after this many "
        "seconds.",
        "seconds",
    )
    round_batches: int = option(
        0,
        whole(0),
        "Length of a round in batches, instead of `round_seconds`; 0 uses `round_seconds`.",
        "batches",
    )
    replayable_batches: int = option(
        10,
        whole(2),
        "Number of past batches that can be run again. Stored files that only older batches need "
        "are deleted.",
        "batches",
    )
    expired_query_seconds: float = option(
        3600.0,
        number(0.0),
        "How long an expired query stays in storage, for points that arrive late.",
        "seconds",
    )
    quarantine_batches: int = option(
        10_000,
        whole(0),
        "Number of past batches whose rejected rows are kept in the quarantine; 0 keeps all.",
        "batches",
    )
    unfinished_file_seconds: float = option(
        3600.0,
        number(0.0),
        "Age after which a file that a crash left half-written is deleted. Writing one must not "
        "take longer.",
        "seconds",
    )
    cache_bytes: int = option(
        20_000_000_000,
        whole(0),
        "Size of each host's copies of a remote checkpoint's files; the driver's are apart. A "
        "batch that needs more on one host fails. 0 is unlimited.",
        "bytes",
    )
    copy_files: bool = option(
        False,
        BOOLEAN,
        "Whether hosts copy the files that they need from a local checkpoint too: for a folder on "
        "the network.",
    )
    max_future_seconds: float = option(
        3600.0,
        number(0.0),
        "How far the time of a point may be ahead of the driver's clock when its batch begins. "
        "Points further ahead are rejected: one would expire queries and close windows for good. "
        "`inf` accepts all.",
        "seconds",
    )
    idle_seconds: float = option(
        0.0,
        number(0.0),
        "After this long without a point, event time follows the driver's clock, this far behind: "
        "windows close, queries expire. Points delayed for longer may be late. 0 is never.",
        "seconds",
    )
    max_query_share: float = option(
        1.0,
        number(0.0, 1.0),
        "Largest share of the space that the rectangle of one query may cover. Larger ones are "
        "rejected: each costs a result for every point that it covers.",
        "fraction",
    )
    max_query_bytes: int = option(
        16_000_000,
        whole(1),
        "Largest size of what a query has beside its rectangle: the columns of an application, "
        "such as conditions and keywords, and the text of a geometry. Larger ones are rejected.",
        "bytes",
    )
    max_operations: int = option(
        0,
        whole(0),
        "Largest number of operations and snapshot queries in a batch; those behind it are "
        "rejected. 0 is unlimited. It does not count what is preloaded.",
        "operations",
    )
    max_kept_bytes: int = option(
        0,
        whole(0),
        "Largest size of what is kept beside queries: points of the window, state, and objects of "
        "events. The run ends before a batch that would leave more is committed. 0 is unlimited.",
        "bytes",
    )
    cost_model: CostModelName = option(
        "work",
        choice(*get_args(CostModelName)),
        "`work`: points and candidates checked, additive. `paper`: N x Q x R / R(S).",
    )
    decision: DecisionName = option(
        "gain",
        choice(*get_args(DecisionName)),
        "`gain`: rebalance when the slowest executor is predicted to get faster. "
        "`five_stages`: the paper's mechanism.",
    )
    beta: int = option(
        20,
        whole(1),
        "With `five_stages`: the decision flips after this many equal ones in a row.",
        "rounds",
    )
    min_gain: float = option(
        0.02,
        number(0.0, 1.0),
        "With `gain`: rebalance when the slowest executor is predicted to get faster by more "
        "than this.",
        "fraction",
    )
    max_pairs_per_round: int = option(
        0,
        whole(0),
        "Maximum number of (m_high, m_low) pairs in a round; 0 is unlimited, the paper has 1.",
        "pairs",
    )
    max_receivers: int = option(
        0,
        whole(0),
        "Maximum number of executors to which one executor gives in a round; 0 is unlimited, 1 "
        "makes the pairs disjoint.",
        "executors",
    )
    shared_host: bool = option(
        True,
        BOOLEAN,
        "Whether executors on one host share its memory. If all of them do, points are matched by "
        "the tasks that read them, without a shuffle. `false`: each executor stands for a machine "
        "of its own, as in the comparison of policies.",
    )
    lending: bool = option(
        True,
        BOOLEAN,
        "Whether executors above the mean lend points of the batch at hand to others. `false` is "
        "the paper's way: only rounds move load.",
    )
    shared_cells: bool = option(
        True,
        BOOLEAN,
        "Whether several executors may share a cell that is too hot for one. Without effect on "
        "Spark with `lending`, which divides such cells in every batch.",
    )
    payback_rounds: float = option(
        4.0,
        number(0.0),
        "A move is made only if its gain exceeds its cost within this many rounds.",
        "rounds",
    )
    merge_every_rounds: int = option(
        20,
        whole(0),
        "Rounds between searches for partitions to merge; 0 is never.",
        "rounds",
    )
    decay: float = option(
        0.5,
        number(0.0, 1.0),
        "Factor applied to the counts of old points in the statistics at the end of each round; 1 "
        "keeps them.",
        "fraction",
    )

    def __post_init__(self) -> None:
        for name, setting in options_of(type(self)).items():
            object.__setattr__(self, name, setting.check(getattr(self, name)))
        try:
            self.make_grid()
        except GeometryError as error:
            raise ConfigError(f"bounds {self.bounds} and grid {self.grid}: {error}") from error
        cells = self.grid[0] * self.grid[1]
        if cells > MAX_CELLS:
            raise ConfigError(
                f"grid {self.grid} has {cells:,} cells, for which every process needs "
                f"{4 * cells / 1e9:.1f} GB; at most {MAX_CELLS:,} cells "
                f"({4 * MAX_CELLS / 1e9:.1f} GB) are allowed: give fewer columns and rows"
            )

    def make_grid(self) -> Grid:
        """Return the grid that these settings describe."""
        return Grid(Bounds(*self.bounds), *self.grid)


def settings_table() -> str:
    """Return all settings as a Markdown table, for docs/reference/settings.md."""
    return markdown("setting", options_of(SwarmConfig).values())
