"""matplotlib for the pictures of benchmarks and experiments; needs the extra ``plot``.

Pictures are written to files, so the backend is Agg, which needs no display.
"""

from __future__ import annotations

from pathlib import Path

from sparkswarm.errors import missing_extra

try:
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import FuncFormatter

    mpl.use("Agg")
    import matplotlib.pyplot as plt
except ImportError as error:
    raise missing_extra("matplotlib", "plot") from error

__all__ = ["Axes", "Figure", "FuncFormatter", "Line2D", "LogNorm", "Rectangle", "plt", "save"]


def save(figure: Figure, path: Path) -> Path:
    """Write a figure to a file and close it; return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
