"""Groups of a fused, packed graph that the machine can run: kernels.

A kernel is a value: shapes, one convolution or none, and a list of element-wise operations.  Two groups with equal
kernels can share one program.

    inputs[0]   int8 data
    inputs[1]   int8 packed weight, when there is a convolution (`workload`)
    the rest    extra inputs of the operations: int32 or int8, of the shape of the output or broadcast to it
    output      int8
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from relay_lite.ir.nodes import Array, Call, Constant, Expr, Function, Var, tensor_type
from relay_lite.ir.types import TensorType
from relay_lite.ir.visit import is_op

from ..kinds import AluOp
from .alu import Operation
from .packed_conv import NAME as CONV

TEMPLATE = "conv2d_packed.vta"
_OPS = {"add": AluOp.ADD, "multiply": AluOp.MUL, "maximum": AluOp.MAX, "minimum": AluOp.MIN}
Workload: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class Kernel:
    """A computation for the machine.

    `workload` is `(template, data, weight, strides, padding, dilation, layout, out_dtype)` in plain values, or None
    for a kernel whose accumulators are the data themselves, widened.
    """

    workload: Workload | None
    inputs: tuple[TensorType, ...]
    output: TensorType
    operations: tuple[Operation, ...]

    @property
    def extras(self) -> tuple[TensorType, ...]:
        """The extra inputs of the operations."""
        return self.inputs[1:] if self.workload is None else self.inputs[2:]

    def __str__(self) -> str:
        head = "elementwise" if self.workload is None else f"conv2d {self.workload[1:]}"
        return f"{head} [{', '.join(map(str, self.operations))}]"


RunKernel: TypeAlias = Callable[[Kernel, Sequence[Array]], Array]
"""Runs a kernel on its inputs."""


def workload_of(conv: Call) -> Workload:
    """A packed convolution as what its task is called by: plain values."""
    data, weight = (("TENSOR", tensor_type(a).shape, tensor_type(a).dtype) for a in conv.args)
    a = conv.attrs
    return TEMPLATE, data, weight, a["strides"], a["padding"], a["dilation"], a["data_layout"], a["out_dtype"]


def kernel_of(function: Function) -> tuple[Kernel, tuple[int, ...]] | None:
    """The kernel of a group, and for each of its inputs which parameter of the group it is.

    None when the group is no chain of operations that ends in int8.
    """
    body = function.body
    if not (is_op(body, "cast") and body.dtype == "int8" and len(body.shape) == 6):
        return None
    chain = _Chain()
    root = chain.down(body.args[0])
    if root is None:
        return None
    if is_op(root, CONV):
        workload, sources = workload_of(root), list(root.args)
    else:
        found = _widened(root)
        workload, sources = None, [] if found is None or found.shape != body.shape else [found]
    if not sources or not all(isinstance(s, Var) for s in sources):
        return None
    inputs: list[Expr] = [*sources, *chain.extras]
    kernel = Kernel(
        workload, tuple([tensor_type(e) for e in inputs]), tensor_type(body), tuple(reversed(chain.operations))
    )
    params = {p: k for k, p in enumerate(function.params)}
    return kernel, tuple([params[e] for e in inputs if isinstance(e, Var)])


class _Chain:
    """A walk from the result of a group down to the accumulators; operations are collected last first."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.extras: list[Var] = []

    def down(self, node: Expr) -> Expr | None:
        """What the chain begins with; None when there is something that the machine cannot do."""
        while isinstance(node, Call) and node.dtype == "int32":
            match node.op.name:
                case "nn.relu":
                    self.operations.append(Operation(AluOp.MAX, 0))
                case "clip":
                    self._clip(node)
                case "right_shift":
                    self.operations.append(Operation(AluOp.SHR, node.attrs["amount"]))
                case "left_shift":
                    self.operations.append(Operation(AluOp.SHR, -node.attrs["amount"]))
                case "add" | "subtract" | "multiply" | "maximum" | "minimum":
                    below = self._binary(node)
                    if below is None:
                        return None
                    node = below
                    continue
                case _:
                    return node
            node = node.args[0]
        return None

    def _clip(self, node: Call) -> None:
        low, high = node.attrs["a_min"], node.attrs["a_max"]
        self.operations += [Operation(AluOp.MAX, int(low)), Operation(AluOp.MIN, int(high))]

    def _binary(self, node: Call) -> Expr | None:
        """One side is a constant or an input; the chain goes on at the other side."""
        left, right = node.args
        if node.op.name == "subtract":
            value = _scalar(right)
            if value is None:
                return None
            self.operations.append(Operation(AluOp.ADD, -value))
            return left
        for other, below in ((right, left), (left, right)):
            value, extra = _scalar(other), _extra(other)
            if value is not None:
                self.operations.append(Operation(_OPS[node.op.name], value))
                return below
            if extra is not None:
                if extra not in self.extras:
                    self.extras.append(extra)
                self.operations.append(Operation(_OPS[node.op.name], extra=self.extras.index(extra)))
                return below
        return None


def _scalar(node: Expr) -> int | None:
    return int(node.value) if isinstance(node, Constant) and node.value.ndim == 0 else None


def _widened(node: Expr) -> Var | None:
    """The int8 input that a cast to int32 reads."""
    if is_op(node, "cast") and node.dtype == "int32" and isinstance(node.args[0], Var) and node.args[0].dtype == "int8":
        return node.args[0]
    return None


def _extra(node: Expr) -> Var | None:
    """An input as other operand: int32, or int8 widened."""
    return node if isinstance(node, Var) and node.dtype == "int32" else _widened(node)
