"""Rules beyond Ansor's: split reductions, coarser injective stages, padded shared tiles (spec anchors 7)."""

from .generate import EXTRA_RULES, extra_sketches

__all__ = ["EXTRA_RULES", "extra_sketches"]
