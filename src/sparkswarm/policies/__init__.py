"""Policies: SWARM and the rivals it is measured against, behind one interface."""

from sparkswarm.policies.policy import (
    POLICY_NAMES,
    HashCell,
    History,
    Policy,
    Replicated,
    StaticHistory,
    StaticUniform,
    Swarm,
    make_policy,
    replanned,
)

__all__ = [
    "POLICY_NAMES",
    "HashCell",
    "History",
    "Policy",
    "Replicated",
    "StaticHistory",
    "StaticUniform",
    "Swarm",
    "make_policy",
    "replanned",
]
