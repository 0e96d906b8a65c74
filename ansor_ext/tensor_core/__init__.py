"""Products on tensor cores."""
