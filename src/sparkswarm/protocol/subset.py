"""Algorithm 3, findSubset: which partitions to move whole."""

from __future__ import annotations

from collections.abc import Sequence


def find_subset(costs: Sequence[float], capacity: float) -> list[int]:
    """Choose partitions whose costs add up to as much of ``capacity`` as greed finds.

    Sorted greedy subset sum: at least half of what the best subset reaches, in O(k log k).
    Differs: partitions without cost are left where they are; moving them changes nothing.

    Returns
    -------
    list of int
        Positions in ``costs``, from the costliest to the cheapest; never more than the
        capacity together.
    """
    total = 0.0
    chosen: list[int] = []
    for i in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        if costs[i] > 0 and total + costs[i] <= capacity:
            total += costs[i]
            chosen.append(i)
            if total == capacity:
                break
    return chosen
