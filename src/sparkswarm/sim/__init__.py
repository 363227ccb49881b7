"""The simulator: the protocol run by simulated machines, in virtual time, with faults.

A test instrument, not part of the product: nothing outside the command line and the tests imports
it. It also holds what only machines that exchange messages need and Spark does not: the election
of a Coordinator (:mod:`.election`), the lineage of partitions (:mod:`.lineage`), points kept by
their first owner (:mod:`.kept_points`) and snapshot queries along that lineage
(:mod:`.snapshot_chain`). These four are pure: no clock, no network, no randomness.
"""
