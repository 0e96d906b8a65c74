"""`topi`, as far as the page uses it."""

from __future__ import annotations

from te_lite.topi import cast, tag

from ..top import shift_right as right_shift

__all__ = ["cast", "right_shift", "tag"]
