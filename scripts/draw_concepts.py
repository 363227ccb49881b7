"""Draw the pictures of docs/explanation/concepts.md: ``make pictures``.

What they show is what the protocol does, in one process, with points of a fixed seed; only
the city and the hotspot are made up.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from sparkswarm.config import SwarmConfig
from sparkswarm.protocol.local import LocalSwarm
from sparkswarm.protocol.plan import Plan

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
CONFIG = SwarmConfig(bounds=(0, 0, 16, 16), grid=(16, 16), executors=4)
COLOURS = ("#0b6e4f", "#d1495b", "#30638e", "#edae49")
"""Of the executors."""

POINTS, SHARE = 20_000, 0.5
"""Points of a round, and the share of them that a hotspot draws."""
HOTSPOT = (12.2, 3.2, 0.6)
"""Left, bottom and side: within one cell, so that it must be shared."""


def points(rng: np.random.Generator, hotspot: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return a round's points: a city in a plain, and the hotspot if there is one."""
    n = POINTS
    city = rng.normal((5, 11), 1.6, (n, 2))
    plain = rng.uniform(0, 16, (n, 2))
    where = np.where(rng.random((n, 1)) < 0.6, np.clip(city, 0, 16), plain)
    if hotspot:
        left, bottom, side = HOTSPOT
        there = np.array((left, bottom)) + side * rng.random((n, 2))
        where = np.where(rng.random((n, 1)) < SHARE, there, where)
    return where[:, 0], where[:, 1]


def rounds(swarm: LocalSwarm, rng: np.random.Generator, hotspot: bool, first: int, last: int):
    """Play rounds; yield each one's plan, points and how many every executor got."""
    for number in range(first, last):
        plan = swarm.plan
        x, y = points(rng, hotspot)
        got = np.bincount(swarm.send(x, y).owner, minlength=CONFIG.executors)
        yield plan, x, y, got
        swarm.close_round(number)


def draw_plan(axes: Axes, plan: Plan, x: np.ndarray, y: np.ndarray) -> None:
    """Draw partitions in the colours of their executors, over some of the points."""
    axes.plot(x[::25], y[::25], ",", color="0.25", zorder=1)
    for partition in plan.partitions:
        left, bottom, right, top = plan.grid.space(partition.cells)
        stripes = np.linspace(left, right, len(partition.owners) + 1)
        for owner, a, b in zip(partition.owners, stripes, stripes[1:], strict=False):
            axes.add_patch(
                Rectangle((a, bottom), b - a, top - bottom, color=COLOURS[owner], alpha=0.3, lw=0)
            )
        axes.add_patch(
            Rectangle((left, bottom), right - left, top - bottom, fill=False, lw=1.4, ec="0.2")
        )
    axes.set(xlim=(0, 16), ylim=(0, 16), xticks=[], yticks=[], aspect="equal")


def draw_words(path: Path) -> None:
    """Draw what the words mean: cell, partition, executor, query."""
    swarm, rng = LocalSwarm(CONFIG), np.random.default_rng(2)
    *_, (plan, x, y, _) = rounds(swarm, rng, False, 0, 4)
    figure, axes = plt.subplots(figsize=(8.4, 5.2), layout="constrained")
    draw_plan(axes, plan, x, y)
    for line in range(17):
        axes.plot((0, 16), (line, line), color="0.6", lw=0.3, zorder=0)
        axes.plot((line, line), (0, 16), color="0.6", lw=0.3, zorder=0)
    words = {
        "a cell": (14.5, 13.5, 13.5),
        "a point: goes to one executor": (5.0, 10.8, 11.2),
        "a query: stored with every\npartition that it overlaps": (9.2, 9.0, 8.6),
        "a partition: a rectangle of cells\nthat one executor owns": (14.0, 4.0, 4.0),
    }
    axes.add_patch(Rectangle((14, 13), 1, 1, fill=False, lw=2.2, ec="black", zorder=3))
    axes.add_patch(Rectangle((5.6, 7.4), 3.6, 3.1, fill=False, lw=2.2, ec="#7b2cbf", zorder=3))
    axes.plot(5.0, 10.8, "o", ms=7, mfc="white", mec="black", mew=1.6, zorder=4)
    for text, (to_x, to_y, text_y) in words.items():
        axes.annotate(
            text, (to_x, to_y), (17, text_y), va="center", fontsize=10, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": "0.3", "lw": 1, "relpos": (0, 0.5)},
        )  # fmt: skip
    axes.set_anchor("W")
    handles = [Rectangle((0, 0), 1, 1, color=c, alpha=0.45) for c in COLOURS]
    figure.legend(
        handles, [f"executor {m}" for m in range(4)],
        loc="outside lower center", ncols=4, frameon=False,
    )  # fmt: skip
    save(figure, path)


def draw_rounds(path: Path) -> None:
    """Draw plans and loads before a hotspot, when it comes, and after each round since."""
    swarm, rng = LocalSwarm(CONFIG), np.random.default_rng(2)
    *_, before = rounds(swarm, rng, False, 0, 8)
    shown = [before, *rounds(swarm, rng, True, 8, 11)]
    names = ("settled", "a hotspot comes", "one round later", "two rounds later")
    figure, axes = plt.subplots(
        2, 4, figsize=(13, 5.6), layout="constrained", height_ratios=(3, 1.5)
    )
    most = max(got.max() for *_, got in shown)
    for i, (name, (plan, x, y, got)) in enumerate(zip(names, shown, strict=True)):
        draw_plan(axes[0, i], plan, x, y)
        axes[0, i].set_title(name)
        axes[1, i].bar(range(4), got, color=COLOURS, alpha=0.75)
        axes[1, i].axhline(got.mean(), color="0.2", lw=1, ls="--")
        axes[1, i].set(ylim=(0, most * 1.05), xticks=range(4), yticks=[])
        axes[1, i].set_xlabel(f"balance {got.mean() / got.max():.2f}")
        for side in ("top", "right", "left"):
            axes[1, i].spines[side].set_visible(False)
    axes[1, 0].set_ylabel("points of each executor")
    save(figure, path)


def save(figure: plt.Figure, path: Path) -> None:
    """Write a picture without the version of what drew it, so that only changes change it."""
    figure.savefig(path, dpi=120, metadata={"Software": None})
    plt.close(figure)
    print(f"wrote {path.relative_to(Path.cwd())}")


if __name__ == "__main__":
    draw_words(IMAGES / "words.png")
    draw_rounds(IMAGES / "rounds.png")
