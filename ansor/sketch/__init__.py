"""Sketches: the structures of programs, derived from a computation by rules (section 4.1 of the Ansor paper).

Law: appends steps, draws nothing.
"""

from .generate import CPU_RULES, GPU_RULES, RULES, default_rules, generate_sketches
from .rule import Condition, PreloadCustomSketchRule, SketchContext, SketchRule

__all__ = [
    "CPU_RULES", "GPU_RULES", "RULES", "Condition", "PreloadCustomSketchRule", "SketchContext", "SketchRule",
    "default_rules", "generate_sketches",
]  # fmt: skip
