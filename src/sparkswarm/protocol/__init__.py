"""The SWARM protocol, pure: events in, messages and plans out.

Nothing in this folder knows pyspark, a clock, a socket or a global source of randomness
(``tests/protocol/test_purity.py`` enforces it), so that Spark and the simulator run the
very same code. One idea a file, in the order in which they build on each other:
``geometry``, ``partition``, ``plan``, ``global_index``, ``lineage`` say where things are;
``statistics``, ``holding``, ``cost``, ``learning`` what they cost; ``decision``,
``damping``, ``pairing`` when and between whom to rebalance; ``subset``, ``split``,
``sharing``, ``reduction``, ``merge`` how; ``elastic`` who takes over when executors leave;
``messages``, ``coordinator``, ``unit`` who says what to whom.
"""
