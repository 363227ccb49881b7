"""Which recent points snapshot queries see, and when their blocks are joined."""
