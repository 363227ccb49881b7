"""A whole run in one file: reading it, checking it, and doing what it says."""
