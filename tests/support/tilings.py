"""Cells cut up at random."""

import random

from sparkswarm.geometry import CellRect


def halves(cells: CellRect, rng: random.Random) -> list[CellRect]:
    """Return pieces that tile some cells; often the cells as they are."""
    if cells.area < 2 or rng.random() < 0.4:
        return [cells]
    by_columns = cells.rows < 2 or (cells.columns > 1 and rng.random() < 0.5)
    cut = cells.split_columns if by_columns else cells.split_rows
    parts = cut(rng.randrange(1, cells.columns if by_columns else cells.rows))
    return [piece for part in parts for piece in halves(part, rng)]
