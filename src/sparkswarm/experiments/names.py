"""Names of policies and scenarios for the command line; imports nothing, so help is fast."""

POLICIES = (
    "swarm",
    "swarm_lending",
    "swarm_paper",
    "static_history",
    "static_history_paper",
    "static_uniform",
    "replicated",
    "hash_cell",
    "pkg",
)
"""Policies: those of the paper and of :mod:`sparkswarm.policies`, partial key grouping (``pkg``),
SWARM with lending, and SWARM and the static history with the paper's own cost model."""

SCENARIOS = (
    "queries-sweep",
    "one-uniform-hotspot",
    "one-normal-hotspot",
    "step-hotspot",
    "two-overlapping-hotspots",
    "two-consecutive-hotspots",
)
"""Scenarios, in the order of the paper's figures."""
