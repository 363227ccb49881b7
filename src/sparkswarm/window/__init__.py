"""Which recent points count."""
