"""Whether the executors of a benchmark share one host, or each stands for a machine of its own."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from sparkswarm.config import SwarmConfig


def has_setting(name: str) -> bool:
    """Return whether the engine has a setting of this name."""
    return name in {f.name for f in fields(SwarmConfig)}


def host_settings(shared: bool) -> dict[str, Any]:
    """Return the settings that say whether executors share a host, where the engine has them."""
    return {"shared_host": shared} if has_setting("shared_host") else {}
