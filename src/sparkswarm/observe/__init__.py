"""Reads what runs record and renders it; never read by the engine."""
