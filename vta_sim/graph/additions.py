"""A convolution and the addition that follows it, a residual unit's, as one kernel.

    conv [.., SHR 10, MIN 127, MAX -127]     elementwise [ADD extra 0, MAX 0, MIN 127]
    conv [.., SHR 10, MIN 127, MAX -127, ADD extra 1, MAX 0, MIN 127]

Sums stay in accumulators, so one of the two images is neither stored nor loaded, and there is one program less.
"""

from __future__ import annotations

from dataclasses import replace

from ..core.kinds import AluOp
from .alu_operations import AluOperation, Interval
from .machine_kernel import MachineKernel

NARROW = (-128, 127)


def with_addition(first: MachineKernel, then: MachineKernel, reach: Interval | None) -> MachineKernel | None:
    """Both as one kernel whose last input is the image that `then` adds to the result of `first`, within `reach`.

    None where `then` does not begin with an addition of two images, `first` is no convolution, or narrowing its result
    may change it.
    """
    adds = then.operations[:1] == (AluOperation(AluOp.ADD, extra=0),)
    image = len(then.inputs) == 2 and then.workload is None and then.inputs[0] == then.inputs[1] == first.output
    again = any(o.extra is not None for o in then.operations[1:])
    fits = reach is not None and NARROW[0] <= reach[0] and reach[1] <= NARROW[1]
    if not (adds and image and fits) or again or not first.multiplies:
        return None
    added = AluOperation(AluOp.ADD, extra=len(first.extras))
    operations = (*first.operations, added, *then.operations[1:])
    return replace(first, inputs=(*first.inputs, then.inputs[1]), output=then.output, operations=operations)
