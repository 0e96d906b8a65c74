"""Which converter an operator has at an opset: the newest one that is not newer than the model."""

from __future__ import annotations

from collections.abc import Mapping

from . import activation, constants, conv, elementwise, matmul, norm, pool, reduce, resize, select
from . import movement as layout
from .node import Converter, Converters

OPSETS = range(7, 24)
"""The versions of the default domain that are read; their tests run 11 to 21."""

TABLE: Converters = {
    **activation.CONVERTERS,
    **constants.CONVERTERS,
    **conv.CONVERTERS,
    **elementwise.CONVERTERS,
    **layout.CONVERTERS,
    **matmul.CONVERTERS,
    **norm.CONVERTERS,
    **pool.CONVERTERS,
    **reduce.CONVERTERS,
    **resize.CONVERTERS,
    **select.CONVERTERS,
}


def find(op: str, opsets: Mapping[str, int]) -> Converter | None:
    """The converter of `op` (`domain::Operator`, or `Operator` of the default domain); None when there is none."""
    domain = op.rpartition("::")[0]
    since = [v for v in TABLE.get(op, {}) if v <= opsets.get(domain, 1)]
    return TABLE[op][max(since)] if since else None
