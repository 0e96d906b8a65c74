"""Convolutions whose windows the copy engine counts: draws beside NumPy, what has such rings, and what has none."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import cache

import ml_dtypes
import numpy as np
import pytest

import te_lite as te
from ansor.core.target.target import Target
from ansor.sketch.generate import extra_sketches
from ansor.space.spaces import home, space_of
from ansor.space.states import concrete
from ansor_ext.axes.steps import JoinAxes
from ansor_ext.tensor_core import tensor_core
from ansor_ext.tensor_core.warp_tiles import products, table
from codegen_cuda import compile_source, emit
from codegen_cuda.emulation.emulator import run_program
from te_lite import ComputeDAG, Tensor, topi
from te_lite.schedule.stage_steps import RFactor
from te_lite.schedule.state import State
from tests.ansor_ext.tensor_core.mma_schedules import nearest_tf32
from tests.ansor_ext.tensor_core.test_ring_sketches import HARDWARE, TARGET, TF32, UNITS, rings, row_of
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER
from tests.nonempty import nonempty

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")


@dataclass(frozen=True)
class Convolution:
    """Images NHWC under filters, whose axes lie as they are named, with zeros around the images."""

    images: tuple[int, int, int, int]
    filters: tuple[int, int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    dtype: str = "float16"
    layout: str = "yxio"
    relu: bool = False

    def tensors(self) -> list[Tensor]:
        n, *_, ci = self.images
        co, kh, kw = self.filters
        sizes = {"y": kh, "x": kw, "i": ci, "o": co}
        x = te.placeholder(self.images, name="X", dtype=self.dtype)
        f = te.placeholder(tuple([sizes[axis] for axis in self.layout]), name="F", dtype=self.dtype)
        (ph, pw), (sh, sw), (dh, dw) = self.padding, self.stride, self.dilation
        padded = topi.nn.pad(x, [0, ph, pw, 0], [0, ph, pw, 0], 0.0) if ph + pw else x
        ry, rx, rc = [te.reduce_axis((0, size), name) for name, size in (("ry", kh), ("rx", kw), ("rc", ci))]
        total = "int32" if self.dtype == "int8" else "float32"

        def term(n: te.Expr, i: te.Expr, j: te.Expr, o: te.Expr) -> te.Expr:
            at = {"y": ry, "x": rx, "i": rc, "o": o}
            a, b = padded[n, i * sh + ry * dh, j * sw + rx * dw, rc], f[tuple([at[axis] for axis in self.layout])]
            return te.sum(te.cast(total, a) * te.cast(total, b), axis=[ry, rx, rc])

        sums = te.compute((n, *self.counts, co), term, name="C")
        if self.relu:
            return [x, f, te.compute(sums.shape, lambda *at: te.cast(self.dtype, te.max(sums(*at), 0.0)), name="R")]
        return [x, f, sums if self.dtype == "int8" else topi.cast(sums, self.dtype)]

    @property
    def counts(self) -> tuple[int, int]:
        sizes = zip(self.images[1:3], self.filters[1:], self.stride, self.padding, self.dilation, strict=True)
        lines, columns = [(n + 2 * p - (k - 1) * d - 1) // s + 1 for n, k, s, p, d in sizes]
        return lines, columns

    def exact(self, x: np.ndarray, f: np.ndarray) -> np.ndarray:
        """In float64, filter element by filter element; of floats as the copy engine rounds them."""
        read = nearest_tf32 if self.dtype == "float32" else np.asarray
        a, b = [read(v).astype(np.float64) for v in (x, f)]
        b = np.transpose(b, [self.layout.index(axis) for axis in "yxio"])
        (ph, pw), (sh, sw), (dh, dw), (h, w) = self.padding, self.stride, self.dilation, self.counts
        a = np.pad(a, ((0, 0), (ph, ph), (pw, pw), (0, 0)))
        out = np.zeros((x.shape[0], h, w, b.shape[3]))
        for y, z in np.ndindex(*b.shape[:2]):
            out += a[:, y * dh : y * dh + (h - 1) * sh + 1 : sh, z * dw : z * dw + (w - 1) * sw + 1 : sw] @ b[y, z]
        return np.maximum(out, 0) if self.relu else out


CASES = {
    "one image of 7 x 7": Convolution((1, 7, 7, 128), (64, 3, 3)),
    "three images of 7 x 7, with relu": Convolution((3, 7, 7, 72), (72, 3, 3), relu=True),
    "13 x 17": Convolution((2, 13, 17, 136), (64, 3, 3)),
    "lines of 8, which divide a tile": Convolution((3, 8, 8, 64), (96, 3, 3)),
    "lines of 64": Convolution((1, 3, 64, 64), (64, 3, 3)),
    "every second pixel": Convolution((2, 13, 17, 72), (64, 3, 3), (2, 2)),
    "every second pixel of even images": Convolution((2, 14, 10, 64), (64, 3, 3), (2, 2)),
    "1 x 1, every second pixel": Convolution((3, 14, 9, 136), (64, 1, 1), (2, 2), (0, 0)),
    "every third line": Convolution((2, 16, 9, 64), (64, 5, 3), (3, 1), (2, 1)),
    "no zeros around": Convolution((2, 11, 10, 64), (64, 3, 3), padding=(0, 0)),
    "three zeros around 7 x 7": Convolution((1, 10, 12, 64), (64, 7, 7), padding=(3, 3)),
    "7 x 1": Convolution((2, 12, 7, 128), (64, 7, 1), padding=(3, 0)),
    "1 x 5, zeros above": Convolution((2, 9, 9, 128), (64, 1, 5), padding=(0, 2)),
    "floats whose filters lie across their terms": Convolution((2, 9, 9, 64), (64, 3, 3), dtype="float32"),
    "dilated": Convolution((2, 12, 12, 64), (64, 3, 3), padding=(2, 2), dilation=(2, 2)),
    "filters along their terms": Convolution((2, 9, 9, 72), (80, 3, 3), layout="oyxi"),
    "bfloat16": Convolution((2, 9, 9, 72), (64, 3, 3), dtype="bfloat16"),
    "bytes": Convolution((2, 9, 9, 144), (64, 3, 3), dtype="int8", layout="yxoi"),
    "tf32": Convolution((2, 9, 9, 40), (64, 3, 3), dtype="float32", layout="oyxi"),
    "tf32, every second pixel": Convolution((1, 14, 14, 68), (72, 3, 3), (2, 2), dtype="float32", layout="oyxi"),
    "split sums": Convolution((1, 7, 7, 256), (64, 3, 3)),
}


ON_A_DEVICE = CASES | {"channels as rows, of lines": Convolution((3, 28, 28, 128), (128, 3, 3), padding=(2, 2))}
"""Also what takes a minute on the emulator: warps of a group that drifted apart were wrong where one released tiles."""


def target_of(c: Convolution) -> Target:
    return TF32 if c.dtype == "float32" else TARGET


@cache
def tensors_of(name: str) -> list[Tensor]:
    return ON_A_DEVICE[name].tensors()


@cache
def sketches_of(name: str) -> list[State]:
    found = rings(tensors_of(name), target_of(ON_A_DEVICE[name]))
    return [s for s in found if any(isinstance(step, RFactor) for step in s.steps) == ("split" in name)]


def drawn(name: str, draw: int) -> tuple[te.LoweredFunc, list[np.ndarray], np.ndarray]:
    """A program of a case, its arrays, and the exact result."""
    c, rng, found = ON_A_DEVICE[name], np.random.default_rng(draw), sketches_of(name)
    sketch, target, args = found[draw % len(found)], target_of(c), tensors_of(name)
    points = table(products(sketch)[0], HARDWARE).points
    space, point = space_of(sketch, target, HARDWARE), points[rng.integers(len(points))]
    func = te.lower(concrete(home(space), row_of(space, point), target, HARDWARE), args)
    shapes, kind = [[int(n) for n in t.shape] for t in args], np.dtype(getattr(ml_dtypes, c.dtype, c.dtype))
    values = [rng.integers(-128, 128, s) if c.dtype == "int8" else rng.standard_normal(s) for s in shapes[:2]]
    x, f = [v.astype(kind) for v in values]
    return func, [x, f, np.full(shapes[2], 77, "int32" if c.dtype == "int8" else kind)], c.exact(x, f)


def assert_right(out: np.ndarray, want: np.ndarray, more: float = 1.0) -> None:
    """Rounded once, but for what sums in float32 are off, or so many times `more`."""
    unit = UNITS[str(out.dtype)]
    assert (np.abs(out.astype(np.float64) - want) <= unit * np.abs(want) + 1e-3 * more * (unit > 0)).all()


@emulated
@pytest.mark.parametrize("draw", range(8))
@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(80)
def test_draws_are_right_and_compile(name: str, draw: int) -> None:
    func, arrays, want = drawn(name, draw)
    made = emit(func)
    assert "pixels_fetch_4d" in made.source
    run_program(made, arrays)
    assert_right(arrays[-1], want)
    if HAVE_COMPILER:
        assert not [r for r in compile_source(made.source, "sm_90").resources if r.spill_stores]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(8)
def test_every_sketch_is_emitted(name: str) -> None:
    """A ring that goes around once only, whose windows are over several axes, is none."""
    target, rng = target_of(CASES[name]), np.random.default_rng(0)
    for sketch in nonempty(rings(tensors_of(name), target)):
        points, space = table(products(sketch)[0], HARDWARE).points, space_of(sketch, target, HARDWARE)
        row = row_of(space, points[rng.integers(len(points))])
        emit(te.lower(concrete(home(space), row, target, HARDWARE), tensors_of(name)))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(3)
def test_rings_are_of_all_pixels(name: str) -> None:
    assert sketches_of(name)
    for s in nonempty(sketches_of(name)):
        assert any(isinstance(step, JoinAxes) for step in s.steps)
        assert products(s)[0].shared[0].tiles in (4, 8)


NONE = {
    "few channels": Convolution((2, 14, 14, 32), (64, 3, 3)),
    "rows that begin at odd places": Convolution((2, 14, 14, 68), (64, 3, 3)),
    "few filters": Convolution((2, 14, 14, 128), (32, 3, 3)),
    "windows that begin behind their images": Convolution((2, 9, 9, 128), (64, 3, 3), padding=(3, 3)),
    "long steps": Convolution((2, 40, 40, 128), (64, 3, 3), (9, 9)),
    "a ring that goes around once": Convolution((2, 9, 9, 64), (64, 2, 2)),
}


@pytest.mark.parametrize("name", NONE)
def test_what_has_no_ring(name: str) -> None:
    """But other sketches."""
    c = NONE[name]
    assert not rings(c.tensors(), target_of(c))
    assert extra_sketches(ComputeDAG(c.tensors()), target_of(c), HARDWARE)


@emulated
def test_parts_of_sums_in_blocks_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block without work has a place in an image, of the channels behind the last ones."""
    monkeypatch.setattr(tensor_core, "RING_BLOCKS", 4)
    case, rng = Convolution((1, 20, 20, 256), (64, 3, 3)), np.random.default_rng(3)
    args = case.tensors()
    sketch = next(s for s in rings(args) if any(isinstance(step, RFactor) for step in s.steps))
    space, point = space_of(sketch, TARGET, HARDWARE), table(products(sketch)[0], HARDWARE).points[0]
    made = emit(te.lower(concrete(home(space), row_of(space, point), TARGET, HARDWARE), args))
    assert made.kernels[0].grid == (4, 1, 1)
    x, f = [rng.standard_normal([int(n) for n in t.shape]).astype("float16") for t in args[:2]]
    out = np.full((1, 20, 20, 64), 77, "float16")
    run_program(made, [x, f, out])
    assert_right(out, case.exact(x, f))


def test_large_images_are_proven() -> None:
    """8 of 64 x 64 pixels with 320 channels, as Stable Diffusion has them, whose blocks compute several parts."""
    args = Convolution((8, 64, 64, 320), (320, 3, 3)).tensors()
    sketch = rings(args)[0]
    space, points = space_of(sketch, TARGET, HARDWARE), table(products(sketch)[0], HARDWARE).points
    made = emit(te.lower(concrete(home(space), row_of(space, points[0]), TARGET, HARDWARE), args))
    assert "ring_open" in made.source and made.kernels[0].grid == (132, 1, 1)
