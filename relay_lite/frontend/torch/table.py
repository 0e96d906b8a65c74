"""Which converter an operator of ATen has."""

from __future__ import annotations

from . import activation, arithmetic, conv, index, layers, recurrent, reduce, shape
from .node import Converter, Converters

TABLE: Converters = {
    **activation.CONVERTERS,
    **arithmetic.CONVERTERS,
    **conv.CONVERTERS,
    **index.CONVERTERS,
    **layers.CONVERTERS,
    **recurrent.CONVERTERS,
    **reduce.CONVERTERS,
    **shape.CONVERTERS,
}


def find(op: str) -> Converter | None:
    """The converter of `aten.add.Tensor`; of `aten.relu.default` the last part is left out.  None: there is none."""
    return TABLE.get(op.removesuffix(".default"))
