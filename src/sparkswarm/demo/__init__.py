"""The demo: a day of cities around the world in a minute, with a hotspot that moves."""

from sparkswarm.demo.run import run_demo

__all__ = ["run_demo"]
