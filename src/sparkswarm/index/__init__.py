"""The range index: finds the rectangles that contain a point."""
