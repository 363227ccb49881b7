"""One hash of a number, for all that is to be spread evenly whatever its pattern."""

from __future__ import annotations

import numpy as np

from sparkswarm.protocol._compiled import compiled


@compiled
def mixed(number: np.uint64) -> np.uint64:
    """Return the hash of a number: the finaliser of splitmix64."""
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))
