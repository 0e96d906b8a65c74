"""Element-wise values as chains of ALU operations, each of which changes accumulators in place.

    max(min((acc + bias) // 256, 127), 0)      ->      acc:  ADD bias,  SHR 8,  MIN 127,  MAX 0

A chain begins with accumulators that are overwritten.  The other operand of an operation is a constant or other
accumulators.  A floored quotient by a power of two is a shift; registers have 32 bits, so widening costs nothing, and
narrowing to 8 bits is what a store does; anywhere else it is two shifts.
"""

from __future__ import annotations

from dataclasses import dataclass

from te_lite.errors import require
from te_lite.expr.expr import Binary, BufferLoad, Cast, Const, Expr
from te_lite.loops.stmt_text import pretty

from ..core.errors import CompileError
from ..core.kinds import AluOp
from .scopes import ACC

IMM_RANGE = (-(1 << 15), (1 << 15) - 1)
NARROW = 24  # shifting up and down by so much keeps the low 8 bits, with their sign

_OPS = {"+": AluOp.ADD, "*": AluOp.MUL, "min": AluOp.MIN, "max": AluOp.MAX}


@dataclass(frozen=True)
class AluStep:
    """One operation; the other operand is `imm`, or the accumulators `other`."""

    op: AluOp
    imm: int | None = None
    other: BufferLoad | None = None


@dataclass(frozen=True)
class Chain:
    """`steps`, one after the other, on the accumulators `root`."""

    root: BufferLoad
    steps: tuple[AluStep, ...] = ()

    def then(self, *steps: AluStep) -> Chain:
        """The chain with more operations at its end."""
        return Chain(self.root, (*self.steps, *steps))


def chains(value: Expr, stored_only: bool) -> list[Chain]:
    """The ways to compute a value; they differ in the accumulators that are overwritten.

    With `stored_only` the result goes nowhere but to stores, which narrow it anyway.
    Raises CompileError for a value that is no chain.
    """
    if stored_only and isinstance(value, Cast) and value.dtype == "int8":
        value = value.a
    return _chains(value)


def _chains(e: Expr) -> list[Chain]:
    match e:
        case BufferLoad(buffer=buffer) if buffer.scope == ACC:
            return [Chain(e)]
        case Cast(dtype="int32", a=a) if a.dtype == "int8":
            return _chains(a)
        case Cast(dtype="int8", a=a) if a.dtype == "int32":
            shifts = (AluStep(AluOp.SHR, -NARROW), AluStep(AluOp.SHR, NARROW))
            return [c.then(*shifts) for c in _chains(a)]
        case Binary(dtype="int32", op="+" | "-" | "*" | "//" | "min" | "max" as op, a=a, b=Const() as c):
            return [chain.then(_immediate(op, int(c.value), e)) for chain in _chains(a)]
        case Binary(dtype="int32", op="+" | "*" | "min" | "max" as op, a=Const() as c, b=b):
            return [chain.then(_immediate(op, int(c.value), e)) for chain in _chains(b)]
        case Binary(dtype="int32", op="+" | "*" | "min" | "max" as op, a=a, b=b):
            pairs = [(x, _register(y)) for x, y in ((a, b), (b, a))]
            found = [chain.then(AluStep(_OPS[op], other=y)) for x, y in pairs if y is not None for chain in _chains(x)]
            law = "one operand of each operation must be accumulators as they are"
            require(found, CompileError, f"value `{pretty(e)}`", law)
            return found
    raise CompileError(f"value `{pretty(e)}`: is no chain of int32 +, *, min, max, and shifts on accumulators")


def _register(e: Expr) -> BufferLoad | None:
    """The accumulators that an expression reads and nothing else."""
    while isinstance(e, Cast) and e.dtype == "int32" and e.a.dtype == "int8":
        e = e.a
    return e if isinstance(e, BufferLoad) and e.buffer.scope == ACC else None


def _immediate(op: str, c: int, e: Expr) -> AluStep:
    """The operation with a constant: `x // 2^n` shifts down, `x * 2^n` shifts up."""
    if op == "-":
        op, c = "+", -c
    if op in ("//", "*") and c > 1 and c & (c - 1) == 0:
        n = c.bit_length() - 1
        return AluStep(AluOp.SHR, n if op == "//" else -n)
    require(op in _OPS, CompileError, f"value `{pretty(e)}`", "the ALU divides by powers of two only", divisor=c)
    low, high = IMM_RANGE
    require(low <= c <= high, CompileError, f"value `{pretty(e)}`", "the constant must fit 16 bits", constant=c)
    return AluStep(_OPS[op], c)
