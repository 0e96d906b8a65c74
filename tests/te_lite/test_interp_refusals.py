"""What the interpreter refuses besides races: bad indices, unwritten elements, bad arguments, bad programs."""

from __future__ import annotations

import numpy as np
import pytest

from te_lite.errors import InterpError
from te_lite.expr.expr import Var, const
from te_lite.loops.stmt import Alloc, Barrier, ForKind, If, LoweredFunc, Store, seq
from te_lite.meaning import interp
from tests.te_lite.loops import (
    ALL_KINDS,
    blocks,
    buf,
    loop,
    refuses,
    threads,
)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_out_of_bounds(kind: ForKind, serial: str) -> None:
    x, out = buf("x", 6), buf("out", 7)
    data = np.zeros(6, np.float32)
    read = loop(7, lambda i: Store(out, i, x[i]), kind)
    law = r"buffer x: index out of bounds, got index=6 size=6, in `out\[i\] = x\[i\]` where i=6"
    refuses(law, read, [x, out], data)
    write = loop(7, lambda i: Store(out, i - 1, const(1.0)), kind)
    refuses("out: index out of bounds, got index=-1 size=7", write, [out])


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_uninitialised_reads(kind: ForKind, serial: str) -> None:
    out, tmp = buf("out", 5), buf("tmp", 5, scope="local")
    half = loop(5, lambda i: If(i < 4, Store(tmp, i, const(1.0))), kind)
    copy = loop(5, lambda i: Store(out, i, tmp[i]), kind)
    refuses("tmp: reads an uninitialised element, got index=4 size=5", Alloc(tmp, seq(half, copy)), [out])
    refuses("out: reads an uninitialised", loop(5, lambda i: Store(out, i, out[i] + 1.0), kind), [out])


def test_a_new_alloc_forgets_the_old_values(serial: str) -> None:
    out, tmp = buf("out", 2), buf("tmp", 1, scope="local")
    body = loop(2, lambda i: Alloc(tmp, seq(If(i < 1, Store(tmp, const(0), const(1.0))), Store(out, i, tmp[0]))))
    refuses("tmp: reads an uninitialised", body, [out])


def test_arguments_are_checked() -> None:
    x, out = buf("x", 3, 2), buf("out", 6)
    func = LoweredFunc("f", (x, out), loop(6, lambda i: Store(out, i, x[i])))
    good, res = np.zeros((3, 2), np.float32), np.zeros(6, np.float32)
    frozen = np.zeros(6, np.float32)
    frozen.flags.writeable = False
    for args, law in [
        ([good], "2 arrays are needed, got args=1"),
        ([good.tolist(), res], "x: a NumPy array is needed"),
        ([good.astype(np.float64), res], "x: the dtype must be float32, got dtype='float64'"),
        ([good.reshape(2, 3), res], r"x: the shape must be \(3, 2\)"),
        ([np.zeros((2, 3), np.float32).T, res], "x: must be C-contiguous"),
        ([good, frozen], "out: the program writes to a read-only array"),
    ]:
        with pytest.raises(InterpError, match=law):
            interp.run(func, args)


def test_malformed_programs() -> None:
    out = buf("out", 6)
    i = Var("i")
    refuses("i: the variable is bound by no loop", Store(out, i, const(0.0)), [out])
    refuses("tmp: the buffer is neither argument nor allocated", Store(buf("tmp", 1), const(0), const(0.0)), [out])
    refuses("out: stores must be of float32", Store(out, const(0), const(1)), [out])
    refuses("only threads of a kernel can meet", Barrier(), [out])
    nested = threads(2, lambda t: seq(Store(out, t, const(0.0)), blocks(2, lambda b: Store(out, b, const(0.0)))))
    refuses("block loop must be in the nest that starts a kernel", nested, [out])
