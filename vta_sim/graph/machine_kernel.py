"""Groups of a fused, packed graph that the machine can run: kernels.

A kernel is a value: shapes, one convolution or window or none, and a list of element-wise operations.  Two groups with
equal kernels can share one program.  Groups of a convolution stay within a block of channels.

    inputs[0]   int8 data
    inputs[1]   int8 packed weight, when there is a convolution
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

from ..core.kinds import AluOp
from .alu_operations import AluOperation
from .packed_operators import CONV, GROUPED, WINDOW

TEMPLATE = "conv2d_packed.vta"
GROUPED_NAME, WINDOW_NAME = "conv2d_grouped_packed.vta", "window_packed.vta"
_OPS = {"add": AluOp.ADD, "multiply": AluOp.MUL, "maximum": AluOp.MAX, "minimum": AluOp.MIN}
Workload: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class MachineKernel:
    """A computation for the machine.

    `workload` is `(template, data, weight, strides, padding, dilation, layout, out_dtype)` in plain values, of groups
    `(name, data, weight, strides, padding)`, of windows `(name, data, kind, size, strides, padding)`, or None for a
    kernel whose accumulators are the data themselves, widened.
    """

    workload: Workload | None
    inputs: tuple[TensorType, ...]
    output: TensorType
    operations: tuple[AluOperation, ...]

    @property
    def grouped(self) -> bool:
        """Whether its convolution is one in groups, which has no template."""
        return self.workload is not None and self.workload[0] == GROUPED_NAME

    @property
    def windows(self) -> bool:
        """Whether it begins with windows."""
        return self.workload is not None and self.workload[0] == WINDOW_NAME

    @property
    def multiplies(self) -> bool:
        """Whether it begins with a convolution, whose weights are its second input."""
        return self.workload is not None and not self.windows

    @property
    def extras(self) -> tuple[TensorType, ...]:
        """The extra inputs of the operations."""
        return self.inputs[2:] if self.multiplies else self.inputs[1:]

    def __str__(self) -> str:
        names = {TEMPLATE: "conv2d", GROUPED_NAME: "grouped conv2d", WINDOW_NAME: "window"}
        head = "elementwise" if self.workload is None else f"{names[self.workload[0]]} {self.workload[1:]}"
        return f"{head} [{', '.join(map(str, self.operations))}]"


RunKernel: TypeAlias = Callable[[MachineKernel, Sequence[Array]], Array]
"""Runs a kernel on its inputs."""


def workload_of(conv: Call) -> Workload:
    """A packed convolution as what its task is called by, or windows: plain values."""
    data, *weights = (("TENSOR", tensor_type(a).shape, tensor_type(a).dtype) for a in conv.args)
    a = conv.attrs
    if is_op(conv, WINDOW):
        return WINDOW_NAME, data, a["kind"], a["size"], a["strides"], a["padding"]
    (weight,) = weights
    if is_op(conv, GROUPED):
        return GROUPED_NAME, data, weight, a["strides"], a["padding"]
    return TEMPLATE, data, weight, a["strides"], a["padding"], a["dilation"], a["data_layout"], a["out_dtype"]


def kernel_of(function: Function) -> tuple[MachineKernel, tuple[int, ...]] | None:
    """The kernel of a group, and for each of its inputs which parameter of the group it is.

    None when the group is no chain of operations that ends in int8.
    """
    body = function.body
    if not (is_op(body, "cast") and body.dtype == "int8" and len(body.shape) == 6):
        return None
    chain = _Chain()
    root = chain.down(body.args[0])
    workload, sources = (None, ()) if root is None else _begin(root, body.shape)
    if not sources or not all(isinstance(s, Var) for s in sources):
        return None
    inputs: list[Expr] = [*sources, *chain.extras]
    types, operations = tuple([tensor_type(e) for e in inputs]), tuple(reversed(chain.operations))
    params = {p: k for k, p in enumerate(function.params)}
    kernel = MachineKernel(workload, types, tensor_type(body), operations)
    return kernel, tuple([params[e] for e in inputs if isinstance(e, Var)])


def _begin(root: Expr, shape: tuple[int, ...]) -> tuple[Workload | None, Sequence[Expr]]:
    """What a chain begins with, a convolution or windows if any, and what is read; nothing where neither is."""
    if is_op(root, CONV, GROUPED, WINDOW):
        return workload_of(root), root.args
    found = _widened(root)
    return None, () if found is None or found.shape != shape else (found,)


class _Chain:
    """A walk from the result of a group down to the accumulators; operations are collected last first."""

    def __init__(self) -> None:
        self.operations: list[AluOperation] = []
        self.extras: list[Var] = []

    def down(self, node: Expr) -> Expr | None:
        """What the chain begins with; None when there is something that the machine cannot do."""
        while isinstance(node, Call) and node.dtype == "int32":
            below = self._binary(node) if node.op.name in ("subtract", *_OPS) else self._unary(node)
            if below is None or below is node:
                return below
            node = below
        return None

    def _unary(self, node: Call) -> Expr:
        """The operand of an operation that is noted; the node itself when it is none of them."""
        match node.op.name:
            case "nn.relu":
                self.operations.append(AluOperation(AluOp.MAX, 0))
            case "clip":
                low, high = node.attrs["a_min"], node.attrs["a_max"]
                self.operations += [AluOperation(AluOp.MAX, int(low)), AluOperation(AluOp.MIN, int(high))]
            case "right_shift":
                self.operations.append(AluOperation(AluOp.SHR, node.attrs["amount"]))
            case "left_shift":
                self.operations.append(AluOperation(AluOp.SHR, -node.attrs["amount"]))
            case _:
                return node
        return node.args[0]

    def _binary(self, node: Call) -> Expr | None:
        """One side is a constant or an input; the chain goes on at the other side."""
        left, right = node.args
        if node.op.name == "subtract":
            value = _scalar(right)
            if value is None:
                return None
            self.operations.append(AluOperation(AluOp.ADD, -value))
            return left
        for other, below in ((right, left), (left, right)):
            if self._operand(_OPS[node.op.name], other):
                return below
        return None

    def _operand(self, op: AluOp, other: Expr) -> bool:
        """Note an operation whose other operand is a constant or an input; whether it is."""
        value, extra = _scalar(other), _extra(other)
        if value is not None:
            self.operations.append(AluOperation(op, value))
        elif extra is not None:
            if extra not in self.extras:
                self.extras.append(extra)
            self.operations.append(AluOperation(op, extra=self.extras.index(extra)))
        return value is not None or extra is not None


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
