"""The benchmarks of ``sparkswarm bench``. Performance is measured here, never in tests."""
