"""Tiles in shared memory that are fetched one iteration ahead of their use."""
