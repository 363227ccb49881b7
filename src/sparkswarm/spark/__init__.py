"""SWARM on Spark Structured Streaming: what needs pyspark lives here, and only here."""
