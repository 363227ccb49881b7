"""What runs in tasks."""
