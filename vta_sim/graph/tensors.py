"""A kernel as tensor expressions: what a schedule for the machine begins with.

Every operation is a stage of its own, as the ALU needs it, and the last stage narrows to int8.
"""

from __future__ import annotations

from collections.abc import Callable

from te_lite import Tensor, compute, placeholder
from te_lite.expr.expr import Expr, ExprLike, binary, cast
from te_lite.topi.tag import BROADCAST, ELEMWISE

from ..core.kinds import AluOp
from ..top import conv2d_grouped_packed, conv2d_packed, window_packed
from .alu_operations import AluOperation
from .machine_kernel import MachineKernel

SIGNS = {AluOp.MIN: "min", AluOp.MAX: "max", AluOp.ADD: "+", AluOp.MUL: "*"}


def kernel_tensors(kernel: MachineKernel) -> list[Tensor]:
    """The inputs of a kernel and its output."""
    names = ["data", "kernel"] if kernel.multiplies else ["data"]
    names += [f"extra{k}" for k in range(len(kernel.extras))]
    inputs = [placeholder(t.shape, t.dtype, name) for t, name in zip(kernel.inputs, names, strict=True)]
    if kernel.workload is None:
        acc = _stage(inputs[0], lambda e: cast("int32", e), "widen")
    elif kernel.windows:
        acc = window_packed(inputs[0], *kernel.workload[2:])
    else:
        conv = conv2d_grouped_packed if kernel.grouped else conv2d_packed
        acc = conv(inputs[0], inputs[1], *kernel.workload[3:])
    extras = inputs[len(inputs) - len(kernel.extras) :]
    for k, operation in enumerate(kernel.operations):
        acc = _operation(acc, operation, extras, f"{operation.op.name.lower()}{k}")
    return [*inputs, _stage(acc, lambda e: cast("int8", e), "narrow")]


def _operation(acc: Tensor, operation: AluOperation, extras: list[Tensor], name: str) -> Tensor:
    if operation.extra is not None:
        sign, other = SIGNS[operation.op], extras[operation.extra]

        def element(*i: Expr) -> Expr:
            where = [0 if extent == 1 else x for x, extent in zip(i, other.shape, strict=True)]
            return binary(sign, acc[i], cast("int32", other[tuple(where)]))

        made: Tensor = compute(acc.shape, element, name=name, tag=BROADCAST)
        return made
    imm = operation.imm or 0
    if operation.op is AluOp.SHR:
        return _stage(acc, lambda e: _shifted(e, imm), name)
    return _stage(acc, lambda e: binary(SIGNS[operation.op], e, imm), name)


def _shifted(e: Expr, amount: int) -> Expr:
    """Shifts are floored quotients by, and products with, powers of two."""
    return binary("//", e, 1 << amount) if amount >= 0 else binary("*", e, 1 << -amount)


def _stage(x: Tensor, f: Callable[[Expr], ExprLike], name: str) -> Tensor:
    made: Tensor = compute(x.shape, lambda *i: f(x[i]), name=name, tag=ELEMWISE)
    return made
