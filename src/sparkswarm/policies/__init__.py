"""Policies: SWARM and the rivals it is measured against, behind one interface.

A new policy is a module beside these, an entry in ``POLICIES`` and its name in ``config.py``.
"""

from sparkswarm.errors import ConfigError
from sparkswarm.policies.lending_prices import Blocks, BlockSums, LendingPrices
from sparkswarm.policies.policy import (
    Agent,
    AgentContext,
    AgentReport,
    Collected,
    Control,
    Controller,
    ForcedChange,
    History,
    PointRouter,
    Policy,
    TaskWork,
    replanned,
)
from sparkswarm.policies.routing import HashCell, Replicated, StaticUniform
from sparkswarm.policies.static_history import StaticHistory
from sparkswarm.policies.swarm import SwarmPolicy

__all__ = [
    "POLICIES",
    "Agent",
    "AgentContext",
    "AgentReport",
    "BlockSums",
    "Blocks",
    "Collected",
    "Control",
    "Controller",
    "ForcedChange",
    "HashCell",
    "History",
    "LendingPrices",
    "PointRouter",
    "Policy",
    "Replicated",
    "StaticHistory",
    "StaticUniform",
    "SwarmPolicy",
    "TaskWork",
    "make_policy",
    "replanned",
]

POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (SwarmPolicy(), StaticUniform(), StaticHistory(), Replicated(), HashCell())
}
"""The policies by name."""


def make_policy(name: str) -> Policy:
    """Return the policy of that name; ConfigError where there is none."""
    if name not in POLICIES:
        allowed = " or ".join(map(repr, POLICIES))
        raise ConfigError(f"policy must be {allowed}, got {name!r}")
    return POLICIES[name]
