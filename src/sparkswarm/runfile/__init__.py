"""Runs described by a TOML file: reading and checking the file, starting and stopping the run."""
