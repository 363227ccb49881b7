"""Rectangles to find: the range index and how points are matched with it."""
