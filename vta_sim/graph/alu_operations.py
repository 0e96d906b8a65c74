"""The epilogue of a kernel: a list of element-wise operations on accumulators before they are stored, in order.

    [ADD extra 0, MAX 0, ADD 128, SHR 8, MIN 127, MAX -127]   =   clip((max(acc + bias, 0) + 128) >> 8, -127, 127)

An operation changes the accumulators in place; its other operand is an immediate of 16 bits, or one of the extra
inputs of the kernel.  Numbers are int32 and wrap around.  The store keeps the low 8 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relay_lite.ir.errors import GraphError
from relay_lite.ir.nodes import Array
from te_lite.errors import require

from ..core.kinds import AluOp
from ..sim import alu

IMM_MIN, IMM_MAX = -(1 << 15), (1 << 15) - 1
LOW, HIGH = -(1 << 31), (1 << 31) - 1
Interval = tuple[int, int]


@dataclass(frozen=True)
class AluOperation:
    """One operation; the other operand is `imm`, or number `extra` of the extra inputs."""

    op: AluOp
    imm: int | None = None
    extra: int | None = None

    @property
    def encodable(self) -> bool:
        """Whether an instruction has room for the immediate."""
        return self.imm is None or IMM_MIN <= self.imm <= IMM_MAX

    def __str__(self) -> str:
        return f"{self.op.name} {f'extra {self.extra}' if self.imm is None else self.imm}"


def apply(operations: Sequence[AluOperation], acc: Array, extras: Sequence[Array]) -> Array:
    """The accumulators after all operations: int32, wrapped around; extras are widened and broadcast."""
    wide = acc.astype("int32")
    for each in operations:
        immediate = each.op is not AluOp.SHR or each.imm is not None
        require(immediate, GraphError, "SHR", "the amount must be an immediate", got=str(each))
        other = np.int32(each.imm or 0) if each.extra is None else extras[each.extra].astype("int32")
        wide = alu.apply(each.op, wide, other)
    return wide


def simplify(operations: Sequence[AluOperation], acc: Interval, extras: Sequence[Interval]) -> list[AluOperation]:
    """Fewer operations with the same result for accumulators and extras in the given intervals.

    A relu moves behind a rounding shift, which leaves the rounding next to a bias (`merge_bias`), and then limits
    that nothing can exceed are dropped, as are lower limits that a later one hides.
    """
    out = list(operations)
    # first let relus change places with rounding shifts, then drop what has no effect on numbers in reach
    for k in range(len(out) - 2):
        seen = reach(out[:k], acc, extras)
        if _relu_then_rounding(out[k : k + 3]) and seen is not None and seen[1] + (out[k + 1].imm or 0) <= HIGH:
            out[k : k + 3] = [out[k + 1], out[k + 2], out[k]]
    kept: list[AluOperation] = []
    for k, each in enumerate(out):
        seen = reach(kept, acc, extras)
        after = () if seen is None else out[k + 1 : k + 3]
        if seen is None or not (_has_no_effect(each, seen) or _is_hidden(each, after, seen, extras)):
            kept.append(each)
    return kept


def _is_hidden(
    operation: AluOperation, after: Sequence[AluOperation], seen: Interval, extras: Sequence[Interval]
) -> bool:
    """`max(x, a) + e`, then `max(.., b)` where `a + e <= b` for every e: what `a` would lift becomes b either way."""
    if operation.op is not AluOp.MAX or operation.imm is None or [o.op for o in after] != [AluOp.ADD, AluOp.MAX]:
        return False
    add, limit = after
    low, most = extras[add.extra] if add.extra is not None else (add.imm or 0, add.imm or 0)
    return limit.imm is not None and operation.imm + most <= limit.imm and seen[0] + low >= LOW


def _relu_then_rounding(three: Sequence[AluOperation]) -> bool:
    """`max(x, 0) + r >> n` with `0 <= r < 2**n`: what is negative gives 0 before and after."""
    relu, add, shift = three
    rounding, amount = add.imm, shift.imm
    named = relu == AluOperation(AluOp.MAX, 0) and add.op is AluOp.ADD and shift.op is AluOp.SHR
    return named and rounding is not None and amount is not None and amount > 0 and 0 <= rounding < 1 << amount


def _has_no_effect(operation: AluOperation, seen: Interval) -> bool:
    if operation.imm is None:
        return False
    match operation.op:
        case AluOp.MIN:
            return seen[1] <= operation.imm
        case AluOp.MAX:
            return seen[0] >= operation.imm
        case AluOp.ADD | AluOp.SHR:
            return operation.imm == 0
        case _:
            return False


def reach(operations: Sequence[AluOperation], acc: Interval, extras: Sequence[Interval]) -> Interval | None:
    """Where the accumulators can be after the operations; None when they may have wrapped around."""
    low, high = acc
    for each in operations:
        other = (each.imm, each.imm) if each.imm is not None else extras[each.extra or 0]
        low, high = _image(each.op, (low, high), other)
        if low < LOW or high > HIGH:
            return None
    return low, high


def _image(op: AluOp, acc: Interval, other: Interval) -> Interval:
    """Where the results of one operation lie, before they wrap around."""
    (low, high), (a, b) = acc, other
    match op:
        case AluOp.MIN:
            return min(low, a), min(high, b)
        case AluOp.MAX:
            return max(low, a), max(high, b)
        case AluOp.ADD:
            return low + a, high + b
        case AluOp.SHR:
            return (low >> a, high >> a) if a >= 0 else (low << -a, high << -a)
        case AluOp.MUL:
            ends = [x * y for x in (low, high) for y in (a, b)]
            return min(ends), max(ends)


def merge_bias(
    operations: Sequence[AluOperation], extras: Sequence[Array | None]
) -> tuple[tuple[AluOperation, ...], list[Array | None]]:
    """Let a known bias take over the constant that is added right behind it.

    `extras` are the values of the extra inputs; None, or a value that is not int32, is left alone.  Returns the
    operations that are left and the new extra inputs.
    """
    values = list(extras)
    kept: list[AluOperation] = []
    for each in operations:
        before = kept[-1] if kept else None
        if before is not None and before.extra is not None and before.op is each.op is AluOp.ADD:
            bias = values[before.extra]
            alone = sum(o.extra == before.extra for o in operations) == 1
            if each.imm is not None and bias is not None and bias.dtype == np.int32 and alone:
                values[before.extra] = bias + np.int32(each.imm)
                continue
        kept.append(each)
    return tuple(kept), values
