"""Pictures of what the benchmarks measured and of plans, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

from sparkswarm.bench.balance import HOTSPOT, Run
from sparkswarm.protocol.plan import Plan
from sparkswarm.workloads import Density

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.patches import Rectangle

_COLOURS = {"work": "#0b6e4f", "paper": "#b23a48"}


def draw_balance(runs: Sequence[Run], title: str, path: Path) -> None:
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
        xlabel="round", ylabel="balance efficiency (mean work / most work)",
        ylim=(0, 1.08), xlim=(-0.5, rounds - 0.5), title=title,
    )  # fmt: skip
    axes.set_yticks(np.arange(0, 1.01, 0.1))
    axes.grid(axis="y", alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside lower center", ncols=2, fontsize=8.5, frameon=False,
        title="cost model, moves a round (mean of the last 10 rounds)", title_fontsize=8.5,
    )  # fmt: skip
    _save(figure, path)


def draw_plans(plans: Sequence[tuple[str, Plan]], density: Density, path: Path) -> None:
    """Draw plans side by side over the density, each executor in its colour."""
    figure, all_axes = plt.subplots(
        1, len(plans), figsize=(6.2 * len(plans), 4.6), layout="constrained", squeeze=False
    )
    for axes, (title, plan) in zip(all_axes[0], plans, strict=True):
        _draw_plan(axes, plan, density)
        axes.set_title(title, fontsize=11)
    where = HOTSPOT.region(density.bounds)
    all_axes[0][-1].add_patch(
        Rectangle(
            (where.min_x, where.min_y), where.width, where.height,
            fill=False, edgecolor="#d00000", lw=1.2, ls="--",
        )
    )  # fmt: skip
    figure.supxlabel(
        "a colour for each executor · grey: points · red circle: a cell shared by several "
        "executors · dashed: the hotspot",
        fontsize=9,
    )
    _save(figure, path)


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
                (min_x, min_y), max_x - min_x, max_y - min_y,
                facecolor=(*colours[partition.owners[0]][:3], 0.28),
                edgecolor=(0.1, 0.1, 0.1, 0.75), lw=0.6,
            )
        )  # fmt: skip
        if partition.is_shared:
            axes.plot(
                (min_x + max_x) / 2, (min_y + max_y) / 2,
                marker="o", ms=6, mfc="none", mec="#d00000", mew=1.6,
            )  # fmt: skip
    axes.set(
        xlabel="longitude", ylabel="latitude", xlim=(b.min_x, b.max_x), ylim=(b.min_y, b.max_y)
    )


def _save(figure: plt.Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
