"""Applications that run on the protocol: what is done with the points of a partition."""
