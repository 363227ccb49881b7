"""The demo: a day of a world of cities in a minute, and a hotspot that comes, glides and goes."""

from sparkswarm.demo.run import run_demo

__all__ = ["run_demo"]
