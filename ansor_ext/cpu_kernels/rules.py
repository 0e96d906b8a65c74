"""The sketch rule `micro_kernel`, of products of any length."""

from __future__ import annotations

from ansor.sketch.rule import SketchContext
from te_lite.schedule.state import State

from .long_products import long_product_sketches
from .micro_kernel import micro_kernel_sketches


def product_sketches(ctx: SketchContext) -> list[State]:
    """The sketches of a product with its sums in registers, then those of one with so many terms that it is cut."""
    return micro_kernel_sketches(ctx) + long_product_sketches(ctx)
