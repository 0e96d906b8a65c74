"""The reference of kernels in NumPy: the oracle of everything that runs them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relay_lite.ir.nodes import Array
from relay_lite.ir.types import TensorType
from te_lite.errors import require

from ..core.errors import MachineError
from .alu_operations import apply
from .machine_kernel import MachineKernel
from .packed_operators import conv2d_grouped_numpy, conv2d_packed_numpy, window_numpy


def run_kernel(kernel: MachineKernel, inputs: Sequence[Array]) -> Array:
    """The output of a kernel, int8: accumulators wrap around, the store keeps the low 8 bits.

    Raises MachineError for inputs of other shapes or dtypes than the kernel's.
    """
    found = [TensorType(tuple(a.shape), str(a.dtype)) for a in inputs]
    law = f"the inputs must be {', '.join(map(str, kernel.inputs))}"
    require(found == list(kernel.inputs), MachineError, "kernel", law, got=[str(t) for t in found])
    if kernel.workload is None:
        acc = inputs[0].astype("int32")
    elif kernel.windows:
        acc = window_numpy(inputs[0], *kernel.workload[2:])
    else:
        _, _, _, strides, padding, *_ = kernel.workload
        conv = conv2d_grouped_numpy if kernel.grouped else conv2d_packed_numpy
        acc = conv(inputs[0], inputs[1], strides, padding)
    out = apply(kernel.operations, acc, inputs[len(inputs) - len(kernel.extras) :])
    return np.ascontiguousarray(np.broadcast_to(out, kernel.output.shape).astype("int8"))
