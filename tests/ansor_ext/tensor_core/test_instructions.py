"""An instruction of one's own is printed, verified, interpreted and emitted without a change of the packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import codegen_c
import codegen_cuda
from ansor_ext.tensor_core.instructions import WarpInstruction
from ansor_ext.tensor_core.mma_text import TEXTS
from te_lite.errors import UnsafeError
from te_lite.expr.element import BufferLoad
from te_lite.expr.expr import Expr, Var, as_expr, binary
from te_lite.loops.stmt import (
    Alloc,
    Buffer,
    For,
    ForKind,
    LoweredFunc,
    Operation,
    Store,
    Touch,
    exprs_of,
    map_exprs,
    seq,
    written_by,
)
from te_lite.meaning.interp import run
from te_lite.verify.verify import verify


@dataclass(frozen=True, slots=True, eq=False)
class Rotate(WarpInstruction):
    """Every lane of a warp gets the value of the next one, the last one that of the first."""

    operands: ClassVar[tuple[str, ...]] = ("value",)
    results: ClassVar[tuple[str, ...]] = ("value",)
    value: BufferLoad

    def text(self, shown: Callable[[Expr], str]) -> str:
        return f"rotate({shown(self.value)})"

    def touches(self) -> list[Touch]:
        return [Touch(self.value, 1, "float32")]

    def operation(self) -> Operation:
        return Operation(((self.value,),), (self.value,), lambda x: np.roll(x, -1, axis=-2))


def rotation(place: int = 0, threads: int = 32) -> LoweredFunc:
    x, y, held = (
        Buffer("x", "float32", (threads,)),
        Buffer("y", "float32", (threads,)),
        Buffer("r", "float32", (1,), "local"),
    )
    lane = Var("threadIdx.x")
    body = seq(
        Store(held, as_expr(0), BufferLoad(x, lane)), Rotate(BufferLoad(held, as_expr(place))), Store(y, lane, held[0])
    )
    return LoweredFunc("rotation", (x, y), For(lane, threads, ForKind.THREAD, Alloc(held, body), "threadIdx.x"))


def test_it_is_printed_verified_and_interpreted() -> None:
    func = rotation()
    verify(func, [func.args[1]])
    assert "    rotate(r[0])\n" in str(func)
    given, out = np.arange(32, dtype="float32"), np.zeros(32, "float32")
    run(func, [given, out])
    assert out.tolist() == [*range(1, 32), 0]


@pytest.mark.parametrize(
    ("func", "law"),
    [
        (rotation(place=1), r"r\[1\] in `rotate\(r\[1\]\)` is outside of 1"),
        (rotation(threads=16), "without 32 threads"),
    ],
)
def test_the_verifier_looks_at_what_it_touches(func: LoweredFunc, law: str) -> None:
    with pytest.raises(UnsafeError, match=law):
        verify(func, [func.args[1]])


def test_passes_move_its_operands() -> None:
    held = Buffer("r", "float32", (4,), "local")
    s = Rotate(BufferLoad(held, as_expr(0)))
    moved = map_exprs(s, lambda e: BufferLoad(held, binary("+", e.index, 2)) if isinstance(e, BufferLoad) else e)
    assert isinstance(moved, Rotate) and repr(exprs_of(moved)[0]) == "r[2]" and written_by(moved) == (held,)
    assert map_exprs(s, lambda e: e) is s


def test_emitters_write_it_or_say_that_they_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(codegen_cuda.EmitError, match=r"^CUDA text: the instruction has none, got 'Rotate'$"):
        codegen_cuda.emit(rotation())
    monkeypatch.setitem(TEXTS, Rotate, lambda writer, s: f"rotate({writer.buffer(s.value.buffer)});")
    assert "rotate(r);" in codegen_cuda.emit(rotation()).source
    with pytest.raises(codegen_c.EmitError, match="schedule it for a CPU"):
        codegen_c.emit(rotation())
