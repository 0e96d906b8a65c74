"""Extents that are known when a program runs: how people declare them."""

from __future__ import annotations

from ..errors import ExprError, require, require_name
from .dtype import python_number
from .expr import INDEX, SizeVar


def size_var(name: str, least: int, most: int) -> SizeVar:
    """Declare an extent that is known when a program runs: `least <= name <= most`."""
    require_name("size_var", name)
    least, most = python_number(least), python_number(most)
    ok = isinstance(least, int) and isinstance(most, int) and 1 <= least <= most < 1 << 31
    require(ok, ExprError, name, "a size has bounds, as in te.size_var('n', 1, 4096)", least=least, most=most)
    return SizeVar(name, INDEX, (least, most))
