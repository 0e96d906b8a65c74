"""Rules beyond Ansor's: split reductions, coarser injective stages, padded shared tiles (docs/extra_rules.md)."""

from .generate import EXTRA_RULES, extra_rules, extra_sketches

__all__ = ["EXTRA_RULES", "extra_rules", "extra_sketches"]
