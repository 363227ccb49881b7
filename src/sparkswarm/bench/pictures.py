"""Pictures of benchmark results and of plans; needs the extra ``plot``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sparkswarm.bench.balance import HOTSPOT, VariantRun
from sparkswarm.bench.plotting import Axes, LogNorm, Rectangle, plt, save
from sparkswarm.protocol.plan import Plan
from sparkswarm.workloads import Density

if TYPE_CHECKING:
    from sparkswarm.bench.adapt import AdaptRun
    from sparkswarm.bench.replay import ReplayRun

_COLOURS = {"work": "#0b6e4f", "paper": "#b23a48"}
_POLICY_COLOURS = {
    "swarm": "#0b6e4f",
    "static_uniform": "#d1495b",
    "static_history": "#edae49",
    "replicated": "#30638e",
    "hash_cell": "#8d7b9c",
}


def draw_balance(runs: Sequence[VariantRun], title: str, path: Path) -> None:
    """Draw the balance efficiency of every run, round by round."""
    figure, axes = plt.subplots(figsize=(10, 5.6), layout="constrained")
    rounds = max(len(run.efficiency) for run in runs)
    if rounds > HOTSPOT.start:
        stop = min(HOTSPOT.stop, rounds) - 0.5
        axes.axvspan(HOTSPOT.start - 0.5, stop, color="#f2b134", alpha=0.25, lw=0)
        axes.text(HOTSPOT.start, 1.015, "hotspot", fontsize=9, color="#8a5a00", va="bottom")
    static = runs[0].static_efficiency
    axes.plot(static, label=f"never rebalanced ({np.mean(static[-10:]):.2f})", color="0.5", ls="--")
    for run in runs:
        variant = run.variant
        axes.plot(
            run.efficiency,
            label=f"{variant.label} ({np.mean(run.efficiency[-10:]):.2f})",
            color=_COLOURS[variant.cost_model],
            lw=2.4 if variant.shared_cells else 1.4,
            ls=":" if variant.decision == "five_stages" else "-",
            alpha=1.0 if variant.moves_per_round > 1 else 0.55,
        )
    axes.set(
        xlabel="round",
        ylabel="balance efficiency (mean work / most work)",
        ylim=(0, 1.08),
        xlim=(-0.5, rounds - 0.5),
        title=title,
    )
    axes.set_yticks(np.arange(0, 1.01, 0.1))
    axes.grid(axis="y", alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=2,
        fontsize=8.5,
        frameon=False,
        title="cost model, moves per round (mean of the last 10 rounds)",
        title_fontsize=8.5,
    )
    save(figure, path)


def draw_plans(plans: Sequence[tuple[str, Plan]], density: Density, path: Path) -> None:
    """Draw plans side by side over the density, with a colour for each executor."""
    figure, all_axes = plt.subplots(
        1, len(plans), figsize=(6.2 * len(plans), 4.6), layout="constrained", squeeze=False
    )
    for axes, (title, plan) in zip(all_axes[0], plans, strict=True):
        _draw_plan(axes, plan, density)
        axes.set_title(title, fontsize=11)
    where = HOTSPOT.region(density.bounds)
    all_axes[0][-1].add_patch(
        Rectangle(
            (where.min_x, where.min_y),
            where.width,
            where.height,
            fill=False,
            edgecolor="#d00000",
            lw=1.2,
            ls="--",
        )
    )
    figure.supxlabel(
        "a colour for each executor · grey: points · red circle: a cell shared by several "
        "executors · dashed: the hotspot",
        fontsize=9,
    )
    save(figure, path)


def draw_adapt(run: AdaptRun, path: Path) -> None:
    """Draw throughput and longest task of each policy, batch by batch."""
    s = run.settings
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(10, 8.4), layout="constrained", sharex=True
    )
    panels = (
        (above, run.wall, run.throughput(), "{:,.0f} points/s"),
        (below, run.path, run.critical_path(), "{:.3f} s"),
    )
    for axes, part, totals, form in panels:
        axes.axvspan(
            s.hotspot.start - 0.5,
            s.hotspot.stop - 0.5,
            color="#f2b134",
            alpha=0.22,
            lw=0,
            label="hotspot",
        )
        for name, series in part.items():
            values = (
                [sum(n) / t / 1e3 for n, t in zip(series.received, series.seconds, strict=True)]
                if axes is above
                else series.longest
            )
            _draw_policy(axes, name, values, form.format(totals[name]))
        _finish(axes, "in the hotspot")
    above.set(
        ylabel="throughput (1000 points/s of wall clock)",
        title=f"{s.wall_executors} executors on {s.wall_executors} cores, {run.density}, "
        f"{s.points:,} points per batch",
    )
    below.set(
        xlabel="batch",
        xlim=(-0.5, s.batches - 0.5),
        ylabel="longest executor task (seconds)",
        title=f"{s.path_executors} executors, one task at a time: the critical path of a batch",
    )
    save(figure, path)


def draw_replay(run: ReplayRun, path: Path) -> None:
    """Draw balance and longest task of each policy, batch by batch."""
    s, found = run.settings, run.to_json()
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(10, 8.4), layout="constrained", sharex=True
    )
    for axes, key, form in ((above, "balance", "{:.2f}"), (below, "longest_task_s", "{:.3f} s")):
        axes.axvspan(-0.5, found["settings"]["warm_up_batches"] - 0.5, color="0.85", lw=0)
        for start, stop in run.facts.get("hotspots", ()):
            axes.axvspan(start - 0.5, stop - 0.5, color="#f2b134", alpha=0.22, lw=0)
        for name, policy in found["policies"].items():
            values = np.array(policy[key], dtype=float)
            mean = np.nanmean(values[found["settings"]["warm_up_batches"] :])
            _draw_policy(axes, name, values, form.format(mean))
        _finish(axes, "mean after the warm-up")
    above.set(
        ylabel="balance by task time (mean / longest)",
        ylim=(0, 1.02),
        title=f"{Path(s.points).name}, {s.executors} executors on {s.cores} "
        f"core{'s'[: s.cores > 1]}, {s.points_per_batch:,} points per batch, {s.queries:,} queries",
    )
    below.set(
        xlabel="batch (grey: warm-up; yellow: hotspot)",
        xlim=(-0.5, run.facts.get("batches", s.batches) - 0.5),
        ylabel="longest executor task (s)",
    )
    save(figure, path)


def _draw_plan(axes: Axes, plan: Plan, density: Density) -> None:
    b = plan.grid.bounds
    seen = density.weights[density.weights > 0]
    axes.imshow(
        density.weights,
        origin="lower",
        extent=(b.min_x, b.max_x, b.min_y, b.max_y),
        norm=LogNorm(vmin=max(float(seen.max()) * 1e-5, float(seen.min())), vmax=float(seen.max())),
        cmap="Greys",
        aspect="auto",
        interpolation="nearest",
    )
    colours = plt.get_cmap("turbo")(np.linspace(0.04, 0.96, plan.executors))
    colours = np.random.default_rng(7).permutation(colours)
    for partition in plan.partitions:
        min_x, min_y, max_x, max_y = plan.grid.space(partition.cells)
        axes.add_patch(
            Rectangle(
                (min_x, min_y),
                max_x - min_x,
                max_y - min_y,
                facecolor=(*colours[partition.owners[0]][:3], 0.28),
                edgecolor=(0.1, 0.1, 0.1, 0.75),
                lw=0.6,
            )
        )
        if partition.is_shared:
            axes.plot(
                (min_x + max_x) / 2,
                (min_y + max_y) / 2,
                marker="o",
                ms=6,
                mfc="none",
                mec="#d00000",
                mew=1.6,
            )
    axes.set(
        xlabel="longitude", ylabel="latitude", xlim=(b.min_x, b.max_x), ylim=(b.min_y, b.max_y)
    )


def _draw_policy(axes: Axes, name: str, values: npt.ArrayLike, summary: str) -> None:
    """Draw the values of a policy, batch by batch; SWARM stands out."""
    is_swarm = name == "swarm"
    axes.plot(
        values,
        label=f"{name} ({summary})",
        color=_POLICY_COLOURS.get(name),
        lw=2.6 if is_swarm else 1.5,
        zorder=3 if is_swarm else 2,
    )


def _finish(axes: Axes, legend: str) -> None:
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(
        fontsize=8.5,
        frameon=False,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        title=legend,
        title_fontsize=8.5,
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
