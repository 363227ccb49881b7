"""The SWARM protocol, pure: events in, messages and plans out.

No module here uses pyspark, a clock, a socket or global randomness
(``tests/protocol/test_purity.py`` enforces it), so that Spark and the simulator run the same
code. In the order in which they build on each other: ``partition``, ``plan``, ``global_index``
say where things are; ``statistics``, ``holding``, ``cost``, ``learning`` what they cost;
``messages`` what is said; ``decision`` when to rebalance and who gives to whom; ``split``,
``sharing``, ``reduction``, ``merge``, ``elastic`` what changes; ``coordinator`` and ``unit`` are
the two state machines; ``local`` runs all of it in one process.
"""
