"""The paper's experiments in virtual time: its cluster, its scenarios and its figures.

The real protocol decides; tuples are carried in slices of virtual time, and what they cost
was measured on the real matcher. ``docs/explanation/simulator.md`` explains the model.
"""
