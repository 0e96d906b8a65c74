"""Integers on every backend: what is computed, and in how many bits."""
