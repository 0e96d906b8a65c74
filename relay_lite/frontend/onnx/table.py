"""Which converter an operator has at an opset: the newest one that is not newer than the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import (
    activation,
    attention,
    bits,
    boxes,
    constants,
    conv,
    deform,
    determinant,
    einsum,
    elementwise,
    grams,
    matmul,
    norm,
    order,
    pool,
    quantized,
    recurrent,
    reduce,
    resize,
    sample,
    scatter,
    select,
    sequence,
    signal,
)
from . import movement as layout
from .domains import converters_of
from .node import Converter, Converters

IGNORED: Mapping[str, Sequence[str]] = {"BatchNormalization": ("momentum",), "Dropout": ("seed", "ratio")}
"""By operator the attributes that mean nothing in inference."""

TABLE: Converters = {
    **activation.CONVERTERS,
    **attention.CONVERTERS,
    **bits.CONVERTERS,
    **boxes.CONVERTERS,
    **constants.CONVERTERS,
    **conv.CONVERTERS,
    **deform.CONVERTERS,
    **determinant.CONVERTERS,
    **einsum.CONVERTERS,
    **elementwise.CONVERTERS,
    **grams.CONVERTERS,
    **layout.CONVERTERS,
    **matmul.CONVERTERS,
    **norm.CONVERTERS,
    **order.CONVERTERS,
    **pool.CONVERTERS,
    **quantized.CONVERTERS,
    **recurrent.CONVERTERS,
    **reduce.CONVERTERS,
    **resize.CONVERTERS,
    **sample.CONVERTERS,
    **scatter.CONVERTERS,
    **select.CONVERTERS,
    **sequence.CONVERTERS,
    **signal.CONVERTERS,
}


def find(op: str, opsets: Mapping[str, int]) -> Converter | None:
    """The converter of `op` (`domain::Operator`, or `Operator` of the default domain); None when there is none."""
    domain, _, name = op.rpartition("::")
    versions = (converters_of(domain) if domain else TABLE).get(name, {})
    since = [v for v in versions if v <= opsets.get(domain, 1)]
    return versions[max(since)] if since else None
