"""What ``sparkswarm bench engine`` measures, and the numbers that it reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from sparkswarm.bench.inputs import Centres
from sparkswarm.bench.plain_spark import WARM_UP
from sparkswarm.errors import ConfigError

MEASUREMENTS = {
    "pairs": "sparkswarm, pairs",
    "plain_spark": "plain Spark, pairs",
    "churn": "sparkswarm, pairs, 1% of the queries change",
    "plain_spark_churn": "plain Spark, pairs, 1% of the queries change",
    "lists": "sparkswarm, lists",
    "plain_spark_lists": "plain Spark, lists",
    "shuffled": "sparkswarm, lists, no shared host",
    "empty": "the stream without matching",
    "files": "sparkswarm, Parquet files of points to pairs in Parquet files, by tasks",
    "files_by_spark": "sparkswarm, pairs to Parquet files, points read by Spark",
    "duckdb": "DuckDB, pairs to Parquet files",
    "tasks_write": "40 results per point, written by tasks",
    "spark_writes": "40 results per point, written by Spark",
}
"""What is measured in turns, ``repeat`` times."""

ONCE = {
    "kernel": "the kernel alone",
    "oracle": "a sample against brute force",
    "small": "small batches, without and with operations",
    "move": "moving partitions",
    "partitions": "many partitions",
    "profile": "where the time goes",
    "memory": "many queries",
}
"""What is measured once."""


@dataclass(frozen=True)
class EngineSettings:
    """The size of the benchmark.

    Attributes
    ----------
    batches, points, queries
        Batches, points per batch and queries of the throughput runs.
    many_queries
        Number of queries in the memory run; 0 skips it.
    centres
        Distribution of queries: ``uniform`` (a few results per point) or ``cities`` (hundreds).
    repeat
        Number of measurements of each throughput, engine and rivals in turns.
    cores
        Number of cores, and of executors, of the throughput runs.
    seed
        Seed of all random numbers.
    only
        What to measure, by the keys of :data:`MEASUREMENTS` and :data:`ONCE`; empty for all.
    """

    batches: int = 8
    points: int = 1_000_000
    queries: int = 1_000_000
    many_queries: int = 8_000_000
    centres: Centres = "uniform"
    repeat: int = 2
    cores: int = 2
    seed: int = 0
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if unknown := sorted({*self.only} - {*MEASUREMENTS, *ONCE}):
            raise ConfigError(
                f"only has {', '.join(unknown)}; it may have {', '.join((*MEASUREMENTS, *ONCE))}"
            )

    @property
    def in_turns(self) -> tuple[str, ...]:
        """What is measured in turns."""
        return tuple(name for name in MEASUREMENTS if not self.only or name in self.only)

    @property
    def once(self) -> tuple[str, ...]:
        """What is measured once."""
        chosen = tuple(name for name in ONCE if not self.only or name in self.only)
        return chosen if self.many_queries else tuple(name for name in chosen if name != "memory")

    @property
    def steps(self) -> int:
        """Number of calls of ``on_step``, for a progress bar."""
        return 1 + bool(self.in_turns) + len(self.in_turns) * self.repeat + len(self.once)


@dataclass
class EngineRun:
    """The results; ``to_json`` is what ``--json`` writes.

    ``seconds`` has the median seconds of a batch by the keys of :data:`MEASUREMENTS`, one for each
    repetition; empty where something could not be measured.
    """

    settings: EngineSettings
    seconds: dict[str, list[float]] = field(
        default_factory=lambda: {name: [] for name in MEASUREMENTS}
    )
    kernel: float = 0.0
    small_batch: float = 0.0
    small_batch_operations: float = 0.0
    move_overhead: float = 0.0
    partitions_ratio: Mapping[str, float] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    profile: dict[str, float] = field(default_factory=dict)
    checked: int = 0
    wrong: int = 0
    notes: list[str] = field(default_factory=list)

    def rate(self, name: str) -> int | None:
        """Return the points per second in the median repetition; None where not measured."""
        seconds = self.seconds[name]
        return round(self.settings.points / median(seconds)) if seconds else None

    def ratio(self, ours: str, other: str) -> float | None:
        """Return the throughput of one relative to that of another."""
        mine, others = self.seconds[ours], self.seconds[other]
        return round(median(others) / median(mine), 3) if mine and others else None

    def to_json(self) -> dict[str, Any]:
        """Return the numbers; throughputs are medians of the repetitions, in points per second."""
        lists = self.rate("lists") or 0
        return {
            "points_per_s": lists,
            "points_per_s_pairs": self.rate("pairs"),
            "points_per_s_churn": self.rate("churn"),
            "points_per_s_files": self.rate("files"),
            "points_per_s_shuffled": self.rate("shuffled"),
            "points_per_s_empty": self.rate("empty"),
            "rivals": {
                "plain_spark": self.rate("plain_spark"),
                "plain_spark_lists": self.rate("plain_spark_lists"),
                "plain_spark_churn": self.rate("plain_spark_churn"),
                "duckdb": self.rate("duckdb"),
                "kernel": round(self.kernel),
            },
            "ratio": {
                "plain_spark": self.ratio("pairs", "plain_spark"),
                "plain_spark_lists": self.ratio("lists", "plain_spark_lists"),
                "plain_spark_churn": self.ratio("churn", "plain_spark_churn"),
                "duckdb": self.ratio("files", "duckdb"),
                "duckdb_through_spark": self.ratio("pairs", "duckdb"),
                "empty_pipeline": self.ratio("lists", "empty"),
                # Of times, not of throughputs.
                "churn_to_calm": self.ratio("pairs", "churn"),
                **self.partitions_ratio,
                "direct_sink": self.ratio("tasks_write", "spark_writes"),
                "one_host_to_shuffled": self.ratio("lists", "shuffled"),
                "kernel": round(lists / self.kernel, 3) if self.kernel else None,
            },
            "small_batch_s": round(self.small_batch, 3),
            "small_batch_operations_s": round(self.small_batch_operations, 3),
            "bytes_per_query": round(self.memory.get("bytes_per_query", 0.0), 1),
            "memory": {name: round(value, 2) for name, value in self.memory.items()},
            "move_overhead": round(self.move_overhead, 3),
            "profile": {name: round(value, 3) for name, value in self.profile.items()},
            "oracle": {"checked": self.checked, "wrong": self.wrong},
            "seconds": {n: [round(v, 3) for v in found] for n, found in self.seconds.items()},
            "notes": self.notes,
            "settings": vars(self.settings) | {"warm_up_batches": WARM_UP},
        }
