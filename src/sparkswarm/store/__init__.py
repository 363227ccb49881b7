"""Every file of a checkpoint: formats, segments, blocks, manifests, epochs and commits."""
