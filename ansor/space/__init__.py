"""The space of a sketch: decisions as columns of an integer matrix, rows to states and back, sampling, limits.

Law: arrays; no score, no clock.
"""
