"""Operators of the accelerator: what they compute, and their schedules.

Law: tensor expressions and schedules for given knobs; compiles and runs nothing.
"""

from __future__ import annotations

from .conv2d import conv2d_packed, conv_shape, product_flop, schedule_conv2d_packed
from .dense import dense_packed
from .elementwise import add, as_type, at_least, at_most, requantized, shift_right
from .fused import around, copies, fused, in_memories
from .grouped import conv2d_grouped_packed, packed_groups
from .validity import ConvKnobs, ConvShape, broken_rule
from .window import window_packed

__all__ = [
    "ConvKnobs", "ConvShape", "add", "around", "as_type", "at_least", "at_most", "broken_rule",
    "conv2d_grouped_packed", "conv2d_packed", "conv_shape", "copies", "dense_packed", "fused", "in_memories",
    "packed_groups", "product_flop", "requantized", "schedule_conv2d_packed",
    "shift_right", "window_packed",
]  # fmt: skip
