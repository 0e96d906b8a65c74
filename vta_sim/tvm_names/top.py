"""`vta.top`: operators, schedules that read their knobs from the current configuration, and graph packing."""

from __future__ import annotations

from collections.abc import Sequence

from te_lite import Schedule, Tensor
from te_lite.errors import require

from ..core.errors import CompileError
from ..graph.pack import graph_pack
from ..top import conv2d_packed
from ..top.templates import schedule_with_knobs


def schedule_conv2d_packed(outs: Sequence[Tensor]) -> Schedule:
    """The schedule of the one output of a convolution, with seven knobs.  Raises CompileError, with the reason."""
    require(len(outs) == 1, CompileError, "schedule_conv2d_packed", "one output is needed", got=len(outs))
    return schedule_with_knobs(outs[0])


__all__ = ["conv2d_packed", "graph_pack", "schedule_conv2d_packed"]
