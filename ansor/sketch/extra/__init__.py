"""Rules beyond Ansor's: split reductions, coarser injective stages, padded shared tiles (docs/extensions/README.md)."""

from .generate import EXTRA_RULES, extra_rules, extra_sketches

__all__ = ["EXTRA_RULES", "extra_rules", "extra_sketches"]
