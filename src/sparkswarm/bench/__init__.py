"""Benchmarks that anyone can run: ``sparkswarm bench``. Numbers live here, never in tests."""
