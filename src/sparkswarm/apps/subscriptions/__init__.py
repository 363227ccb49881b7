"""Range queries with conditions and keywords."""
