"""The scales that batch norms leave behind vanish in the weights of the layers next to them.

Backward first, then forward, then the products of constants are computed.  In a residual network of the
pre-activation kind, the norm between two convolutions goes backward, the one at the head of a unit forward.
"""

from __future__ import annotations

from .fold_constant import FoldConstant
from .fold_scale_axis_backward import BackwardFoldScaleAxis
from .fold_scale_axis_forward import ForwardFoldScaleAxis
from .sequential import Pass, Sequential, acts_on


@acts_on("multiply")
def FoldScaleAxis() -> Pass:
    """BackwardFoldScaleAxis, ForwardFoldScaleAxis and FoldConstant."""
    return Sequential([BackwardFoldScaleAxis(), ForwardFoldScaleAxis(), FoldConstant()], 3, "FoldScaleAxis")
