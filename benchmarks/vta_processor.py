"""A cost model of the processor beside the machine: cycles of the operations and bytes of a part of a network.

A processor of a board as small as VTA's does an operation after the other and waits for its memory, so both add up.
The constants are round numbers, held to what a published ResNet-18 on a Pynq-Z1 takes beside the convolutions of the
accelerator (docs/vta.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from relay_lite.ir.nodes import Call, Expr, Function, FunctionCall, Tuple, tensor_type
from relay_lite.ir.op_registry import OpPattern
from relay_lite.ir.types import TensorType
from relay_lite.ir.visit import is_op, post_order
from relay_lite.transform import FuseOps
from vta_sim.graph.packed_operators import GROUPED
from vta_sim.graph.split import CpuStep, NetworkPlan

MOVES = ("cast", "annotation.stop_fusion")
"""Done on the way, as movements of data are."""


@dataclass(frozen=True)
class Processor:
    """`operations` a cycle, and `bytes` of memory a cycle, at `mhz`.  `calibration` says what they were fitted to."""

    calibration: str
    mhz: float = 650.0
    operations: float = 1.0
    bytes: float = 0.5

    def cycles(self, operations: float, nbytes: float) -> float:
        """Cycles of so much work."""
        return operations / self.operations + nbytes / self.bytes

    def ms(self, cycles: float) -> float:
        """Cycles as milliseconds."""
        return cycles / (self.mhz * 1e3)

    def function_cycles(self, function: Function) -> float:
        """Cycles of a part of a network; groups of operators that fuse touch memory at their ends only."""
        calls = [n for n in post_order(FuseOps(1)(function).body) if isinstance(n, FunctionCall)]
        return math.fsum(self._group(c) for c in calls if not c.function.attrs.get("reshape_only"))

    def _group(self, group: FunctionCall) -> float:
        body = group.function.body
        results = body.fields if isinstance(body, Tuple) else (body,)
        ends = [tensor_type(e) for e in (*group.args, *results)]
        work = sum(_operations(n) for n in post_order(body))
        return self.cycles(work, sum(map(_nbytes, ends)))


ARM = Processor("what ResNet-18 takes on a Pynq-Z1 beside its convolutions")


def processor_ms(plan: NetworkPlan, processor: Processor = ARM) -> float:
    """What a network leaves to the processor, by its model."""
    own = [step.function for step in plan.steps if isinstance(step, CpuStep)]
    return math.fsum(processor.ms(processor.function_cycles(function)) for function in own)


def _nbytes(t: TensorType) -> int:
    return math.prod(t.shape) * np.dtype(t.dtype).itemsize


def _operations(node: Expr) -> int:
    """Operations of one operator: two for a product that is summed up, one for each number that is compared or made."""
    if not isinstance(node, Call) or is_op(node, *MOVES):
        return 0
    outputs = math.prod(tensor_type(node).shape)
    match node.op.pattern:
        case OpPattern.OUT_ELEMWISE_FUSABLE if is_op(node, "nn.max_pool2d", "nn.avg_pool2d"):
            return int(outputs * math.prod(node.attrs["pool_size"]))
        case OpPattern.OUT_ELEMWISE_FUSABLE if is_op(node, "nn.global_avg_pool2d"):
            return math.prod(tensor_type(node.args[0]).shape)
        case OpPattern.OUT_ELEMWISE_FUSABLE if len(node.args) == 2:
            weight = tensor_type(node.args[1]).shape
            last = weight[3:4] if is_op(node, GROUPED) else (weight[0], *weight[4:5])
            return 2 * outputs * math.prod(weight) // math.prod(last)
        case OpPattern.COMM_REDUCE:
            return math.prod(tensor_type(node.args[0]).shape)
        case OpPattern.ELEMWISE | OpPattern.BROADCAST:
            return outputs
        case _:
            return 0
