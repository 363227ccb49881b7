"""The pairs that an application decides about, and what its answer leaves of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.spark.tasks.match import kept_matches, matched_pairs

COUNTS = st.lists(st.integers(0, 4), max_size=12)


@given(COUNTS, st.randoms(use_true_random=False))
def test_an_application_keeps_its_pairs_and_their_order(counts, random):
    positions = [random.randrange(100) for _ in range(sum(counts))]
    keep = [random.random() < 0.5 for _ in positions]
    given_counts, given_positions = np.array(counts, np.int32), np.array(positions, np.int32)

    points, queries = matched_pairs(given_counts, given_positions)
    kept, left = kept_matches(given_counts, given_positions, np.array(keep, np.bool_))

    points_of = [i for i, n in enumerate(counts) for _ in range(n)]
    pairs = list(zip(points_of, positions, strict=True))
    assert list(zip(points.tolist(), queries.tolist(), strict=True)) == pairs
    chosen = [pair for pair, wanted in zip(pairs, keep, strict=True) if wanted]
    assert np.repeat(np.arange(len(counts)), kept).tolist() == [i for i, _ in chosen]
    assert left.tolist() == [q for _, q in chosen]
