"""The paper's experiments, simulated: its cluster, its scenarios and its figures.

Decisions are made by the real protocol. Tuples are not simulated one by one: queues advance in
slices of virtual time, with service times measured on the real matcher. The model is explained
in ``docs/explanation/simulator.md``.
"""
