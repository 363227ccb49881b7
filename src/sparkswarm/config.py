"""The settings: one table of names, defaults, units, meanings and allowed ranges.

Everything that a user may set is a field of :class:`SwarmConfig`; what is allowed stands
beside the default, is checked when the object is made, and is printed into the docs by
``settings_table``. Nothing else in the project states a default.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from sparkswarm.errors import ConfigError, GeometryError
from sparkswarm.geometry import Bounds, Grid

CostModelName = Literal["work", "paper"]
DecisionName = Literal["gain", "five_stages"]
PolicyName = Literal["swarm", "static_uniform", "static_history", "replicated", "hash_cell"]


def _setting(
    default: object,
    meaning: str,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    return dataclasses.field(
        default=default,
        metadata={"meaning": meaning, "unit": unit, "low": low, "high": high, "choices": choices},
    )


@dataclass(frozen=True, slots=True)
class SwarmConfig:
    """How SWARM divides and balances the space; the table is docs/settings.md."""

    bounds: tuple[float, float, float, float] = _setting(
        (-180.0, -90.0, 180.0, 90.0),
        "The space served: min_x, min_y, max_x, max_y. Points outside have no place.",
        "coordinates",
    )
    grid: tuple[int, int] = _setting(
        (1000, 1000),
        "Columns and rows of cells. A cell is the smallest partition.",
        "cells",
    )
    executors: int = _setting(
        22, "How many executors share the work.", "executors", low=1, high=100_000
    )
    policy: PolicyName = _setting(
        "swarm",
        "How points find executors. `swarm` rebalances; the others are rivals to compare with: "
        "`static_uniform` and `static_history` divide the space once, `replicated` deals points "
        "out in turn, `hash_cell` hashes their cells.",
        choices=get_args(PolicyName),
    )
    round_seconds: float = _setting(
        15.0,
        "A round ends with the first batch that begins so long after the round did.",
        "seconds",
        low=0.0,
    )
    round_batches: int = _setting(
        0, "A round has so many batches, whatever the time; 0 goes by the time.", "batches", low=0
    )
    keep_batches: int = _setting(
        10,
        "So many past batches can be run again; stored files that only older ones need are "
        "deleted.",
        "batches",
        low=2,
    )
    late_seconds: float = _setting(
        3600.0,
        "An expired query stays in storage for so long, for points that come late.",
        "seconds",
        low=0.0,
    )
    cost_model: CostModelName = _setting(
        "work",
        "`work`: points and candidates checked, additive. `paper`: N x Q x R / R(S).",
        choices=get_args(CostModelName),
    )
    decision: DecisionName = _setting(
        "gain",
        "`gain`: rebalance when the slowest executor is predicted to get faster. "
        "`five_stages`: the paper's mechanism.",
        choices=get_args(DecisionName),
    )
    beta: int = _setting(
        20, "Five stages: flip after the same decision so many times.", "rounds", low=1
    )
    min_gain: float = _setting(
        0.02,
        "Gain: rebalance when the slowest executor is predicted to get faster by more.",
        "fraction",
        low=0.0,
        high=1.0,
    )
    moves_per_round: int = _setting(
        0,
        "At most so many (m_high, m_low) pairs in a round; 0 is as many as it takes, the "
        "paper has 1.",
        "pairs",
        low=0,
    )
    receivers: int = _setting(
        0,
        "One executor may give to at most so many in a round; 0 is as many as it takes, 1 "
        "makes the pairs disjoint.",
        "executors",
        low=0,
    )
    shared_cells: bool = _setting(
        True, "Whether a cell too hot for one executor may be shared by several."
    )
    payback_rounds: float = _setting(
        4.0, "A move must have paid for itself after so many rounds.", "rounds", low=0.0
    )
    merge_every: int = _setting(
        20, "Look for partitions to merge every so many rounds; 0 is never.", "rounds", low=0
    )
    fade: float = _setting(
        0.5,
        "What is left of old points in the statistics after a round. 1 keeps them, for "
        "applications that say when data expires.",
        "fraction",
        low=0.0,
        high=1.0,
    )

    def __post_init__(self) -> None:
        _check_numbers("bounds", self.bounds, 4, (int, float))
        _check_numbers("grid", self.grid, 2, (int,))
        try:
            self.make_grid()
        except GeometryError as error:
            raise ConfigError(f"bounds {self.bounds} and grid {self.grid}: {error}") from error
        for setting in dataclasses.fields(self):
            _check(setting, getattr(self, setting.name))

    def make_grid(self) -> Grid:
        """Return the grid that these settings describe."""
        return Grid(Bounds(*self.bounds), *self.grid)


def _check_numbers(name: str, value: object, length: int, kinds: tuple[type, ...]) -> None:
    if (
        not isinstance(value, tuple | list)
        or len(value) != length
        or not all(isinstance(v, kinds) and not isinstance(v, bool) for v in value)
    ):
        kind = "numbers" if float in kinds else "whole numbers"
        raise ConfigError(f"{name} must be {length} {kind}, got {value!r}")


def _check(setting: dataclasses.Field[Any], value: object) -> None:
    low, high, choices = (setting.metadata[key] for key in ("low", "high", "choices"))
    if choices:
        if value not in choices:
            allowed = " or ".join(map(repr, choices))
            raise ConfigError(f"{setting.name} must be {allowed}, got {value!r}")
        return
    if isinstance(setting.default, bool):
        if not isinstance(value, bool):
            raise ConfigError(f"{setting.name} must be True or False, got {value!r}")
        return
    if not isinstance(setting.default, int | float):
        return
    kinds = (int,) if isinstance(setting.default, int) else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        kind = "a whole number" if kinds == (int,) else "a number"
        raise ConfigError(f"{setting.name} must be {kind}, got {value!r}")
    number = cast(float, value)
    if (
        math.isnan(number)
        or (low is not None and number < low)
        or (high is not None and number > high)
    ):
        raise ConfigError(f"{setting.name} must be {_range(low, high)}, got {value!r}")


def _range(low: float | None, high: float | None) -> str:
    if high is None:
        return "any" if low is None else f"at least {low:g}"
    return f"{low:g} to {high:g}"


def settings_table() -> str:
    """Return all settings as a Markdown table, for docs/settings.md."""
    lines = ["| setting | default | unit | allowed | meaning |", "|---|---|---|---|---|"]
    for setting in dataclasses.fields(SwarmConfig):
        meta = setting.metadata
        allowed = (
            ", ".join(f"`{choice}`" for choice in meta["choices"])
            if meta["choices"]
            else "true, false"
            if isinstance(setting.default, bool)
            else _range(meta["low"], meta["high"])
        )
        lines.append(
            f"| `{setting.name}` | `{setting.default}` | {meta['unit']} | {allowed} "
            f"| {meta['meaning']} |"
        )
    return "\n".join(lines) + "\n"
