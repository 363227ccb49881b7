"""The Spark session that tests share."""

from ..support.spark import spark

__all__ = ["spark"]
