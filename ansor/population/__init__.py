"""Thousands of candidates at once: decision matrices, and what can be done with them as arrays."""
