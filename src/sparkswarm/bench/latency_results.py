"""What ``sparkswarm bench latency`` measures, and what it found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from sparkswarm.errors import ConfigError

MODES = ("micro_batch", "one_stage", "by_owner")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySettings:
    """What is measured: points per second, seconds of a run and of its warm-up, and how often.

    With ``kafka``, the addresses of brokers, points and results go through Kafka; ``jars`` are
    those of Spark's connector.
    """

    rates: tuple[int, ...] = (100, 1_000, 10_000)
    queries: int = 1_000_000
    repeat: int = 5
    seconds: float = 10.0
    warm_up: float = 5.0
    modes: tuple[str, ...] = MODES
    trigger: str = "1 minute"
    executors: int = 2
    seed: int = 0
    kafka: str | None = None
    jars: str = ""
    hotspot: bool = False

    def __post_init__(self) -> None:
        if unknown := set(self.modes) - set(MODES):
            raise ConfigError(f"modes are {', '.join(MODES)}, got {', '.join(sorted(unknown))}")
        if not self.rates or min(self.rates) < 1:
            raise ConfigError(f"rates must be whole numbers from 1 on, got {self.rates}")

    @property
    def steps(self) -> int:
        """Number of steps of the benchmark."""
        return 1 + len(self.modes) * (1 + self.repeat * len(self.rates) + self.hotspot)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneRun:
    """The latencies of one run, and how many of its points had another result than they should."""

    p50_ms: float
    p99_ms: float
    results: int
    checked: int
    wrong: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HotspotRun:
    """What a hotspot did to latencies, and when the plan changed.

    Attributes
    ----------
    calm_p50_ms
        Median of the runs before it, at the same rate.
    p50_ms
        Median of each second of the hotspot.
    moves_s
        When tasks were pointed to each new plan, in seconds from the start of the hotspot.
    checked, wrong
        Points, and how many had another result than they should.
    """

    calm_p50_ms: float
    p50_ms: tuple[float, ...]
    moves_s: tuple[float, ...]
    checked: int
    wrong: int


@dataclass(frozen=True, slots=True)
class ModeRuns:
    """The runs of one mode, by rate, and of its hotspot."""

    by_rate: Mapping[int, Sequence[OneRun]]
    hotspot: HotspotRun | None = None


@dataclass(frozen=True, slots=True)
class LatencyRun:
    """All runs, by mode."""

    settings: LatencySettings
    runs: Mapping[str, ModeRuns]

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; of several runs, medians."""
        every: list[OneRun | HotspotRun] = [
            one for mode in self.runs.values() for runs in mode.by_rate.values() for one in runs
        ]
        hotspots = {mode: runs.hotspot for mode, runs in self.runs.items() if runs.hotspot}
        every += hotspots.values()
        return {
            "modes": {
                mode: {
                    str(rate): {
                        "p50_ms": round(median(one.p50_ms for one in runs), 1),
                        "p99_ms": round(median(one.p99_ms for one in runs), 1),
                        "runs": [
                            {"p50_ms": round(one.p50_ms, 1), "p99_ms": round(one.p99_ms, 1)}
                            for one in runs
                        ],
                    }
                    for rate, runs in one_mode.by_rate.items()
                }
                for mode, one_mode in self.runs.items()
            },
            **(
                {"hotspot": {m: _rounded(asdict(one)) for m, one in hotspots.items()}}
                if hotspots
                else {}
            ),
            "oracle": {
                "checked": sum(one.checked for one in every),
                "wrong": sum(one.wrong for one in every),
            },
            "queries": self.settings.queries,
            "seconds": self.settings.seconds,
            "warm_up_seconds": self.settings.warm_up,
        }


def _rounded(values: Mapping[str, Any]) -> dict[str, Any]:
    def short(value: Any) -> Any:
        return [round(one, 2) for one in value] if isinstance(value, tuple) else round(value, 2)

    return {name: short(value) for name, value in values.items()}
