"""Nominal figures of GPUs, by which rules decide how much work fills one; searches on the real one do the rest."""

NOMINAL_SMS = 128
"""Multiprocessors."""
SCHEDULERS = 4
"""Of a multiprocessor; each issues instructions of one warp at a time."""
