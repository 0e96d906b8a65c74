"""Programs for all sizes in which a result has the same bits however many others are computed with it.

The order of a sum is that of the program's loops, which does not depend on sizes.  But a C program has loops for whole
tiles, and others for tails (`whole.py`), and a compiler may contract `s += a * b` to one operation, which rounds once,
in these and not in those: gcc adds up four products of a tail that it multiplied as a vector.  So nothing is contracted
on target `c`.  A kernel of a GPU has one text for all results, and is compiled as any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansor.core.device.build import NAME, build_function
from ansor.core.target.target import Target
from codegen_c.compile import FLAGS
from codegen_c.module import build
from codegen_c.processor import flags_for, options_for
from te_lite.computation.tensor import Tensor
from te_lite.lowering.lower import lower
from te_lite.schedule.state import State

CONTRACTED, ROUNDED = "-ffp-contract=fast", "-ffp-contract=off"
SAME_BITS = tuple([ROUNDED if flag == CONTRACTED else flag for flag in FLAGS])
"""The flags of the compiler for such programs."""


def same_bits(state: State, tensors: Sequence[Tensor], target: Target) -> Any:
    """The function of such a program.  Raises as `build_function` does."""
    if target.kind.name != "c":
        return build_function(state, tensors, target)
    options, flags = options_for(str(target)), flags_for(str(target), SAME_BITS)
    return build(lower(state, tensors, NAME), None, options, flags=flags)
